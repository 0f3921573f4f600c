/* SPDX-License-Identifier: BSD-3-Clause */
#include "settle.h"

#include "../reflection/report.h"
#include "calls.h"
#include "pages.h"
#include "peers.h"
#include "reader.h"
#include "table.h"

#include <time.h>

/* In all. Who lives is in a commit for as long as its flushes take. */
enum { PATIENCE_MS = 1000 };

void settle_raise_threads(uint16_t *threads, unsigned thread)
{
    uint16_t seen = __atomic_load_n(threads, __ATOMIC_RELAXED);
    while (seen <= thread &&
           !__atomic_compare_exchange_n(threads, &seen, (uint16_t)(thread + 1), false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* 0: nobody who is in a commit. */
static uint32_t committer(const struct file *f, unsigned slot)
{
    const struct shared_slot *s = &f->shared.slots[slot];
    const uint32_t holder = shared_holder(slot, __atomic_load_n(&s->generation, __ATOMIC_RELAXED));
    if (holder == f->holder || __atomic_load_n(&s->state, __ATOMIC_ACQUIRE) == SLOT_FREE)
        return 0;
    unsigned threads = __atomic_load_n(&s->threads, __ATOMIC_ACQUIRE);
    threads = threads <= THREAD_SHARED ? threads : THREAD_SHARED + 1;
    for (unsigned i = 0; i < threads; i++)
        if (__atomic_load_n(&shared_showing_of(&f->shared, slot, i)->commits, __ATOMIC_ACQUIRE))
            return holder;
    return 0;
}

static void pause_a_moment(unsigned i)
{
    enum { SPINS = 100 };
    if (i < SPINS)
        pages_pause(i);
    else
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL);
}

static int look_after(struct file *f, uint32_t holder, int64_t *until)
{
    if (!*until)
        *until = now_ms() + PATIENCE_MS;
    const bool late = now_ms() > *until;
    /* A reader frees nobody: others may. */
    if (peers_recover(f, holder) < 0)
        return f->reader && errno == EAGAIN && !late ? 0 : -1;
    if (late && !peers_is_dead(f, holder))
        return report_error(ETIMEDOUT, "another process was in a commit to %s all the time",
                            f->pairing.path);
    return 0;
}

/* Once it is found without a commit, or gone. What a dead one was in is done then, or nothing will come of it. */
static int settle_slot(struct file *f, unsigned slot, int64_t *until)
{
    const uint32_t holder = committer(f, slot);
    for (unsigned i = 0; holder && committer(f, slot) == holder; i++) {
        if (i % 16 == 0 && look_after(f, holder, until) < 0)
            return -1;
        pause_a_moment(i);
    }
    return 0;
}

static int settle(struct file *f)
{
    int64_t until = 0;
    if (f->reader)
        reader_refresh(f);
    if (f->reader && !reader_watches(f))
        return 0;
    const struct shared_header *h = f->shared.header;
    unsigned slots = __atomic_load_n(&h->slots_used, __ATOMIC_ACQUIRE);
    slots = slots < MANIFEST_SLOTS ? slots : MANIFEST_SLOTS;
    for (unsigned slot = 0; slot < slots; slot++)
        if (settle_slot(f, slot, &until) < 0)
            return -1;
    return 0;
}

int ato_settle(const void *addr)
{
    struct mapping *m = table_find_exactly(addr);
    if (!m)
        return report_error(EINVAL, "%p does not lie in a mapping", addr);
    CALL_ON(call, m);
    return settle(m->file);
}
