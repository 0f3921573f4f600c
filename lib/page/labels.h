/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the threads of several processes that wait for each other in a cycle (the algorithm of Mitchell and
 * Merritt, 1984).
 *
 * A thread that waits for a page has two labels, which are numbers that no other thread makes: its own, and
 * the one that it shows. It begins with a new label as both, higher than what the thread that it waits for
 * shows, and than all that its process ever showed. From then on it looks now and then at what that thread
 * shows, if that waits, too, and shows the same if it is higher. So the highest label of a cycle goes round
 * it, against the direction of waiting, until the thread that made it sees it shown by the thread that it
 * waits for. Only this thread of the cycle gets EDEADLK.
 *
 * A page names its holder by a process and a transaction. So a thread shows its label in the shared memory of
 * each file of which its transactions may have pages, beside the transaction. An open epoch belongs to all
 * threads of its process: each of them that waits shows its label there.
 *
 * A file has room for SHARED_LABELS. A thread that finds no room tries again each time it looks; a cycle that
 * goes through it is found when other labels have gone.
 *
 * Cycles within the process are found at once (waits.c), cycles through others after some looks. All calls
 * are under the lock of waits.c. The label that completes a cycle may come from a thread that has just given
 * up: then a thread may get EDEADLK without need.
 */
#ifndef ATO_LIB_PAGE_LABELS_H
#define ATO_LIB_PAGE_LABELS_H

#include "lib/file/file.h"

struct tx;

struct labels_place {
    struct file *file;
    const struct tx *tx;
    struct shared_label *at; /* NULL: there was no room */
    uint64_t key;
};

struct labels {
    uint64_t own, shown;
    uint64_t waits_for; /* as shared_label.key */
    struct labels_place *places;
    unsigned n, room;
};

/* One look of `thread`, which waits for the page, for the first time or still; *l is all 0 at the first look.
 * Returns true if the thread is told that it is in a cycle. A label is not shown where there is no memory. */
bool labels_step(struct labels *l, uint64_t thread, const struct file *f,
                 const struct page_state *s);

void labels_end(struct labels *l);

/* Removes the labels beside a transaction that is no longer the thread's, or an epoch that ends: its files
 * may be unmapped. */
void labels_drop(struct labels *l, const struct tx *t);

#endif
