/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Epochs: on a mapping with ATO_EPOCHS every write belongs to one open transaction, the mapping's, until
 * ato_msync() commits it. All threads of the process share it.
 *
 * Reads through the mapping see what was written, reads through others do not.
 *
 * Writers take turns, but not while one waits for a page that a transaction has. Readers do not wait for them,
 * with one exception: a slice that was written in this epoch before is stored to again in the same place,
 * from which readers read by now. So that, the moment at which several pages come to be written, and the one
 * at which pages are given back by a write that cannot have all of its own, run under sequence counters, of
 * which each page has one (by turns): odd while it runs. A reader is right if those of its pages were even,
 * and did not move, and no version did (read.c).
 */
#ifndef ATO_LIB_EPOCH_H
#define ATO_LIB_EPOCH_H

#include "stage.h"

/* For a new mapping. -1: EAGAIN, ENOMEM. */
int epoch_make(struct mapping *m);

/* The mapping has its file. And is about to lose it. */
void epoch_begin(struct mapping *m);
void epoch_end(struct mapping *m);

/* The mapping goes; nobody is in a call on it. What was not committed is forgotten. */
void epoch_unmake(struct mapping *m);

/* As write_bytes() and read_bytes(), within the epoch. The source is memory. */
int epoch_write(struct mapping *m, uint64_t offset, uint64_t n, const struct stage_source *src,
                unsigned flags);
/* Several ranges, in one step. Their sources are memory. */
struct epoch_range {
    uint64_t offset, n;
    const char *bytes;
};
int epoch_writev(struct mapping *m, const struct epoch_range *ranges, unsigned count,
                 unsigned flags);
int epoch_read(struct mapping *m, uint64_t offset, char *dst, uint64_t n);

/* Forgets what was written since the last commit. Nobody is in a call on the mapping. */
void epoch_give_up(struct mapping *m);

/* Commits what was written; the next epoch begins. On failure it stays open. */
int epoch_commit(struct mapping *m);

#endif
