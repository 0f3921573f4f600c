/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commits of a file with a log, which is its second home (reflection/format/log.h).
 *
 * A write is put together in memory of the process: homes.r of its pages lies there, and all bitmaps are 0. The commit appends one
 * record with all slices to the log; one sync makes it durable, which is the commit point, and every commit that waits shares it.
 * Then the slices are copied to the file, where they become visible. The kernel may write the file back at any time, so nothing is
 * copied there that is not durable in the log. (A commit may be visible to the next writer before: early.h.)
 *
 *   persist-order L1 (reader: log_look): a record counts if it is valid as a whole, so its parts need no order.
 *   persist-order L2 (reader: log_recover): a record, and all before it, is durable before anything of it is copied to the file. I1, I4.
 *   On persistent memory its writer stores it, and fences, before another one can append: so each commit is durable by itself there.
 *   persist-order L3 (reader: log_recover): what records say is durable in the file, and in the manifest, before the header says
 *   that they are home. Their space is used again after that is durable.
 *   persist-order L5 (reader: log_recover): on persistent memory, a header that gives records other places is durable before the first
 *   record there. (On a disk, the sync of that record makes it durable.)
 *
 * If the process dies before its record is appended, nothing has changed. If it dies later, the process that takes its pages over
 * makes the log durable and copies what it has of these pages (takeover.c); after a power cut recovery copies all. The model log.pml
 * has all of this, but for logs that get longer and changes of size.
 */
#ifndef ATO_LIB_COMMIT_LOG_H
#define ATO_LIB_COMMIT_LOG_H

#include "lib/commit/show.h"
#include "lib/commit/sync.h"

#include "ato_engine.h"

/* commit_run() for a logged file, with something to commit: `pages` of the set's have `slices` pending. */
int log_commit(const struct commit *c, uint64_t pages, uint64_t slices);

/* The same with nothing to commit: it had those bytes already, and they may not be durable. */
int log_commit_nothing(const struct commit *c);

/* show_begin() for a logged file: all that is visible by then is durable. */
int log_show_begin(struct file *f, const struct held_page *pages, uint64_t n, bool late,
                   uint64_t *number);

/* Waits until an early commit is durable, unless promise->end is 0, and shows it to readers. Returns 0; -1 with errno. */
int log_await(struct file *f, const struct ato_promise *promise);

/* The promise of all that has a number by now. */
static inline struct ato_promise log_shown(const struct file *f)
{
    struct ato_promise all = {.number =
                                  __atomic_load_n(&f->shared.header->undo.shown, __ATOMIC_ACQUIRE)};
    all.end = sync_tail(f); /* after the number: all early ones that have one have records before */
    return all;
}

/* The promise of all that is visible. */
struct ato_promise log_visible(struct file *f);

/* Makes all that is visible durable. It waits for a sync only if an early commit is visible: all others are durable. */
static inline int log_settle(struct file *f)
{
    const struct shared_undo *u = &f->shared.header->undo;
    const struct ato_promise all = log_shown(f);
    return all.number <= __atomic_load_n(&u->moment, __ATOMIC_ACQUIRE) &&
                   sync_reaches(f, __atomic_load_n(&u->end, __ATOMIC_ACQUIRE))
               ? file_check(f)
               : log_await(f, &all);
}

/* If a record says a size: makes it durable in the log, and then stores the last one to the manifest. The caller ensures that it does not change
 * meanwhile. Returns 0; -1 with errno. */
int log_settle_size(struct file *f);

/* The first process: reads the header of the log into shared memory. Returns 0; -1 with errno. */
int log_attach(struct file *f);

/* The file itself has all that is committed, durably. */
bool log_is_empty(const struct file *f);

/* Brings all that is committed to the file, durably: the log is empty then, unless others commit meanwhile. The caller is in no commit.
 * Returns 0; -1 with EIO and the file poisoned, or with another error: then nothing has changed. */
int log_checkpoint(struct file *f);

/* The same for the last process, which removes the log next: its records stay. They are home, and no other program writes to the file before
 * the manifest says `deployed`, in which they do not count (P2): if that is cut, recovery copies them once more. */
int log_bring_home(struct file *f);

#endif
