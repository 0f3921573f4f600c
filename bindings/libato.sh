# shellcheck shell=bash
# For the checks of the bindings, which source it after tools/setup.sh, with the top folder as working folder.

LIBATO_PREFIX=$PWD/build/bindings/libato

# Builds libato and SQLite's extension as they are installed, and installs them below build/: for pkg-config, the linker and programs.
need_libato()
{
    local lib=$LIBATO_PREFIX/lib/x86_64-linux-gnu

    need_packages gcc libc6-dev meson ninja-build pkg-config libsqlite3-dev
    mkdir -p build/bindings
    configure build/bindings/build --buildtype=release -Dtools=false -Dsqlite=enabled --prefix="$LIBATO_PREFIX" \
        --libdir=lib/x86_64-linux-gnu
    say "building and installing libato in build/bindings"
    quietly build/bindings/libato.log meson install -C build/bindings/build --only-changed
    export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib
    export ATO_SQLITE_EXTENSION=$lib/libato_sqlite.so
}
