/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transaction: its pages, its mappings, the new sizes of their files; and whose it is.
 *
 * What callers hold is no pointer but a number: the place of the transaction in a table, and how often
 * that place was used before. So a handle that is used after its end is found out, whatever lies there by
 * now. Places are never freed.
 *
 * A page of a transaction has in page_state.tx the lower half of that number, and its place among the
 * transaction's pages. Who finds a page by it looks whether that place says the same: it lies in memory
 * that others may write to.
 *
 * What the transaction writes lies in invalid homes (I2) and in `pending` masks of its own memory: nobody
 * else sees it, and to forget it is to abort.
 */
#ifndef ATO_LIB_TX_H
#define ATO_LIB_TX_H

#include "flip.h"

/* Pages that a transaction may touch, where its options do not say: 1 GiB and 32 MiB, for one that is not
 * aligned, or scattered. */
#define TX_PAGES JOURNAL_WORDS

/* The most that options may say. */
#define TX_MOST_PAGES (1ull << 28)

enum { TX_FEW_PARTS = 4, TX_PLACES = 1 << 16 };

struct queue;

struct tx {
    uint64_t handle;     /* what callers have; 0: not open */
    uint64_t generation; /* of the next handle */
    uint64_t owner;      /* thread_id(), perhaps with TX_UNDECIDED; TX_ALL_THREADS: an epoch */
    uint32_t slot;
    bool busy;    /* its owner is in a call */
    bool settled; /* its pages stay in `region` */
    unsigned flags;
    uint64_t wait_ms; /* 0: for ever */
    uint64_t max_pages;
    struct hold hold;
    void *region; /* of the pages, when they are more than hold.small; stays for the next one */
    uint64_t region_bytes; /* of address space */
    uint64_t region_ready; /* of them, for pages */
    struct queue
        *queue; /* writes that are not stored yet (stage.c); stays for the next one; may be NULL */
    struct flip_part *parts; /* in the order in which calls came to their mappings */
    unsigned nparts, parts_room;
    struct flip_part few[TX_FEW_PARTS];
    struct file *home; /* of an epoch, while it may be waited for: its mapping's */
    struct tx *next_free;
};

/* Answers of tx_owner_of() that are no thread. */
#define TX_NOBODY      0ull
#define TX_ALL_THREADS (UINT64_MAX >> 1)

/* In tx.owner, beside the thread that asks for it: ato_tx_adopt() finds out whether it may have it. */
#define TX_UNDECIDED (1ull << 63)

/* The place in the table, its slot, of a transaction that page_state.tx names: the same for as long as it
 * lives, also for each epoch of a mapping. */
static inline uint32_t tx_place(uint64_t tx)
{
    return (uint32_t)(tx >> 32) & (TX_PLACES - 1);
}

/* Whose transaction it is that page_state.tx names, in this process. */
uint64_t tx_owner_of(uint64_t tx);

/* Visits the transactions of a thread, which is not in another call, and the epochs of the process. */
void tx_each_of(uint64_t thread, void (*visit)(struct tx *t, void *arg), void *arg);

/* The open one that a caller's handle names; NULL. Of whatever thread. */
struct tx *tx_at(uint64_t handle);

/* A new one, of the thread `owner`, or TX_ALL_THREADS. NULL with EAGAIN, ENOMEM. */
struct tx *tx_make(uint64_t owner, unsigned flags);

/* Gives its pages and mappings back; what it wrote and did not commit is forgotten. It may go on. */
void tx_empty(struct tx *t);

/* tx_empty(), and its handle is nobody's any more. */
void tx_unmake(struct tx *t);

/* Its part for a mapping, which cannot be unmapped from then on. NULL with ENOMEM; and, to be written to,
 * with EXDEV: not in one commit with the others. */
struct flip_part *tx_part(struct tx *t, struct mapping *m, bool to_write);

/* -1 with EXDEV: a file that is written to through m is not in one commit with those that it writes to. */
int tx_check_alike(const struct tx *t, const struct mapping *m);

/* Room for so many parts more. ENOMEM. */
int tx_make_room(struct tx *t, unsigned more);

/* For join.c: the parts of one become another's, which has room for them, but for the sizes; and the one
 * has no more pages and mappings, since all are the other's. */
void tx_move_parts(struct tx *to, const struct tx *from);
void tx_let_go(struct tx *t);

/* Forgets parts from the n-th on: the call that they were for has failed. */
void tx_drop_parts(struct tx *t, unsigned n);

/* The part that speaks for a file that it has one for. */
struct flip_part *tx_part_of(struct tx *t, const struct file *f);

/* The same, if it changes the file's size; NULL. */
const struct flip_part *tx_sizes(const struct tx *t, const struct file *f);

/* The file's size as the transaction sees it. */
uint64_t tx_size(const struct tx *t, const struct file *f);

/* -1 with EIO: a file that it has to do with is poisoned. */
int tx_check(const struct tx *t);

/* Makes everything count, durably; its pages are kept. Errors: flip_commit()'s, nothing changed. */
int tx_make_durable(struct tx *t);

/* After it: what the eager policy asks for. That it cannot be had now is no error. */
void tx_bring_home(struct tx *t);

/* An empty one gets another handle: what was noted of it before is out of date. */
void tx_renew(struct tx *t);

/* What is kept of those that are over, for those to come: so many, with so much address space. */
unsigned tx_kept(uint64_t *bytes);

void tx_lock(void); /* around fork() */
void tx_unlock(void);
void tx_forget_all(void); /* in a forked child: none is open */

#endif
