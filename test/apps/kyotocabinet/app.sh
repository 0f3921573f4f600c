# shellcheck shell=bash
# Kyoto Cabinet: file mapping, reads, writes, growth and transactions go to libato. See tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
APP_SOURCE=kyotocabinet APP_PACKAGES=(zlib1g-dev)
KC_PROGRAMS=(kchashtest kchashmgr kctreetest kctreemgr kcdirtest kcdirmgr)

app_build()
(
    local folder=$1 kind=$2 flags='' libraries='' test

    [ "$kind" = stock ] || { flags=$(pkg-config --cflags libato) libraries=$(pkg-config --libs libato); }
    cd "$folder" || exit
    [ -f Makefile ] || quietly configure.log ./configure
    quietly make.log make -j "$(nproc)" CXXFLAGS="$(sed -n 's/^CXXFLAGS = //p' Makefile) $flags" \
        LIBS="$libraries $(sed -n 's/^LIBS = //p' Makefile)" libkyotocabinet.so "${KC_PROGRAMS[@]}"
    for test in kill speed; do
        quietly "$test.log" g++ -O2 -Wall -Wextra -std=c++17 -isystem . "$APPS/kyotocabinet/$test.cc" -o "$test" \
            -L. -lkyotocabinet -lz "-Wl,-rpath,$folder"
    done
    # shellcheck disable=SC2086 # several words
    [ "$kind" = stock ] || quietly bound.log gcc -O2 -Wall -Wextra -shared -fPIC $flags "$APPS/kyotocabinet/bound.c" \
        -o bound.so -lpmem
)

# Its own tests, as `make check` runs them.
app_test()
{
    local folder=$1 passed=0 failed=0 target

    cp -a "$folder"/{Makefile,lab,libkyotocabinet.so*} "${KC_PROGRAMS[@]/#/$folder/}" .
    for target in check-hash check-tree check-dir; do
        say "make $target"
        if env LD_LIBRARY_PATH="$PWD:$LD_LIBRARY_PATH" make RUNENV= "$target" >"$target.log" 2>&1; then
            passed=$((passed + $(grep -c '^ok$' "$target.log")))
        else
            tail -n 20 "$target.log"
            failed=$((failed + 1))
        fi
    done
    printf '%d passed, %d failed, 0 skipped\n' "$passed" "$failed"
}

app_kill()
{
    "$1/kill" . "$2"
}

# $3: commits of each measurement. In memory also the bound: see bound.c.
app_compare()
{
    local bound=()

    [ -z "${PMEM_IS_PMEM_FORCE:-}" ] || bound=("bound=LD_PRELOAD=$2/bound.so $2/speed . $3")
    "$APPS/compare.py" 5 "stock=$1/speed . $3" "libato=$2/speed . $3" "${bound[@]}"
}
