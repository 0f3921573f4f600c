# shellcheck shell=bash
# rrdtool's tests, with rrdtool and rrdcached as they are installed: directly, and through rrdcached. See tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
OWN_SOURCE=rrdtool OWN_FILES=tests OWN_PACKAGES=(rrdcached perl dc)

own_build()
{
    mkdir src
    ln -s /usr/bin/rrdtool /usr/bin/rrdcached src
}

own_tests()
{
    local name style
    cp -a "$1"/tests/. .
    for name in $(sed -n '/^TESTS/,/[^\\]$/p' Makefile.am | tr -d '\\=' | sed 's/^TESTS//'); do
        for style in none rrdcached; do
            [ "$name $style" != 'list1 rrdcached' ] || continue # list1 starts one itself
            each "$name $style" env LC_ALL=C "BASEDIR=$PWD" "TOP_BUILDDIR=$1" "TESTS_STYLE=$style" bash "./$name"
        done
    done
}
