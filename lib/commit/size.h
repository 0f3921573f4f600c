/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of a change of size, for the transaction that makes it (resize.c), which holds `sizing` throughout.
 *
 *   longer    size_prepare_growth(), the commit
 *   shorter   size_keep_out(), size_announce(), the commit
 *   both      size_let_in()
 *
 * The commit is in commit.c: the size word alone, or with words of pages. For the steps on the media see
 * reflection/pairing/growth.h and shrink.h.
 *
 * A shrink only moves the end. Pages behind it keep their states, bitmaps and space until no process has the file
 * mapped. So a reader without a lock that began before may go on, and a growth finds there what the file had: the
 * transaction that makes the file longer writes zeros over it, as over any page.
 *
 * But nobody else may commit to the pages that are cut off when the file already is shorter for others. `cut` in the shared
 * header tells a thread that has just reserved a page there that it may not have it (reservation_within()), and the
 * shrink waits for those that reserved one before.
 *
 * Writers and readers go by the size in memory. Writers read it again under their reservations (reservation_within()),
 * readers after the versions (read.c).
 */
#ifndef ATO_LIB_COMMIT_SIZE_H
#define ATO_LIB_COMMIT_SIZE_H

#include "lib/file/page.h"

/* Whole pages that a transaction cuts off. */
struct size_range {
    struct file *file;
    uint64_t first, end;
    uint32_t tag; /* the transaction's */
};

/* Runs a step that syncs: growth_end(), for example. The kernel reports an earlier failed write-back once, possibly to
 * these syncs: so one at a time, and a lost write poisons the file, as in file_msync(). Returns 0; -1: errors of the
 * step. */
int size_on_media(struct file *f, int (*step)(struct pairing *pr, uint64_t size), uint64_t size);

/* Makes the next write to the file's last page, which is held, ask for space again. */
void size_forget_space(struct file *f);

/* Prepares a larger size, durably: both files get that length. The new bytes are zeros, except where the file had others
 * since it was mapped, and in the last page. Returns 0; -1: errors of ato_ftruncate(), and the file is as it was. */
int size_prepare_growth(struct file *f, uint64_t to);

/* S1: announces a shrink. Returns 0; -1 with EIO. */
int size_announce(struct file *f);

/* Keeps all others from the pages of a range, and waits for those who hold one; `cut` becomes its beginning. Returns
 * 0; -1 with EIO, or an error of reservation_wait(): `cut` is as it was. */
int size_keep_out(const struct size_range *r, const struct patience *patience);

/* Withdraws `cut`. */
void size_let_in(struct file *f);

#endif
