/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kills writers of an LMDB database at random moments, and checks all of it after each kill.
 *
 *     kill FOLDER ROUNDS [SEED]
 *
 * The writer is a process of its own. Each of its transactions moves money between accounts (their sum stays the same), counts
 * itself, logs itself under its number, drops an old line of the log, and now and then replaces a value that takes many pages or
 * writes so much that LMDB spills pages before the commit. It tells of each commit through a pipe.
 *
 * In half of the rounds this process has the environment open too, with a snapshot from before: the snapshot must not change, a
 * reader beside the writer finds all in order, and the first write transaction afterwards takes over the lock of the killed writer. In the others nobody has it open.
 */
#define _GNU_SOURCE 1
#include <lmdb.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ACCOUNTS = 256, LOG = 500, LOG_BYTES = 120, KEY = 24, BIG = 60000, SPILL = 140000 };
#define SUM (UINT64_C(1000) * ACCOUNTS)

static int failures, round_now;

static void __attribute__((format(printf, 1, 2))) wrong(const char *format, ...)
{
    va_list a;
    va_start(a, format);
    printf("round %d: ", round_now);
    vprintf(format, a);
    printf("\n");
    va_end(a);
    fflush(stdout);
    failures++;
}

static void must(int r, const char *what)
{
    if (r) {
        printf("round %d: %s: %s\n", round_now, what, mdb_strerror(r));
        fflush(stdout);
        _exit(2);
    }
}

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

struct db {
    MDB_env *env;
    MDB_dbi main, accounts, log;
};

static void open_db(struct db *d, const char *folder)
{
    MDB_txn *t;
    must(mdb_env_create(&d->env), "create");
    must(mdb_env_set_mapsize(d->env, (size_t)4 << 30), "mapsize");
    must(mdb_env_set_maxdbs(d->env, 4), "maxdbs");
    must(mdb_env_open(d->env, folder, MDB_NOTLS, 0600), "open");
    must(mdb_txn_begin(d->env, NULL, 0, &t), "begin");
    must(mdb_dbi_open(t, NULL, 0, &d->main), "main");
    must(mdb_dbi_open(t, "accounts", MDB_CREATE | MDB_INTEGERKEY, &d->accounts), "accounts");
    must(mdb_dbi_open(t, "log", MDB_CREATE, &d->log), "log");
    must(mdb_txn_commit(t), "commit");
}

static void put(MDB_txn *t, MDB_dbi i, const void *key, size_t k, const void *value, size_t n)
{
    MDB_val a = {k, (void *)key}, b = {n, (void *)value};
    must(mdb_put(t, i, &a, &b, 0), "put");
}

static uint64_t get64(MDB_txn *t, MDB_dbi i, const void *key, size_t k)
{
    MDB_val a = {k, (void *)key}, b;
    uint64_t v = 0;
    int r = mdb_get(t, i, &a, &b);
    if (r == MDB_NOTFOUND)
        return 0;
    must(r, "get");
    memcpy(&v, b.mv_data, sizeof(v));
    return v;
}

static void log_key(char key[KEY], uint64_t n)
{
    snprintf(key, KEY, "%020" PRIu64, n);
}

static void log_line(char line[LOG_BYTES], uint64_t n)
{
    memset(line, (int)(n * 31 + 7), LOG_BYTES);
    memcpy(line, &n, sizeof(n));
}

static int one(const struct db *d, uint64_t *count)
{
    static char big[BIG];
    char key[KEY] = "", line[LOG_BYTES];
    MDB_txn *t;
    must(mdb_txn_begin(d->env, NULL, 0, &t), "begin");
    const uint64_t n = get64(t, d->main, "count", 5) + 1;
    put(t, d->main, "count", 5, &n, sizeof(n));
    for (int i = 0; i < 3; i++) {
        unsigned from = next_random() % ACCOUNTS, to = next_random() % ACCOUNTS;
        uint64_t a = get64(t, d->accounts, &from, sizeof(from)), m = a ? next_random() % a : 0, b;
        a -= m;
        put(t, d->accounts, &from, sizeof(from), &a, sizeof(a));
        b = get64(t, d->accounts, &to, sizeof(to)) + m;
        put(t, d->accounts, &to, sizeof(to), &b, sizeof(b));
    }
    log_key(key, n);
    log_line(line, n);
    put(t, d->log, key, sizeof(key), line, sizeof(line));
    if (n > LOG) {
        MDB_val k = {sizeof(key), key};
        log_key(key, n - LOG);
        must(mdb_del(t, d->log, &k, NULL), "del");
    }
    if (n % 7 == 0) {
        memset(big, (int)(n % 251), sizeof(big));
        memcpy(big, &n, sizeof(n));
        put(t, d->main, "big", 3, big, 5000 + n % (BIG - 5000));
    }
    *count = n;
    return mdb_txn_commit(t);
}

/* A transaction with more dirty pages than LMDB keeps in memory: it writes some before the commit. Its last step deletes them. */
static void spill(const struct db *d)
{
    MDB_txn *t;
    MDB_dbi i;
    char page[4000] = {1};
    must(mdb_txn_begin(d->env, NULL, 0, &t), "begin");
    must(mdb_dbi_open(t, "spill", MDB_CREATE | MDB_INTEGERKEY, &i), "spill");
    for (unsigned k = 0; k < SPILL; k++)
        put(t, i, &k, sizeof(k), page, sizeof(page));
    must(mdb_drop(t, i, 1), "drop");
    must(mdb_txn_commit(t), "commit");
}

static int writer(const char *folder, uint64_t seed, int ack, bool spills)
{
    struct db d;
    uint64_t n;
    random_state = seed * 2654435761u + 88172645463325252u;
    open_db(&d, folder);
    while (spills)
        spill(&d);
    for (;;) {
        must(one(&d, &n), "commit");
        if (write(ack, &n, sizeof(n)) != sizeof(n))
            return 1;
    }
}

/* ---- the check ---- */

struct pages {
    uint64_t used, entries;
};

/* Walks over a database from its first entry to its last one, and reads every byte. */
static uint64_t walk(MDB_txn *t, MDB_dbi i, struct pages *p,
                     void (*each)(void *, MDB_val *, MDB_val *), void *arg)
{
    MDB_cursor *c;
    MDB_val k, v;
    MDB_stat s;
    uint64_t n = 0;
    int r;
    must(mdb_stat(t, i, &s), "stat");
    p->used += s.ms_branch_pages + s.ms_leaf_pages + s.ms_overflow_pages;
    must(mdb_cursor_open(t, i, &c), "cursor");
    while ((r = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == 0) {
        n++;
        each(arg, &k, &v);
    }
    if (r != MDB_NOTFOUND)
        wrong("cursor: %s", mdb_strerror(r));
    if (n != s.ms_entries)
        wrong("%" PRIu64 " entries, %zu counted", n, s.ms_entries);
    mdb_cursor_close(c);
    return n;
}

struct found {
    uint64_t count, sum, first, last, lines, free, big;
};

static void on_free(void *arg, MDB_val *k, MDB_val *v)
{
    struct found *f = arg;
    (void)k;
    f->free += *(size_t *)v->mv_data;
}

static void on_main(void *arg, MDB_val *k, MDB_val *v)
{
    struct found *f = arg;
    if (k->mv_size == 3 && memcmp(k->mv_data, "big", 3) == 0) {
        const unsigned char *b = v->mv_data;
        memcpy(&f->big, b, sizeof(f->big));
        bool torn = v->mv_size != 5000 + f->big % (BIG - 5000);
        for (size_t i = sizeof(f->big); i < v->mv_size; i++)
            torn |= b[i] != f->big % 251;
        if (torn)
            wrong("the big value of %" PRIu64 " is torn", f->big);
    }
}

static void on_account(void *arg, MDB_val *k, MDB_val *v)
{
    struct found *f = arg;
    uint64_t a;
    (void)k;
    memcpy(&a, v->mv_data, sizeof(a));
    f->sum += a;
}

static void on_line(void *arg, MDB_val *k, MDB_val *v)
{
    struct found *f = arg;
    char line[LOG_BYTES], key[KEY] = "";
    uint64_t n = 0;
    if (v->mv_size == LOG_BYTES)
        memcpy(&n, v->mv_data, sizeof(n));
    log_line(line, n);
    log_key(key, n);
    if (v->mv_size != LOG_BYTES || memcmp(line, v->mv_data, LOG_BYTES) != 0 ||
        memcmp(key, k->mv_data, KEY) != 0)
        wrong("line %" PRIu64 " of the log is torn", n);
    if (f->lines++ == 0)
        f->first = n;
    else if (n != f->last + 1)
        wrong("line %" PRIu64 " of the log follows %" PRIu64, n, f->last);
    f->last = n;
}

/* `quiet`: nobody writes. */
static struct found check(const struct db *d, MDB_txn *t, bool quiet)
{
    struct found f = {0};
    struct pages p = {0};
    MDB_envinfo info;
    must(mdb_env_info(d->env, &info), "info");
    f.count = get64(t, d->main, "count", 5);
    walk(t, 0, &p, on_free, &f);
    walk(t, d->main, &p, on_main, &f);
    if (walk(t, d->accounts, &p, on_account, &f) != ACCOUNTS)
        wrong("accounts are missing");
    walk(t, d->log, &p, on_line, &f);
    if (f.sum != SUM)
        wrong("the sum is %" PRIu64 ", not %" PRIu64, f.sum, SUM);
    if (f.count && (f.last != f.count || f.lines != (f.count < LOG ? f.count : LOG)))
        wrong("the log ends at %" PRIu64 " with %" PRIu64 " lines, the counter is %" PRIu64, f.last,
              f.lines, f.count);
    if (f.big != f.count / 7 * 7)
        wrong("the big value is of %" PRIu64 ", the counter is %" PRIu64, f.big, f.count);
    /* Every page is used or free. */
    if (quiet && mdb_txn_id(t) == info.me_last_txnid &&
        p.used + f.free + 2 != info.me_last_pgno + 1)
        wrong("%" PRIu64 " pages used, %" PRIu64 " free, of %zu", p.used, f.free,
              info.me_last_pgno + 1);
    return f;
}

static void begin_read(const struct db *d, MDB_txn **t)
{
    must(mdb_txn_begin(d->env, NULL, MDB_RDONLY, t), "read");
}

static void round_of_kill(const char *self, const char *folder, uint64_t *acknowledged, bool stay,
                          uint64_t *commits)
{
    struct db d = {0};
    MDB_txn *before = NULL, *t;
    struct found old = {0}, now;
    int fd[2];
    const bool spills =
        round_now % 25 == 24 || round_now % 50 == 23; /* with and without this process */
    if (stay) {
        open_db(&d, folder);
        begin_read(&d, &before);
        old = check(&d, before, true);
    }
    if (pipe2(fd, O_CLOEXEC) < 0)
        exit(2);
    pid_t child = fork();
    if (child == 0) {
        char seed[32], out[16];
        fcntl(fd[1], F_SETFD, 0);
        snprintf(seed, sizeof(seed), "%" PRIu64, next_random());
        snprintf(out, sizeof(out), "%d", fd[1]);
        execl(self, self, "writer", folder, seed, out, spills ? "s" : "-", (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    uint64_t n, got = 0, wanted = next_random() % 200;
    struct timespec moment = {0, (long)(next_random() % 300000)};
    /* In one round of eight anywhere, perhaps while it opens the file; else within or between commits. */
    if (next_random() % 8 == 0)
        wanted = 0;
    if (spills) {
        wanted = 0;
        moment.tv_nsec = (long)(next_random() % 900000000);
    }
    while (got < wanted && read(fd[0], &n, sizeof(n)) == sizeof(n)) {
        got++;
        *acknowledged = n;
    }
    if (stay) { /* a reader beside the writer */
        begin_read(&d, &t);
        now = check(&d, t, false);
        if (now.count < *acknowledged)
            wrong("commit %" PRIu64 " was acknowledged, a reader saw %" PRIu64, *acknowledged,
                  now.count);
        mdb_txn_abort(t);
    }
    nanosleep(&moment, NULL);
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        wrong("the writer ended by itself, status %x", status);
    while (read(fd[0], &n, sizeof(n)) == sizeof(n)) {
        got++;
        *acknowledged = n;
    }
    close(fd[0]);
    *commits += got;

    if (stay) {
        now = check(&d, before, true);
        if (now.count != old.count || now.sum != old.sum)
            wrong("an old snapshot has changed");
        mdb_txn_abort(before);
        begin_read(
            &d,
            &t); /* before anybody has taken the lock over: the last commit may be missing if it was not acknowledged */
        now = check(&d, t, true);
        if (now.count < *acknowledged)
            wrong("commit %" PRIu64 " was acknowledged, a reader sees %" PRIu64, *acknowledged,
                  now.count);
        mdb_txn_abort(t);
        must(mdb_txn_begin(d.env, NULL, 0, &t), "take over"); /* takes the lock over */
        mdb_txn_abort(t);
    } else
        open_db(&d, folder);
    begin_read(&d, &t);
    now = check(&d, t, true);
    mdb_txn_abort(t);
    if (now.count < *acknowledged || now.count > *acknowledged + 1)
        wrong("commit %" PRIu64 " was acknowledged, the counter is %" PRIu64, *acknowledged,
              now.count);
    for (int i = 0; i < 3; i++) { /* it can be written */
        int r = one(&d, acknowledged);
        if (r)
            wrong("cannot commit: %s", mdb_strerror(r));
    }
    begin_read(&d, &t);
    now = check(&d, t, true);
    if (now.count != *acknowledged)
        wrong("own commits are missing");
    mdb_txn_abort(t);
    mdb_env_close(d.env);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "writer") == 0)
        return writer(argv[2], strtoull(argv[3], NULL, 10), atoi(argv[4]), argv[5][0] == 's');
    if (argc < 3) {
        fprintf(stderr, "usage: %s FOLDER ROUNDS [SEED]\n", argv[0]);
        return 2;
    }
    const int rounds = atoi(argv[2]);
    const uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
    random_state = seed * 2654435761u + 88172645463325252u;
    struct db d;
    MDB_txn *t;
    open_db(&d, argv[1]);
    must(mdb_txn_begin(d.env, NULL, 0, &t), "begin");
    for (unsigned i = 0; i < ACCOUNTS; i++)
        put(t, d.accounts, &i, sizeof(i), &(uint64_t){1000}, sizeof(uint64_t));
    must(mdb_txn_commit(t), "commit");
    mdb_env_close(d.env);
    int failed = 0;
    uint64_t acknowledged = 0, commits = 0;
    for (round_now = 1; round_now <= rounds; round_now++) {
        failures = 0;
        round_of_kill(argv[0], argv[1], &acknowledged, round_now & 1, &commits);
        failed += failures != 0;
        if (failed == 5) {
            printf("stopped after 5 failed rounds\n");
            break;
        }
    }
    printf("seed %" PRIu64 ", %" PRIu64 " acknowledged commits\n", seed, commits);
    printf("%d passed, %d failed, %d skipped\n", (round_now > rounds ? rounds : round_now) - failed,
           failed, round_now > rounds ? 0 : rounds - round_now);
    return failed != 0;
}
