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
        fault_install_for_stores();
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
        stores_close(m);
        return -1;
    }
    __atomic_store_n(&f->shared.header->views[m->view].lost, 0, __ATOMIC_RELAXED);
    return 0;
}

void stores_close(struct mapping *m)
{
    store_view_close(m->file, m->view);
}

/* ---- what was stored ---- */

struct stores {
    struct mapping *m;
    struct tx *t;
    char *at; /* the range, whole pages of the view */
    uint64_t n;
    struct private_run *runs; /* pages from `at` on with stores */
    uint64_t nruns;
    bool stopped; /* other threads wait */
    bool committed;
};

uint64_t stores_size(const struct mapping *m)
{
    const struct tx *growth = __atomic_load_n(&m->growth, __ATOMIC_ACQUIRE);
    return growth ? growth->size : file_size(m->file);
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

/* Forgets what is kept for pages of the view from `at` on, which are behind the end of the file. */
static int forget_behind(const struct mapping *m, const char *at)
{
    struct file *f = m->file;
    if (show_take(f, false) < 0)
        return -1;
    undo_private_drop_all(f, ((uint64_t)(at - m->base) + m->offset) / PAGE_BYTES, 1ull << m->view);
    give_showing(f);
    return 0;
}

/* Copies of pages behind the end of the file are given back. */
static int find(struct stores *s)
{
    struct mapping *m = s->m;
    const uint64_t size = stores_size(m), from = (uint64_t)(s->at - m->base) + m->offset;
    const uint64_t pages = size > from ? layout_pages(size - from) : 0;
    free(s->runs);
    s->runs = NULL;
    s->nruns = 0;
    if (private_pages_find(s->at, s->n / PAGE_BYTES, &s->runs, &s->nruns) < 0)
        return -1;
    while (s->nruns && s->runs[s->nruns - 1].end > pages) {
        struct private_run *last = &s->runs[s->nruns - 1];
        const uint64_t first = last->first > pages ? last->first : pages;
        char *const at = s->at + first * PAGE_BYTES;
        if (!drop(at, (last->end - first) * PAGE_BYTES))
            return report_errno(errno, "cannot give copies of pages back");
        if (forget_behind(m, at) < 0)
            return -1;
        last->end = first;
        s->nruns -= last->first == first;
    }
    return 0;
}

static uint64_t count_pages(const struct stores *s)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < s->nruns; i++)
        n += s->runs[i].end - s->runs[i].first;
    return n;
}

/* Holds them. */
static int reserve(struct stores *s)
{
    struct file *f = s->m->file;
    struct page_span *spans HEAP = malloc(s->nruns * sizeof(*spans));
    const uint64_t first = ((uint64_t)(s->at - s->m->base) + s->m->offset) / PAGE_BYTES;
    for (uint64_t i = 0; i < s->nruns && s->m->growth; i++)
        if (claim_range(s->t, f, first + s->runs[i].first, first + s->runs[i].end - 1) !=
            RESERVATION_MINE)
            return -1;
    if (s->m->growth)
        return 0;
    if (!spans)
        return report_error(ENOMEM, "no memory to commit what was stored");
    for (uint64_t i = 0; i < s->nruns; i++) {
        const struct private_run *r = &s->runs[i];
        spans[i] = (struct page_span){f, first + r->first, first + r->end - 1,
                                      (first + r->end - 1) * PAGE_BYTES + 1};
    }
    return page_set_reserve(&s->t->set, spans, (unsigned)s->nruns);
}

/* Finds and holds all pages with stores. Then other threads wait, and there are no more of these. */
static int hold(struct stores *s)
{
    enum {
        TRIES = 3
    }; /* with threads that store elsewhere in between; then they wait from the beginning */
    for (unsigned i = 0;; i++) {
        page_set_release_from(&s->t->set, 0);
        if (find(s) < 0)
            return -1;
        if (s->nruns && reserve(s) < 0)
            return -1;
        if (s->stopped || __libc_single_threaded || (s->m->flags & ATO_NO_FAULT_HANDLER))
            return 0;
        if (fault_stop_stores(s->at, s->n) < 0)
            return report_errno(errno, "cannot make %s read-only for a commit",
                                s->m->file->pairing.path);
        s->stopped = true;
        const uint64_t held = count_pages(s);
        if (find(s) < 0)
            return -1;
        if (count_pages(s) == held)
            return 0;
        if (i < TRIES) {
            fault_go_on(s->at, s->n);
            s->stopped = false;
        }
    }
}

static struct tx *new_tx(void)
{
    struct tx *t = handle_make(thread_id(), ATO_TX_READ_COMMITTED | TX_EXACT);
    if (t)
        t->max_pages = UINT64_MAX;
    return t;
}

static int begin(struct stores *s, struct mapping *m, uint64_t from, uint64_t n, unsigned flags)
{
    *s = (struct stores){.m = m, .at = m->base + from, .n = layout_pages(n) * PAGE_BYTES};
    pthread_mutex_lock(&m->stores_lock);
    s->t = m->growth ? m->growth : new_tx();
    if (!s->t)
        return -1;
    s->t->flags = (s->t->flags & ~ATO_RELAXED) | flags;
    s->t->thread = thread_id();
    s->t->set.own_views = 1ull << m->view;
    if (claim_mapping(s->t, m, true) == 0 && hold(s) == 0)
        return 0;
    return -1;
}

static int end(struct stores *s, int r)
{
    KEEP_ERRNO();
    struct mapping *m = s->m;
    if (s->t)
        s->t->set.own_views = 0;
    if (s->t && s->t == m->growth && !s->committed) {
        page_set_release_from(&s->t->set, 0);
    } else if (s->t) {
        __atomic_store_n(&m->growth, NULL, __ATOMIC_RELEASE);
        tx_unmake(s->t);
    }
    if (s->stopped)
        fault_go_on(s->at, s->n);
    free(s->runs);
    pthread_mutex_unlock(&m->stores_lock);
    return r;
}

/* ---- the commit ---- */

/* Bytes of a copy that are those of what it was made from, `was`, become those of what came then, `now`. */
static void follow(char *is, const char *was, const char *now, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        is[i] = is[i] == was[i] ? now[i] : is[i];
}

/*
 * Stores the slices of a held page in which the program has stored (store_views.h). Bytes of them that others have changed since the copy was made,
 * and the program has not, are those of the others: what two processes keep apart by locks may lie in one slice. Returns how many
 * bytes it stores.
 */
static uint64_t stage(const struct mapping *m, struct held_page *at, uint64_t size)
{
    struct file *f = at->file;
    const char *is = page_of(m, at->page), *const o = file_o(f, at->page), *was, *now;
    /* After a relaxed commit it is not in the file yet. */
    const char *const newest = f->logged ? at->homes.o : o;
    char own[PAGE_BYTES];
    const uint64_t left = lesser(size - at->page * PAGE_BYTES, PAGE_BYTES);
    bool is_sure = false;
    was = undo_private_find(f, at->page, m->view, NULL, &is_sure);
    if (!was && newest != o) {
        was = o;
        is_sure = true;
    }
    if (was || left < PAGE_BYTES) {
        memcpy(own, is, left);
        memset(own + left, 0, PAGE_BYTES - left); /* behind the end */
        is = own;
    }
    for (; was; was = now) {
        now = is_sure ? NULL : undo_private_find(f, at->page, m->view, was, &is_sure);
        follow(own, was, now ? now : newest, left);
    }
    uint64_t mask = f->persist.kernel->differing(newest, newest, is, 0, UINT64_MAX);
    if (left < PAGE_BYTES) { /* the file itself may have other bytes behind the end */
        const uint64_t slice = left / SLICE_BYTES, from = slice * SLICE_BYTES;
        mask &= (2ull << slice) - 1;
        if (memcmp(is + from, newest + from, left - from) == 0)
            mask &= ~(1ull << slice);
    }
    if (mask)
        at->pending = store_mask(at, is, mask);
    return bitmap_count(mask) * SLICE_BYTES;
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

/* The view keeps its copy, which was made from itself then: after a relaxed commit, whose content is not in the file yet, and if the kernel
 * does not take the copy back. */
static void keep(struct mapping *m, const struct held_page *at)
{
    struct file *f = m->file;
    char *room = undo_private_room(f, at->page);
    if (!room) {
        __atomic_store_n(&f->shared.header->views[m->view].lost, 1, __ATOMIC_RELAXED);
        return;
    }
    f->persist.kernel->plain(room, page_of(m, at->page), PAGE_BYTES);
    (void)undo_private_put(f, room, 1ull << m->view, 0);
}

/* Is a page of a relaxed commit among those with stores? A commit that is not relaxed brings it home. */
static bool has_early(const struct stores *s)
{
    const struct file *f = s->m->file;
    bool any = false;
    for (uint64_t i = 0; i < s->t->set.n && f->logged; i++)
        any |= undo_is_early(f, s->t->set.pages[i].state);
    return any;
}

/*
 * The kernel looks at each page of a range that has an entry in its page tables, also at those whose entry is empty. So of a long range the tables
 * are given back as well, which happens (from Linux 6.14 on) where all that a table is for is given back at once: also pages
 * of the file are, which a load maps again. Nothing is lost, since all copies in the range are given back.
 */
enum { TABLE = 2 << 20, LONG = 64 << 20 };

/* Gives n bytes of the view from `at` on back. *done: up to where the last call has. Returns false if it cannot. */
static bool forget(const struct stores *s, char *at, uint64_t n, char **done)
{
    char *end = at + n;
    if (s->n >= LONG) {
        char *const last = s->at + s->n;
        at -= (uintptr_t)at % TABLE;
        end += (TABLE - (uintptr_t)end % TABLE) % TABLE;
        at = at < s->at ? s->at : at;
        end = end > last ? last : end;
    }
    at = at < *done ? *done : at;
    if (at >= end)
        return true;
    *done = end;
    return drop(at, (uint64_t)(end - at));
}

/* Are there copies in so much of a long range that all of it is better given back at once? */
static bool is_dense(const struct stores *s)
{
    enum { PART = 4 };
    const struct page_set *h = &s->t->set;
    uint64_t tables = 0, last = UINT64_MAX;
    for (uint64_t i = 0; i < h->n && s->n >= LONG; i++) {
        const uint64_t table = h->pages[i].page * PAGE_BYTES / TABLE;
        tables += table != last;
        last = table;
    }
    return tables >= s->n / TABLE / PART && s->n >= LONG;
}

/* Gives the copies back, with `showing`: from now on the view shows the file again. `early`: also where the
 * file does not have the newest content yet. */
static void give_back(const struct stores *s, bool early)
{
    struct mapping *m = s->m;
    struct file *f = m->file;
    const struct page_set *h = &s->t->set;
    const bool some = !early && has_early(s);
    char *done = s->at;
    if (!some && is_dense(s) && !forget(s, s->at, s->n, &done))
        done = s->at;
    for (uint64_t i = 0, n; i < h->n; i += n) {
        const struct held_page *at = &h->pages[i];
        n = 1;
        undo_private_drop(f, at->page, 1ull << m->view);
        if (some && undo_is_early(f, at->state)) {
            keep(m, at);
            continue;
        }
        while (i + n < h->n && at[n].page == at->page + n &&
               !(some && undo_is_early(f, at[n].state))) {
            undo_private_drop(f, at[n].page, 1ull << m->view);
            n++;
        }
        char *const view = page_of(m, at->page);
        const bool gone =
            some ? drop(view, n * PAGE_BYTES) : forget(s, view, n * PAGE_BYTES, &done);
        for (uint64_t k = 0; !gone && k < n; k++)
            keep(m, &at[k]);
    }
}

/* Between pages others may have `showing`, which they would wait long for otherwise. Returns as show_take(). */
static int let_others(struct file *f, uint64_t i, bool late)
{
    enum { PAGES = 256 };
    if (i % PAGES != PAGES - 1)
        return 0;
    give_showing(f);
    return show_take(f, late);
}

static int commit(struct stores *s, bool relaxed)
{
    struct mapping *m = s->m;
    struct file *f = m->file;
    const uint64_t size = stores_size(m);
    uint64_t bytes = 0;
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
    /* With `showing`: what is kept of other pages changes meanwhile, and with a log a page may come home that is held. */
    if (show_take(f, false) < 0)
        return -1;
    for (uint64_t i = 0; i < s->t->set.n; i++) {
        bytes += stage(m, &s->t->set.pages[i], size);
        if (let_others(f, i, false) < 0)
            return -1;
    }
    give_showing(f);
    if (file_check(f) < 0)
        return -1;
    s->t->written = m;
    s->t->eager = !relaxed;
    file_note_written(f);
    if (tx_make_durable(s->t) < 0)
        return -1;
    s->committed = true;
    if (show_take(f, true) < 0)
        return -1;
    give_back(s, false);
    give_showing(f);
    if (bytes)
        range_count_write(m, bytes);
    return 0;
}

/* begin(), and no page has an early copy: those come home by a checkpoint, for which no page may be held. */
static int begin_at_home(struct stores *s, struct mapping *m, uint64_t from, uint64_t n)
{
    int r = begin(s, m, from, n, 0);
    if (r < 0 || !has_early(s))
        return r;
    end(s, 0);
    r = log_checkpoint(m->file);
    return begin(s, m, from, n, 0) < 0 ? -1 : r;
}

int stores_commit(struct mapping *m, uint64_t from, uint64_t n, bool relaxed)
{
    struct stores s;
    int r = relaxed ? begin(&s, m, from, n, ATO_RELAXED) : begin_at_home(&s, m, from, n);
    if (r == 0)
        r = s.nruns || m->growth ? commit(&s, relaxed) : file_check(m->file);
    return end(&s, r);
}

int stores_discard(struct mapping *m, uint64_t from, uint64_t n)
{
    struct stores s;
    const bool all = from == 0 && n >= m->length && n >= stores_size(m) - m->offset;
    int r = begin_at_home(&s, m, from, n);
    if (r == 0 && show_take(m->file, false) < 0)
        r = -1;
    if (r == 0) {
        give_back(&s, true);
        give_showing(m->file);
        if (all)
            __atomic_store_n(&m->file->shared.header->views[m->view].lost, 0, __ATOMIC_RELAXED);
        s.committed = all; /* a growth, too, is forgotten */
    }
    return end(&s, r);
}

/* ---- the size ---- */

void stores_forget_growth(struct mapping *m)
{
    struct tx *growth = m->growth;
    __atomic_store_n(&m->growth, NULL, __ATOMIC_RELEASE);
    if (growth)
        tx_unmake(growth);
}

/* Is anything but the size to be committed? Zeros over what the file had before: the view must show them. */
static bool has_zeros(const struct tx *t)
{
    bool any = false;
    for (uint64_t i = 0; i < t->set.n; i++)
        any |= t->set.pages[i].pending != 0;
    return any;
}

/* What the view's copy of the last page had behind the end, `was`, would be seen again. */
static void clear_tail(const struct mapping *m, uint64_t was, uint64_t size)
{
    const uint64_t end = lesser(layout_pages(was) * PAGE_BYTES, size), at = was - m->offset;
    if (was < end && was >= m->offset && at < m->reach)
        memset(m->base + at, 0, end - was);
}

/* What was stored behind the end is forgotten. */
static int trim(struct mapping *m)
{
    struct stores s = {.m = m, .at = m->base, .n = layout_pages(m->reach) * PAGE_BYTES};
    const uint64_t size = stores_size(m);
    const uint64_t pages = size > m->offset ? layout_pages(size - m->offset) : 0;
    int r = 0;
    /* The kernel has given copies back where the file itself is shorter now. */
    if (find(&s) < 0 || forget_behind(m, m->base + pages * PAGE_BYTES) < 0)
        r = -1;
    free(s.runs);
    return r;
}

int stores_resize(struct mapping *m, off_t size, enum stores_size how, off_t *was)
{
    pthread_mutex_lock(&m->stores_lock);
    const off_t before = (off_t)stores_size(m), asked = how == STORES_MORE ? before + size : size;
    if (m->growth && (uint64_t)asked < file_size(m->file))
        stores_forget_growth(m);
    struct tx *t = m->growth ? m->growth : new_tx();
    int r = -1;
    if (t) {
        t->thread = thread_id();
        /* As of a commit of its stores. Else a byte that the program stores later would count as not stored if the file had it there
         * before it was cut. */
        t->set.own_views = 1ull << m->view;
        r = resize_begin(t, m, asked < 0 ? 0 : (uint64_t)asked);
    }
    if (r == 0) {
        *was = (off_t)t->size;
        if (how == STORES_MORE)
            size += *was;
        else if (how == STORES_AT_LEAST && size < *was)
            size = *was;
        r = resize(t, m, size);
        if (r == 0)
            clear_tail(m, (uint64_t)*was, (uint64_t)size);
    }
    const bool waits = r == 0 && t->resizes && t->size > file_size(m->file) && !has_zeros(t);
    if (r == 0 && !waits)
        r = tx_make_durable(t);
    if (t)
        t->set.own_views = 0; /* its memory is used again */
    if (waits) {
        __atomic_store_n(&m->growth, t, __ATOMIC_RELEASE);
    } else if (t && (r == 0 || t != m->growth)) {
        __atomic_store_n(&m->growth, NULL, __ATOMIC_RELEASE);
        tx_unmake(t);
    }
    if (waits) /* others may change the last page meanwhile */
        page_set_release_from(&t->set, 0);
    if (r == 0)
        r = trim(m);
    pthread_mutex_unlock(&m->stores_lock);
    return r;
}
