/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/recovery/finish.h"

#include "lib/file/page.h"
#include "lib/recovery/takeover.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>

struct memory {
    struct shared shared;
    uint64_t process;
    uint32_t holder; /* page_state.holder of `process` here; 0: it holds nothing */
};

static int join(void **joined, const struct manifest_record *record, const struct trust *file,
                bool mapped)
{
    struct memory *m = calloc(1, sizeof(*m));
    if (!m)
        return report_error(ENOMEM, "no memory to finish a commit");
    if (shared_join(&m->shared, record, file, "a file of a dead process's commit") == 0) {
        *joined = m;
        return 0;
    }
    free(m);
    /* The memory may exist without a writer, watched by readers, of which `mapped` does not tell: so a lack
     * of descriptors or memory is an error. */
    return mapped || errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -1 : 0;
}

static void leave(void *joined)
{
    struct memory *m = joined;
    shared_close(&m->shared, false);
    free(m);
}

static uint32_t holder_of(struct memory *m, uint64_t process)
{
    if (m->process == process)
        return m->holder;
    m->process = process;
    m->holder = 0;
    for (unsigned i = 0; i < MANIFEST_SLOTS; i++) {
        const struct shared_slot *s = &m->shared.slots[i];
        if (__atomic_load_n(&s->state, __ATOMIC_ACQUIRE) != SLOT_FREE && s->process == process)
            m->holder = shared_holder(i, s->generation);
    }
    return m->holder;
}

/* Returns the state of a page that the process holds; NULL if it does not hold it. */
static struct page_state *page_of(struct memory *m, uint64_t process, uint64_t page)
{
    const uint32_t holder = holder_of(m, process);
    struct page_state *s =
        holder && page < m->shared.capacity ? shared_look(&m->shared, page) : NULL;
    return s && __atomic_load_n(&s->holder, __ATOMIC_ACQUIRE) == holder ? s : NULL;
}

static void hide(void *joined, uint64_t process, uint64_t page)
{
    struct page_state *s = page_of(joined, process, page);
    seam_point(SEAM_FLIP, s);
    if (s)
        takeover_hide(s);
}

static void hide_all(void *joined, uint64_t process)
{
    struct memory *m = joined;
    const uint32_t holder = holder_of(m, process);
    if (holder)
        takeover_hide_all(&m->shared, holder);
}

static struct page_state *hidden_page(struct memory *m, uint64_t process, uint64_t page)
{
    struct page_state *s = page_of(m, process, page);
    return s && s->version && !(s->version & 1) && s->owner == PAGE_HIDDEN ? s : NULL;
}

static void flip(void *joined, uint64_t process, uint64_t page, uint64_t bitmap)
{
    struct memory *m = joined;
    struct page_state *s = hidden_page(m, process, page);
    const uint64_t size = __atomic_load_n(&m->shared.header->size, __ATOMIC_RELAXED);
    seam_point(SEAM_FLIPPING, s);
    if (s)
        page_set_bitmap(s, bitmap & bitmap_within(page, size)); /* I4 */
}

static void reveal(void *joined, uint64_t process, uint64_t page)
{
    struct page_state *s = hidden_page(joined, process, page);
    seam_point(SEAM_FLIPPED, s);
    if (s)
        page_unmark_flipping(s);
}

const struct visible_memory finish_memory = {join, leave, hide, hide_all, flip, reveal};
