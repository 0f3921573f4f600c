/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/queue.h"

#include "lib/transaction/claim.h"

#include <stdlib.h>
#include <string.h>

void queue_forget(struct tx *t)
{
    if (t->queue)
        t->queue->n = t->queue->used = 0;
}

static const char *valid(const struct held_page *at, unsigned slice)
{
    const char *page = at->state->bitmap >> slice & 1 ? at->homes.r : at->homes.o;
    return page + slice * SLICE_BYTES;
}

/* Completes the first and last slice of the first write to a page, so that whole slices are stored. */
static void complete(struct queue *q, const struct held_page *at, struct queued *w)
{
    const unsigned before = w->begin % SLICE_BYTES, end = w->begin + w->bytes;
    const unsigned behind = (SLICE_BYTES - end % SLICE_BYTES) % SLICE_BYTES;
    if (before)
        copy_few(q->bytes + w->from - before, valid(at, w->begin / SLICE_BYTES), before);
    if (behind)
        copy_few(q->bytes + w->from + w->bytes, valid(at, end / SLICE_BYTES) + end % SLICE_BYTES,
                 behind);
    w->from -= before;
    w->begin = (uint16_t)(w->begin - before);
    w->bytes = (uint16_t)(w->bytes + before + behind);
}

void queue_drain(struct tx *t)
{
    struct queue *q = t->queue;
    if (queue_is_empty(t))
        return;
    /* All reads come before all stores: so the loads wait for nothing. */
    for (struct queued *w = q->writes; w < q->writes + q->n; w++)
        if (w->first)
            complete(q, &t->set.pages[w->place], w);
    for (const struct queued *w = q->writes; w < q->writes + q->n; w++)
        claim_store(t, &t->set.pages[w->place], w->begin, w->bytes, q->bytes + w->from, w->flags);
    queue_forget(t);
}

bool queue_add(struct tx *t, const struct held_page *at, bool first, unsigned begin, unsigned n,
               const char *bytes, unsigned flags)
{
    struct queue *q = t->queue;
    if (__builtin_expect(!q, 0)) {
        q = aligned_alloc(_Alignof(struct queue), sizeof(*q));
        if (!q)
            return false;
        q->n = q->used = 0;
        t->queue = q;
    }
    unsigned from = q->used + begin % SLICE_BYTES;
    if (q->n == QUEUE_WRITES || from + n > QUEUE_BYTES)
        return false;
    struct queued *w = &q->writes[q->n++];
    *w = (struct queued){.place = (uint32_t)(at - t->set.pages),
                         .from = from,
                         .begin = (uint16_t)begin,
                         .bytes = (uint16_t)n,
                         .flags = (uint8_t)flags,
                         .first = first};
    if (__builtin_expect(n <= SLICE_BYTES, 1))
        copy_few(q->bytes + from, bytes, n);
    else
        memcpy(q->bytes + from, bytes, n);
    q->used = (from + n + SLICE_BYTES - 1) & ~(SLICE_BYTES - 1u);
    return true;
}
