/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who of several processes waits in a circle (the algorithm of Mitchell and Merritt, 1984).
 *
 * A thread that waits for a page has two labels, numbers that nobody else makes: its own, and one that it
 * shows. It begins with a new one, higher than what is shown by whom it waits for, and than all that its process
 * ever showed, as both. From then on, now and then, it looks at what he shows, if he waits, too, and shows the
 * same if that is higher. So the highest label of a circle goes round it, against the direction of waiting, until
 * its maker sees it shown by whom he waits for: he alone of the circle, and he is told.
 *
 * What a page says of its holder is a process and a transaction. So a thread shows its label in the shared memory
 * of each file that a transaction of its may have pages of, beside that transaction. An open epoch is all its
 * process's: each of the threads that wait shows its label there.
 *
 * A file has room for SHARED_LABELS. Who finds none tries again each time it looks; a circle that goes through it is
 * found when others have gone.
 *
 * Circles within the process are found at once (waits.c), and these after some looks.
 * All under the lock of waits.c. The label that a circle needs may come from a thread that has just given up:
 * then somebody may be told for nothing.
 */
#ifndef ATO_LIB_LABELS_H
#define ATO_LIB_LABELS_H

#include "pages.h"

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

/* `thread` waits for the page, still or anew; *l was all 0 when it began to. True: in a circle. What there is no
 * memory for is not shown. */
bool labels_step(struct labels *l, uint64_t thread, const struct file *f,
                 const struct page_state *s);

void labels_end(struct labels *l);

/* The transaction is not the thread's any more, or no epoch: its files may go. */
void labels_drop(struct labels *l, const struct tx *t);

#endif
