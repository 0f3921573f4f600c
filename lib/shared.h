/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared-memory object: where the states of a file's pages live, for every process that maps
 * the file.
 *
 * One POSIX shared-memory object per original, `/ato-<id>-<generation>`, made anew by the first to
 * attach (which is also recovery after everyone died), removed by the last. The manifest tells its
 * generation, for those who come later. Nothing in it outlives its users: the media hold the truth. All states are zero at birth and take their bitmap from the
 * media at first touch, so that mapping a large file costs nothing.
 *
 *   offset      what
 *   0           struct shared_header, then zeros up to 4096
 *   4096        slots: 1024 of 32 bytes
 *   36864       whose each block of counters is: 4 bytes each, as page_state.holder; 0: nobody's
 *   45056       labels of those who wait: 16 bytes each (labels.h)
 *   65536       blocks of counters, of 12288 bytes each: of one mapping
 *   ...         what threads are doing: 8192 bytes for each slot, 64 for each of its threads
 *   ...         directory: 4 bytes for each group of 4 pages, index of the group + 1, 0: no group
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
#include "../reflection/trust.h"

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
    uint32_t holder; /* who has the write reservation: 0 nobody, else slot + 1 in bits 0-10 and the
                         generation of the slot in bits 11-30 */
    uint8_t
        owner; /* who within the holder: a thread's number; that of who flips it, while it is flipping; or
                         PAGE_TAKEN_OVER, PAGE_HIDDEN; set by the holder. The four bytes from here on are a futex */
    uint8_t written;  /* when it was written last: a guess (write.c); set by the holder */
    uint8_t notes;    /* changed by anyone, atomically */
    uint8_t flags;    /* changed by the holder only */
    uint64_t version; /* odd: `bitmap` is right. 0: not taken from the media yet; even: flipping.
                         Moves with every flip, by the holder only */
    uint64_t bitmap;  /* as on the media, once that is durable; changed by the holder only */
    uint64_t
        tx; /* 0, or which of the holder's transactions has the page (tx.h); set by the holder */
};

/* page_state.owner of a dead holder's: marked by who takes it over, and as it was before, until all is reloaded;
 * or by who finishes a commit to several files, which others of these may show by now. */
#define PAGE_TAKEN_OVER 0xffu
#define PAGE_HIDDEN     0xfeu

#define GROUP_PAGES 4u

struct page_group {
    struct page_state pages[GROUP_PAGES];
};

/* One process. Changed with the attach lock. */
struct shared_slot {
    uint32_t generation;    /* moves when the slot is given out */
    uint32_t state;         /* enum shared_slot_state */
    uint64_t process;       /* identity_process() */
    uint32_t pid;           /* information: pids mislead across pid namespaces */
    uint16_t reloaded;      /* it is dead, and what the media have is what holds of all its pages */
    uint16_t threads;       /* its numbers below this were in a commit */
    uint64_t pid_namespace; /* of which the pid is: its inode */
};

/* What page_state.holder says of a slot's process. */
static inline uint32_t shared_holder(unsigned slot, uint32_t generation)
{
    return (slot + 1) | (generation & 0xfffffu) << 11;
}

/* MANIFEST_SLOTS or more: of no process. */
static inline unsigned shared_slot_of(uint32_t holder)
{
    return (holder & 0x7ff) - 1;
}

/* Given out; whether that process lives, its byte of the manifest tells (pairing.h). */
enum shared_slot_state { SLOT_FREE = 0, SLOT_GIVEN = 1 };

/*
 * What a thread is doing. Of pages that it has marked as flipping: it may have died there; then these are as it says
 * here, until somebody frees them. For who may not do that, and reads them (reader.c).
 */
struct shared_showing {
    uint16_t what; /* enum shared_what */
    /* SHOWING_ELSEWHERE: in the memory of this pairing, what this thread shows of this process, which has
     * page_state.holder there. Of a commit to several files all look at one place. */
    uint16_t thread;
    uint32_t holder;
    uint64_t generation;
    uint8_t id[16];
    /* Of its commits so many are under way, in bits 0-15: from before the first word is stored until all is shown; and so
     * many are over (settle.h). A line for each thread: it is written to in each commit. */
    uint64_t commits;
    uint64_t pad[3];
};

enum shared_what {
    SHOWING_MARKS = 0,     /* what each was before it was marked holds: not all are */
    SHOWING_WORDS = 1,     /* what the media have holds, durably: all were marked */
    SHOWING_ELSEWHERE = 2, /* another file's memory says which of both */
    SHOWING_UNTOLD = 3,    /* which of both is not known */
};

struct shared_label {
    uint64_t key; /* page_state.holder << 32 | the transaction's number; 0: nobody's */
    uint64_t label;
};

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
    uint64_t inode, device; /* of the original */
    uint64_t cut;           /* bytes: a shrink to there is under way (size.h); UINT64_MAX: none */
    uint64_t gone;          /* the same while it is shown */
    uint64_t coming;        /* bytes: `size` as it will be, while `sizing` is marked */
    uint64_t lowest;  /* bytes: the least that it was cut to; what lies behind may have no space */
    uint64_t entered; /* so many slots were given out */
    uint32_t slots_used; /* only those below this ever were */
    uint32_t pad;
    uint32_t settled; /* words on the media are durable as they are visible, but of pages held */
    uint32_t written; /* the original was stored to */
    struct page_state sizing; /* who changes the size holds this, before any page; its version moves
                                 with the size */
};

static_assert(sizeof(struct page_state) == 32, "two to a cache line");
static_assert(sizeof(struct shared_slot) == 32, "layout");
static_assert(sizeof(struct shared_showing) == 64, "layout");
static_assert(sizeof(struct shared_header) <= 4096, "layout");

#define SHARED_MAGIC   0x4445524148534f54ull /* "TOSHARED", little-endian */
#define SHARED_VERSION 4

enum {
    SHARED_SLOTS_AT = 4096,
    SHARED_BLOCK_HOLDERS_AT = SHARED_SLOTS_AT + MANIFEST_SLOTS * sizeof(struct shared_slot),
    SHARED_BLOCKS_AT = 65536,
    SHARED_LABELS = 1024,
    SHARED_BLOCKS = 2048,
    SHARED_BLOCK_BYTES = 12288,
    SHARED_LABELS_AT = SHARED_BLOCK_HOLDERS_AT + SHARED_BLOCKS * 4,
    SHARED_SHOWINGS_AT = SHARED_BLOCKS_AT + SHARED_BLOCKS * SHARED_BLOCK_BYTES,
    SHARED_SHOWINGS_BYTES = 8192, /* of a slot */
    SHARED_SHOWINGS = SHARED_SHOWINGS_BYTES / sizeof(struct shared_showing),
    SHARED_DIRECTORY_AT = SHARED_SHOWINGS_AT + MANIFEST_SLOTS * SHARED_SHOWINGS_BYTES,
};
static_assert(SHARED_LABELS_AT + SHARED_LABELS * sizeof(struct shared_label) <= SHARED_BLOCKS_AT,
              "layout");

struct shared {
    struct shared_header *header;
    struct shared_slot *slots;
    uint32_t *block_holders;
    struct shared_label *labels;
    struct shared_showing *showings;
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
 * users may have left; *generation moves to the new one's. One of another user that cannot be removed is emptied, and
 * is the new one. capacity: bytes of the largest file to
 * come. Owner, group and mode follow the original. ENOSPC, EACCES, ... */
int shared_create(struct shared *s, const struct manifest_record *record, uint64_t *generation,
                  uint64_t capacity, uint64_t size, const struct trust *file);

/* Takes part in the object that others have made for the pairing `record`. 0; SHARED_NOT_THERE with a
 * sentence, also for one that is none; -1: EACCES, ENOMEM, ... `path`: of the original, for sentences. */
#define SHARED_NOT_THERE 1
int shared_join(struct shared *s, const struct manifest_record *record, const struct trust *file,
                const char *path);

/* The same for who may only read the file: its memory cannot be written to. */
int shared_watch(struct shared *s, const struct manifest_record *record, const struct trust *file,
                 const char *path);

/* shared_peek() for him, who makes no states: others' may be there and not be known yet. */
struct page_state *shared_look(struct shared *s, uint64_t page);

/* The name of a pairing's object, in /dev/shm. */
void shared_name(char name[64], const uint8_t id[16], uint64_t generation);

/* A block of zeros for counters, for the process that is `holder`. 1; 0: all are given out, and the caller
 * counts elsewhere; -1 with ENOSPC. */
int shared_take_block(struct shared *s, uint32_t holder, void **block);
void shared_give_block(struct shared *s, const void *block);

/* What a thread, by its number, of a slot's process is showing. */
static inline struct shared_showing *shared_showing_of(const struct shared *s, unsigned slot,
                                                       unsigned thread)
{
    return &s->showings[slot * SHARED_SHOWINGS + thread];
}

/* What is told at the place that one names which lies elsewhere, of a file with the same makers. SHOWING_UNTOLD: it is not
 * there any more, or not to be read, or somebody recovers there. */
enum shared_what shared_ask_elsewhere(const struct shared_showing *at, const struct trust *file);

/* Space for a slot's, which are zeros then. -1 with ENOSPC. */
int shared_clear_showings(struct shared *s, unsigned slot);

/* A place for a label. NULL: there is none. */
struct shared_label *shared_take_label(struct shared *s, uint64_t key);
void shared_give_label(struct shared_label *label);

/* The highest of those beside `key`, 0: there is none; and *back: `own` is among them. */
uint64_t shared_look_at_labels(const struct shared *s, uint64_t key, uint64_t own, bool *back);

/* Gives back a dead process's blocks and labels. */
void shared_forget_holder(struct shared *s, uint32_t holder);

/* Walks the states that there are of pages [*page, end): the next one, of page *page - 1; NULL. Such as are
 * made meanwhile may be passed over, unless the caller sees to it. */
struct page_state *shared_next_state(struct shared *s, uint64_t *page, uint64_t end);

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
