/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/reader_beside.h"

#include "lib/file/attach.h"
#include "lib/file/page.h"
#include "lib/read/read.h"
#include "lib/read/reader_media.h"
#include "lib/recovery/peers.h"
#include "reflection/media/races.h"

#include <errno.h>

/* The state of a page that a dead process has marked: as it was before the mark, as on the media, or unknown. Only
 * a process that recovers changes it. */
enum view { VIEW_BEFORE, VIEW_MEDIA, VIEW_UNTOLD };

static enum view view_of_marked(const struct file *f, const struct page_state *s)
{
    const struct shared *shared = &f->shared;
    const uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_ACQUIRE);
    const unsigned slot = shared_slot_of(holder),
                   owner = __atomic_load_n(&s->owner, __ATOMIC_ACQUIRE);
    if (slot >= MANIFEST_SLOTS ||
        shared_holder(slot, __atomic_load_n(&shared->slots[slot].generation, __ATOMIC_RELAXED)) !=
            holder)
        return VIEW_UNTOLD; /* freed already */
    if (__atomic_load_n(&shared->slots[slot].reloaded, __ATOMIC_ACQUIRE))
        return VIEW_MEDIA;
    if (owner > THREAD_SHARED)
        return owner == PAGE_TAKEN_OVER ? VIEW_BEFORE : VIEW_UNTOLD;
    const struct shared_showing *at = shared_showing_of(shared, slot, owner);
    const struct trust trust = identity_trust(&f->pairing.identity);
    enum shared_what what = __atomic_load_n(&at->what, __ATOMIC_ACQUIRE);
    if (what == SHOWING_ELSEWHERE)
        what = shared_ask_elsewhere(at, &trust);
    return what == SHOWING_MARKS ? VIEW_BEFORE : what == SHOWING_WORDS ? VIEW_MEDIA : VIEW_UNTOLD;
}

/* Sets *size to the size that is visible, or that a dead process's commit has made current. It is valid if the
 * version of `sizing` is the same before and after the call. Returns false if the size is not known. */
static bool size_in_view(const struct file *f, uint64_t *size)
{
    const struct shared_header *h = f->shared.header;
    enum view view = VIEW_BEFORE;
    if (!(__atomic_load_n(&h->sizing.version, __ATOMIC_ACQUIRE) & 1))
        view = view_of_marked(f, &h->sizing);
    *size = file_size(f);
    if (view == VIEW_MEDIA) {
        const uint64_t coming = __atomic_load_n(&h->coming, __ATOMIC_ACQUIRE);
        *size = coming < f->max_size ? coming : f->max_size;
    }
    return view != VIEW_UNTOLD;
}

/* What a try relies on, as a number: the page's version, and, if a dead process has marked the page, the view of
 * it. For each page the number only grows, also when the view changes or the mark is removed. So the sum over all
 * pages is the same after the copy if and only if none of them moved. 0: not known. */
static uint64_t footing(const struct file *f, const struct page_state *s, uint64_t version)
{
    if (version & 1)
        return 2 * version;
    const enum view view = view_of_marked(f, s);
    return view == VIEW_UNTOLD ? 0 : 2 * version + view;
}

struct
try {
    uint64_t sum;
    uint32_t dead; /* dead holder of a marked page; 0: none known */
};

/* Adds the page to the sum. Waits while a living process flips the page or recovers it. Returns 1; 0: try again;
 * -1. */
static int note(struct file *f, const struct page_state *s, struct try *t)
{
    uint64_t version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE), on;
    uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
    if (!(version & 1) && (!t->dead || holder != t->dead) &&
        !(version = read_steady_version(f, s))) {
        if (errno != EAGAIN)
            return -1;
        version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
        holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
        if (!(version & 1) && !attach_is_dead(f, holder))
            return 0;
        t->dead = holder;
    }
    on = footing(f, s, version);
    t->sum += on;
    return on ? 1 : peers_recover(f, holder);
}

/* Subtracts the page from the sum again, after the copy. Returns false if its number is not known. */
static bool is_as_noted(const struct file *f, const struct page_state *s, struct try *t)
{
    const uint64_t on = footing(f, s, __atomic_load_n(&s->version, __ATOMIC_RELAXED));
    t->sum -= on;
    return on;
}

/* Returns the page's state; NULL if it has none, or is not loaded. */
static const struct page_state *loaded_state(struct file *f, uint64_t page)
{
    const struct page_state *s = shared_look(&f->shared, page);
    return s && __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) ? s : NULL;
}

/* Copies bytes of a page. Returns 1; 0: try again; -1. */
static int copy_page(struct file *f, uint64_t page, unsigned begin, unsigned n, char *dst)
{
    const struct page_state *s = loaded_state(f, page);
    enum view view = VIEW_MEDIA;
    if (s)
        view =
            __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) & 1 ? VIEW_BEFORE : view_of_marked(f, s);
    if (view == VIEW_UNTOLD)
        return 0;
    if (view == VIEW_MEDIA)
        return reader_media_copy(f, page, begin, n, dst) < 0 ? -1 : 1;
    read_copy(f, s, page, begin, n, dst);
    return 1;
}

/* As try_many() in read.c. Nothing is noted of pages that are not loaded: a shrink may cut them off without a
 * change of their states, so the version of the size is noted too. */
int reader_beside_try(struct file *f, uint64_t offset, char *dst, uint64_t n)
{
    const struct page_state *sizing = &f->shared.header->sizing, *s;
    struct try t = {0};
    int r = note(f, sizing, &t);
    bool same;
    uint64_t size;
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        if (r == 1 && (s = loaded_state(f, page)))
            r = note(f, s, &t);
        (void)begin;
    }
    if (r != 1)
        return r;
    if (!size_in_view(f, &size))
        return 0;
    if (offset + n > size)
        return reader_media_beyond(f, offset + n);
    RACES_MEANT_BEGIN(); /* as in read_try() */
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        seam_point(SEAM_VERSION, f);
        if (r == 1)
            r = copy_page(f, page, (unsigned)begin, (unsigned)bytes, dst);
        dst += bytes;
    }
    RACES_MEANT_END(dst - n, n);
    if (r != 1)
        return r;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    same = is_as_noted(f, sizing, &t);
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        if (same && (s = loaded_state(f, page)))
            same = is_as_noted(f, s, &t);
        (void)begin;
    }
    /* After the versions: a takeover that fails poisons the file before it removes a mark. */
    if (file_check(f) < 0)
        return -1;
    return same && t.sum == 0;
}

bool reader_beside_size(const struct file *f, uint64_t *size)
{
    const struct page_state *sizing = &f->shared.header->sizing;
    const uint64_t before = __atomic_load_n(&sizing->version, __ATOMIC_ACQUIRE);
    const bool told = size_in_view(f, size);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return told && before == __atomic_load_n(&sizing->version, __ATOMIC_RELAXED);
}
