/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared-memory object: it holds the states of a file's pages, for all processes that map the file.
 *
 * There is one POSIX shared-memory object per original, `/ato-<id>-<generation>`. The first process to map the file
 * makes it anew (that includes recovery after all users died), the last one removes it. Later processes find its
 * generation in the manifest. The object need not outlive its users: the media hold the authoritative state. All
 * states are zero at first, and the bitmap of a page is loaded from the media at first touch, so the cost of
 * mapping does not grow with the file.
 *
 *   offset      what
 *   0           struct shared_header, then zeros up to 4096
 *   4096        slots: 1024 of 24 bytes
 *   28672       batches of the directory: 1 byte for each, 1: it has space
 *   8417280     counters and commits of threads: 12288 bytes for each slot, 128 for each of its threads
 *   ...         directory: 4 bytes for each group of 4 pages, index of the group + 1, 0: no group
 *   groups_at   groups: 4 page states of 32 bytes each, handed out in the order of first touch
 *
 * and if the reflection is sparse (place.h):
 *
 *   ...         places: 4 bytes for each page of the groups, its place + 1, 0: none
 *   ...         index: places by page, as they were when the object was made
 *
 * and in any case, from the first snapshot on, the undo area (undo.h).
 *
 * The directory keeps memory proportional to the pages that are used, wherever they are in the file; scattered
 * writes would allocate all of a flat array.
 *
 * Trust. A process that may write the file may write its object. So no value in the object is used unchecked: an
 * index is limited to the object, a size to the views, and values that an operation uses in several steps are kept
 * in private memory. By storing arbitrary values here, a process can cause wrong bytes in this file, which it could
 * write anyway; or make other processes wait for it, or die of SIGBUS, which it could do by truncating the file. It
 * can reach no other memory and no other file.
 *
 * Space. On tmpfs touching a hole of a full file system is SIGBUS, even to read it. So directory and groups are
 * allocated in batches before they are touched: ENOSPC is an error like any other.
 */
#ifndef ATO_LIB_FILE_SHARED_H
#define ATO_LIB_FILE_SHARED_H

#include "ato.h"

#include "reflection/format/layout.h"
#include "reflection/format/log.h"
#include "reflection/media/window.h"
#include "reflection/pairing/pairing.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* page_state.flags */
#define PAGE_O_ALLOCATED 1u /* stores to O meet space */
#define PAGE_R_ALLOCATED 2u /* stores to R and to the word meet space */

/* page_state.notes: set by other threads than the holder */
#define PAGE_SLEEPERS 0x80u /* a thread sleeps until the page is released */

struct page_state {
    /* The process that holds the page: slot + 1 in bits 0-10, the slot's generation in bits 11-30; 0: none. */
    uint32_t holder;
    uint8_t unused;  /* 0. The four bytes from here on are a futex. */
    uint8_t written; /* time of the last write: a guess (store.h); set by the holder */
    uint8_t notes;   /* changed by any thread, atomically */
    uint8_t flags;   /* changed by the holder only */
    /* Odd: `bitmap` is valid. 0: not loaded from the media yet; other even numbers: flipping. Grows with every
     * flip. From bit 16 on: the number of the page's content (page_content()). Changed by the holder only. */
    uint64_t version;
    uint64_t bitmap; /* as on the media, durably; changed by the holder only */
    /* The transaction of the holder that has the page (handle.h); 0: none. Set by the holder. */
    uint64_t tx;
};

#define GROUP_PAGES 4u

/* The log of a file (reflection/format/log.h, lib/commit/log.h). */
struct shared_log {
    /* As in its header. The holder of `checking` changes them. To change capacity and origin it takes `appending` too. */
    uint64_t edition, salt, capacity, origin;
    uint64_t start;   /* of the first record that may not be home */
    uint64_t tail;    /* behind the last record. Changed by the holder of `appending`. */
    uint64_t sized;   /* behind the last one that says a size, or less than `start` */
    uint64_t said;    /* that size. shared_header.size is the same when it is visible */
    uint64_t durable; /* all records before this position are */
    /* Changed by the holder of `syncing`. */
    uint64_t target; /* what the sync that is under way makes durable */
    uint32_t turn;   /* odd: a sync is under way. Grows with each; a futex */
    uint32_t asleep; /* threads that sleep there, and those that were killed */
    /* enum persist_domain: how a record becomes durable. Set by the first process, as all have to do the same. */
    uint64_t medium;
    /* A length that the original has, durably, as its growth word says (resize.h); 0: that is not known. Changed by the holder of
     * `sizing`. */
    uint64_t ahead;
    struct page_state appending, syncing, checking;
};

/* Notes a record that ends at `end`, and the size that it says, if it does. With `appending`. */
static inline void shared_log_note_size(struct shared_log *l, uint64_t end, uint64_t size)
{
    if (size == LOG_NO_SIZE)
        return;
    __atomic_store_n(&l->said, size, __ATOMIC_RELAXED);
    __atomic_store_n(&l->sized, end, __ATOMIC_RELEASE);
}

/* Does a record say a size? It may not be durable yet: then the manifest gets it later. */
static inline bool shared_log_has_size(const struct shared_log *l)
{
    return __atomic_load_n(&l->sized, __ATOMIC_ACQUIRE) >
           __atomic_load_n(&l->start, __ATOMIC_ACQUIRE);
}

/* The first number of a commit (undo.h). What a page counts without numbers stays below, also in 32 bits. */
#define UNDO_FIRST (1ull << 46 | 1ull << 31)

struct shared_undo {
    uint64_t begun,
        shown; /* numbers of the last commit that has begun to become visible, and that is visible */
    uint64_t moment; /* all commits up to this number are visible to readers, too (undo.h) */
    uint64_t end;    /* in the log, behind the last early commit that is visible (early.h) */
    /* Changed by the holder of `showing`. */
    uint64_t most; /* copies that there may be; set with the attach lock, before there is a table */
    uint64_t made; /* those that have space */
    uint64_t hand; /* where the next free one is looked for */
    uint32_t edition;          /* odd: the lists are being changed */
    struct page_state showing; /* held while a commit with a number becomes visible */
};

/* A mapping with ATO_PLAIN_STORES (store_views.h). Its holder is stored last. */
struct shared_view {
    uint32_t holder; /* its process, as in page_state.holder */
    uint32_t
        lost; /* others changed a page that it has a copy of, and what the page was before is not kept */
    uint64_t base;         /* its address in that process */
    uint64_t first, pages; /* of the file */
};
enum { SHARED_VIEWS = 64 };

struct page_group {
    struct page_state pages[GROUP_PAGES];
};

/* The slot of one process. Changed under the attach lock; `threads` by its process at any time. */
struct shared_slot {
    uint32_t generation;    /* changes when the slot is given out */
    uint32_t state;         /* enum shared_slot_state */
    uint32_t pid;           /* information only: a pid has no meaning in another pid namespace */
    uint16_t mappings;      /* for `ato top` */
    uint16_t threads;       /* one more than the highest thread number that was in a commit */
    uint64_t pid_namespace; /* inode of the pid's namespace */
};

/* The value of page_state.holder for a slot's process. */
static inline uint32_t shared_holder(unsigned slot, uint32_t generation)
{
    return (slot + 1) | (generation & 0xfffffu) << 11;
}

/* The slot that a holder names; MANIFEST_SLOTS or more: none. */
static inline unsigned shared_slot_of(uint32_t holder)
{
    return (holder & 0x7ff) - 1;
}

/* Whether the slot is given out. The lock on its byte of the manifest shows whether its process is
 * alive (pairing.h). */
enum shared_slot_state { SLOT_FREE = 0, SLOT_GIVEN = 1 };

enum counter {
    COUNT_WRITES,
    COUNT_BYTES_WRITTEN,
    COUNT_READS,
    COUNT_BYTES_READ,
    COUNT_BYTES_TO_MEDIA,
    COUNT_FLIPS,
    COUNT_COMMITS_SINGLE,
    COUNT_COMMITS_RTM,
    COUNT_COMMITS_JOURNAL,
    COUNT_RTM_ABORTS,
    COUNT_DEPLOYED_SLICES,
    COUNT_READ_RETRIES,
    COUNTERS,
};

/* What one thread of a process did, for other processes to read. It counts without a locked instruction, and without a shared
 * line. */
struct shared_thread {
    uint64_t of[COUNTERS];
    /* In bits 0-15 how many commits are under way (from before the first word is stored until all is visible), above them how
     * many are over (under_way.h). Not in the line of the reads: other processes look at it. */
    uint64_t commits;
    uint64_t records; /* in the same way: in the log, and not yet in the file (log.h) */
    uint64_t pad[14 - COUNTERS];
};

struct shared_header {
    uint64_t magic;
    uint32_t version, slots;
    uint8_t id[16], boot_id[16]; /* as in the manifest */
    uint64_t generation;         /* as in the manifest */
    uint64_t capacity;           /* pages of the largest file that fits */
    uint64_t groups_at;
    uint64_t next_group;       /* groups handed out so far */
    uint64_t groups_allocated; /* groups that have space */
    uint64_t size;             /* logical size of the original, bytes */
    uint32_t poisoned;         /* a commit is in doubt: every call is EIO */
    uint32_t numbered;         /* commits have numbers (undo.h) */
    uint64_t cut;              /* bytes: size of a shrink under way (resize.h); UINT64_MAX: none */
    uint64_t inode, device;    /* of the original */
    uint32_t domain;
    /* A transaction that others let go first (again.h): tx.first; 0: none. */
    uint64_t first;
    uint64_t entered;    /* number of slots given out so far */
    uint32_t slots_used; /* only slots below this number were ever given out */
    /* Words on the media are durable as they are visible, except those of held pages. */
    uint32_t settled;
    uint32_t written;    /* the original was stored to */
    uint32_t format;     /* enum layout_format */
    uint32_t index_bits; /* the index has 2^n entries; 0: none */
    uint64_t next_place; /* places from here on were never used */
    /* The process that uses the long lane (lanes.h), as in page_state.holder; 0: none. */
    uint32_t long_lane;
    uint64_t died; /* a process has died while the file was mapped */
    /* Held by the transaction that changes the size, reserved before any page; its version changes with the size, as a page's
     * with its content. */
    struct page_state sizing;
    struct shared_log log;
    struct shared_undo undo;
    uint64_t views_used; /* a bit for each of `views` that is in use */
    struct shared_view views[SHARED_VIEWS];
};

static_assert(sizeof(struct page_state) == 32, "two to a cache line");
static_assert(sizeof(struct shared_slot) == 24, "layout");
static_assert(sizeof(struct shared_thread) == 128, "layout");
static_assert(sizeof(struct shared_header) <= 4096, "layout");

#define SHARED_MAGIC   0x4445524148534f54ull /* "TOSHARED", little-endian */
#define SHARED_VERSION 26

/* Directory entries in a batch: 8 KiB of directory, 32 MiB of file. All bytes of batches get space when the object is made, so a
 * batch is not smaller. */
#define SHARED_BATCH       2048u
#define SHARED_BATCH_PAGES (SHARED_BATCH * GROUP_PAGES)

#define SHARED_CAPACITY_MAX (1ull << 36) /* pages */

enum {
    SHARED_SLOTS_AT = 4096,
    SHARED_READY_AT = SHARED_SLOTS_AT + MANIFEST_SLOTS * sizeof(struct shared_slot),
    SHARED_THREADS_AT = SHARED_READY_AT + SHARED_CAPACITY_MAX / SHARED_BATCH_PAGES,
    SHARED_THREADS_BYTES = 12288, /* for each slot */
    SHARED_THREADS = SHARED_THREADS_BYTES / sizeof(struct shared_thread),
    SHARED_DIRECTORY_AT = SHARED_THREADS_AT + MANIFEST_SLOTS * SHARED_THREADS_BYTES,
};

struct shared {
    struct shared_header *header; /* first: a reader's changes last (reader.c) */
    /* What every call needs lies side by side. */
    uint8_t *ready; /* per batch of the directory */
    uint32_t *directory;
    struct page_group *groups;
    uint32_t mapped; /* groups that are mapped; grows */
    unsigned index_bits;
    uint32_t *places; /* NULL: the reflection is dense */
    uint64_t *index;
    struct shared_slot *slots;
    struct shared_thread *threads;
    uint64_t capacity, groups_at, places_at;
    uint64_t pages;                     /* whose entries of the directory are mapped; grows */
    struct window head, states, placed; /* up to the groups; groups; places and index */
    /* Of snapshots (undo.h): the undo area, and the table, whose faults are not the file's. */
    struct window undo, table;
    struct fault_target table_faults;
    bool undo_mapped;            /* both are; atomic */
    uint64_t table_lines[8];     /* a bit for each line of the table that is this process's */
    struct fault_target *faults; /* NULL: not mapped yet */
    int fd, table_fd;            /* table_fd: valid if the table is mapped */
    char name[64];
};

/* Makes a new object for the pairing `record`, and removes that of *generation, which dead users may have left;
 * *generation becomes the new one's. An object of another user that cannot be removed is emptied and used as the
 * new one. capacity: bytes of the largest file to come. Owner, group and mode follow the original. From then on faults in the
 * object, and others of `faults`, poison the file. The caller holds the attach lock. Returns 0; -1 with ENOSPC, EACCES, ... */
int shared_create(struct shared *s, const struct manifest_record *record, uint64_t *generation,
                  uint64_t capacity, uint64_t size, const struct trust *file,
                  struct fault_target *faults);

/* Removes the object of the pairing `record`, which has ended, if dead users left it. The caller holds the attach lock of
 * the file that has the inode and device of the record. Returns 0, also if it cannot be removed; -1 with a sentence. */
int shared_remove(const struct manifest_record *record, const struct trust *file);

/* Implements pairing_wish.is_used: each process that has the object of a pairing mapped has a lock on it. */
int shared_is_used(const uint8_t id[16], const struct trust *file);

/* Maps the object that other processes made for the pairing `record`. Returns 0; PAIRING_NOT_YET with a sentence,
 * also if there is an object that is not this pairing's; -1: EACCES, ENOMEM, ... `path`: of the original, for
 * sentences. `access`: O_RDWR; or O_RDONLY for a process that may only read the file. */
int shared_join(struct shared *s, const struct manifest_record *record, const struct trust *file,
                const char *path, int access, struct fault_target *faults);

/* Maps what is needed for so many pages of a file, at most the capacity. Returns 0; -1 with ENOMEM. */
int shared_reach(struct shared *s, uint64_t pages);

/* Maps all that is in use, for shared_next_state(). Returns 0; -1 with ENOMEM. */
int shared_reach_all(struct shared *s);

/* Returns true if another program made the object shorter. */
bool shared_is_cut(const struct shared *s);

/* Where the undo area begins in the object. */
uint64_t shared_undo_at(const struct shared *s);

/* Opens the table of snapshots. makes: makes an empty one in its place. The table has the owner and group of the original, and all who
 * may read the original may write to the table. Returns 0; -1 with a sentence. */
int shared_open_table(struct shared *s, const struct trust *file, uint64_t bytes, bool makes);

/* Removes the object that has that header, and its table of snapshots. Returns shm_unlink() of the object. */
int shared_unlink(const struct shared *s, const struct shared_header *h);

/* Gives a range of the object space, so that it may be touched. `what`: for the sentence. Returns 0; -1 with ENOSPC, EFBIG. */
int shared_allocate(struct shared *s, uint64_t at, uint64_t n, const char *what);

/* The same for any object of shared memory. */
int shared_allocate_object(int fd, const char *name, uint64_t at, uint64_t n, const char *what);

/* The name of a pairing's object in /dev/shm. */
void shared_name(char name[64], const uint8_t id[16], uint64_t generation);

/* Returns the value of page_state.holder for the process that the slot is given to. */
static inline uint32_t shared_holder_of(const struct shared *s, unsigned slot)
{
    return shared_holder(slot, __atomic_load_n(&s->slots[slot].generation, __ATOMIC_RELAXED));
}

/* Returns the holder to which a slot is given now; 0: to none. */
static inline uint32_t shared_given_to(const struct shared *s, unsigned slot)
{
    const uint32_t holder = shared_holder_of(s, slot);
    return __atomic_load_n(&s->slots[slot].state, __ATOMIC_ACQUIRE) == SLOT_FREE ? 0 : holder;
}

/* The entry of a thread, by its number, of a slot's process. */
static inline struct shared_thread *shared_thread_of(const struct shared *s, unsigned slot,
                                                     unsigned thread)
{
    return &s->threads[slot * SHARED_THREADS + thread];
}

/* Returns the next existing state of pages [*page, end), that of page *page - 1, as far as the object is mapped; NULL: no more.
 * States that are made meanwhile may be missed, unless the caller prevents that. */
struct page_state *shared_next_state(struct shared *s, uint64_t *page, uint64_t end);

/* Unmaps the object. Keeps errno. `remove`: also removes it, as the last user. If that fails (it may be another user's), it is
 * emptied; that is logged. */
void shared_close(struct shared *s, bool remove);

/* Returns the bits of an index that n places fill to four fifths at most. */
unsigned shared_index_bits(uint64_t n);

/* Makes the index, with room for n places. Returns 0; -1 with ENOSPC, EFBIG. */
int shared_make_index(struct shared *s, uint64_t n);

/* Returns the state of a page that may have no group yet, which is then made. NULL with ENOSPC, ENOMEM, EUCLEAN. */
struct page_state *shared_make_state(struct shared *s, uint64_t page);

/* Returns the state of a page; NULL if it was not made yet, or is not mapped. page < s->pages. A few loads, no lock. */
static inline struct page_state *shared_look(const struct shared *s, uint64_t page)
{
    uint64_t group = page / GROUP_PAGES;
    /* Pairs with the release in shared_make_state(): the batch has space. */
    if (__builtin_expect(!__atomic_load_n(&s->ready[group / SHARED_BATCH], __ATOMIC_ACQUIRE), 0))
        return NULL;
    /* Pairs with the release in shared_make_state(): the group has space and is zeroed. */
    const uint32_t index = __atomic_load_n(&s->directory[group], __ATOMIC_ACQUIRE) - 1;
    /* 0 becomes the largest number. Any value may be there: shared memory is not trusted. */
    if (__builtin_expect(index >= __atomic_load_n(&s->mapped, __ATOMIC_ACQUIRE), 0))
        return NULL;
    struct page_state *found = &s->groups[index].pages[page % GROUP_PAGES];
    if (!found)
        __builtin_unreachable(); /* so that the caller's test costs nothing */
    return found;
}

/* shared_peek() where shared_look() finds nothing. */
struct page_state *shared_look_further(const struct shared *s, uint64_t page);

/* Returns the state of a page; NULL if it was not made yet. Maps its group, if another process has made it. If there is no address space
 * for that, the file is poisoned for this process. page < s->pages. */
static inline struct page_state *shared_peek(const struct shared *s, uint64_t page)
{
    struct page_state *found = shared_look(s, page);
    return __builtin_expect(!!found, 1) ? found : shared_look_further(s, page);
}

/* Returns the state of a page that the caller holds. It has one; if the directory says something else by now, since it is not trusted or
 * was cut (fault.h), any state of the file. */
static inline struct page_state *shared_held(const struct shared *s, uint64_t page)
{
    struct page_state *found = shared_peek(s, page);
    return __builtin_expect(!!found, 1) ? found : s->groups->pages;
}

/* The same as shared_peek(), but makes the state if necessary. NULL with ENOSPC, ENOMEM. */
static inline struct page_state *shared_state(struct shared *s, uint64_t page)
{
    struct page_state *found = shared_look(s, page);
    return __builtin_expect(!!found, 1) ? found : shared_make_state(s, page);
}

/* The number behind that of the last place: it belongs to no page. */
#define SHARED_NO_PLACE LAYOUT_PLACES

/* Of a sparse reflection: the place that is noted for the page with that state (NULL: it has none); SHARED_NO_PLACE: none. */
static inline uint64_t shared_place(const struct shared *s, const struct page_state *state)
{
    const uint32_t noted =
        state ? __atomic_load_n(&s->places[state - s->groups->pages], __ATOMIC_RELAXED) : 0;
    /* Shared memory is not trusted. */
    return noted - 1u < LAYOUT_PLACES ? noted - 1u : SHARED_NO_PLACE;
}

static inline void shared_note_place(const struct shared *s, const struct page_state *state,
                                     uint64_t place)
{
    __atomic_store_n(&s->places[state - s->groups->pages], (uint32_t)place + 1, __ATOMIC_RELAXED);
}

#endif
