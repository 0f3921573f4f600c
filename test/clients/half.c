/* SPDX-License-Identifier: BSD-3-Clause */
/* The extension that apsw's tests load: its source is not in the wheel. */
#include <sqlite3ext.h>

#include <stddef.h>

SQLITE_EXTENSION_INIT1

static void multiply(sqlite3_context *context, int n, sqlite3_value **values)
{
    (void)n;
    sqlite3_result_double(context,
                          sqlite3_value_double(values[0]) * *(double *)sqlite3_user_data(context));
}

static int define(sqlite3 *db, const char *name, double *factor, const sqlite3_api_routines *api)
{
    SQLITE_EXTENSION_INIT2(api);
    return sqlite3_create_function(db, name, 1, SQLITE_UTF8, factor, multiply, NULL, NULL);
}

int sqlite3_extension_init(sqlite3 *db, char **sentence, const sqlite3_api_routines *api);
int alternate_sqlite3_extension_init(sqlite3 *db, char **sentence, const sqlite3_api_routines *api);

int sqlite3_extension_init(sqlite3 *db, char **sentence, const sqlite3_api_routines *api)
{
    static double factor = 0.5;
    (void)sentence;
    return define(db, "half", &factor, api);
}

int alternate_sqlite3_extension_init(sqlite3 *db, char **sentence, const sqlite3_api_routines *api)
{
    static double factor = 2;
    (void)sentence;
    return define(db, "doubleup", &factor, api);
}
