/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that configures SQLite before its first use, and shuts it down in between. For preload_test.py.
 *
 * usage: early DATABASE
 */
#include <sqlite3.h>

#include <stdio.h>
#include <string.h>

static void hear(void *arg, int code, const char *sentence)
{
    (void)code;
    (void)sentence;
    ++*(int *)arg;
}

static int show(void *arg, int n, char **values, char **names)
{
    (void)arg;
    (void)names;
    for (int i = 0; i < n; i++)
        printf("%s\n", values[i]);
    return 0;
}

int main(int argc, char **argv)
{
    int heard = 0;
    for (int round = 0; argc == 2 && round < 2; round++) {
        sqlite3 *db = NULL;
        if (sqlite3_config(SQLITE_CONFIG_LOG, hear, &heard) != SQLITE_OK ||
            sqlite3_config(SQLITE_CONFIG_SERIALIZED) != SQLITE_OK)
            return puts("sqlite3_config() is refused"), 1;
        if (sqlite3_open(argv[1], &db) != SQLITE_OK ||
            sqlite3_exec(
                db, "CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES(1); PRAGMA ato_stat",
                show, NULL, NULL) != SQLITE_OK ||
            sqlite3_close(db) != SQLITE_OK || sqlite3_shutdown() != SQLITE_OK)
            return puts(sqlite3_errmsg(db)), 1;
    }
    return 0;
}
