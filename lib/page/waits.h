/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Records which thread waits for which, and finds cycles of waiting threads.
 *
 * Only a transaction keeps pages from one call to the next. So all threads in a cycle of waiting are owners of
 * transactions: each waits for a page that a transaction of the next one holds. A thread that holds a page only
 * during one call waits only for threads of the same kind, in their common order, so its wait ends (reservation.h).
 *
 * An open epoch belongs to every thread of the process. A thread that waits for one of its pages, other than
 * through the epoch's mapping, waits for itself. A thread that waits through that mapping, for a transaction, holds
 * no lock meanwhile for which other threads would wait (epoch.c).
 *
 * A cycle closes when its last thread begins to wait. That thread finds it, under a lock under which all waiting
 * threads were entered. Pages change hands meanwhile without the lock. A thread that gets a page for which others
 * wait already looks at the cycle when it begins to wait itself; and each thread looks again whenever it wakes up.
 * Cycles through other processes are found by labels.h. One thread of the cycle gets EDEADLK; when its transaction
 * ends, the others go on.
 */
#ifndef ATO_LIB_PAGE_WAITS_H
#define ATO_LIB_PAGE_WAITS_H

#include "lib/file/file.h"
#include "lib/file/page.h"
#include "lib/page/labels.h"

struct tx;

struct waiter {
    struct waiter *next;
    uint64_t thread;
    struct file *file;
    struct page_state *state;
    const struct patience *patience;
    struct labels labels;
};

/* Called when the calling thread begins to wait for a page. Pages for which `patience` says not to wait are not
 * followed. Returns 0; -1 with EDEADLK and a sentence. In both cases the caller must call waits_end(). */
int waits_begin(struct waiter *w, struct file *f, struct page_state *s,
                const struct patience *patience);

/* Checks again for a cycle. Returns as waits_begin(). */
int waits_check(struct waiter *w);

void waits_end(struct waiter *w);

/* Called when threads can begin to wait for an epoch on the file, and when it is about to go away. */
void waits_tell_epoch(struct tx *t, struct file *f);
void waits_forget_epoch(struct tx *t);

/* Called when a transaction has just become another thread's. When it returns, the old owner, which may be waiting
 * in another call, looks at it no more. */
void waits_hand_over(const struct tx *t);

/* Waits until all threads that have read a transaction's number from a page, and are looking it up, are done. After
 * that a number that no page has any more may become invalid. */
void waits_pass(void);

void waits_lock(void); /* around fork() */
void waits_unlock(void);
void waits_forget_all(void); /* in a forked child */

#endif
