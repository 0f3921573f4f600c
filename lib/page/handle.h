/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transaction: its pages, its mappings, and the new size of the file that it writes to.
 *
 * A caller's handle is not a pointer but a number: the transaction's place in a table, and how often that place was
 * used before. So the use of a handle after its end is detected, even if the place is in use again. Places are
 * never freed.
 *
 * page_state.tx of a transaction's page has the lower half of that number, and the page's place in the
 * transaction's list. A thread that looks a page up by it checks that the list says the same, since other processes
 * may write to that memory.
 *
 * What the transaction writes lies in invalid homes (I2), and in `pending` masks in its own memory: no other thread
 * sees it, and an abort only forgets it.
 */
#ifndef ATO_LIB_PAGE_HANDLE_H
#define ATO_LIB_PAGE_HANDLE_H

#include "lib/file/page.h"
#include "lib/page/page_set.h"

/* Pages that a transaction may touch by default: 1 GiB, and 32 MiB for accesses that are scattered or not aligned. */
#define TX_PAGES ((1ull << 18) + 8192)

/* The largest value of the option. */
#define TX_MOST_PAGES (1ull << 28)

struct queue;

/* What a transaction has read and does not hold (notes.h): a page, or a file's size. The memory is kept for the next transaction. */
struct note {
    struct file *file;
    const struct page_state *state; /* of the page; or `sizing` */
    uint64_t end; /* bytes of the file: up to where the page was read; 0: the size */
    uint32_t content;
    uint32_t at; /* its place in the hash table */
};
struct notes {
    struct note *each;
    uint32_t *index; /* 2 * room places of a hash table: 0, or one more than an index of `each` */
    uint64_t n, room;
    uint64_t sizes;  /* of the n; max_pages does not count them */
    uint64_t moment; /* notes_hold() */
};

struct tx {
    uint64_t handle;     /* the caller's handle; 0: not open */
    uint64_t generation; /* of the next handle */
    uint64_t thread;     /* thread_id() of its last call; TX_ALL_THREADS: an epoch */
    uint32_t slot;
    bool refused; /* it can only be aborted (again.h) */
    unsigned flags;
    /* Until when others let it go first, CLOCK_MONOTONIC, ns; it holds what it reads then (again.h). 0: it does not. */
    uint64_t first;
    uint64_t wait_ms; /* 0: as a plain call */
    uint64_t max_pages;
    uint64_t blocked; /* an epoch's: the page that its last call did not wait for (claim.h) */
    struct page_set set;
    /* Writes that are not stored yet (staging.h). The memory is kept for the next transaction; may be NULL. */
    struct queue *queue;
    struct notes notes; /* what it has read */
    /* The mappings that it uses, in the order of the first calls on them. The memory is kept for the next transaction. */
    struct mapping **mappings;
    unsigned nmappings, mappings_room;
    struct mapping *
        written; /* one that it has written to; all of these are of one file. NULL: it has only read */
    bool eager; /* some of what it has written is to be deployed after the commit */
    /* If it changes the size of that file (resize.h): */
    bool sized;    /* it holds `sizing`, and the next fields are valid */
    bool resizes;  /* `size` is not the file's: the commit makes it so */
    uint64_t size; /* bytes, as the transaction sees it */
    uint64_t low;  /* the smallest so far: others are kept from whole pages behind it */
    struct tx *next_free;
};

/* In tx.flags, beside those of ato_engine.h: a change of size gives the file just its length (resize.h). */
#define TX_EXACT (1u << 31)

/* Results of handle_thread_of() other than a thread. */
#define TX_NONE        0ull
#define TX_ALL_THREADS (UINT64_MAX >> 1)

/* Returns the thread of the transaction that page_state.tx names, in this process; TX_NONE, TX_ALL_THREADS. */
uint64_t handle_thread_of(uint64_t tx);

/* All transactions that were ever made. Place 0 is never used, so a handle and a tag are never 0. */
extern struct tx *handle_places[PAGE_TX_PLACES];

/* Returns the open transaction that a caller's handle names, of any thread; NULL: none. */
static inline struct tx *handle_at(uint64_t handle)
{
    struct tx *t = __atomic_load_n(&handle_places[handle & (PAGE_TX_PLACES - 1)], __ATOMIC_ACQUIRE);
    return t && handle && __atomic_load_n(&t->handle, __ATOMIC_ACQUIRE) == handle ? t : NULL;
}

/* Begins a transaction of a thread, or of TX_ALL_THREADS. NULL with EAGAIN, ENOMEM. */
struct tx *handle_make(uint64_t thread, unsigned flags);

/* Makes the handle of an empty transaction invalid, and keeps the transaction for a later one. */
void handle_close(struct tx *t);

/* In a forked child: forgets all transactions, which are the parent's. With MUTEX_HANDLES. */
void handle_forget_all(void);

#endif
