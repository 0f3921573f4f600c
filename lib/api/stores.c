/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A commit holds all pages that were stored to, also those in which nothing differs, so that nobody changes the original meanwhile. Other
 * threads of the process that store there wait from before the copying until the copies of pages are given back: what they stored in
 * between would be lost then.
 */
#include "lib/api/stores.h"

#include "lib/commit/deploy.h"
#include "lib/commit/log.h"
#include "lib/commit/number.h"
#include "lib/commit/show.h"
#include "lib/commit/store.h"
#include "lib/file/private_pages.h"
#include "lib/file/store_views.h"
#include "lib/file/undo.h"
#include "lib/page/handle.h"
#include "lib/page/page_set_reserve.h"
#include "lib/read/range.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/resize.h"
#include "lib/transaction/tx.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>

/* ---- the view ---- */

int stores_map(struct mapping *m, uint64_t length, int fd)
{
    if (mmap(m->base, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
             (off_t)m->offset) == MAP_FAILED)
        return -1;
    madvise(m->base, length, MADV_DONTFORK);
    if (!(m->flags & ATO_NO_FAULT_HANDLER)) {
        fault_install(SIGSEGV);
        fault_watch(m->base, length, &fault_stores);
    }
    return 0;
}

static void give_showing(struct file *f)
{
    page_release(&f->shared.header->undo.showing);
}

/* Can it be told what is stored there? Before Linux 6.16 pages of a DAX mapping look like copies when they are loaded. */
static int check_kernel(const struct mapping *m)
{
    const struct file *f = m->file;
    const enum persist_domain domain = f->persist.domain;
    struct private_run *runs HEAP = NULL;
    uint64_t n;
    if (file_size(f) > m->offset && (domain == PERSIST_PMEM || domain == PERSIST_EADR))
        (void)*(volatile const char *)m->base;
    if (private_pages_find(m->base, 1, &runs, &n) < 0)
        return -1;
    return n ? report_error(ENOTSUP,
                            "this kernel does not tell which pages of %s, in persistent memory, "
                            "are copies: ATO_PLAIN_STORES needs a newer one",
                            f->pairing.path)
             : 0;
}

int stores_open(struct mapping *m)
{
    struct file *f = m->file;
    if (check_kernel(m) < 0 || show_take(f, false) < 0)
        return -1;
    const int view = store_view_open(m);
    give_showing(f);
    if (view < 0)
        return -1;
    m->view = (unsigned)view;
    /* Waits for the commits that have not seen the view. All others bring home what they change. */
    const uint64_t pages = layout_pages(file_size(f));
    if (number_commits(f) < 0 || (pages && deploy_range(f, 0, pages - 1) < 0)) {
        store_view_close(f, m->view);
        return -1;
    }
    __atomic_store_n(&f->shared.header->views[m->view].lost, 0, __ATOMIC_RELAXED);
    return 0;
}

/* ---- what was stored ---- */

struct stores {
    struct mapping *m;
    struct tx *t;
    char *at; /* the range, whole pages of the view */
    uint64_t n;
    bool stopped; /* other threads wait */
    bool committed;
};

uint64_t stores_size(const struct mapping *m)
{
    const struct tx *growth = __atomic_load_n(&m->growth, __ATOMIC_ACQUIRE);
    return growth ? growth->size : file_size(m->file);
}

/* How many pages of the view does the file have, from its beginning on? */
static uint64_t pages_within(const struct mapping *m)
{
    const uint64_t size = stores_size(m);
    return size > m->offset ? layout_pages(size - m->offset) : 0;
}

static char *page_of(const struct mapping *m, uint64_t page)
{
    return m->base + (page * PAGE_BYTES - m->offset);
}

/* Gives copies of pages back: the view shows the file again. Also of a program that has locked its memory (Linux 5.18). */
static bool drop(char *at, uint64_t n)
{
    enum { DONTNEED_LOCKED = 24 };
    return madvise(at, n, MADV_DONTNEED) == 0 || madvise(at, n, DONTNEED_LOCKED) == 0;
}

/* What was stored behind the end of the file is forgotten; and what is kept for these pages, also of copies that the kernel has given
 * back since the file itself is shorter. */
static int trim(const struct mapping *m)
{
    const uint64_t within = pages_within(m), all = layout_pages(m->reach);
    if (within < all && !drop(m->base + within * PAGE_BYTES, (all - within) * PAGE_BYTES))
        return report_errno(errno, "cannot give copies of pages back");
    if (show_take(m->file, false) < 0)
        return -1;
    store_view_forget_from(m->file, m->offset / PAGE_BYTES + within, 1ull << m->view);
    give_showing(m->file);
    return 0;
}

/* -1 with EFAULT: the file has just become shorter. */
static int hold_pages(const struct stores *s)
{
    struct mapping *m = s->m;
    const uint64_t from = (uint64_t)(s->at - m->base) / PAGE_BYTES, within = pages_within(m),
                   first = m->offset / PAGE_BYTES + from;
    struct private_run *runs HEAP = NULL;
    uint64_t n;
    if (private_pages_find(s->at, s->n / PAGE_BYTES, &runs, &n) < 0 ||
        (n && from + runs[n - 1].end > within && trim(m) < 0))
        return -1;
    struct page_span *spans HEAP = malloc((n + 1) * sizeof(*spans));
    if (!spans)
        return report_error(ENOMEM, "no memory to commit what was stored");
    unsigned held = 0;
    for (; held < n && from + runs[held].first < within; held++) {
        const uint64_t last = first + lesser(runs[held].end, within - from) - 1;
        spans[held] = (struct page_span){m->file, first + runs[held].first, last,
                                         m->growth ? 0 : last * PAGE_BYTES + 1};
    }
    return page_set_reserve(&s->t->set, spans, held);
}

/* Lets other threads wait, and holds all pages with stores. */
static int hold(struct stores *s)
{
    enum { TRIES = 64 }; /* each is one cut by somebody else */
    struct mapping *m = s->m;
    int r = -1;
    if (!s->stopped && !__libc_single_threaded && !(m->flags & ATO_NO_FAULT_HANDLER)) {
        if (fault_stop_stores(s->at, s->n) < 0)
            return report_errno(errno, "cannot make %s read-only for a commit",
                                m->file->pairing.path);
        s->stopped = true;
    }
    for (unsigned i = 0; i < TRIES && (r = hold_pages(s)) < 0 && errno == EFAULT; i++)
        ;
    return r;
}

/* Returns the transaction for what comes next, which the thread has now. The view itself is not one of others: otherwise a byte would count as
 * not stored that the program stores where the file had the same before it was cut. */
static struct tx *take_tx(const struct mapping *m)
{
    struct tx *t =
        m->growth ? m->growth : handle_make(thread_id(), ATO_TX_READ_COMMITTED | TX_EXACT);
    if (t) {
        t->max_pages = UINT64_MAX;
        __atomic_store_n(&t->thread, thread_id(), __ATOMIC_RELAXED); /* others ask for it */
        t->set.own_views = 1ull << m->view;
    }
    return t;
}

/* Ends the transaction, or lets it wait for the next commit, since the file is to be longer: others may change its last page meanwhile. */
static void put_back(struct mapping *m, struct tx *t, bool waits)
{
    __atomic_store_n(&m->growth, waits ? t : NULL, __ATOMIC_RELEASE);
    if (waits) {
        page_set_release_from(&t->set, 0);
    } else if (t) {
        t->set.own_views = 0; /* its memory is used again */
        tx_unmake(t);
    }
}

/* end() has to follow, also if it fails. */
static int begin(struct stores *s, struct mapping *m, uint64_t from, uint64_t n, unsigned flags)
{
    *s = (struct stores){.m = m, .at = m->base + from, .n = layout_pages(n) * PAGE_BYTES};
    pthread_mutex_lock(&m->stores_lock);
    s->t = take_tx(m);
    if (!s->t)
        return -1;
    s->t->flags = (s->t->flags & ~ATO_RELAXED) | flags;
    return claim_mapping(s->t, m, true) < 0 ? -1 : hold(s);
}

static int end(struct stores *s, int r)
{
    KEEP_ERRNO();
    struct mapping *m = s->m;
    put_back(m, s->t, m->growth && !s->committed);
    if (s->stopped)
        fault_go_on(s->at, s->n);
    pthread_mutex_unlock(&m->stores_lock);
    return r;
}

/* ---- the commit ---- */

/*
 * Stores the slices of a held page in which the program has stored (store_views.h). Bytes of them that others have changed since the copy was made,
 * and the program has not, are those of the others: what two processes keep apart by locks may lie in one slice.
 */
static int stage(const struct mapping *m, struct held_page *at, uint64_t size, bool relaxed)
{
    struct file *f = at->file;
    /* After a relaxed commit it is not in the file yet. */
    const char *newest = f->logged ? at->homes.o : file_o(f, at->page);
    const uint64_t left = lesser(size - at->page * PAGE_BYTES, PAGE_BYTES);
    char is[PAGE_BYTES];
    /* What is kept of other pages changes meanwhile, and with a log a page may come home that is held. */
    if (show_take(f, false) < 0)
        return -1;
    memcpy(is, page_of(m, at->page), PAGE_BYTES);
    const bool good = store_view_follow(f, m->view, at->page, is, newest);
    memcpy(is + left, newest + left, PAGE_BYTES - left); /* behind the end nothing is stored */
    uint64_t mask = f->persist.kernel->differing(newest, newest, is, 0, UINT64_MAX);
    if (!relaxed && undo_is_early(f, at->state)) /* it comes home with this commit */
        mask |= 1;
    if (good && mask)
        at->pending = store_mask(at, is, mask);
    give_showing(f);
    return good ? 0
                : report_error(ENOMEM, "no memory to see what others have changed in %s",
                               f->pairing.path);
}

static int make_space(const struct stores *s)
{
    struct space_run run = {.file = s->m->file};
    for (uint64_t i = 0; i < s->t->set.n; i++) {
        const struct held_page *at = &s->t->set.pages[i];
        if (space_run_add(&run, at->page, store_needs(at->state, UINT64_MAX, true)) < 0)
            return -1;
    }
    return space_run_end(&run);
}

/* After a relaxed commit: is the content of any page not in the file yet? */
static bool has_early(const struct stores *s)
{
    const struct file *f = s->m->file;
    bool any = false;
    for (uint64_t i = 0; i < s->t->set.n && f->logged; i++)
        any |= undo_is_early(f, s->t->set.pages[i].state);
    return any;
}

static char *floor_of(char *at, uintptr_t unit)
{
    return at - (uintptr_t)at % unit;
}

/*
 * Gives the copies back: from now on the view shows the file again. But it keeps those of pages that the file does not have yet, or which the
 * kernel does not take back; they were made from themselves then.
 *
 * The next search looks at each page of its range that is mapped, also at those that were only read, for 10 to 20 ns, and, where there are page
 * tables, at pages that are not. So of a long range whole tables are given back (from Linux 6.14 on the kernel frees them then), and
 * short gaps between them; and with every 32nd commit all of it. A load maps pages of the file again.
 */
static int give_back(const struct stores *s, bool late)
{
    enum { TABLE = 2 << 20, LONG = 64 << 20, GAP = 8, OFTEN = 32 };
    const uintptr_t whole = 1ull << 57; /* all addresses */
    struct mapping *m = s->m;
    struct file *f = m->file;
    const struct page_set *h = &s->t->set;
    const bool some = has_early(s);
    const uintptr_t unit = s->n < LONG || some              ? PAGE_BYTES
                           : ++m->long_commits % OFTEN == 0 ? whole
                                                            : TABLE;
    if (show_take(f, late) < 0)
        return -1;
    for (uint64_t i = 0, next; i < h->n; i = next) {
        char *from = floor_of(page_of(m, h->pages[i].page), unit), *to = from + unit;
        for (next = i + 1; next < h->n && !some; next++) {
            char *at = floor_of(page_of(m, h->pages[next].page), unit);
            if (at > to + GAP * unit)
                break;
            to = at + unit;
        }
        from = from < s->at ? s->at : from;
        to = to > s->at + s->n ? s->at + s->n : to;
        for (uint64_t k = i; k < next; k++)
            store_view_forget(f, h->pages[k].page, 1ull << m->view);
        if (undo_is_early(f, h->pages[i].state) || !drop(from, (uint64_t)(to - from)))
            for (uint64_t k = i; k < next; k++)
                store_view_keep(f, m->view, h->pages[k].page, page_of(m, h->pages[k].page));
    }
    give_showing(f);
    return 0;
}

static int commit(struct stores *s, bool relaxed)
{
    struct mapping *m = s->m;
    struct file *f = m->file;
    struct page_set *h = &s->t->set;
    const uint64_t size = stores_size(m);
    uint64_t slices = 0;
    if (__atomic_load_n(&f->shared.header->views[m->view].lost, __ATOMIC_RELAXED))
        return report_error(
            ESTALE,
            "others changed pages of %s in which this process had stored, and could not tell the "
            "changes apart: there was no memory (snapshot_bytes, ATO_SNAPSHOT_BYTES, /dev/shm), or "
            "they are in another pid namespace, or of another user. ato_plain_discard() all of the "
            "mapping, and store again",
            f->pairing.path);
    if (make_space(s) < 0 || undo_map(f) < 0)
        return -1;
    for (uint64_t i = 0; i < h->n; i++) {
        if (stage(m, &h->pages[i], size, relaxed) < 0)
            return -1;
        slices += bitmap_count(h->pages[i].pending);
    }
    if (file_check(f) < 0)
        return -1;
    s->t->written = m;
    s->t->eager = !relaxed;
    file_note_written(f);
    if (tx_make_durable(s->t) < 0)
        return -1;
    s->committed = true;
    if (give_back(s, true) < 0)
        return -1;
    if (slices)
        range_count_write(m, slices * SLICE_BYTES);
    return 0;
}

int stores_commit(struct mapping *m, uint64_t from, uint64_t n, bool relaxed)
{
    struct stores s;
    int r = begin(&s, m, from, n, relaxed ? ATO_RELAXED : 0);
    if (r == 0)
        r = s.t->set.n || m->growth ? commit(&s, relaxed) : file_check(m->file);
    return end(&s, r);
}

int stores_discard(struct mapping *m, uint64_t from, uint64_t n)
{
    struct stores s;
    const bool all = from == 0 && n >= m->length && n >= stores_size(m) - m->offset;
    int r = begin(&s, m, from, n, 0);
    if (r == 0 && has_early(&s)) { /* these come home, for which no page may be held */
        page_set_release_from(&s.t->set, 0);
        r = log_checkpoint(m->file) < 0 ? -1 : hold(&s);
    }
    if (r == 0)
        r = give_back(&s, false);
    if (r == 0 && all) {
        __atomic_store_n(&m->file->shared.header->views[m->view].lost, 0, __ATOMIC_RELAXED);
        s.committed = true; /* a growth, too, is forgotten */
    }
    return end(&s, r);
}

/* ---- the size ---- */

void stores_forget_growth(struct mapping *m)
{
    put_back(m, m->growth, false);
}

/* Is anything but the size to be committed? Zeros over what the file had before: the view must show them. */
static bool has_zeros(const struct tx *t)
{
    bool any = false;
    for (uint64_t i = 0; i < t->set.n; i++)
        any |= t->set.pages[i].pending != 0;
    return any;
}

/* What the view's copy of the last page, if it is one, had behind the end, `was`, would be seen again; and what is stored there would not count if
 * the copy was made from it. */
static int clear_tail(const struct mapping *m, uint64_t was, uint64_t size)
{
    const uint64_t end = lesser(layout_pages(was) * PAGE_BYTES, size), at = was - m->offset;
    struct private_run *runs HEAP = NULL;
    uint64_t n;
    if (was >= end || was < m->offset || at >= m->reach)
        return 0;
    if (private_pages_find(m->base + at / PAGE_BYTES * PAGE_BYTES, 1, &runs, &n) < 0)
        return -1;
    if (!n)
        return 0;
    memset(m->base + at, 0, end - was);
    if (show_take(m->file, false) < 0)
        return -1;
    store_view_cut(m->file, m->view, was / PAGE_BYTES, was % PAGE_BYTES);
    give_showing(m->file);
    return 0;
}

int stores_resize(struct mapping *m, off_t size, enum stores_size how, off_t *was)
{
    pthread_mutex_lock(&m->stores_lock);
    const off_t before = (off_t)stores_size(m), asked = how == STORES_MORE ? before + size : size;
    if (m->growth && (uint64_t)asked < file_size(m->file))
        stores_forget_growth(m);
    struct tx *t = take_tx(m);
    int r = t ? resize_begin(t, m, asked < 0 ? 0 : (uint64_t)asked) : -1;
    if (r == 0) {
        *was = (off_t)t->size;
        if (how == STORES_MORE)
            size += *was;
        else if (how == STORES_AT_LEAST && size < *was)
            size = *was;
        r = resize(t, m, size) < 0 ? -1 : clear_tail(m, (uint64_t)*was, (uint64_t)size);
    }
    const bool waits = r == 0 && t->resizes && t->size > file_size(m->file) && !has_zeros(t);
    if (r == 0 && !waits)
        r = tx_make_durable(t);
    put_back(m, t, waits || (r < 0 && m->growth));
    if (r == 0)
        r = trim(m);
    pthread_mutex_unlock(&m->stores_lock);
    return r;
}
