/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file that this process has mapped, once or several times, and its mappings.
 *
 * One struct file for each original, whatever descriptors and ranges it was mapped by: one
 * reflection, one set of page states. Its views O and R are the library's own, private addresses;
 * what callers get is a read-only view beside them.
 */
#ifndef ATO_LIB_FILE_H
#define ATO_LIB_FILE_H

#include "../reflection/layout.h"
#include "../reflection/pairing.h"
#include "shared.h"
#include "thread.h"

#include "ato.h"

#include <errno.h>
#include <pthread.h>

/* What a process knows of the space under 512 pages, for good: only a shrink gives homes back while a
 * file is mapped, and growing makes no page of those before it a hole. */
#define CHUNK_ASKED      0x8000u /* the others are known */
#define CHUNK_META_WORDS 0x4000u /* the meta page may be read; without it, its words are 0 */
#define CHUNK_META_SPACE 0x2000u /* stores to the meta page meet space */
#define CHUNK_O_PAGES                                                                              \
    0x03ffu /* so many pages of the original, the first ones, have space; but for what was
                                    cut off since (shared_header.lowest) */

struct reader;

struct file {
    struct file *next;     /* of the process's files */
    struct reader *reader; /* this process may only read it (reader.h); NULL */
    unsigned mappings;
    struct pairing pairing;
    struct persist persist;
    char *o, *r;       /* writable views of original and reflection, up to max_size */
    uint64_t limit;    /* bytes that the original may grow to */
    uint64_t max_size; /* the same in whole pages: what fits in the views */
    uint64_t r_bytes;
    struct shared shared;
    uint32_t holder;               /* this process in page_state.holder */
    bool settled;                  /* words on the media are durable as they are visible */
    bool holes_fault;              /* reading a hole of the original may be SIGBUS (tmpfs) */
    bool r_holes_fault;            /* the same of the reflection */
    uint16_t *chunks;              /* CHUNK_ bits */
    uint64_t empty_from;           /* pages of the original from there ... */
    uint64_t empty_to;             /* ... to there held no data when they were looked at */
    bool written;                  /* the original was stored to, and the shared header says so */
    uint8_t clock;                 /* moves with every FILE_TICK bytes that a thread writes */
    struct journals_use *journals; /* those that it had commits through (journals.c) */
    pthread_mutex_t medium;        /* domain msync: around each flush */
    pthread_mutex_t attach;        /* of peers_lock() */
    uint64_t growing;              /* bytes that the media have for an open transaction; or 0 */
};

#define FILE_TICK (4ull << 20)

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

/* One set a thread, so that counting costs neither a locked instruction nor a shared line. In shared memory,
 * if there is room: for others to look at (`ato top`). */
struct counters {
    uint64_t of[COUNTERS];
    uint64_t pad[16 - COUNTERS];
};

static_assert((THREAD_SHARED + 1) * sizeof(struct counters) <= SHARED_BLOCK_BYTES, "a block");

/* Transactions that are open and have to do with a mapping: the sum over all threads, since one may end what
 * another has begun. */
struct open_count {
    uint64_t n;
    uint64_t pad[7];
};

struct mapping {
    struct file *file;
    char *base;
    uint64_t length; /* as the caller asked */
    uint64_t reach;  /* bytes from base on that may be used as far as there is a file: `length`, or
                          more when the mapping grows with its file */
    uint64_t
        quick; /* the same for reads that go by page states and nothing else: 0, if there is an epoch,
                        or where a reader does not watch (yet) */
    uint64_t reserved; /* of address space */
    uint64_t offset;   /* of base in the file */
    bool writable;
    bool reader;               /* its maker may not write the file: nothing is changed through it */
    int policy;                /* enum ato_read_policy: policy_of() */
    unsigned flags;            /* ato_options.flags */
    struct counters *counters; /* THREAD_SHARED + 1 of them */
    bool shows;                /* they lie in shared memory */
    struct open_count open[THREAD_SHARED + 1];
    unsigned calls;      /* under way; counted where assertions are (calls.h) */
    struct epoch *epoch; /* ATO_EPOCHS */
};

/* Another thread may change it (ato_set_read_policy()): who goes by it twice looks once. Relaxed: nothing is
 * told by it, and each policy is right at any moment. */
static inline int policy_of(const struct mapping *m)
{
    return __atomic_load_n(&m->policy, __ATOMIC_RELAXED);
}

/* The calling thread's counters of a mapping. */
struct tally {
    uint64_t *of;
    bool shared; /* with other threads: the ones beyond the first THREAD_SHARED */
};

static inline struct tally tally_of(struct mapping *m)
{
    unsigned thread = thread_number();
    return (struct tally){m->counters[thread].of, thread == THREAD_SHARED};
}

static inline void tally_add_at(uint64_t *at, bool shared, uint64_t n)
{
    if (__builtin_expect(shared, 0))
        __atomic_fetch_add(at, n, __ATOMIC_RELAXED);
    else
        __atomic_store_n(at, __atomic_load_n(at, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static inline void tally_add(struct tally t, enum counter which, uint64_t n)
{
    tally_add_at(&t.of[which], t.shared, n);
}

static inline uint64_t tally_get(struct tally t, enum counter which)
{
    return __atomic_load_n(&t.of[which], __ATOMIC_RELAXED);
}

static inline void count_open(struct mapping *m, uint64_t n)
{
    unsigned thread = thread_number();
    tally_add_at(&m->open[thread].n, thread == THREAD_SHARED, n);
}

static inline uint64_t open_total(const struct mapping *m)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i <= THREAD_SHARED; i++)
        sum += __atomic_load_n(&m->open[i].n, __ATOMIC_RELAXED);
    return sum;
}

static inline void count(struct mapping *m, enum counter which, uint64_t n)
{
    tally_add(tally_of(m), which, n);
}

static inline uint64_t count_total(const struct mapping *m, enum counter which)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i <= THREAD_SHARED; i++)
        sum += __atomic_load_n(&m->counters[i].of[which], __ATOMIC_RELAXED);
    return sum;
}

static inline char *file_o(const struct file *f, uint64_t page)
{
    return f->o + page * PAGE_BYTES;
}

static inline char *file_r(const struct file *f, uint64_t page)
{
    return f->r + layout_reflected(page * PAGE_BYTES);
}

static inline uint64_t *file_word(const struct file *f, uint64_t page)
{
    return (uint64_t *)(f->r + layout_word(page));
}

/* Never more than fits in the views, whoever wrote it there. */
static inline uint64_t file_size(const struct file *f)
{
    const struct shared_header *h = __atomic_load_n(&f->shared.header, __ATOMIC_RELAXED);
    uint64_t size = __atomic_load_n(&h->size, __ATOMIC_ACQUIRE);
    return size < f->max_size ? size : f->max_size;
}

/* The same, or what an open transaction is going to make of it. */
static inline uint64_t file_end(const struct file *f)
{
    uint64_t size = file_size(f), growing = __atomic_load_n(&f->growing, __ATOMIC_RELAXED);
    return size > growing ? size : growing;
}

/*
 * persist_flush_data() and persist_flush_word() for a file's media; -1 with EIO and a sentence.
 *
 * In domain msync a failure poisons the file, whosever bytes they were: the kernel reports a failed
 * write-back once, to whichever msync() of the file comes first, and then takes the pages for
 * clean. Hence also one at a time, and a look at whether somebody else got the report meanwhile.
 */
int file_msync(struct file *f, const void *addr, bool word, size_t n, const char *site);

/* Macros, so that the recorder sees the place they are called from. */
#define file_flush_data(f, addr, n)                                                                \
    ((f)->persist.domain == PERSIST_MSYNC ? file_msync(f, addr, false, n, SEAM_SITE("flush_data")) \
                                          : 0)

#define file_flush_word(f, word)                                                                   \
    ((f)->persist.domain == PERSIST_MSYNC ? file_msync(f, word, true, 8, SEAM_SITE("flush_word"))  \
                                          : persist_flush_word(&(f)->persist, word))

/* Memory and media may disagree from now on. */
static inline void file_poison(struct file *f)
{
    __atomic_store_n(&f->shared.header->poisoned, 1, __ATOMIC_RELEASE);
}

static inline bool file_is_poisoned(const struct file *f)
{
    const struct shared_header *h = __atomic_load_n(&f->shared.header, __ATOMIC_RELAXED);
    return __builtin_expect(__atomic_load_n(&h->poisoned, __ATOMIC_RELAXED), 0);
}

int file_say_poisoned(const struct file *f);

/* -1 with EIO and a sentence: nobody knows whether `what` is durable. Poisons. */
int file_in_doubt(struct file *f, const char *what);

/* -1 with EIO and a sentence if it is. After a reservation it is to be asked again: the holder
 * before may have left this very page's word in doubt. */
static inline int file_check(const struct file *f)
{
    return file_is_poisoned(f) ? file_say_poisoned(f) : 0;
}

/* Cheap, when it is noted already. */
static inline void file_note_written(struct file *f)
{
    if (__builtin_expect(__atomic_load_n(&f->written, __ATOMIC_RELAXED), 1))
        return;
    __atomic_store_n(&f->written, true, __ATOMIC_RELAXED);
    __atomic_store_n(&f->shared.header->written, 1, __ATOMIC_RELAXED);
}

struct file_wish {
    const struct ato_options *options; /* complete */
    int access;                        /* O_RDONLY or O_RDWR, of the descriptor */
    uint64_t end;                      /* last byte asked for + 1 */
};

/* Bytes that a file of so many may grow to. */
uint64_t file_limit(uint64_t size, const struct file_wish *wish);

/* The file behind `fd`: the one that this process has mapped already, or a new one. Takes part in
 * `mappings`. Errors: those of ato_mmap(). */
struct file *file_open(int fd, const struct file_wish *wish);

/* One mapping less; its view is unmapped already. The last one leaves the file as `options` say.
 * On failure (-1, errno) with *kept the mapping still counts; without it, it is gone. */
int file_close(struct file *f, const struct ato_unmap_options *options, bool *kept);

/* The same for a mapping that came to nothing, whatever the file looks like: as if its process had
 * died. Keeps errno. */
void file_abandon(struct file *f);

/* Around a change to the mappings of the process. */
void file_lock_all(void);
void file_unlock_all(void);

/* At exit with files still mapped: the shared memory objects go, which nobody else uses. The files
 * stay `in use`, as after a kill, and lose nothing. */
void file_exit_all(void);

/* In a forked child: descriptors closed, everything forgotten. */
void file_forget_all(void);

#endif
