# shellcheck shell=bash
# LMDB's own tests, and those of its Python module, all with MDB_WRITEMAP. See tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
OWN_SOURCE=lmdb OWN_FILES=libraries/liblmdb OWN_PACKAGES=(liblmdb-dev python3-pytest python3-pip python3-setuptools)
MTESTS=(mtest mtest2 mtest3 mtest4 mtest5)

own_build()
{
    local name
    for name in "${MTESTS[@]}"; do
        sed 's/MDB_FIXEDMAP/MDB_FIXEDMAP | MDB_WRITEMAP/' "libraries/liblmdb/$name.c" >"$name.c"
        gcc -O2 -w -pthread "$name.c" -llmdb -o "$name"
    done
    # The tests of the module are in no package.
    /usr/bin/python3 -m pip download --no-deps --no-build-isolation --no-binary :all: \
        "lmdb==$(/usr/bin/python3 -c 'import lmdb; print(lmdb.__version__)')"
    tar xf lmdb-*.tar.gz
    mv lmdb-*/tests module
    cat >module/writemap.py <<'END'
import lmdb

def open(*arguments, **options):
    if not options.get('readonly'):
        options.setdefault('writemap', True)
    return lmdb.Environment(*arguments, **options)

lmdb.open = open
END
}

own_tests()
{
    local name
    for name in "${MTESTS[@]}"; do
        mkdir testdb
        each "$name" "$1/$name"
        rm -r testdb
    done
    PYTHONPATH=$1/module pytests -p writemap "$1/module"
}
