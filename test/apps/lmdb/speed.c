/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Durable commits per second of an LMDB database, one writer.
 *
 *     speed FOLDER PUTS SECONDS
 *
 * Each transaction puts PUTS values of 100 bytes under random keys, of 10,000 that exist.
 */
#include <lmdb.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEYS = 10000, BYTES = 100 };

static void must(int r, const char *what)
{
    if (r) {
        fprintf(stderr, "%s: %s\n", what, mdb_strerror(r));
        exit(1);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t state = 88172645463325252u;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static MDB_env *env;
static MDB_dbi dbi;

static void commit(unsigned puts, uint64_t from)
{
    MDB_txn *t;
    char value[BYTES];
    memset(value, (int)state, sizeof(value));
    must(mdb_txn_begin(env, NULL, 0, &t), "begin");
    for (unsigned i = 0; i < puts; i++) {
        uint64_t key =
            (from == UINT64_MAX ? next_random() % KEYS : from + i) * 11400714819323198485u;
        MDB_val k = {sizeof(key), &key}, v = {sizeof(value), value};
        must(mdb_put(t, dbi, &k, &v, 0), "put");
    }
    must(mdb_txn_commit(t), "commit");
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s FOLDER PUTS SECONDS\n", argv[0]);
        return 2;
    }
    const unsigned puts = (unsigned)atoi(argv[2]);
    MDB_txn *t;
    must(mdb_env_create(&env), "create");
    must(mdb_env_set_mapsize(env, (size_t)1 << 30), "mapsize");
    must(mdb_env_open(env, argv[1], 0, 0600), "open");
    must(mdb_txn_begin(env, NULL, 0, &t), "begin");
    must(mdb_dbi_open(t, NULL, 0, &dbi), "dbi");
    must(mdb_txn_commit(t), "commit");
    for (uint64_t k = 0; k < KEYS; k += 1000)
        commit(1000, k);
    double begin = now(), warm = begin + 0.2, end = warm + atof(argv[3]), at;
    unsigned long n = 0, each = 0;
    while (now() < warm) {
        commit(puts, UINT64_MAX);
        each++;
    }
    each = each / 20 + 1; /* the clock is read ten times in a tenth of a second */
    begin = now();
    do {
        for (unsigned long i = 0; i < each; i++)
            commit(puts, UINT64_MAX);
        n += each;
    } while ((at = now()) < end);
    printf("%.0f\n", (double)n / (at - begin));
    mdb_env_close(env);
    return 0;
}
