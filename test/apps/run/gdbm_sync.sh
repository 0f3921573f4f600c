# shellcheck shell=bash
# gdbm's test suite, with the library and the tool as they are installed. See tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
OWN_SOURCE=gdbm OWN_PACKAGES=(gdbmtool libgdbm-compat-dev make)

own_build()
{
    local name
    ./configure --enable-libgdbm-compat --disable-nls
    make -C tools libgdbmapp.a
    for name in tests/*.c; do
        gcc -O2 -w -DHAVE_CONFIG_H -I. -Isrc -Itools -Icompat "$name" tools/libgdbmapp.a -lgdbm_compat -lgdbm -o "${name%.c}"
    done
}

own_tests()
{
    cp "$1"/tests/{atconfig,atlocal} .
    "$1/tests/testsuite" "AUTOTEST_PATH=$1/tests" 2>&1 | tee -a "$OWN_LOG" |
        sed -n 's/^ *\([0-9]*: .*[^ ]\)  *\(ok\|skipped\|FAILED\|expected\).*/\1: \2/p'
}
