/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pages that one operation holds.
 *
 * They are reserved in ascending order of (file id, page), all of them before anything else, and released
 * together. (A transaction's are in the order of its calls: staging.h.) `pending` says for each page which
 * slices the operation has stored to their invalid homes; it is 0 for a page that is held only so that it
 * stays as it is. It lies in the operation's own memory, where no other process can change it between two
 * steps of a commit.
 */
#ifndef ATO_LIB_PAGE_PAGE_SET_H
#define ATO_LIB_PAGE_PAGE_SET_H

#include "lib/file/file.h"

/* A lane, taken for a commit (lanes.h). */
struct taken_lane {
    struct file *of; /* NULL: no lane is taken */
    struct lane lane;
    unsigned number;  /* of a small one; LANE_SMALL: it is the long one */
    uint64_t retired; /* lane_retired() */
};

struct held_page {
    struct file *file;
    struct page_state *state;
    uint64_t page;
    uint64_t pending;
    /* Computed once, although each step of a commit needs one of them. Sparse: once more when the page has a place: store_page(). */
    struct homes homes;
};

enum { PAGE_SET_SMALL = 32 };

struct page_set {
    struct held_page *pages; /* in the order they were reserved */
    uint64_t n, room;
    struct taken_lane lane; /* for the coming commit; .of is NULL if there is none */
    uint32_t tag;           /* of the transaction that has the pages; 0: none */
    uint64_t own_views;     /* whose stores it commits (store_views.h); a mask */
    /* Non-NULL after stores whose pending bits were cleared: a fence is needed before release (W4). */
    const struct persist *forgotten;
    struct held_page small[PAGE_SET_SMALL];
};

/* Where the valid slices are that the operation sees, without its own: of a logged file in homes.o, which is memory with the newest content if
 * the file does not have it (page_set_take_base()). */
static inline uint64_t page_set_seen(const struct held_page *at)
{
    return __builtin_expect(at->file->logged, 0) ? 0 : at->state->bitmap;
}

/* The value of page_state.tx for a page: the transaction that has it, and the page's index among its pages. */
static inline uint64_t page_set_note(uint32_t tag, uint64_t place)
{
    return (uint64_t)tag << 32 | place;
}

/* Flag in page_state.tx, while the transaction commits what it has read and written (notes.h). */
#define PAGE_SET_COMMITS (1ull << 31)

/* Returns true if transaction `tag` of this process has the page: each process numbers its own transactions. */
static inline bool page_set_is_of(const struct file *f, const struct page_state *s, uint32_t tag)
{
    return __atomic_load_n(&s->holder, __ATOMIC_RELAXED) == f->holder &&
           __atomic_load_n(&s->tx, __ATOMIC_RELAXED) >> 32 == tag;
}

/* Adds a page, for which there is room. Field by field: the compiler would copy a whole one by a slow instruction. */
static inline void page_set_add(struct page_set *h, struct file *f, uint64_t page,
                                struct page_state *s, const struct homes *homes)
{
    struct held_page *at = &h->pages[h->n++];
    at->file = f;
    at->state = s;
    at->page = page;
    at->pending = 0;
    at->homes.o = homes->o;
    at->homes.r = homes->r;
    at->homes.word = homes->word;
}

static inline void page_set_init(struct page_set *h)
{
    h->pages = h->small;
    h->n = 0;
    h->room = PAGE_SET_SMALL;
    h->lane.of = NULL;
    h->tag = 0;
    h->own_views = 0;
    h->forgotten = NULL;
}

/* Prefetches what a reservation and a commit of a page will touch. For one of many pages that is all: their stores follow one
 * another, so that their addresses are translated together, and each line that is fetched only for its translation keeps the
 * reservations that follow waiting. */
static inline __attribute__((always_inline)) void page_fetch_state(const struct homes *homes,
                                                                   const struct page_state *s)
{
    __builtin_prefetch(s, 1);
    __builtin_prefetch(homes->word, 1);
}

/*
 * Prefetches what a write of a page will touch, while the fences of the thread's last write are still draining: the
 * reservation that follows is a locked instruction, and nothing after it starts earlier. Of the homes only the
 * address translation is wanted. So a line is fetched that the write does not store to: a line that it stores to
 * past the caches would have to leave them first. always_inline, because gcc takes a function that only prefetches
 * for one without effect, and drops calls of it.
 */
static inline __attribute__((always_inline)) void
page_fetch(const struct homes *homes, const struct page_state *s, unsigned begin)
{
    unsigned far = (begin / 64 + 32) % 64 * 64;
    page_fetch_state(homes, s);
    __builtin_prefetch(homes->o + far);
    __builtin_prefetch(homes->r + far);
}

struct page_span {
    struct file *file;
    uint64_t first, last; /* pages */
    uint64_t end;         /* bytes that the file must have; 0: the caller changes its size */
};

static inline struct page_span page_span_of(struct file *f, uint64_t offset, uint64_t n)
{
    return (struct page_span){f, offset / PAGE_BYTES, (offset + n - 1) / PAGE_BYTES, offset + n};
}

/* Iterates over the pages of [offset, offset + n). */
#define FOR_EACH_PAGE(page, begin, bytes, offset, n)                                               \
    for (uint64_t at_ = (offset), end_ = at_ + (n), page = at_ / PAGE_BYTES,                       \
                  begin = at_ % PAGE_BYTES,                                                        \
                  bytes = PAGE_BYTES - begin < end_ - at_ ? PAGE_BYTES - begin : end_ - at_;       \
         at_ < end_; at_ += bytes, page++, begin = 0,                                              \
                  bytes = PAGE_BYTES < end_ - at_ ? PAGE_BYTES : end_ - at_)

/* Returns how many pages that [offset, offset + n) touches. n > 0. */
static inline uint64_t page_span_count(uint64_t offset, uint64_t n)
{
    return (offset + n - 1) / PAGE_BYTES - offset / PAGE_BYTES + 1;
}

#endif
