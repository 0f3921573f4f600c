/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files that SQLite has written and that lie in memory: shown.c keeps the list, shown_calls.c shows them.
 */
#ifndef ATO_TEST_SQLITE_SUITE_SHOWN_H
#define ATO_TEST_SQLITE_SUITE_SHOWN_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "lib/sqlite/memory_journal.h"

/* The function of the C library that has this name; needs dlfcn.h. */
#define REAL(call) ((call##_call *)dlsym(RTLD_NEXT, #call))
typedef int stat_call(const char *name, struct stat *st);

struct shown {
    struct shown *next;
    sqlite3_file *file; /* NULL: closed, and this was in it: */
    struct bytes kept;
    const sqlite3_io_methods *methods; /* its own */
    sqlite3_io_methods heard;          /* those that tell of what SQLite does */
    bool is_database;
    struct stat was; /* of a database: the file that it was opened as */
    bool nameless;   /* it was deleted, and is open */
    char name[];     /* the whole of it, as SQLite has it */
};

/* Not for the programs that the suite is loaded into. */
#pragma GCC visibility push(hidden)

/* All of them, and the lock to look at them. */
extern struct shown *shown_all;
extern pthread_mutex_t shown_lock;

/*
 * Finds the place in the list of the file with this whole name; the end of the list if there is none. Of several
 * connections only the one that writes has something staged.
 */
struct shown **shown_find(const char *name);

/* Copies what is in the file. Returns whether that went well. */
bool shown_copy(const struct shown *s, struct bytes *to);

/* Its name goes, and so does the file when no connection has it open. */
void shown_forget(const char *name);

#pragma GCC visibility pop

#endif
