# shellcheck shell=bash
# memcached: its file is a checkpoint of its memory, which a transaction of libato replaces. See tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
APP_SOURCE=memcached APP_PACKAGES=(libevent-dev perl python3)
# Its own tests that app_test runs: those that need no network, TLS or other options of the build.
MEMCACHED_TESTS=(restart 00-startup 64bit cas chunked-items dyn-maxbytes evictions expirations flags flush-all getandtouch getset
    idle-timeout incrdecr item_size_max line-lengths lru lru-crawler lru-maintainer metaget misbehave noreply
    slabs-reassign-chunked slabs-reassign2 slabs_reassign stats stats-detail touch unixsocket)

app_build()
(
    local kind=$2 flags='' libraries=''

    cd "$1" || exit
    if [ "$kind" = ato ]; then
        flags=$(pkg-config --cflags libato)
        libraries=$(pkg-config --libs libato)
    fi
    quietly configure.log ./configure --disable-dependency-tracking CPPFLAGS="$flags" LIBS="$libraries"
    quietly clean.log make clean
    quietly make.log make memcached memcached-debug timedrun
    quietly speed.log gcc -std=gnu11 -O2 -Wall -Wextra "$APPS/memcached/speed.c" -o app-speed
)

# The scripts look for their program, and the files beside it, in the working folder.
app_test()
{
    local folder=$1 work=$PWD test passed=0 failed=0

    for test in "${MEMCACHED_TESTS[@]}"; do
        if (cd "$folder" && ATO_REFLECTION_DIR=$work timeout 300 prove "t/$test.t") >log 2>&1; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            say "$test:"
            tail -n 15 log
        fi
    done
    printf '%d passed, %d failed, 0 skipped\n' "$passed" "$failed"
}

# The debug build checks its own assertions.
app_kill()
{
    "$APPS/memcached/kill.py" "$1/memcached-debug" "$2" || true # its last line says how many failed
}

app_compare()
{
    local speed='rm -rf speed && mkdir speed && cd speed && PROGRAM/app-speed PROGRAM/memcached 64 2'

    "$APPS/compare.py" 5 "stock=${speed//PROGRAM/$1}" "libato=${speed//PROGRAM/$2}"
}
