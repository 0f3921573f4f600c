# shellcheck shell=bash
# Those of memcached's tests that pass with -e, all with -e, and memcached as it is installed. See tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
OWN_SOURCE=memcached OWN_PACKAGES=(perl)

own_build()
{
    gcc -O1 -w timedrun.c -o timedrun
    # Its files are in the working folder; Debian's memcached has no `relaxed_privileges`.
    sed -i 's#/tmp/##; s/^.*-o relaxed_privileges.*//' t/lib/MemcachedTest.pm t/restart.t
    cat >memcached-debug <<'END'
#!/bin/sh
case " $* " in
*" -e "*|*" -h "*) exec memcached "$@" ;;
*) exec memcached -e "memory.$$" "$@" ;;
esac
END
    chmod +x memcached-debug
}

own_tests()
{
    local name
    cp -a "$1"/{t,doc,timedrun,memcached-debug} .
    for name in restart cas chunked-items flags flush-all getandtouch getset incrdecr item_size_max line-lengths metaget noreply \
        stats stats-detail touch unixsocket; do
        each "$name" prove "t/$name.t"
        rm -f memory.*
    done
}
