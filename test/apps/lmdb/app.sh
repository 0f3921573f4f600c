# shellcheck shell=bash
# LMDB: its page writes and its meta page are a transaction of libato. See tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
APP_SOURCE=lmdb APP_PACKAGES=()
LMDB_TESTS=(mtest mtest2 mtest3 mtest4 mtest5 mtest6)

app_build()
(
    local kind=$2 flags=() libraries=() program

    cd "$1/libraries/liblmdb" || exit
    if [ "$kind" = ato ]; then
        read -ra flags <<<"$(pkg-config --cflags libato)"
        read -ra libraries <<<"$(pkg-config --libs libato)"
    fi
    quietly clean.log make clean
    quietly make.log make all CPPFLAGS="${flags[*]}" LDLIBS="${libraries[*]}" SOLIBS="${libraries[*]}"
    # mtest6 prints its keys by a function that only a debug build has.
    quietly mtest6.log gcc -O2 -pthread '-Dmdb_dkey(key, buffer)=buffer' mtest6.c liblmdb.a "${libraries[@]}" -o mtest6
    for program in kill speed; do
        quietly "$program.log" gcc -std=gnu11 -O2 -Wall -Wextra -I. "$APPS/lmdb/$program.c" liblmdb.a -pthread \
            "${libraries[@]}" -o "$program"
    done
)

app_test()
{
    local folder=$1/libraries/liblmdb test passed=0 failed=0

    for test in "${LMDB_TESTS[@]}"; do
        rm -rf testdb
        mkdir testdb
        if timeout 300 "$folder/$test" >log 2>&1 && "$folder/mdb_stat" -a testdb >>log 2>&1 &&
            "$folder/mdb_dump" -a testdb >>log 2>&1; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            say "$test:"
            tail -n 5 log
        fi
    done
    printf '%d passed, %d failed, 0 skipped\n' "$passed" "$failed"
}

app_kill()
{
    mkdir database
    "$1/libraries/liblmdb/kill" database "$2" || true # its last line says how many failed
}

app_compare()
{
    local speed="rm -rf speed && mkdir speed && for puts in 1 10; do printf '%s a commit\t' \$puts && PROGRAM speed \$puts 1; done"

    "$APPS/compare.py" 5 "stock=${speed/PROGRAM/$1\/libraries\/liblmdb\/speed}" \
        "libato=${speed/PROGRAM/$2\/libraries\/liblmdb\/speed}"
}
