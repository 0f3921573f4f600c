/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files that SQLite has written and that are in memory: shown.c keeps the list, shown_calls.c shows them.
 */
#ifndef ATO_TEST_SQLITE_SUITE_SHOWN_H
#define ATO_TEST_SQLITE_SUITE_SHOWN_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "lib/sqlite/journals.h"

/* The C library's function of this name; needs dlfcn.h. */
#define REAL(call) ((call##_call *)dlsym(RTLD_NEXT, #call))
typedef int stat_call(const char *name, struct stat *st);

struct bytes {
    char *at;
    sqlite3_int64 size;
};

struct shown {
    struct shown *next;
    sqlite3_file *file; /* NULL: closed, with the content `kept` */
    struct bytes kept;
    sqlite3_io_methods methods; /* the methods of the file itself */
    sqlite3_io_methods heard;   /* a journal: the methods that SQLite calls, which keep this list */
    bool is_database;
    struct connection *connection; /* of a database; else NULL */
    struct stat was;               /* a database: the file at the time of opening */
    bool nameless;                 /* deleted while it is open */
    char name[];                   /* the absolute name that SQLite uses */
};

/* Not visible to the programs that the suite is loaded into. */
#pragma GCC visibility push(hidden)

/* The list, and its lock. */
extern struct shown *shown_all;
extern pthread_mutex_t shown_lock;

/*
 * Returns the place in the list of the file with this absolute name, or the end of the list. Of several connections
 * only the writer has staged pages.
 */
struct shown **shown_find(const char *name);

/* Copies the content of the file. Returns whether that succeeded. */
bool shown_copy(const struct shown *s, struct bytes *to);

/* Removes the name; the entry goes when no connection has the file open. */
void shown_forget(const char *name);

#pragma GCC visibility pop

#endif
