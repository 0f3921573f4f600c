/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of a change of size, for the transaction that makes it (resize.c), which holds `sizing` throughout.
 *
 *   longer    tail_clear(), size_prepare_growth(), the commit
 *   shorter   size_drain(), size_announce(), the commit, size_clear_behind()
 *   both      size_release()
 *
 * The commit is in commit.c: the size word alone, or with words of pages. For the steps on the media see
 * reflection/pairing/growth.h and shrink.h.
 *
 * A drain keeps all others from whole pages that are going to be cut off. `cut` in the shared header tells a thread
 * that has just reserved a page there that it may not have it (reservation_within()). The transaction reserves the pages
 * that have states, with SIZE_DRAINED in page_state.tx, so no operation on them is under way. Readers without a
 * lock go on, and may load pages, until the new size becomes visible.
 */
#ifndef ATO_LIB_COMMIT_SIZE_H
#define ATO_LIB_COMMIT_SIZE_H

#include "lib/file/page.h"

/* Place in page_state.tx for pages that the transaction holds without listing them. */
#define SIZE_DRAINED 0x7fffffffu

/* The whole pages of a file that are cut off. */
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

/* Prepares a larger size, durably: both files get that length, and the new bytes are zeros, except in the last
 * page. Returns 0; -1: errors of ato_ftruncate(), and the file is as it was. */
int size_prepare_growth(struct file *f, uint64_t to);

/* Drains the pages of a range; `cut` becomes its beginning. Returns 0; -1 with ENOSPC, EIO, or an error of
 * reservation_wait(): no page is drained. */
int size_drain(const struct size_range *r, const struct patience *patience);

/* S1: announces a shrink. Returns 0; -1 with EIO. */
int size_announce(struct file *f);

/* Before and after a durable new size that cuts the range off becomes visible: marks all pages that a reader may
 * use; then sets their bitmaps to 0 and unmarks them (read.c, point 5). */
void size_mark(const struct size_range *r);
void size_unmark(const struct size_range *r);

/* Step 3 of shrink.h, for a file that has `to` bytes now. Errors are ignored, since the shrink is done: the next
 * growth, or the end of the last mapping, clears what is left. */
void size_clear_behind(const struct size_range *r, uint64_t to);

/* Releases the drained pages of the range, and withdraws `cut`. */
void size_release(const struct size_range *r);

#endif
