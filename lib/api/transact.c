/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of transactions: data, sizes, commit and abort.
 *
 * The caller sees to it that no two calls on a transaction overlap in time, so they take no lock. Each may come from
 * another thread than the one before.
 */
#include "lib/api/options.h"
#include "lib/api/stores.h"
#include "lib/commit/log.h"
#include "lib/commit/store.h"
#include "lib/file/calls.h"
#include "lib/file/clock.h"
#include "lib/file/page.h"
#include "lib/page/handle.h"
#include "lib/page/page_set.h"
#include "lib/page/page_set_reserve.h"
#include "lib/page/reservation.h"
#include "lib/read/range.h"
#include "lib/read/read.h"
#include "lib/transaction/again.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/notes.h"
#include "lib/transaction/resize.h"
#include "lib/transaction/staging.h"
#include "lib/transaction/tx.h"
#include "reflection/media/report.h"

#include <errno.h>

/* ---- the calling thread ---- */

/* Lets the calling thread go on with a transaction of another one. Returns 0; -1 with ENOTSUP. */
static __attribute__((noinline)) int hand_over(struct tx *t)
{
    if (t->set.n) {
        if (!persist_barrier())
            return report_error(ENOTSUP, "another thread has written in this transaction, and the "
                                         "kernel has no membarrier(2): go on in that thread");
        /* persist-order W1 (readers: those of the commit): what the other thread stored is durable before words
         * that this thread stores, although only this thread fences before them. */
        persist_fence_threads(&t->set.pages[0].file->persist);
    }
    __atomic_store_n(&t->thread, thread_id(), __ATOMIC_RELAXED);
    return 0;
}

/* Returns the transaction; leave() ends the call on it. NULL with EINVAL; ENOTSUP. */
static inline __attribute__((always_inline)) struct tx *enter_any(const ato_tx *tx)
{
    struct tx *t = handle_at((uint64_t)(uintptr_t)tx);
    if (__builtin_expect(!t, 0))
        return report_null(EINVAL, "the handle is not of an open transaction: the transaction was "
                                   "never begun, or has ended");
    if (__builtin_expect(t->thread != thread_id(), 0) && hand_over(t) < 0)
        return NULL;
    return t;
}

/* Ends a call. If the transaction was refused in it, gives back all that it has. */
static void leave(struct tx *t)
{
    if (__builtin_expect(t->refused, 0)) {
        KEEP_ERRNO();
        tx_empty(t);
    }
}

/* The same, but NULL with EAGAIN if the transaction was refused before. */
static inline __attribute__((always_inline)) struct tx *enter(const ato_tx *tx)
{
    struct tx *t = enter_any(tx);
    if (__builtin_expect(!t || !t->refused, 1))
        return t;
    report_error(EAGAIN,
                 "the transaction was refused in an earlier call, and has no effect: abort it, and "
                 "run it again");
    leave(t);
    return NULL;
}

/* ato_tx_begin_opt() with options from options_take(). */
static ato_tx *begin(const struct ato_tx_options *o)
{
    const uint64_t pages = o->max_bytes / PAGE_BYTES + (o->max_bytes % PAGE_BYTES != 0);
    const bool is_early = o->flags == (ATO_TX_EARLY | ATO_TX_READ_COMMITTED);
    if (__builtin_expect(o->flags & ~(ATO_TX_READ_COMMITTED | ATO_RELAXED), 0) && !is_early)
        return report_null(EINVAL, "transaction flags 0x%x are not known", o->flags);
    if (pages > TX_MOST_PAGES)
        return report_null(EINVAL, "max_bytes is more than 1 TiB");
    /* A larger value would overflow a deadline, which would then lie in the past. */
    if (o->wait_ms > UINT32_MAX || o->run_ms > UINT32_MAX)
        return report_null(EINVAL, "%s is more than 2^32 - 1",
                           o->run_ms > UINT32_MAX ? "run_ms" : "wait_ms");
    struct tx *t = handle_make(thread_id(), o->flags);
    if (!t)
        return NULL;
    t->wait_ms = o->wait_ms ? o->wait_ms : CLAIM_WAIT_MS;
    t->max_pages = pages ? pages : TX_PAGES;
    if (__builtin_expect(again_refusals, 0))
        again_begin(t);
    return (ato_tx *)(uintptr_t)t->handle;
}

ato_tx *ato_tx_begin(unsigned flags)
{
    return begin(&(struct ato_tx_options){.flags = flags});
}

ato_tx *ato_tx_begin_opt(const struct ato_tx_options *opt)
{
    struct ato_tx_options o;
    return options_take(&o, sizeof(o), opt, "ato_tx_options") < 0 ? NULL : begin(&o);
}

/* ---- data and sizes ---- */

/* Finds the mapping of a side and checks the range, by the file's size as the transaction sees it. Returns 0; -1
 * with EFAULT; EIO: its file is poisoned. */
static int find(struct tx *t, struct range *s, const void *addr, size_t n)
{
    if (range_look(s, addr, n) < 0)
        return -1;
    if (!s->m || !claim_sizing(t, s->m->file))
        return s->m ? range_check(s, addr, n) : 0;
    return range_within(s, addr, n, t->size) ? 0 : range_outside(s->m, addr, n);
}

static __attribute__((noinline)) int move(struct tx *t, void *dst, const void *src, size_t n,
                                          unsigned flags)
{
    struct staging_write w = {.n = n, .bytes = src};
    struct range *to = &w.to, *from = &w.from;
    if (__builtin_expect(flags & ~(ATO_EAGER | ATO_SKIP_EQUAL), 0))
        return report_error(EINVAL, "flags 0x%x are not known", flags);
    if (__builtin_expect(n == 0, 0))
        return range_empty(dst, src);
    if (find(t, to, dst, n) < 0 || find(t, from, src, n) < 0)
        return -1;
    if (!to->m && !from->m)
        return range_none(dst, src);
    if (to->m && range_check_writable(to->m, dst) < 0)
        return -1;
    CALL_ON(to_call, to->m);
    CALL_ON(from_call, from->m);
    const uint64_t pages = t->set.n, notes = t->notes.n;
    const unsigned mappings = t->nmappings;
    int r = from->m ? claim_mapping(t, from->m, false) : 0;
    if (r == 0)
        r = to->m ? staging_write(t, &w, flags) : staging_read(t, from->m, from->offset, dst, n);
    if (r < 0) {
        page_set_release_from(&t->set, pages);
        notes_give_back(&t->notes, notes);
        claim_drop_mappings(t, mappings);
        return -1;
    }
    if (to->m)
        range_count_write(to->m, n);
    if (from->m)
        range_count_read(from->m, n);
    return 0;
}

/*
 * The common case of a read: from one page that the transaction does not have, of the first and only mapping that it uses, of a file
 * whose size it does not change. Returns 0; -1: errors of notes_add(), notes_hold(); 1 in all other cases. Then, and after an error,
 * the transaction is as it was. Short for the same reason as read_at_once().
 */
static inline __attribute__((always_inline)) int read_page_at_once(struct tx *t, void *dst,
                                                                   const void *src, size_t n)
{
    struct mapping *to, *m = n - 1 < PAGE_BYTES ? table_find_source(dst, src, n, &to) : NULL;
    const bool notes = !(t->flags & ATO_TX_READ_COMMITTED);
    const unsigned mappings = t->nmappings;
    if (!m || (notes && (t->first || m->file->reader)))
        return 1;
    if (mappings ? mappings > 1 || t->mappings[0] != m || t->sized : claim_mapping(t, m, false) < 0)
        return 1;
    CALL_ON(call, m);
    struct file *f = m->file;
    const uint64_t offset = m->offset + (uint64_t)((const char *)src - m->base),
                   page = offset / PAGE_BYTES;
    const uint64_t noted = t->notes.n;
    uint64_t version;
    int r = 1;
    if (read_at_once(m, src, dst, n, false, &version) && !(t->set.n && claim_find(t, f, page)))
        r = notes && (notes_add(t, f, shared_held(&f->shared, page), offset + n, version) < 0 ||
                      notes_hold(t) < 0)
                ? -1
                : 0;
    if (r == 0) {
        range_count_read(m, n);
    } else {
        notes_give_back(&t->notes, noted);
        claim_drop_mappings(t, mappings);
    }
    return r;
}

/*
 * The common case: from memory to one page of the only mapping that the transaction has used, of a file whose size it does not
 * change. Returns 1 in all others. In any case it prefetches, as early as possible: after the fences of the last commit stores
 * wait, and after a number of stores everything else waits too.
 */
static inline __attribute__((always_inline)) int move_at_once(struct tx *t, void *dst,
                                                              const void *src, size_t n)
{
    struct mapping *m = table_find(dst);
    if (!m)
        return 1;
    struct file *f = m->file;
    const uint64_t from = (uint64_t)(uintptr_t)dst - (uint64_t)(uintptr_t)m->base;
    const uint64_t offset = m->offset + from, begin = offset % PAGE_BYTES, pages = t->set.n;
    struct page_state *s = m->writable && from < m->reach && offset < f->max_size
                               ? shared_look(&f->shared, offset / PAGE_BYTES)
                               : NULL;
    if (!s)
        return 1;
    const struct homes homes = file_homes_of(f, offset / PAGE_BYTES, s);
    if (!pages)
        page_fetch(&homes, s, (unsigned)begin);
    else
        page_fetch_state(&homes, s);
    if (t->written != m || t->nmappings != 1 || t->sized || n - 1 >= PAGE_BYTES - begin ||
        n > m->reach - from || offset + n > file_size(f) || !table_is_plain(src, n) || !src)
        return 1;
    CALL_ON(call, m);
    const unsigned flags = write_flags(m, 0);
    if (staging_write_page(t, f, offset, s, &homes, (unsigned)n, src, flags, false) < 0) {
        page_set_release_from(&t->set, pages);
        return -1;
    }
    t->eager |= flags != 0;
    range_count_write(m, n);
    return 0;
}

/* After a call that failed with EFAULT: perhaps the range lies beyond the end of a file. That tells the caller of the file's size,
 * so it is noted. Makes the call again: another process may have changed the size before it was noted. */
static __attribute__((noinline)) int move_beyond(struct tx *t, void *dst, const void *src, size_t n,
                                                 unsigned flags)
{
    const void *const sides[] = {dst, src};
    for (unsigned i = 0; i < 2; i++) {
        struct mapping *m = table_find(sides[i]);
        if (m && !m->file->reader && notes_add_size(t, m) < 0)
            return -1;
    }
    const int r = move(t, dst, src, n, flags);
    if (r < 0 && errno == EFAULT)
        (void)notes_hold(t);
    return r;
}

void *ato_tx_memcpy(ato_tx *tx, void *dst, const void *src, size_t n, unsigned flags)
{
    struct tx *t = enter(tx);
    if (!t)
        return NULL;
    int r = 1;
    if (!flags && (r = move_at_once(t, dst, src, n)) > 0)
        r = read_page_at_once(t, dst, src, n);
    if (r > 0)
        r = move(t, dst, src, n, flags);
    if (__builtin_expect(r < 0, 0) && errno == EFAULT)
        r = move_beyond(t, dst, src, n, flags);
    leave(t);
    return r < 0 ? NULL : dst;
}

int ato_tx_ftruncate(ato_tx *tx, void *addr, off_t size)
{
    struct tx *t = enter(tx);
    if (!t)
        return -1;
    struct mapping *m = table_find_to_change(addr);
    CALL_ON(call, m);
    const unsigned mappings = t->nmappings;
    int r = m ? resize(t, m, size) : -1;
    if (r < 0)
        claim_drop_mappings(t, mappings);
    leave(t);
    return r;
}

off_t ato_tx_size(ato_tx *tx, const void *addr)
{
    struct tx *t = enter(tx);
    if (!t)
        return -1;
    struct mapping *m = table_expect(addr);
    const unsigned mappings = t->nmappings;
    off_t size = -1;
    if (m && notes_add_size(t, m) == 0) {
        size = claim_sizing(t, m->file) ? (off_t)t->size : ato_size(addr);
        if (size >= 0 && notes_hold(t) < 0)
            size = -1;
    }
    if (size < 0)
        claim_drop_mappings(t, mappings);
    leave(t);
    return size;
}

int ato_ftruncate(void *addr, off_t size)
{
    struct mapping *m = table_find_to_change(addr);
    if (m && mapping_has_stores(m)) {
        CALL_ON(call, m);
        return stores_resize(m, size, STORES_EXACTLY, &(off_t){0});
    }
    struct tx *t = m ? handle_make(thread_id(), TX_EXACT) : NULL;
    if (!t)
        return -1;
    CALL_ON(call, m);
    t->max_pages = UINT64_MAX; /* for zeros over what the file had before */
    int r = resize(t, m, size);
    if (r == 0)
        r = tx_make_durable(t);
    tx_unmake(t);
    return r;
}

/* ---- commit and abort ---- */

static void end(struct tx *t)
{
    if (__builtin_expect(t->refused || again_refusals, 0))
        again_end(t);
    tx_unmake(t);
}

static int commit(const ato_tx *tx, struct ato_promise *promise)
{
    struct tx *t = enter(tx);
    if (!t)
        return -1;
    int r = tx_commit_early(t, promise);
    if (r == 0)
        end(t);
    else
        leave(t);
    return r;
}

int ato_tx_commit(ato_tx *tx)
{
    return commit(tx, NULL);
}

int ato_tx_commit_early(ato_tx *tx, struct ato_promise *promise)
{
    struct tx *t = enter_any(tx);
    if (promise)
        *promise = (struct ato_promise){0};
    else if (t)
        t->flags |= ATO_RELAXED;
    return commit(tx, promise);
}

int ato_await(const void *addr, const struct ato_promise *promise)
{
    struct mapping *m = table_expect(addr);
    if (!m)
        return -1;
    if (!promise)
        return report_error(EINVAL, "there is no promise to wait for");
    CALL_ON(call, m);
    return m->file->logged && !m->file->reader ? log_await(m->file, promise) : file_check(m->file);
}

int ato_visible(const void *addr, struct ato_promise *promise)
{
    struct mapping *m = table_expect(addr);
    if (!m)
        return -1;
    *promise = m->file->logged && !m->file->reader ? log_visible(m->file) : (struct ato_promise){0};
    return 0;
}

int ato_tx_abort(ato_tx *tx)
{
    struct tx *t = enter_any(tx);
    if (!t)
        return -1;
    end(t);
    return 0;
}
