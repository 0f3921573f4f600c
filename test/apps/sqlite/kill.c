// SPDX-License-Identifier: BSD-3-Clause
/*
 * kill FOLDER ROUNDS: SQLite under kills. A child moves money between accounts, counts its transactions in a row of their own,
 * and tells its parent of each COMMIT that returned. The parent kills it at a random moment, opens the database, and checks:
 * the database is in order, no money was lost or made, and no transaction that was told of is missing. In each fourth round a
 * second child waits for the locks, so that a living process takes them over from the killed one, and in each fifth the cache
 * is so small that pages are written before the COMMIT. At the end the last connection has made the file plain.
 */
#include <sqlite3.h>

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ACCOUNTS = 2000, BALANCE = 1000, MOVES = 12 };

static char path[4096];

static sqlite3 *open_database(void)
{
    sqlite3 *db;
    if (sqlite3_open(path, &db) != SQLITE_OK)
        errx(2, "cannot open %s: %s", path, sqlite3_errmsg(db));
    sqlite3_busy_timeout(db, 20000);
    return db;
}

static int run(sqlite3 *db, const char *sql)
{
    char *message = NULL;
    const int r = sqlite3_exec(db, sql, NULL, NULL, &message);
    if (r != SQLITE_OK)
        warnx("%s: %s", sql, message ? message : "?");
    sqlite3_free(message);
    return r;
}

static void must(sqlite3 *db, const char *sql)
{
    if (run(db, sql) != SQLITE_OK)
        exit(2);
}

/* The first column of the first row as a number; -1 after an error. */
static int64_t number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s = NULL;
    int64_t n = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        n = sqlite3_column_int64(s, 0);
    else
        warnx("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_finalize(s);
    return n;
}

static void create(void)
{
    sqlite3 *db = open_database();
    must(db, "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER, note BLOB)");
    must(db, "CREATE TABLE counter(n INTEGER)");
    must(db, "CREATE TABLE history(n INTEGER PRIMARY KEY, note BLOB)");
    must(db, "INSERT INTO counter VALUES (0)");
    must(db, "CREATE INDEX by_balance ON account(balance)");
    char sql[300];
    snprintf(sql, sizeof(sql),
             "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < %d) "
             "INSERT INTO account SELECT x, %d, randomblob(150) FROM c",
             ACCOUNTS, BALANCE);
    must(db, sql);
    sqlite3_close(db);
}

/* Never returns: is killed. */
static void work(int out, unsigned seed, int small_cache)
{
    sqlite3 *db = open_database();
    char sql[400];
    srandom(seed);
    if (small_cache)
        must(db, "PRAGMA cache_size = 12");
    for (;;) {
        must(db, "BEGIN IMMEDIATE");
        for (int i = 0; i < MOVES; i++) {
            const int amount = (int)(random() % 50);
            const long from = 1 + random() % ACCOUNTS, to = 1 + random() % ACCOUNTS;
            snprintf(
                sql, sizeof(sql),
                "UPDATE account SET balance = balance - %d WHERE id = %ld;"
                "UPDATE account SET balance = balance + %d, note = randomblob(%ld) WHERE id = %ld",
                amount, from, amount, 100 + random() % 100, to);
            must(db, sql);
        }
        must(db, "UPDATE counter SET n = n + 1;"
                 "INSERT INTO history SELECT n, randomblob(60) FROM counter;"
                 "DELETE FROM history WHERE n % 700 = 0 OR n < (SELECT n FROM counter) - 800");
        const int64_t n = number(db, "SELECT n FROM counter");
        /* Some are rolled back, after a statement that failed. */
        const int undo = random() % 8 == 0;
        must(db, undo ? "ROLLBACK" : "COMMIT");
        if (!undo && write(out, &n, sizeof(n)) != sizeof(n))
            exit(3);
    }
}

static pid_t start(int out[2], int in_use, unsigned seed, int small_cache)
{
    const pid_t child = fork();
    if (child < 0)
        err(2, "fork");
    if (child == 0) {
        close(in_use);
        work(out[1], seed, small_cache);
    }
    return child;
}

static int is_empty(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    if (!d)
        return errno == ENOENT;
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n == 0;
}

/* Returns what is wrong, or NULL. */
static const char *check(int64_t told)
{
    static char said[500];
    sqlite3 *db = open_database();
    sqlite3_stmt *s = NULL;
    const char *wrong = NULL;
    if (sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &s, NULL) != SQLITE_OK ||
        sqlite3_step(s) != SQLITE_ROW) {
        snprintf(said, sizeof(said), "integrity_check fails: %s", sqlite3_errmsg(db));
        wrong = said;
    } else if (strcmp((const char *)sqlite3_column_text(s, 0), "ok") != 0) {
        snprintf(said, sizeof(said), "integrity_check: %.300s", sqlite3_column_text(s, 0));
        wrong = said;
    }
    sqlite3_finalize(s);
    if (!wrong) {
        const int64_t sum = number(db, "SELECT sum(balance) FROM account");
        const int64_t n = number(db, "SELECT n FROM counter");
        if (sum != (int64_t)ACCOUNTS * BALANCE)
            wrong = "money was lost or made";
        else if (n < told)
            wrong = "a transaction that was acknowledged is missing";
        else if (number(db, "SELECT ifnull(max(n), 0) FROM history") < n - 1)
            wrong = "the history and the counter differ";
    }
    sqlite3_close(db);
    return wrong;
}

int main(int argc, char **argv)
{
    const int rounds = argc == 3 ? atoi(argv[2]) : 0;
    int passed = 0, failed = 0;
    int64_t told = 0;
    char reflections[4200];
    if (rounds < 1)
        errx(2, "usage: kill FOLDER ROUNDS");
    snprintf(path, sizeof(path), "%s/bank.db", argv[1]);
    snprintf(reflections, sizeof(reflections), "%s/.ato", argv[1]);
    signal(SIGPIPE, SIG_IGN);
    create();
    unsigned seed = (unsigned)time(NULL);
    printf("seed %u\n", seed);
    for (int i = 0; i < rounds; i++) {
        int out[2];
        pid_t child[2];
        const int children = i % 4 == 3 ? 2 : 1;
        if (pipe(out) < 0)
            err(2, "pipe");
        for (int j = 0; j < children; j++)
            child[j] = start(out, out[0], seed + (unsigned)(i * 2 + j), i % 5 == 4);
        close(out[1]);
        srandom(seed ^ (unsigned)i * 2654435761u);
        /* The first COMMIT of a round takes longest: wait for it in most rounds. */
        int64_t n;
        if (i % 8 && read(out[0], &n, sizeof(n)) == sizeof(n) && n > told)
            told = n;
        for (int j = 0; j < children; j++) {
            struct timespec t = {.tv_nsec = random() % 60000000};
            nanosleep(&t, NULL);
            kill(child[j], SIGKILL);
            int status;
            waitpid(child[j], &status, 0);
            if (!WIFSIGNALED(status))
                errx(2, "round %d: a child ended by itself", i);
        }
        while (read(out[0], &n, sizeof(n)) == sizeof(n))
            if (n > told)
                told = n;
        close(out[0]);
        const char *wrong = check(told);
        if (!wrong && !is_empty(reflections))
            wrong = "the last connection left a reflection";
        passed += !wrong;
        failed += !!wrong;
        if (wrong) {
            printf("round %d: %s\n", i, wrong);
            /* What is broken stays so: begin again. */
            unlink(path);
            char journal[4200];
            snprintf(journal, sizeof(journal), "%s-journal", path);
            unlink(journal);
            create();
            told = 0;
        }
        fflush(stdout);
    }
    printf("%lld transactions acknowledged\n", (long long)told);
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed != 0;
}
