/* SPDX-License-Identifier: BSD-3-Clause */
/* The parameters of a database, from its URI. */
#ifndef ATO_SQLITE_PARAMETERS_H
#define ATO_SQLITE_PARAMETERS_H

#include <stdbool.h>
#include <stddef.h>

struct parameters {
    size_t max_size;            /* bytes that the file may grow to; 0: not given */
    unsigned prefer;            /* ATO_PREFER_..., or 0 */
    const char *reflection_dir; /* a folder; NULL: not given */
    int unmap_fast;             /* 0 or 1 */
    unsigned lock_wait_ms;      /* how long a lock is waited for, whatever the busy handler says */
};

/* `name` is SQLite's, which the parameters follow in memory. Returns SQLITE_OK, or SQLITE_CANTOPEN: the sentence names the values
 * that are possible. A parameter that is not known is only logged. */
int parameters_read(struct parameters *p, const char *name);

/* Reads a number of milliseconds. Returns false if it is none, or is too large. */
bool parameters_read_wait(const char *word, unsigned *ms);
#define PARAMETERS_WAIT "a number of milliseconds from 0 to 3600000"

/* Returns the index of `word` in `words`, which end with NULL; -1 if it is none of them. */
int parameters_find(const char *word, const char *const *words);

/* The words for unmap_fast. */
extern const char *const parameters_unmap[];

#endif
