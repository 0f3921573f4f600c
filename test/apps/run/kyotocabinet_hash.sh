# shellcheck shell=bash
# Kyoto Cabinet's tests of files and of HashDB, as `make check` runs them, and one of them with 20 seeds: what one thread has made has to
# be the same, byte for byte. See tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
OWN_SOURCE=kyotocabinet OWN_FILES='Makefile.in lab' OWN_PACKAGES=(kyotocabinet-utils make)

own_build()
{
    ln -s /usr/bin/kc* .
}

# run_one SEED COMMAND
run_one()
{
    each "$2, seed $1" env "KCRNDSEED=$1" sh -c "$2"
    [[ $2 != *test* || $2 == *' -th '* || ! -f casket ]] || echo "$2, seed $1: $(cksum <casket)"
}

own_tests()
{
    local command seed
    cp -a "$1/." .
    cp Makefile.in Makefile
    while read -r command; do
        [[ $command == *kcutil[mt]* && $command != *'kcutiltest file'* ]] || run_one 1 "$command"
    done < <(make -n RUNENV= RUNCMD= check-{util,hash} | sed ':a;/\\$/{N;s/ *\\\n */ /;ba}')
    for seed in {2..21}; do # the file is closed, opened, made shorter and longer
        run_one "$seed" "./kchashtest wicked -it 4 -bnum 5000 -msiz 50000 casket 1000"
    done
}
