# shellcheck shell=bash
# For the checks of the bindings, which source it after tools/setup.sh, with the top folder as working folder.

LIBATO_PREFIX=$PWD/build/bindings/libato

# Whether something is to be tried that takes long: by tools/bindings --changed only if files that begin so have changed.
is_due()
{
    [ -z "${ATO_CHANGED:-}" ] || grep -E "^($1)" <<<"$ATO_CHANGED" >/dev/null
}

# Has libato and SQLite's extension as the tests of this tree have built them.
take_built()
{
    build "$RELEASE" lib/libato.so.0.1.0 lib/sqlite/libato_sqlite.so
    export PKG_CONFIG_PATH=$PWD/$RELEASE/meson-uninstalled LD_LIBRARY_PATH=$PWD/$RELEASE/lib
    export ATO_SQLITE_EXTENSION=$PWD/$RELEASE/lib/sqlite/libato_sqlite.so
}

# Builds libato and SQLite's extension as they are installed, and installs them below build/: for pkg-config, the linker and programs.
need_libato()
{
    local lib=$LIBATO_PREFIX/lib/x86_64-linux-gnu

    need_packages gcc libc6-dev meson ninja-build pkg-config libsqlite3-dev
    mkdir -p build/bindings
    if [ -n "${ATO_CHANGED:-}" ] && [ -f "$RELEASE/meson-uninstalled/libato-uninstalled.pc" ]; then
        take_built
        return
    fi
    configure build/bindings/build --buildtype=release -Dtools=false -Dsqlite=enabled --prefix="$LIBATO_PREFIX" \
        --libdir=lib/x86_64-linux-gnu
    say "building and installing libato in build/bindings"
    quietly build/bindings/libato.log meson install -C build/bindings/build --only-changed
    export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib
    export ATO_SQLITE_EXTENSION=$lib/libato_sqlite.so
}
