/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file of SQLite's in memory: a rollback journal or a super-journal.
 *
 * Its content is allocated by malloc(), not by SQLite's allocator: a journal on a disk would not count against SQLite's heap
 * limits either. The caller makes one call at a time.
 */
#ifndef ATO_SQLITE_MEMORY_FILE_H
#define ATO_SQLITE_MEMORY_FILE_H

#include "api.h"

struct memory_file {
    sqlite3_file as_file; /* first */
    char *at;
    sqlite3_int64 size, room;
    const char *name; /* SQLite's, which stays until the file is closed */
    /* If set, called with the name before each write, which fails with its result. */
    int (*before_write)(const char *name, const void *from, int n);
};

extern const sqlite3_io_methods memory_file_methods;

/* Opens an empty file. */
static inline void memory_file_open(sqlite3_file *file, const char *name,
                                    int (*before_write)(const char *, const void *, int))
{
    *(struct memory_file *)file = (struct memory_file){
        .as_file.pMethods = &memory_file_methods, .name = name, .before_write = before_write};
}

#endif
