// SPDX-License-Identifier: BSD-3-Clause
/*
 * speed DATABASE WORK SECONDS [VFS-LIBRARY] [PRAGMA...]: what SQLite does a second. WORK is
 *   one    transactions that change one row of 100 bytes
 *   ten    transactions that change ten rows, with an index, and add one
 *   scan   MiB read by scans of the table with a cache of 100 KiB
 * DATABASE is made, closed and opened again. VFS-LIBRARY: an extension that is loaded first, or "".
 */
#include <sqlite3.h>

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 20000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void must(sqlite3 *db, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        errx(2, "%s: %s", sql, message);
}

static sqlite3 *open_database(const char *name)
{
    sqlite3 *db;
    if (sqlite3_open_v2(name, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI,
                        NULL) != SQLITE_OK)
        errx(2, "%s", sqlite3_errmsg(db));
    return db;
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK)
        errx(2, "%s: %s", sql, sqlite3_errmsg(db));
    return s;
}

static void step(sqlite3_stmt *s)
{
    int r;
    while ((r = sqlite3_step(s)) == SQLITE_ROW)
        ;
    if (r != SQLITE_DONE)
        errx(2, "%s: %s", sqlite3_sql(s), sqlite3_errmsg(sqlite3_db_handle(s)));
    sqlite3_reset(s);
}

int main(int argc, char **argv)
{
    sqlite3 *db;
    if (argc < 4)
        errx(2, "usage: speed DATABASE one|ten|scan SECONDS [VFS-LIBRARY] [PRAGMA...]");
    const char *work = argv[2];
    const double seconds = atof(argv[3]);
    if (argc > 4 && argv[4][0]) {
        char *message = NULL;
        sqlite3_open(":memory:", &db);
        sqlite3_enable_load_extension(db, 1);
        if (sqlite3_load_extension(db, argv[4], NULL, &message) != SQLITE_OK)
            errx(2, "%s", message);
    }
    db = open_database(argv[1]);
    must(db,
         "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, note BLOB); CREATE INDEX i ON t(n)");
    char sql[300];
    snprintf(sql, sizeof(sql),
             "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < %d) "
             "INSERT INTO t SELECT x, x * 7919 %% 10007, randomblob(100) FROM c",
             ROWS);
    must(db, sql);
    /* A connection that has made the database, and keeps its lock, would keep the journal of that transaction, too. */
    sqlite3_close(db);
    db = open_database(argv[1]);
    for (int i = 5; i < argc; i++)
        must(db, argv[i]);
    char note[100] = {0};
    long done = 0;
    double begin, took;
    if (strcmp(work, "scan") == 0) {
        must(db, "PRAGMA cache_size = -100");
        sqlite3_stmt *s = prepare(db, "SELECT sum(length(note)), sum(n) FROM t NOT INDEXED");
        begin = now();
        for (took = 0; took < seconds; took = now() - begin, done++)
            step(s);
        printf("%.1f\n", (double)done * ROWS * 112 / 1048576 / took);
        sqlite3_finalize(s);
    } else {
        const int ten = strcmp(work, "ten") == 0;
        sqlite3_stmt *one = prepare(db, ten ? "UPDATE t SET n = ?1, note = ?2 WHERE id = ?3"
                                            : "UPDATE t SET note = ?2 WHERE id = ?3");
        sqlite3_stmt *add = prepare(db, "INSERT INTO t(n, note) VALUES (?1, ?2)");
        sqlite3_stmt *from = prepare(db, "BEGIN IMMEDIATE"), *to = prepare(db, "COMMIT");
        srandom(1);
        begin = now();
        for (took = 0; took < seconds; took = now() - begin, done++) {
            if (ten)
                step(from);
            for (int i = 0; i < (ten ? 10 : 1); i++) {
                snprintf(note, sizeof(note), "%ld", random());
                if (ten)
                    sqlite3_bind_int64(one, 1, random() % 10007);
                sqlite3_bind_blob(one, 2, note, sizeof(note), SQLITE_STATIC);
                sqlite3_bind_int64(one, 3, 1 + random() % ROWS);
                step(one);
            }
            if (ten) {
                sqlite3_bind_int64(add, 1, random() % 10007);
                sqlite3_bind_blob(add, 2, note, sizeof(note), SQLITE_STATIC);
                step(add);
                step(to);
            }
        }
        printf("%.0f\n", (double)done / took);
        sqlite3_finalize(one);
        sqlite3_finalize(add);
        sqlite3_finalize(from);
        sqlite3_finalize(to);
    }
    if (sqlite3_close(db) != SQLITE_OK)
        errx(2, "%s", sqlite3_errmsg(db));
    return 0;
}
