/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The copy of a file under test, and one kill of a process that writes to it.
 *
 * A child writes records of 64 KiB to the copy, one after the other, and reports each write that returned
 * through a pipe: an acknowledged write. The parent kills it at a random moment, and then compares every
 * record with its expected bytes. Only the write that the kill interrupted is undecided: its record may be
 * wholly old or wholly new.
 *
 * The parent never maps the file itself: each writer, and each reader after a kill, is a new process, as
 * after a crash. Every function ends the process with a sentence on stderr when something fails: status 1 if
 * a child failed, else 2.
 */
#ifndef ATO_TOOLS_SUBJECT_H
#define ATO_TOOLS_SUBJECT_H

#include "view.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LONGEST_DELAY_NS 3000000u /* from the first acknowledged write to the kill */

struct tally {
    unsigned kills, torn, damaged;
    uint64_t acked, lost;
    unsigned ended_old, ended_new; /* the outcome of the interrupted write */
    unsigned rtm, journal;         /* rounds by the commit path of their first write */
};

/* The copy under test and what is known about it. */
struct subject {
    char path[PATH_MAX];
    size_t size;
    uint32_t records;
    uint64_t seed;
    uint64_t version;              /* the last one tried */
    const unsigned char *original; /* the file's bytes before the first write */
    unsigned char *before;         /* as read after the last kill */
    unsigned char *now;            /* as read after this kill; shared with the reader */
    uint64_t *acked;               /* per record: version acknowledged in this round, or 0 */
};

/* The first 16 MiB of a file. */
const unsigned char *subject_load(const char *path, size_t *size);

/* Writes a copy of `original` into `folder`. */
struct subject subject_make(const char *folder, const char *name, const unsigned char *original,
                            size_t size);

/* Starts a writer, kills it, and adds to `t` what it left. */
void subject_kill(struct subject *s, struct tally *t, enum way way, unsigned round);

/* A spatial unmap must leave a file that read(2) sees as libato did. */
bool subject_plain_again(struct subject *s);

#endif
