# shellcheck shell=bash
# SQLite: its own unix VFS keeps databases in files that libato maps; a transaction is a batch, and that is one of libato's. See
# tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
APP_SOURCE=sqlite3 APP_PACKAGES=(tcl8.6-dev zlib1g-dev)

# SQLite's scripts that app_test runs: those that do not read or write the file of an open database by other means than SQLite.
SQLITE_SCRIPTS=(select[1-8A-H] insert insert[2-5] update update2 delete delete[2-4] trans trans[23] index index[2-6] alter alter3 alter4
    vacuum vacuum2 vacuum3 vacuum5 autovacuum savepoint savepoint[257] lock lock[2-7] attach attach2 attach3 conflict conflict2
    conflict3 trigger[1-9] where where[2-9] join join[2-5] fkey[1-5] in in[2-5] blob collate[1-9] distinct expr func intpkey minmax null
    pragma2 quote rowid schema subquery table tableapi temptable temptrigger types types[23] unique view with1 without_rowid[1-5]
    wal wal[3-9] walmode shared shared2 shared3 backup2 exclusive exclusive2 incrblob incrblob2 incrvacuum journal1 journal2 jrnlmode
    jrnlmode2 jrnlmode3 memdb mmap1 mmap3 mmap4 multiplex nolock notify1 openv2 pager2 pageropt readonly rollback rollback2 stmt
    tempdb thread001 thread003 uri dbstatus btree01 bigrow check count date atomic)

# Tests in them that have to fail, as regular expressions: they look at the size of an open database's file, or read or write
# or copy its bytes, by other means than SQLite. mmap1-1 and mmap3 look at what PRAGMA mmap_size does; backup2-10
# opens a folder, which is refused earlier.
SQLITE_DIFFERS='alter3-(4\.3|5\.5|7\.[12])
autovacuum-(1\.[1-6]\.3|2\.1\.2|2\.2\.[2468]|2\.3\.[13]|2\.4\.[127]|7\.3|9\.[235])
backup2-10
exclusive2-(1\.2|2\.[28]|3\.[026])
incrvacuum-(3\.4|4\.3|5\.1\.[12]|5\.2\.[135]|6\.[0-9]\.2|7\.[0-9]+\.2|10\.[2-8])
mmap1-(1\.[25]\.[12]\.5|6\.7)
mmap3-1\.[456]
pager2-2\.2
vacuum-1\.[36]
vacuum2-(2\.[12]|3\.13)
vacuum3-(1\.([5-8]|10)\.2|2\.1|2\.([4-8]|10)\.2)
vacuum5-1\.(2\.2|3\.[34])
wal-(8\.3|18\.1\.[0-6]|18\.2\.(1|2|11)\.[123]\.5|23\.[34]|24\.4)
wal3-(2\.(multi|single)proc\.[56]|9\.4)
wal5-(capi|pragma)-2\.3\.[12]\.8'

# The amalgamation, testfixture, and our programs with them. These export SQLite, for a VFS that they load.
app_build()
(
    local kind=$2 options='' libraries='' tcl program

    if [ "$kind" = ato ]; then
        options="-DSQLITE_ENABLE_BATCH_ATOMIC_WRITE $(pkg-config --cflags libato)"
        libraries=$(pkg-config --libs libato)
    fi
    tcl=$(dpkg -L tcl8.6-dev | grep '/tclConfig\.sh$' | head -n 1)
    cd "$1" || exit
    quietly configure.log ./configure --disable-shared --disable-readline "--with-tcl=${tcl%/*}" # it notes this folder
    # One compiler run over all sources: at -O1 it takes a third of the time.
    quietly make.log make CFLAGS='-O1 -DSQLITE_OS_UNIX=1' OPTS="$options" LIBS="$libraries" sqlite3.c testfixture
    [ "$kind" = stock ] || grep '<ato_engine.h>' sqlite3.c >/dev/null || die "sqlite3.c is not patched"
    # shellcheck disable=SC2086 # words
    quietly sqlite3.log gcc -O2 $options -c -o app-sqlite3.o sqlite3.c
    for program in kill speed; do
        # shellcheck disable=SC2086 # words
        quietly "$program.log" gcc -O2 -Wall -Wextra -I. -rdynamic -o "app-$program" "$APPS/sqlite/$program.c" app-sqlite3.o \
            $libraries -lm -lpthread -ldl
    done
)

# sqlite_script FOLDER SCRIPT WORK: one script in a folder of its own; leaves what it printed in WORK/SCRIPT.out.
sqlite_script()
{
    local work=$3/$2
    mkdir -p "$work"
    (cd "$work" && timeout 60 "$1/testfixture" "$1/test/$2.test" >"$work.out" 2>&1 </dev/null) || true
    rm -rf "$work"
}

# sqlite_failures OUT: the names of the tests that failed, one a line.
sqlite_failures()
{
    sed -n 's/^!Failures on these tests: //p' "$1" | tr ' ' '\n' | sed '/^$/d' | sort -u
}

# sqlite_count OUT: how many tests the script made. Nothing if it did not come to its end.
sqlite_count()
{
    sed -n 's/^[0-9]* errors out of \([0-9]*\) tests.*/\1/p' "$1" | tail -n 1
}

# SQLite's own scripts: only what fails with the patch and not without it counts.
app_test()
{
    local folder=$1 stock=${1%/*}/stock work=$PWD name script passed=0 failed=0 skipped=0 new before after
    local scripts=()
    for name in "${SQLITE_SCRIPTS[@]}"; do
        for script in "$folder"/test/$name.test; do
            [ ! -f "$script" ] || scripts+=("$(basename "$script" .test)")
        done
    done
    local -x LC_ALL=C
    export -f sqlite_script
    # shellcheck disable=SC2016 # for the inner shell
    printf '%s\n' "${scripts[@]}" | xargs -P "$(nproc)" -I{} bash -c \
        'sqlite_script "$1" "$4" "$3/stock"; sqlite_script "$2" "$4" "$3/ato"' _ "$stock" "$folder" "$work" {}
    for script in "${scripts[@]}"; do
        before=$(sqlite_count "$work/stock/$script.out")
        after=$(sqlite_count "$work/ato/$script.out")
        if [ -z "$before" ]; then
            skipped=$((skipped + 1))
            printf '%s: skipped, does not come to its end with stock SQLite\n' "$script"
            continue
        fi
        new=$(comm -13 <(sqlite_failures "$work/stock/$script.out") <(sqlite_failures "$work/ato/$script.out") |
            { grep -vxE "$SQLITE_DIFFERS" || true; } | tr '\n' ' ')
        if [ -z "$after" ]; then
            new='does not come to its end'
        elif [ $((after * 2)) -lt "$before" ] && grep -q atomic_batch_write "$folder/test/$script.test" && [ -z "$new" ]; then
            skipped=$((skipped + 1))
            printf '%s: skipped, leaves itself out where no journal is needed\n' "$script"
            continue
        elif [ $((after * 2)) -lt "$before" ]; then
            new+="makes $after tests instead of $before"
        fi
        if [ -n "$new" ]; then
            failed=$((failed + 1))
            printf '%s: %s\n' "$script" "$new"
        else
            passed=$((passed + 1))
        fi
    done
    printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
}

app_kill()
{
    "$1/app-kill" "$PWD" "$2" || true # its last line says how many failed
}

# speed PROGRAM LIBRARY PARAMETERS PRAGMA...: the command that measures one of them, in a new database.
speed()
{
    local program=$1/app-speed library=$2 parameters=$3
    shift 3
    printf 'for work in one ten; do rm -rf speed; mkdir speed; printf "%%s\\t" "$work"; '
    # shellcheck disable=SC2016 # for the shell that runs it
    printf '%q "file:$PWD/speed/db%s" "$work" 0.5 %q' "$program" "$parameters" "$library"
    [ $# -eq 0 ] || printf ' %q' "$@"
    printf '; done'
}

app_compare()
{
    local full='PRAGMA synchronous = FULL' alone='PRAGMA locking_mode = EXCLUSIVE' wal='PRAGMA journal_mode = WAL'

    "$APPS/compare.py" 5 "stock=$(speed "$1" '' '' "$full")" "stock, WAL=$(speed "$1" '' '' "$wal" "$full")" \
        "libato=$(speed "$2" '' '')" "WAL, exclusive=$(speed "$1" '' '' "$alone" "$wal" "$full")" \
        "libato, exclusive=$(speed "$2" '' '' "$alone")" "VFS=$(speed "$1" "$PREFIX/lib/libato_sqlite.so" '?vfs=ato')"
}
