/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of a change of size, for the transaction that makes one (resize.c). It has `sizing` from the
 * first to the last of them.
 *
 *   longer    size_clear_tail(), size_prepare_growth(), the commit
 *   shorter   size_drain(), size_announce(), the commit, size_clear_behind()
 *   both      size_release()
 *
 * The commit is flip.c's: the size word alone, or with words of pages. How the media get there:
 * reflection/growth.h and shrink.h.
 *
 * A drain keeps everybody from whole pages that are going to be cut off. `cut` in the shared header tells
 * who reserves a page there that he may not have it (pages_within()); those that have states are reserved,
 * with SIZE_DRAINED in page_state.tx, so that nobody is in the middle of something. Readers without a lock
 * go on, and may load pages that were not, until the new size is shown.
 */
#ifndef ATO_LIB_SIZE_H
#define ATO_LIB_SIZE_H

#include "hold.h"

/* Place, in page_state.tx, of a page that the transaction has but keeps no list of. */
#define SIZE_DRAINED UINT32_MAX

/* Whole pages of a file that are cut off. */
struct size_range {
    struct file *file;
    uint64_t first, end;
    uint32_t tag; /* of the transaction */
};

/* What growth_settle() says of the file as it is; before anything else is done to its size. */
int size_settle(struct file *f);

/* Its last page, which is held, is to be asked for space anew. */
void size_forget_space(struct file *f);

/* A page that the transaction has and is about to give back: behind the end, if it lies there, it may have no
 * space by the time that there is a file again. */
void size_forget_behind(const struct held *at);

/* Behind the end of a file its last page, which is held, becomes zeros: but for the last slice, if something
 * is pending in the page. -1: ENOSPC, EUCLEAN, EIO. */
int size_clear_tail(struct mapping *m, struct held *last);

/* All that comes before a larger size is durable: both files are that long, and what is new is durably
 * zeros, but for the last page. Errors: those of ato_ftruncate(); the file is as it was. */
int size_prepare_growth(struct file *f, uint64_t to);

/* Drains the pages of a range; `cut` moves to its beginning. ENOSPC, EIO, and those of pages_wait():
 * none of them is. */
int size_drain(const struct size_range *r, const struct patience *patience);

/* S1. -1: EIO. */
int size_announce(struct file *f);

/* Of a durable new size that cuts the range off: all its pages that somebody may go by are marked before
 * it is shown, and unmarked after it, with nothing in R any more (read.c, point 5). */
void size_mark(const struct size_range *r);
void size_unmark(const struct size_range *r);

/* Step 3 of shrink.h: the file had `old` bytes. A failure is none of the shrink, which is done: what is left
 * is cleared by the next growth, or with the end of the last mapping. */
void size_clear_behind(const struct size_range *r, uint64_t to);

/* Pages of the file behind `size` bytes may have no space from now on, whoever has mapped it. Before it is taken
 * from them. */
void size_note_lowest(struct file *f, uint64_t size);

/* Drained pages of the range are another transaction's from now on, of the same process. */
void size_move(const struct size_range *r, uint32_t to);

/* Gives drained pages of the range back; `cut` says none. */
void size_release(const struct size_range *r);

#endif
