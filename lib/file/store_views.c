/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/store_views.h"

#include "lib/file/private_pages.h"
#include "lib/file/undo.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* ---- the list ---- */

static struct shared_view *view_at(const struct file *f, unsigned view)
{
    return &f->shared.header->views[view];
}

/* The slot of a process is free when that is dead. Shared memory is not trusted. */
static bool is_alive(const struct file *f, const struct shared_view *v)
{
    const uint32_t holder = __atomic_load_n(&v->holder, __ATOMIC_ACQUIRE);
    const unsigned slot = shared_slot_of(holder);
    return slot < MANIFEST_SLOTS && shared_given_to(&f->shared, slot) == holder;
}

int store_view_open(const struct mapping *m)
{
    struct file *f = m->file;
    uint64_t *used = &f->shared.header->views_used;
    for (unsigned i = 0; i < SHARED_VIEWS; i++) {
        struct shared_view *v = view_at(f, i);
        if ((*used >> i & 1) && is_alive(f, v))
            continue;
        store_view_forget_from(f, 0, 1ull << i);
        *v = (struct shared_view){.base = (uint64_t)(uintptr_t)m->base,
                                  .first = m->offset / PAGE_BYTES,
                                  .pages = layout_pages(m->reach)};
        __atomic_store_n(&v->holder, f->holder, __ATOMIC_RELEASE);
        __atomic_fetch_or(used, 1ull << i, __ATOMIC_SEQ_CST);
        return (int)i;
    }
    return report_error(EAGAIN, "%s has %d mappings with ATO_PLAIN_STORES already", f->pairing.path,
                        SHARED_VIEWS);
}

void store_view_close(struct file *f, unsigned view)
{
    __atomic_fetch_and(&f->shared.header->views_used, ~(1ull << view), __ATOMIC_SEQ_CST);
}

void store_views_lose(struct file *f, uint64_t views)
{
    for (; views; views &= views - 1)
        __atomic_store_n(&view_at(f, (unsigned)__builtin_ctzll(views))->lost, 1, __ATOMIC_RELAXED);
}

/* ---- what is kept ---- */

/* Goes on to the next copy that is kept of the page, from the newest one on. Returns false at the end, or with w->failed. */
static bool next_kept(struct undo_walk *w)
{
    if (!w->f->shared.header->undo.made)
        return false;
    w->failed = undo_map(w->f) < 0;
    while (!w->failed && undo_next(w))
        if (w->at->until == UNDO_PRIVATE)
            return true;
    return false;
}

/* Returns false: there is no room. */
static bool keep(struct file *f, uint64_t page, const char *bytes, uint64_t views, uint64_t unsure)
{
    struct undo_copy *c = undo_first_room(f, page);
    if (!c)
        return false;
    f->persist.kernel->plain(c->bytes, bytes, PAGE_BYTES);
    c->views = views;
    c->unsure = unsure;
    __atomic_store_n(&c->from, UINT64_MAX, __ATOMIC_RELAXED); /* no snapshot sees it */
    __atomic_store_n(&c->until, UNDO_PRIVATE, __ATOMIC_RELEASE);
    return true;
}

static void drop(struct undo_copy *c, uint64_t views)
{
    c->views &= ~views;
    if (!c->views)
        __atomic_store_n(&c->until, 0, __ATOMIC_RELEASE);
}

void store_view_forget(struct file *f, uint64_t page, uint64_t views)
{
    struct undo_walk w = {.f = f, .page = page};
    while (views && next_kept(&w))
        drop(w.at, views);
    if (w.failed)
        store_views_lose(f, views);
}

void store_view_keep(struct file *f, unsigned view, uint64_t page, const char *bytes)
{
    if (!keep(f, page, bytes, 1ull << view, 0))
        store_views_lose(f, 1ull << view);
}

void store_view_forget_from(struct file *f, uint64_t first, uint64_t views)
{
    struct undo_copy *c;
    for (uint64_t i = 0; (c = undo_at(f, i)); i++)
        if (c->until == UNDO_PRIVATE && c->page >= first)
            drop(c, views);
}

void store_view_cut(struct file *f, unsigned view, uint64_t page, unsigned end)
{
    const uint64_t own = 1ull << view;
    struct undo_walk w = {.f = f, .page = page};
    struct undo_copy *shared = NULL;
    unsigned n = 0;
    for (; next_kept(&w); n += (w.at->views & own) != 0)
        if (w.at->views == own)
            memset(w.at->bytes + end, 0, PAGE_BYTES - end);
        else if (w.at->views & own)
            shared = w.at;
    if (w.failed)
        store_views_lose(f, own);
    if (w.failed || !shared)
        return;
    char bytes[PAGE_BYTES] = {0};
    memcpy(bytes, shared->bytes, end);
    const uint64_t unsure = shared->unsure & own;
    drop(shared, own);
    /* Of several, after a process that died in a change, the order counts. */
    if (n > 1 || !keep(f, page, bytes, own, unsure))
        store_views_lose(f, own);
}

/* Sets *found to the oldest one that is kept for the view, of those after `before`, if that is not NULL; NULL: there is none. Returns false
 * without memory. */
static bool find_oldest(struct file *f, unsigned view, uint64_t page,
                        const struct undo_copy *before, const struct undo_copy **found)
{
    struct undo_walk w = {.f = f, .page = page};
    *found = NULL;
    while (next_kept(&w) && w.at != before)
        if (w.at->views >> view & 1)
            *found = w.at;
    return !w.failed;
}

bool store_view_follow(struct file *f, unsigned view, uint64_t page, char *is, const char *newest)
{
    const struct undo_copy *was, *next;
    bool good = find_oldest(f, view, page, NULL, &was);
    for (; good && was; was = next) {
        next = NULL;
        if (was->unsure >> view & 1)
            good = find_oldest(f, view, page, was, &next);
        const char *now = next ? next->bytes : newest;
        for (unsigned i = 0; i < PAGE_BYTES; i++)
            is[i] = is[i] == was->bytes[i] ? now[i] : is[i];
    }
    return good;
}

/* ---- a look ---- */

void store_look_begin(struct store_look *l, struct file *f, uint64_t except)
{
    l->f = f;
    l->views = 0;
    l->n = 0;
    l->is_full = false;
    const uint64_t used = __atomic_load_n(&f->shared.header->views_used, __ATOMIC_ACQUIRE);
    for (uint64_t left = used & ~except; left; left &= left - 1) {
        const unsigned i = (unsigned)__builtin_ctzll(left);
        l->pagemaps[i] = -1; /* not open */
        if (is_alive(f, view_at(f, i)))
            l->views |= 1ull << i;
        else
            store_view_close(f, i);
    }
}

/* Returns -1 for a process in another pid namespace, or of another user: it is not known what that has stored to. */
static int pagemap_of(struct store_look *l, unsigned view)
{
    int *fd = &l->pagemaps[view];
    const struct shared_slot *slots = l->f->shared.slots;
    const unsigned slot = shared_slot_of(view_at(l->f, view)->holder), own = l->f->pairing.slot;
    if (*fd < 0 && slot == own)
        *fd = private_pages_open(0);
    else if (*fd < 0 && slot < MANIFEST_SLOTS &&
             slots[slot].pid_namespace == slots[own].pid_namespace)
        *fd = private_pages_open(slots[slot].pid);
    return *fd;
}

/* Sets *shows to the views that show the page. Returns those of them that have a copy. Views that cannot be looked into are lost. */
static uint64_t look(struct store_look *l, uint64_t page, uint64_t *shows)
{
    uint64_t copies = 0;
    *shows = 0;
    for (uint64_t left = l->views; left; left &= left - 1) {
        const unsigned i = (unsigned)__builtin_ctzll(left);
        const uint64_t bit = 1ull << i;
        const struct shared_view *v = view_at(l->f, i);
        if (page < v->first || page - v->first >= v->pages)
            continue;
        const int pagemap = pagemap_of(l, i);
        if (pagemap < 0) {
            store_views_lose(l->f, bit);
            l->views &= ~bit;
            continue;
        }
        *shows |= bit;
        if (private_page_is(pagemap, v->base + (page - v->first) * PAGE_BYTES))
            copies |= bit;
    }
    return copies;
}

/* It is kept for all until the look after the change: this process may die before. */
void store_look_before(struct store_look *l, uint64_t page)
{
    uint64_t views;
    if (!l->views)
        return;
    KEEP_REPORT();
    const uint64_t copies = look(l, page, &views);
    store_view_forget(l->f, page, views & ~copies); /* of a process that died */
    struct undo_walk w = {.f = l->f, .page = page};
    while (next_kept(&w)) /* the oldest one is enough */
        views &= ~(w.at->views & ~w.at->unsure);
    if (!views)
        return;
    if (l->is_full || !keep(l->f, page, file_o(l->f, page), views, ~copies)) {
        l->is_full = true; /* each try would look at all that is kept */
        store_views_lose(l->f, copies & views);
    }
}

static void look_again(struct store_look *l)
{
    if (!l->n)
        return;
    KEEP_ERRNO();
    /* A thread that has copied a page, and has not put the copy into its page tables, is not seen. That takes a moment, or, if it lost its CPU
     * there, a time slice: this makes it rarer (store_views.h). */
    sched_yield();
    /* Orders the stores to the pages, also non-temporal ones, before the look: a copy that is made after the look has them all. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (; l->n; l->n--) {
        const uint64_t page = l->changed[l->n - 1];
        uint64_t views, kept = 0;
        const uint64_t copies = look(l, page, &views);
        struct undo_walk w = {.f = l->f, .page = page};
        while (next_kept(&w))
            kept |= w.at->views;
        store_views_lose(l->f, copies & ~kept); /* there was no memory */
        store_view_forget(l->f, page, views & ~copies);
    }
}

void store_look_after(struct store_look *l, uint64_t page)
{
    if (!l->views)
        return;
    l->changed[l->n++] = page;
    if (l->n == STORE_LOOK_PAGES)
        look_again(l);
}

void store_look_end(struct store_look *l)
{
    look_again(l);
    KEEP_ERRNO();
    for (uint64_t left = l->views; left; left &= left - 1) {
        const int fd = l->pagemaps[__builtin_ctzll(left)];
        if (fd >= 0)
            close(fd);
    }
}
