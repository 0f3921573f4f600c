/* SPDX-License-Identifier: BSD-3-Clause */
/* What the URI of a database says, and the environment where it does not. */
#ifndef ATO_SQLITE_PARAMETERS_H
#define ATO_SQLITE_PARAMETERS_H

#include <stdbool.h>
#include <stddef.h>

struct parameters {
    size_t max_size;      /* bytes that it may grow to; 0: not said */
    unsigned prefer;      /* ATO_PREFER_..., or 0 */
    bool journal_on_disk; /* it is left to the VFS below */
    bool unmap_fast;
    bool without_locks; /* SQLite's nolock=1 */
};

/* `name` is SQLite's, with the parameters behind it. SQLITE_OK, or SQLITE_CANTOPEN with a sentence that says which values there
 * are. Of a parameter that nobody knows SQLite's log is told. */
int parameters_read(struct parameters *p, const char *name);

#endif
