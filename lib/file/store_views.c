/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/store_views.h"

#include "lib/file/private_pages.h"
#include "lib/file/undo.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

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
        undo_private_drop_all(f, 0, 1ull << i);
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

/* ---- a look ---- */

void store_look_begin(struct store_look *l, struct file *f, uint64_t except)
{
    l->f = f;
    l->views = 0;
    l->is_full = false;
    if (!store_views_any(f))
        return;
    for (unsigned i = 0; i < SHARED_VIEWS; i++)
        l->pagemaps[i] = -1; /* not open */
    const uint64_t used = __atomic_load_n(&f->shared.header->views_used, __ATOMIC_ACQUIRE);
    for (uint64_t left = used & ~except; left; left &= left - 1) {
        const unsigned i = (unsigned)__builtin_ctzll(left);
        if (is_alive(f, view_at(f, i)))
            l->views |= 1ull << i;
        else
            store_view_close(f, i);
    }
}

void store_look_end(struct store_look *l)
{
    KEEP_ERRNO();
    for (uint64_t left = l->views; left; left &= left - 1) {
        const int fd = l->pagemaps[__builtin_ctzll(left)];
        if (fd >= 0)
            close(fd);
    }
}

static void lose(const struct store_look *l, uint64_t views)
{
    for (; views; views &= views - 1)
        __atomic_store_n(&view_at(l->f, (unsigned)__builtin_ctzll(views))->lost, 1,
                         __ATOMIC_RELAXED);
}

void store_look_lose(struct store_look *l)
{
    lose(l, l->views);
}

static bool has(const struct shared_view *v, uint64_t page)
{
    return page >= v->first && page - v->first < v->pages;
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

/* Which of the views, of those that show the page, have a copy of it? */
static uint64_t have_copies(struct store_look *l, uint64_t page, uint64_t views)
{
    for (uint64_t left = views; left; left &= left - 1) {
        const unsigned i = (unsigned)__builtin_ctzll(left);
        const struct shared_view *v = view_at(l->f, i);
        if (!private_page_is(pagemap_of(l, i), v->base + (page - v->first) * PAGE_BYTES))
            views &= ~(1ull << i);
    }
    return views;
}

/* Those that cannot be looked into are lost. */
static uint64_t showing_page(struct store_look *l, uint64_t page)
{
    uint64_t views = l->views;
    for (uint64_t left = views; left; left &= left - 1) {
        const unsigned i = (unsigned)__builtin_ctzll(left);
        const bool shows = has(view_at(l->f, i), page), known = shows && pagemap_of(l, i) >= 0;
        if (shows && !known) {
            lose(l, 1ull << i);
            l->views &= ~(1ull << i);
        }
        if (!known)
            views &= ~(1ull << i);
    }
    return views;
}

/* It is kept for all until the look after the change: this process may die before. */
enum stores_kept store_look_before(struct store_look *l, uint64_t page)
{
    const uint64_t views = showing_page(l, page), before = have_copies(l, page, views);
    if (!views)
        return STORES_NONE;
    undo_private_drop(l->f, page, views & ~before); /* of a process that died */
    char *kept = l->is_full ? NULL : undo_private_room(l->f, page);
    if (!kept) {
        l->is_full = true; /* each try would look at all that is kept */
        lose(l, before);
        return STORES_LOST;
    }
    l->f->persist.kernel->plain(kept, file_o(l->f, page), PAGE_BYTES);
    return undo_private_put(l->f, kept, views, ~before) ? STORES_KEPT : STORES_NONE;
}

void store_look_after(struct store_look *l, uint64_t page, enum stores_kept kept)
{
    /* A thread that has copied the page, and has not put the copy into its page tables, is not seen. That takes a moment, or, if it lost its CPU
     * there, a time slice: this makes it rarer (store_views.h). */
    sched_yield();
    /* Orders the stores to the page, also non-temporal ones, before the look: a copy that is made after the look has them all. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    const uint64_t views = showing_page(l, page), after = have_copies(l, page, views);
    if (kept == STORES_LOST)
        lose(l, after);
    undo_private_drop(l->f, page, views & ~after);
}
