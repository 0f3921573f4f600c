/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mapped file and its mappings, as data.
 *
 * An original has one struct file, for all descriptors and ranges that it is mapped by, with one reflection
 * and one set of page states. (It has two if it was mapped by a read-only descriptor first and then for
 * writing.) The views `o` and `r` are private to the library; each mapping has a view of its own for its
 * caller (map.c).
 */
#ifndef ATO_LIB_FILE_FILE_H
#define ATO_LIB_FILE_FILE_H

#include "lib/file/shared.h"
#include "lib/file/thread.h"
#include "reflection/format/lane.h"
#include "reflection/format/layout.h"
#include "reflection/media/window.h"
#include "reflection/pairing/pairing.h"

#include "ato.h"

#include <errno.h>
#include <pthread.h>

/* What a process knows of the space of 512 pages. This stays true: while a file is mapped, only
 * space_give_back() frees space; and growth makes no earlier page a hole. */
#define CHUNK_ASKED      0x8000u /* the other bits are valid */
#define CHUNK_META_WORDS 0x4000u /* the meta page may be read; if clear, its words are 0 */
#define CHUNK_META_SPACE 0x2000u /* the meta page has space for stores */
#define CHUNK_O_PAGES                                                                              \
    0x03ffu /* how many pages of the original, from the first of the 512 on, have space */
#define CHUNK_EDITION                                                                              \
    0x7fff0000u /* of a logged file: edition of the log's header at this process's last commit here */

struct log_file;
struct reader;

struct file {
    struct file *next;     /* in the list of the process's files */
    struct reader *reader; /* not NULL: this process may only read the file (reader.h) */
    unsigned mappings;
    struct pairing pairing;
    uint64_t viewed;   /* bytes of the original, in whole pages, for which there are views; grows */
    uint64_t limit;    /* bytes that the original may grow to */
    uint64_t max_size; /* the same in whole pages: what `viewed` may grow to */
    uint64_t snapshot_bytes; /* of the undo area, if this process makes it */
    /* What every call needs lies side by side, up to the first members of `shared`. */
    struct persist persist;
    /* Views of original and reflection (views.h); writable, except a reader's. */
    char *o, *r;
    struct shared_thread *threads; /* of this process: THREAD_SHARED + 1 */
    uint32_t holder;               /* this process, as in page_state.holder */
    bool sparse;                   /* its reflection is (place.h) */
    bool
        logged; /* its reflection is a log: `r` is memory of this process, where writes are put together */
    struct shared shared;
    bool holes_fault;   /* reading a hole of the original may be SIGBUS (tmpfs) */
    bool r_holes_fault; /* the same for the reflection */
    uint32_t *chunks;   /* CHUNK_ bits, of each 512 pages */
    struct window o_window, r_window;
    uint64_t *scratch; /* of a logged file: a bit for each page of `r` that is in use (scratch.h) */
    /* The log, where its records are stored and not written: lib/commit/log.c. Of the thread that holds `appending`. */
    struct window log_window;
    struct persist log_persist;
    /* Relaxed commits (later.h). */
    uint64_t relaxed_ms;
    pthread_t later_thread;
    uint32_t later;         /* enum later; a futex */
    bool has_no_numbers;    /* and its commits cannot have any (number.h). Atomic. */
    pthread_mutex_t medium; /* held around each sync */
    pthread_mutex_t attach; /* excludes other threads in attach_lock() */
    /* Bytes: the size on the media while an open transaction grows the file; else 0. Of the thread that holds `sizing`. */
    uint64_t growing;
    /* From here on writes and commits change them; what reads load lies in other cache lines, far above. */
    /* Pages [empty_from, empty_to) of the original held no data when last looked for. */
    uint64_t empty_from;
    uint64_t empty_to;
    uint8_t clock; /* grows by 1 with every FILE_TICK bytes that a thread writes */
    /* Where its commits of several words go (lanes.h). */
    struct lane
        area; /* of this process's slot in the manifest, all its lanes; .at NULL: not mapped yet */
    /* lane_retired() of each. A load from there would wait for what was just stored past the caches at the same place of a page. */
    uint64_t retired[LANE_SMALL];
    uint32_t idle_lanes; /* one bit for each lane there */
    struct lane
        long_lane; /* as far as it is mapped; of the process that has it (shared_header.long_lane) */
};

#define FILE_TICK (4ull << 20)

static_assert(THREAD_SHARED < SHARED_THREADS, "the entries of a slot");

/* Open transactions that use a mapping: the sum over all threads, since one thread may end what another one
 * began. */
struct open_count {
    uint64_t n;
    uint64_t pad[7];
};

struct mapping {
    struct file *file;
    char *base;
    uint64_t length; /* bytes, as the caller asked */
    /* Bytes from base on that may be used, as far as the file reaches: `length`, or more if the mapping grows
     * with its file. */
    uint64_t reach;
    /* How far in the file reads may go by page states alone (read_at_once()): as `reach`, as far as there are views; 0 if there is an
     * epoch, or if a reader does not watch yet (reader.h). */
    uint64_t quick;
    uint64_t reserved; /* bytes of address space */
    uint64_t offset;   /* of base in the file, bytes */
    bool writable;     /* by calls */
    bool reader;       /* made with a read-only descriptor: changes nothing */
    int policy;        /* enum ato_read_policy; read by policy_of() */
    unsigned flags;    /* ato_options.flags */
    struct open_count open[THREAD_SHARED + 1];
    unsigned calls; /* calls under way; counted in builds with assertions (calls.h) */
    /* For ATO_EPOCHS (epoch.h); else NULL. */
    struct tx *epoch;
    pthread_mutex_t epoch_lock;
    /* For ATO_PLAIN_STORES (stores.h): its number in shared_header.views, how many commits of long ranges there were, and what commits
     * by it take turns with. */
    unsigned view, long_commits;
    pthread_mutex_t stores_lock;
    struct tx *
        growth; /* has made the file longer, and is open until the next commit of stores; NULL: none */
};

/* Is its view private, for plain stores? */
static inline bool mapping_has_stores(const struct mapping *m)
{
    return m->flags & ATO_PLAIN_STORES;
}

/* Another thread may change the policy (ato_set_read_policy()), so code that needs it twice loads it
 * once. Relaxed: it publishes no other data, and each policy is right at any moment. */
static inline int policy_of(const struct mapping *m)
{
    return __atomic_load_n(&m->policy, __ATOMIC_RELAXED);
}

/* Lets reads go by page states alone as far as there are views. (An epoch and a reader that does not watch: not at all.) */
static inline void mapping_read_quickly(struct mapping *m)
{
    const uint64_t viewed = __atomic_load_n(&m->file->viewed, __ATOMIC_ACQUIRE),
                   end = m->offset + m->reach, quick = end < viewed ? end : viewed;
    /* Release: pairs with read_at_once(). */
    if (__atomic_load_n(&m->quick, __ATOMIC_RELAXED) < quick)
        __atomic_store_n(&m->quick, quick, __ATOMIC_RELEASE);
}

/* Returns the flags of a write through m, with ATO_EAGER also if that is its policy: it is deployed at once. */
static inline unsigned write_flags(const struct mapping *m, unsigned flags)
{
    return policy_of(m) == ATO_READ_EAGER ? flags | ATO_EAGER : flags;
}

/* The calling thread's counters of a file. */
struct tally {
    uint64_t *of;
    bool shared; /* used by all threads beyond the first THREAD_SHARED */
};

static inline struct tally tally_of(const struct file *f)
{
    unsigned thread = thread_number();
    return (struct tally){f->threads[thread].of, thread == THREAD_SHARED};
}

/* The same for a thread with a number of its own, `own` (thread_own_number()). */
static inline struct tally tally_of_own(const struct file *f, unsigned own)
{
    return (struct tally){f->threads[own].of, false};
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

static inline void count(struct file *f, enum counter which, uint64_t n)
{
    tally_add(tally_of(f), which, n);
}

static inline uint64_t count_total(const struct file *f, enum counter which)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i <= THREAD_SHARED; i++)
        sum += __atomic_load_n(&f->threads[i].of[which], __ATOMIC_RELAXED);
    return sum;
}

static inline char *file_o(const struct file *f, uint64_t page)
{
    return f->o + page * PAGE_BYTES;
}

static inline uint32_t file_format(const struct file *f)
{
    return f->sparse ? LAYOUT_SPARSE : f->logged ? LAYOUT_LOG : LAYOUT_DENSE;
}

/* The view of a sparse reflection reaches so far, so that homes that are computed from it lie in the view. Only a wrong value in shared
 * memory can lead to an access there. */
#define FILE_NO_PLACE SHARED_NO_PLACE

/* Returns the place in the reflection of a page with the state `s` (NULL: it has none). Sparse: as noted beside the state;
 * FILE_NO_PLACE: it has none, or is not loaded. It changes only while the page is held. */
static inline uint64_t file_place_of(const struct file *f, uint64_t page,
                                     const struct page_state *s)
{
    if (__builtin_expect(!f->sparse, 1))
        return page;
    return shared_place(&f->shared, s);
}

static inline uint64_t file_place(const struct file *f, uint64_t page)
{
    return file_place_of(f, page, f->sparse ? shared_peek(&f->shared, page) : NULL);
}

/* The two homes of a page, and its word on the media. Of a logged file's page `r` is nothing at first; when it is memory for what an
 * operation stores (scratch.h), `word` is NULL. */
struct homes {
    char *o, *r;
    uint64_t *word;
};

/* Of a page without a place, `r` and `word` are those of FILE_NO_PLACE. */
static inline struct homes file_homes_of(const struct file *f, uint64_t page,
                                         const struct page_state *s)
{
    const uint64_t place = file_place_of(f, page, s);
    if (__builtin_expect(!f->sparse, 1))
        return (struct homes){file_o(f, page), f->r + layout_refpage(LAYOUT_DENSE, page),
                              (uint64_t *)(f->r + layout_word(LAYOUT_DENSE, page))};
    return (struct homes){file_o(f, page), f->r + layout_refpage(LAYOUT_SPARSE, place),
                          (uint64_t *)(f->r + layout_word(LAYOUT_SPARSE, place))};
}

/* Where a reader copies slices of R from, after it has looked at the bitmap: a page with a bitmap other than 0 has a place. */
static inline const char *file_r_to_read(const struct file *f, uint64_t page,
                                         const struct page_state *s)
{
    return f->r + layout_refpage(file_format(f), file_place_of(f, page, s));
}

/* The words of file.scratch for so many bytes of the original. */
static inline uint64_t file_scratch_words(uint64_t bytes)
{
    return (layout_pages(bytes) + 63) / 64;
}

static inline uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the logical size, or `viewed` if that is less: a caller that needs more asks for longer views (views_follow()). Shared memory
 * is not trusted. */
static inline uint64_t file_size(const struct file *f)
{
    const struct shared_header *h = __atomic_load_n(&f->shared.header, __ATOMIC_RELAXED);
    uint64_t size = __atomic_load_n(&h->size, __ATOMIC_ACQUIRE);
    /* After the header: a reader's views get shorter when it begins to watch. Acquire: views_reach() has mapped so much. */
    return lesser(size, __atomic_load_n(&f->viewed, __ATOMIC_ACQUIRE));
}

/* Returns the logical size, as far as the process may map it. */
static inline uint64_t file_end(const struct file *f)
{
    const struct shared_header *h = __atomic_load_n(&f->shared.header, __ATOMIC_RELAXED);
    return lesser(__atomic_load_n(&h->size, __ATOMIC_ACQUIRE), f->max_size);
}

/*
 * Makes a file of the medium durable. `what`: as in file_in_doubt(). Returns 0; -1 with EIO and the file poisoned, whichever thread stored
 * the bytes: the kernel reports a failed write-back once, to the first sync, and then treats the pages as clean. So syncs run one at a
 * time, and each fails if an earlier one got the report.
 */
int file_sync(struct file *f, int fd, const char *what);
#define file_fdatasync(f, fd, what) SEAM_AT("fdatasync", file_sync(f, fd, what))

/* Updates pairing.size. The caller ensures that the size does not change meanwhile. Returns 0; -1 with EUCLEAN. */
int file_refresh_size(struct file *f);

/* Of a logged file: copies from shared memory what is needed to read and write the log. Shared memory is not trusted: a bad value can only
 * lead to a bad place in the log. Returns 0; -1 with EUCLEAN. */
int file_log(const struct file *f, struct log_file *log);

/* Copies the header of the log to shared memory. Nobody else changes it. Returns 0; -1 with errno. */
int file_load_log(struct file *f);

/* meta_read(), for pages that were not touched since the file was mapped and have no state in memory. Returns 0; -1 with EIO. */
int file_read_words(const struct file *f, uint64_t first, uint64_t n, uint64_t *words,
                    uint64_t *pages);

/* Returns how many places the reflection of a file of `size` bytes has in use at most; UINT64_MAX: that cannot be told. */
uint64_t file_places(const struct file *f, uint64_t size);

/* Every call on the file is EIO from now on: memory and media may disagree. */
static inline void file_poison(struct file *f)
{
    __atomic_store_n(&f->shared.header->poisoned, 1, __ATOMIC_RELEASE);
}

/* Returns true if commits have numbers (undo.h). What it tells holds for a commit that was noted to be under way before. */
static inline bool file_is_numbered(const struct file *f)
{
    return __atomic_load_n(&f->shared.header->numbered, __ATOMIC_RELAXED) != 0;
}

static inline bool file_is_poisoned(const struct file *f)
{
    const struct shared_header *h = __atomic_load_n(&f->shared.header, __ATOMIC_RELAXED);
    return __builtin_expect(__atomic_load_n(&h->poisoned, __ATOMIC_RELAXED), 0);
}

int file_say_poisoned(const struct file *f);

/* Returns which file another program has made shorter, to be put before the path of the original: "the reflection of ", or "" for the original
 * itself; NULL: none. */
const char *file_what_is_cut(const struct file *f);

/* Poisons the file and returns -1 with EIO and a sentence: it is not known whether `what` is durable. */
int file_in_doubt(struct file *f, const char *what);

/* Returns 0; -1 with EIO and a sentence if the file is poisoned. To be called again after a reservation: the
 * previous holder may have left the word of this very page in doubt. */
static inline int file_check(const struct file *f)
{
    return file_is_poisoned(f) ? file_say_poisoned(f) : 0;
}

/* Notes that the original was stored to. Cheap if it is noted already. */
static inline void file_note_written(struct file *f)
{
    struct shared_header *h = f->shared.header;
    if (__builtin_expect(!__atomic_load_n(&h->written, __ATOMIC_RELAXED), 0))
        __atomic_store_n(&h->written, 1, __ATOMIC_RELAXED);
}

/* What a caller of ato_mmap() asks for. */
struct file_wish {
    const struct ato_options *options; /* from options_complete() */
    int access;                        /* O_RDONLY or O_RDWR, of the descriptor */
    uint64_t end;                      /* last byte asked for + 1 */
    uint64_t length;
    void *hint; /* of the address; may be NULL */
    bool writable;
};

/* Sets limit and max_size of a file that has `size` bytes. */
void file_set_limit(struct file *f, uint64_t size, const struct file_wish *wish);

#endif
