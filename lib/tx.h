/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transaction: its pages, its mappings, the new sizes of their files, and its owner.
 *
 * A caller's handle is not a pointer but a number: the transaction's place in a table, and how often that place was
 * used before. So the use of a handle after its end is detected, whatever the place is used for by then. Places are
 * never freed.
 *
 * page_state.tx of a transaction's page has the lower half of that number, and the page's place in the
 * transaction's list. A thread that looks a page up by it checks that the list says the same, since other processes
 * may write to that memory.
 *
 * What the transaction writes lies in invalid homes (I2), and in `pending` masks in its own memory: no other thread
 * sees it, and to forget it is to abort.
 */
#ifndef ATO_LIB_TX_H
#define ATO_LIB_TX_H

#include "flip.h"

/* Pages that a transaction may touch by default: 1 GiB, and 32 MiB for accesses that are scattered or not aligned. */
#define TX_PAGES JOURNAL_WORDS

/* The most that options may ask for. */
#define TX_MOST_PAGES (1ull << 28)

enum { TX_FEW_PARTS = 4, TX_PLACES = 1 << 16 };

struct queue;

struct tx {
    uint64_t handle;     /* the caller's handle; 0: not open */
    uint64_t generation; /* of the next handle */
    uint64_t owner;      /* thread_id(), perhaps with TX_UNDECIDED; TX_ALL_THREADS: an epoch */
    uint32_t slot;
    bool busy;    /* its owner is in a call on it */
    bool settled; /* the list of its pages stays in `region` */
    unsigned flags;
    uint64_t wait_ms; /* 0: no limit */
    uint64_t max_pages;
    struct hold hold;
    /* The list of pages, if it is longer than hold.small. Kept for the next transaction. */
    void *region;
    uint64_t region_bytes; /* bytes of address space */
    uint64_t region_ready; /* bytes of it that are writable memory */
    /* Writes that are not stored yet (stage.c). Kept for the next transaction; may be NULL. */
    struct queue *queue;
    struct flip_part *parts; /* in the order of the first calls on their mappings */
    unsigned nparts, parts_room;
    struct flip_part few[TX_FEW_PARTS];
    /* Of an epoch: the file of its mapping, while threads may wait for the epoch; else NULL. */
    struct file *home;
    struct tx *next_free;
};

/* Results of tx_owner_of() that are no thread. */
#define TX_NOBODY      0ull
#define TX_ALL_THREADS (UINT64_MAX >> 1)

/* In tx.owner, beside the id of a thread: ato_tx_adopt() of that thread is finding out whether it may have it. */
#define TX_UNDECIDED (1ull << 63)

/* The place in the table of the transaction that page_state.tx names: constant for as long as the transaction
 * lives, and the same for all epochs of a mapping. */
static inline uint32_t tx_place(uint64_t tx)
{
    return (uint32_t)(tx >> 32) & (TX_PLACES - 1);
}

/* Returns the owner of the transaction that page_state.tx names, in this process; TX_NOBODY, TX_ALL_THREADS. */
uint64_t tx_owner_of(uint64_t tx);

/* Visits the transactions of `thread`, which is not in another call, and the epochs of the process. */
void tx_each_of(uint64_t thread, void (*visit)(struct tx *t, void *arg), void *arg);

/* Returns the open transaction that a caller's handle names, of any thread; NULL: none. */
struct tx *tx_at(uint64_t handle);

/* Begins a transaction of the thread `owner`, or of TX_ALL_THREADS. NULL with EAGAIN, ENOMEM. */
struct tx *tx_make(uint64_t owner, unsigned flags);

/* Releases its pages and mappings, and forgets what it wrote and did not commit. It stays open. */
void tx_empty(struct tx *t);

/* tx_empty(), and makes its handle invalid. */
void tx_unmake(struct tx *t);

/* Returns its part for a mapping, which cannot be unmapped from then on. NULL with ENOMEM; or, if `to_write`, with
 * EXDEV: the file cannot be in one commit with the others. */
struct flip_part *tx_part(struct tx *t, struct mapping *m, bool to_write);

/* Checks that the file of m can be in one commit with the files that the transaction writes to. Returns 0; -1 with
 * EXDEV. */
int tx_check_alike(const struct tx *t, const struct mapping *m);

/* Makes room for `more` parts. Returns 0; -1 with ENOMEM. */
int tx_make_room(struct tx *t, unsigned more);

/* For join.c. tx_move_parts() moves parts, without the sizes, to a transaction that has room for them. tx_let_go()
 * makes a transaction forget its pages and mappings, which belong to another transaction now. */
void tx_move_parts(struct tx *to, const struct tx *from);
void tx_let_go(struct tx *t);

/* Forgets parts from the n-th on: the call for which they were made has failed. */
void tx_drop_parts(struct tx *t, unsigned n);

/* Returns the part that speaks for a file, for which it must have one. */
struct flip_part *tx_part_of(struct tx *t, const struct file *f);

/* The same, if it changes the file's size; else NULL. */
const struct flip_part *tx_sizes(const struct tx *t, const struct file *f);

/* Returns the file's size as the transaction sees it. */
uint64_t tx_size(const struct tx *t, const struct file *f);

/* Returns 0; -1 with EIO if one of its files is poisoned. */
int tx_check(const struct tx *t);

/* Commits, durably; its pages stay held. Returns 0; -1: errors of flip_commit(), and nothing changed. */
int tx_make_durable(struct tx *t);

/* After the commit: deploys what the eager policy asks for. A failure is ignored. */
void tx_bring_home(struct tx *t);

/* Gives an empty transaction a new handle: what was noted of the old one is out of date. */
void tx_renew(struct tx *t);

/* Returns how many transactions are kept for later ones, open ones included, and sets *bytes to their address
 * space. */
unsigned tx_kept(uint64_t *bytes);

void tx_lock(void); /* around fork() */
void tx_unlock(void);
void tx_forget_all(void); /* in a forked child, which has no open one */

#endif
