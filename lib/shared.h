/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared-memory object: where the states of a file's pages live, for every process that maps
 * the file.
 *
 * One POSIX shared-memory object per original, `/ato-<id>-<generation>`, made anew by the first to
 * attach (which is also recovery after everyone died), removed by the last. Nothing in it outlives
 * its users: the media hold the truth. All states are zero at birth and take their bitmap from the
 * media at first touch, so that mapping a large file costs nothing.
 *
 *   offset      what
 *   0           struct shared_header, then zeros up to 4096
 *   4096        slots: 1024 of 16 bytes
 *   20480       directory: 4 bytes for each group of 4 pages, index of the group + 1, 0: no group
 *   groups_at   groups: 4 page states of 32 bytes each, handed out in the order of first touch
 *
 * The directory keeps memory proportional to the pages that are used, wherever in the file they
 * are; a flat array would be made whole by scattered writes.
 *
 * Trust. Who may write the file may write its object. Nothing in the object is therefore believed
 * further than it can be: an index is brought within the object, a size within the views, and what an
 * operation counts on from one of its steps to the next it keeps to itself. Whatever somebody stores
 * here, he may get wrong bytes of this file, which he could have written himself, or have others wait
 * for him or die of SIGBUS, which he could have had by cutting the file; no other memory, no other file.
 *
 * Space. On tmpfs touching a hole of a full file system is SIGBUS, even to read it. So directory
 * and groups are allocated in batches before they are touched: ENOSPC is an error like any other.
 */
#ifndef ATO_LIB_SHARED_H
#define ATO_LIB_SHARED_H

#include "../reflection/manifest.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* page_state.flags */
#define PAGE_O_ALLOCATED 1u /* stores to O meet space */
#define PAGE_R_ALLOCATED 2u /* stores to R and to the word meet space */

/* page_state.notes: what others than the holder have to say */
#define PAGE_SLEEPERS 0x80u /* somebody sleeps until the page is free */
#define PAGE_READS    0x7fu /* gathered since the last write, for the adaptive policy */

struct page_state {
    uint32_t holder;  /* who has the write reservation: 0 nobody, else slot + 1 in bits 0-10 and the
                         generation of the slot in bits 11-30 */
    uint8_t owner;    /* who within the holder: a thread's number; set by the holder. The four bytes
                         from here on are a futex */
    uint8_t written;  /* when it was written last: a guess (write.c); set by the holder */
    uint8_t notes;    /* changed by anyone, atomically */
    uint8_t flags;    /* changed by the holder only */
    uint64_t version; /* odd: `bitmap` is right. 0: not taken from the media yet; even: flipping.
                         Moves with every flip, by the holder only */
    uint64_t bitmap;  /* as on the media, once that is durable; changed by the holder only */
    uint64_t
        tx; /* 0, or which of the holder's transactions has the page (tx.h); set by the holder */
};

#define GROUP_PAGES 4u

struct page_group {
    struct page_state pages[GROUP_PAGES];
};

struct shared_slot {
    uint32_t generation; /* moves when the slot is given out */
    uint32_t state;      /* enum shared_slot_state */
    uint32_t pid;        /* information: pids mislead across pid namespaces */
    uint32_t reserved;
};

enum shared_slot_state { SLOT_FREE = 0, SLOT_LIVE = 1, SLOT_RECOVERING = 2 };

struct shared_header {
    uint64_t magic;
    uint32_t version, slots;
    uint8_t id[16], boot_id[16]; /* as in the manifest */
    uint64_t generation;         /* as in the manifest */
    uint64_t capacity;           /* pages of the largest file that fits */
    uint64_t groups_at;
    uint64_t next_group;       /* handed out so far */
    uint64_t groups_allocated; /* that have space */
    uint64_t size;             /* logical size of the original, bytes */
    uint32_t poisoned;         /* a flip is in doubt: every call is EIO */
    uint32_t domain;
    uint64_t inode, device;   /* of the original */
    uint64_t cut;             /* bytes: a shrink to there is under way (size.h); UINT64_MAX: none */
    uint64_t gone;            /* the same while it is shown */
    struct page_state sizing; /* who changes the size holds this, before any page; its version moves
                                 with the size */
};

static_assert(sizeof(struct page_state) == 32, "two to a cache line");
static_assert(sizeof(struct shared_slot) == 16, "layout");
static_assert(sizeof(struct shared_header) <= 4096, "layout");

#define SHARED_MAGIC   0x4445524148534f54ull /* "TOSHARED", little-endian */
#define SHARED_VERSION 1

struct shared {
    struct shared_header *header;
    struct shared_slot *slots;
    uint32_t *directory;
    struct page_group *groups;
    uint8_t *ready; /* this process saw that batch of the directory allocated */
    uint64_t capacity;
    uint32_t last_group; /* 2^n - 1 */
    char *base;
    uint64_t mapped;
    int fd;
    char name[64];
};

/* Directory entries in a batch: 16 KiB of directory, 64 MiB of file. */
#define SHARED_BATCH 4096u

/* Makes the object anew for the pairing `record`, and removes the one of *generation, which dead
 * users may have left; *generation moves to the new one's. capacity: bytes of the largest file to
 * come. Owner, group and mode follow the original. ENOSPC, EACCES, ... */
int shared_create(struct shared *s, const struct manifest_record *record, uint64_t *generation,
                  uint64_t capacity, uint64_t size, uid_t owner, gid_t group, mode_t mode);

/* Unmaps; `remove`: and unlinks, as the last user. False if that failed. */
bool shared_close(struct shared *s, bool remove);

/* The state of a page whose group is not there yet, or perhaps not: made. NULL with ENOSPC. */
struct page_state *shared_make_state(struct shared *s, uint64_t page);

/* The state of a page; NULL if it was not made yet. page < capacity. A few loads, no lock. */
static inline struct page_state *shared_peek(const struct shared *s, uint64_t page)
{
    uint64_t group = page / GROUP_PAGES;
    if (__builtin_expect(!__atomic_load_n(&s->ready[group / SHARED_BATCH], __ATOMIC_ACQUIRE), 0))
        return NULL;
    /* Pairs with the release in shared_make_state(): the group has space and is zeroed. */
    uint32_t index = __atomic_load_n(&s->directory[group], __ATOMIC_ACQUIRE);
    if (__builtin_expect(index == 0, 0))
        return NULL;
    return &s->groups[(index - 1) & s->last_group].pages[page % GROUP_PAGES];
}

/* The same; made if need be. NULL with ENOSPC. */
static inline struct page_state *shared_state(struct shared *s, uint64_t page)
{
    struct page_state *found = shared_peek(s, page);
    return __builtin_expect(!!found, 1) ? found : shared_make_state(s, page);
}

#endif
