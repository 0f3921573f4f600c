/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/epoch.h"

#include "lib/commit/deploy.h"
#include "lib/commit/store.h"
#include "lib/file/page.h"
#include "lib/page/handle.h"
#include "lib/page/load.h"
#include "lib/page/page_set_reserve.h"
#include "lib/page/reservation.h"
#include "lib/read/read.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/parts.h"
#include "lib/transaction/tx.h"
#include "reflection/media/races.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum { SEQUENCES = 64, TRIES = 8 };

struct epoch {
    struct tx *t;
    pthread_mutex_t lock;         /* of writers and commits, and of readers after TRIES */
    uint64_t sequence[SEQUENCES]; /* page p has counter p mod SEQUENCES */
};

int epoch_make(struct mapping *m)
{
    struct epoch *e = calloc(1, sizeof(*e));
    if (!e)
        return report_error(ENOMEM, "no memory for an epoch");
    /* READ_COMMITTED: pages that the epoch only reads are not kept. */
    e->t = handle_make(TX_ALL_THREADS, ATO_TX_READ_COMMITTED);
    if (!e->t) {
        free(e);
        return -1;
    }
    pthread_mutex_init(&e->lock, NULL);
    if (claim_pin(e->t) < 0) {
        tx_unmake(e->t);
        free(e);
        return -1;
    }
    m->epoch = e;
    return 0;
}

void epoch_unmake(struct mapping *m)
{
    m->epoch->t->pinned = false;
    tx_unmake(m->epoch->t);
    pthread_mutex_destroy(&m->epoch->lock);
    free(m->epoch);
    m->epoch = NULL;
}

/* ---- sequences ---- */

static uint64_t *sequence_of(struct epoch *e, uint64_t page)
{
    return &e->sequence[page % SEQUENCES];
}

/* Makes the counters of the pages odd, or even again: each counter once, even if pages share it. A locked
 * instruction: what lies between two calls stays between them, also stores that go past the caches. */
static void turn(struct epoch *e, uint64_t first, uint64_t last)
{
    for (uint64_t page = first; page <= last && page < first + SEQUENCES; page++)
        __atomic_fetch_add(sequence_of(e, page), 1, __ATOMIC_SEQ_CST);
}

static void turn_all(struct epoch *e)
{
    turn(e, 0, SEQUENCES - 1);
}

/* ---- writing ---- */

/* As staging_ready(), for one range: on failure the epoch may keep some of the pages. */
static int get_range(struct epoch *e, struct mapping *m, const struct epoch_range *range,
                     uint64_t *blocked)
{
    if (!parts_add(e->t, m, true))
        return -1;
    return staging_ready(e->t, m->file, range->offset, range->n, blocked);
}

/* Releases the pages from the n-th on. All counters are odd meanwhile: a reader may be looking at the entry
 * of such a page, which another page gets in the next call. */
static void give_back(struct epoch *e, uint64_t n)
{
    struct tx *t = e->t;
    if (t->set.n > n) {
        turn_all(e);
        page_set_release_from(&t->set, n);
        turn_all(e);
    }
    if (!t->set.n)
        parts_drop(t, 0);
}

/*
 * Does everything in a write that may fail. With the lock. While this waits for a transaction, the lock and
 * the pages that the write has reserved are released: the transaction's thread may be about to enter this
 * epoch. Returns 0; -1 with errno and the epoch as it was.
 */
static int get_ready(struct epoch *e, struct mapping *m, const struct epoch_range *ranges,
                     unsigned count, unsigned flags)
{
    struct tx *t = e->t;
    int r;
    do {
        uint64_t before = t->set.n, blocked = 0;
        r = 0;
        for (unsigned i = 0; i < count && r == 0; i++)
            r = get_range(e, m, &ranges[i], &blocked);
        if (r == 0) {
            t->parts[0].eager |= (flags & ATO_EAGER) || policy_of(m) == ATO_READ_EAGER;
            return 0;
        }
        give_back(e, before);
        if (r > 0) {
            pthread_mutex_unlock(&e->lock);
            r = page_set_await(m->file, blocked, r, t->slot);
            pthread_mutex_lock(&e->lock);
        }
    } while (r == 0);
    return -1;
}

int epoch_write(struct mapping *m, uint64_t offset, uint64_t n, const struct staging_source *src,
                unsigned flags)
{
    struct epoch *e = m->epoch;
    struct file *f = m->file;
    const struct epoch_range range = {.offset = offset, .n = n};
    uint64_t first = offset / PAGE_BYTES, last = (offset + n - 1) / PAGE_BYTES;
    const struct page_state *s = shared_peek(&f->shared, first);
    if (s)
        store_fetch(f, s, first, offset % PAGE_BYTES);
    pthread_mutex_lock(&e->lock);
    int r = get_ready(e, m, &range, 1, flags);
    if (r == 0) {
        /* With ATO_SKIP_EQUAL only staging_put() finds out which slices are written: so it publishes them. */
        bool seen = (flags & ATO_SKIP_EQUAL) || staging_rewrites(e->t, f, offset, n);
        if (seen)
            turn(e, first, last);
        staging_put(e->t, f, offset, n, src, flags, seen);
        /* persist-order E1 (readers: epoch_read, and the commit by another thread): what was stored
         * is visible before other threads can see that it exists, and durable before they commit it
         * (W1). */
        persist_fence(&f->persist);
        if (!seen) {
            turn(e, first, last);
            staging_publish(e->t, f, offset, n);
        }
        turn(e, first, last);
    }
    pthread_mutex_unlock(&e->lock);
    return r;
}

int epoch_writev(struct mapping *m, const struct epoch_range *ranges, unsigned count,
                 unsigned flags)
{
    struct epoch *e = m->epoch;
    struct file *f = m->file;
    pthread_mutex_lock(&e->lock);
    int r = get_ready(e, m, ranges, count, flags);
    if (r == 0) {
        turn_all(e);
        for (unsigned i = 0; i < count; i++) {
            struct staging_source src = {.bytes = ranges[i].bytes};
            staging_put(e->t, f, ranges[i].offset, ranges[i].n, &src, flags, true);
        }
        persist_fence(&f->persist); /* E1 */
        turn_all(e);
    }
    pthread_mutex_unlock(&e->lock);
    return r;
}

/* ---- reading ---- */

/* Returns the epoch's entry for a page, for a reader without the lock; NULL if the epoch does not have the
 * page. Entries do not move (claim_pin()). */
static const struct held_page *look(const struct epoch *e, struct file *f, uint64_t page)
{
    const struct page_state *s = shared_peek(&f->shared, page);
    /* Acquire: pairs with take() in claim.c. */
    uint64_t tx = s ? __atomic_load_n(&s->tx, __ATOMIC_ACQUIRE) : 0;
    const struct page_set *h = &e->t->set;
    uint64_t at = (uint32_t)tx;
    if (tx >> 32 != __atomic_load_n(&h->tag, __ATOMIC_RELAXED) || at >= h->room)
        return NULL;
    return __atomic_load_n(&h->pages[at].state, __ATOMIC_RELAXED) == s ? &h->pages[at] : NULL;
}

struct looker {
    struct epoch *e;
    struct file *f;
    uint64_t offset, n;
    char *dst;
};

static uint64_t end_of(const struct looker *l, uint64_t from)
{
    uint64_t end = l->offset + l->n, page_end = (from / PAGE_BYTES + 1) * PAGE_BYTES;
    return page_end < end ? page_end : end;
}

/* Waits until the versions are odd and the counters even, and adds them up. Both only grow, so their sum
 * moves if one of them does. Returns 0; -1 with errno. */
static int note(const struct looker *l, uint64_t *sum)
{
    *sum = 0;
    for (uint64_t at = l->offset; at < l->offset + l->n; at = end_of(l, at)) {
        const struct page_state *s = load_look(l->f, at / PAGE_BYTES);
        uint64_t *sequence = sequence_of(l->e, at / PAGE_BYTES), now;
        if (!s)
            return -1;
        for (unsigned i = 0; (now = __atomic_load_n(sequence, __ATOMIC_ACQUIRE)) & 1; i++) {
            seam_point(SEAM_WAIT, s);
            page_pause(i);
        }
        const uint64_t version = read_steady_version(l->f, s);
        if (!version)
            return -1;
        *sum += now + version;
    }
    /* Looked at after the versions (read.c, point 5). */
    return l->offset + l->n <= file_size(l->f) ? 0 : reservation_beyond(l->f, l->offset + l->n);
}

static bool is_as_noted(const struct looker *l, uint64_t sum)
{
    uint64_t now = 0;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    for (uint64_t at = l->offset; at < l->offset + l->n; at = end_of(l, at)) {
        uint64_t page = at / PAGE_BYTES;
        now += __atomic_load_n(sequence_of(l->e, page), __ATOMIC_RELAXED) +
               __atomic_load_n(&shared_state(&l->f->shared, page)->version, __ATOMIC_RELAXED);
    }
    return now == sum;
}

static void copy(const struct looker *l)
{
    struct file *f = l->f;
    RACES_MEANT_BEGIN(); /* a race that is meant, as in read_try() */
    for (uint64_t at = l->offset, end; at < l->offset + l->n; at = end) {
        uint64_t page = at / PAGE_BYTES;
        const struct held_page *mine = look(l->e, f, page);
        seam_point(SEAM_VERSION, f);
        uint64_t bitmap =
            __atomic_load_n(&shared_state(&f->shared, page)->bitmap, __ATOMIC_ACQUIRE);
        end = end_of(l, at);
        if (mine)
            bitmap ^= __atomic_load_n(&mine->pending, __ATOMIC_ACQUIRE);
        copy_gather_range(f->persist.kernel, l->dst + (at - l->offset), file_o(f, page),
                          file_r(f, page), bitmap, (unsigned)(at % PAGE_BYTES),
                          (unsigned)(end - at));
    }
    RACES_MEANT_END(l->dst, l->n);
}

/* Returns true if the epoch has a page of the range. Does not look at the entries, which epoch_commit() may
 * be sorting. */
static bool has_any(const struct looker *l)
{
    uint64_t tag = __atomic_load_n(&l->e->t->set.tag, __ATOMIC_RELAXED);
    for (uint64_t at = l->offset; at < l->offset + l->n; at = end_of(l, at)) {
        const struct page_state *s = shared_peek(&l->f->shared, at / PAGE_BYTES);
        /* Acquire: pairs with take() in claim.c. */
        if (s && __atomic_load_n(&s->tx, __ATOMIC_ACQUIRE) >> 32 == tag)
            return true;
    }
    return false;
}

int epoch_read(struct mapping *m, uint64_t offset, char *dst, uint64_t n)
{
    struct looker l = {m->epoch, m->file, offset, n, dst};
    if (!has_any(&l))
        return read_bytes(m, offset, dst, n, NULL);
    for (unsigned tries = 0; tries < TRIES; tries++) {
        uint64_t sum;
        if (note(&l, &sum) < 0)
            return -1;
        copy(&l);
        seam_point(SEAM_CHECK, l.f);
        if (is_as_noted(&l, sum))
            return 0;
        count(m, COUNT_READ_RETRIES, 1);
    }
    pthread_mutex_lock(&l.e->lock);
    int r = staging_read(l.e->t, m, offset, dst, n);
    pthread_mutex_unlock(&l.e->lock);
    return r;
}

/* ---- commit ---- */

void epoch_give_up(struct mapping *m)
{
    tx_empty(m->epoch->t);
}

int epoch_commit(struct mapping *m)
{
    struct epoch *e = m->epoch;
    struct tx *t = e->t;
    pthread_mutex_lock(&e->lock);
    if (staging_has_to_be_flushed(t) && !staging_is_sorted(t)) {
        turn_all(e);
        staging_sort(t);
        turn_all(e);
    }
    int r = file_check(m->file);
    if (r == 0)
        r = tx_make_durable(t);
    if (r == 0) {
        turn_all(e);
        tx_bring_home(t);
        tx_empty(t);
        handle_renew(t);
        turn_all(e);
    }
    pthread_mutex_unlock(&e->lock);
    return r;
}
