/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the processes do that have a file mapped, at one moment: for `ato top`.
 *
 * The locks of the manifest show which processes live (holders.c); the shared memory shows what they do: the slots, the counters of
 * their threads, the page states. It is read by pread(): nothing is mapped, locked or changed. Permission to read the file is enough.
 */
#ifndef ATO_TOOLS_SIGHT_H
#define ATO_TOOLS_SIGHT_H

#include "write_lock.h"

#include "lib/file/file.h"

/* The counts of a process since it mapped the file, and the pages that it holds now. */
struct doing {
    uint32_t holder;
    uint64_t of[COUNTERS];
    uint64_t reservations;
    unsigned mappings;
};

struct sight {
    uint64_t ns; /* when it was taken */
    char path[PATH_MAX];
    struct look_holders holders;
    struct doing each[MANIFEST_SLOTS];
    uint64_t size;
    bool shared; /* the shared memory could be read */
    struct write_lock lock;
};

/* Returns 0; -1 with report_sentence(): the file cannot be read. */
int sight_take(struct sight *s, const char *name);

/* The counters that are shown; head: in text, where those without one, commits, are added up. */
enum { SIGHT_COLUMNS = 7 };
extern const struct sight_column {
    enum counter which;
    const char *key, *head;
    unsigned unit; /* of the text */
    const char *help;
} sight_columns[SIGHT_COLUMNS];

/* Writes what the files' processes do, as Prometheus reads it. */
void metrics_write(const struct sight *sights, unsigned n);

#endif
