/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program in which SQLite uses the VFS: linked with it or, with a second argument, loaded from that
 * extension.
 *
 * usage: sample_sqlite DATABASE [EXTENSION]
 */
#include <ato_sqlite.h>

#include <sqlite3.h>

#include <stdio.h>
#include <string.h>

static int show(void *arg, int n, char **values, char **names)
{
    (void)arg, (void)names;
    for (int i = 0; i < n; i++)
        printf("%s\n", values[i]);
    return 0;
}

static int load(const char *extension)
{
    sqlite3 *db;
    char *sentence = NULL;
    if (sqlite3_open(":memory:", &db) != SQLITE_OK ||
        sqlite3_enable_load_extension(db, 1) != SQLITE_OK ||
        sqlite3_load_extension(db, extension, NULL, &sentence) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", extension, sentence ? sentence : sqlite3_errmsg(db));
        return -1;
    }
    sqlite3_close(db); /* the VFS stays */
    return 0;
}

int main(int argc, char **argv)
{
    sqlite3 *db;
    if (argc > 2 ? load(argv[2]) < 0 : ato_vfs_register(0) != SQLITE_OK)
        return 1;
    if (sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "ato") !=
            SQLITE_OK ||
        sqlite3_exec(db, "CREATE TABLE t(a); INSERT INTO t VALUES ('wholly or'); SELECT a FROM t;",
                     show, NULL, NULL) != SQLITE_OK) {
        fprintf(stderr, "%s\n", sqlite3_errmsg(db));
        return 1;
    }
    return sqlite3_close(db) == SQLITE_OK ? 0 : 1;
}
