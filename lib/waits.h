/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who waits for whom, so that nobody waits for himself.
 *
 * Only a transaction keeps pages from one call to the next. So the threads that wait in a circle are all
 * owners of transactions: each waits for a page that a transaction of the next one holds. A thread that
 * holds a page for the length of one call waits for others of its kind only, in their common order, and
 * is done some time (pages.h).
 *
 * An open epoch is every thread's of the process: who waits for one of its pages, other than through the
 * mapping that it belongs to, waits for himself. Who waits through that mapping, for a transaction, has no lock
 * meanwhile that others would wait for (epoch.c).
 *
 * A circle closes when the last one in it begins to wait, and that one looks: under one lock, with which
 * all who wait have been entered. Pages change hands meanwhile, without it. Who comes to hold a page that
 * others are waiting for already looks at the circle when he waits in turn; and everybody looks again each
 * time he wakes up. Circles through other processes are found by labels.h. One of the circle is told (EDEADLK); when his transaction ends the others go on.
 */
#ifndef ATO_LIB_WAITS_H
#define ATO_LIB_WAITS_H

#include "file.h"
#include "labels.h"
#include "pages.h"

struct tx;

struct waiter {
    struct waiter *next;
    uint64_t thread;
    struct file *file;
    struct page_state *state;
    const struct patience *patience;
    struct labels labels;
};

/* The calling thread waits for a page; whom `patience` does not wait for it is about to find out. 0, or -1 with
 * EDEADLK and a sentence. Either way waits_end() follows. */
int waits_begin(struct waiter *w, struct file *f, struct page_state *s,
                const struct patience *patience);

/* Does it wait for itself by now? */
int waits_check(struct waiter *w);

void waits_end(struct waiter *w);

/* An epoch on the file can be waited for from now on; and is about to go away. */
void waits_tell_epoch(struct tx *t, struct file *f);
void waits_forget_epoch(struct tx *t);

/* A transaction has just become another thread's. Its old one, which may be waiting in another call, looks at it no
 * more when this returns. */
void waits_hand_over(const struct tx *t);

/* Who has read, of a page, whose it is, and is finding out what that means, is done when this returns: so that
 * a number that no page has any more may become nobody's. */
void waits_pass(void);

void waits_lock(void); /* around fork() */
void waits_unlock(void);
void waits_forget_all(void); /* in a forked child */

#endif
