/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/sync.h"

#include "lib/file/clock.h"
#include "lib/page/reservation.h"
#include "reflection/format/log.h"
#include "reflection/media/fsops.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

int sync_check_length(struct file *f)
{
    const off_t is = fsops_length(f->pairing.reflection);
    if (is < 0 ||
        is >= (off_t)(LOG_RING_AT + __atomic_load_n(&sync_log(f)->capacity, __ATOMIC_RELAXED)))
        return 0;
    file_poison(f);
    return file_say_poisoned(f);
}

int sync_now(struct file *f, uint64_t tail)
{
    struct shared_log *l = sync_log(f);
    if (file_fdatasync(f, f->pairing.reflection, "a commit") < 0 || sync_check_length(f) < 0)
        return -1;
    uint64_t is = __atomic_load_n(&l->durable, __ATOMIC_RELAXED);
    while (is < tail && !__atomic_compare_exchange_n(&l->durable, &is, tail, false,
                                                     __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    return 0;
}

/* Those who wait for the sync of a turn, which is odd, sleep with its bit. */
static uint32_t bit_of(uint32_t turn)
{
    return 1u << turn / 2 % 32;
}

static void wake(uint32_t *turn, int n, uint32_t bit)
{
    syscall(SYS_futex, turn, FUTEX_WAKE_BITSET, n, NULL, NULL, bit);
}

/* Waits for those who are about to append, as far as they only wait for this CPU: then they share the sync. Returns the tail. Never when
 * nobody sleeps, who would have been woken just now: a yield may last until others have had their turn. */
static uint64_t gather(const struct file *f)
{
    enum { YIELDS = 8 };
    const struct shared_log *l = sync_log(f);
    uint64_t tail = sync_tail(f), was = ~tail;
    for (int i = 0; i < YIELDS && tail != was && __atomic_load_n(&l->asleep, __ATOMIC_RELAXED);
         i++) {
        sched_yield();
        was = tail;
        tail = sync_tail(f);
    }
    return tail;
}

/* Syncs for all. The caller has `syncing`, which is released. Wakes those whose records are durable then, and one of the others, which
 * syncs next. */
static int lead(struct file *f, uint64_t end)
{
    struct shared_log *l = sync_log(f);
    const uint32_t turn = (l->turn + 1) | 1; /* it stays odd if the one before was killed */
    int r = 0;
    /* Who appends before the tail is known takes itself for one of this turn: if it is not, it is woken too early. */
    __atomic_store_n(&l->target, UINT64_MAX, __ATOMIC_RELAXED);
    __atomic_store_n(&l->turn, turn, __ATOMIC_RELEASE);
    const uint64_t target = gather(f);
    __atomic_store_n(&l->target, target, __ATOMIC_RELAXED);
    if (__atomic_load_n(&l->durable, __ATOMIC_ACQUIRE) < end)
        r = sync_now(f, target);
    /* A full barrier, as the one in wait_turn(): either this thread sees the sleeper, or that one the new turn. */
    __atomic_exchange_n(&l->turn, turn + 1, __ATOMIC_SEQ_CST);
    page_release(&l->syncing);
    if (__atomic_load_n(&l->asleep, __ATOMIC_RELAXED)) {
        wake(&l->turn, INT_MAX, bit_of(turn));
        wake(&l->turn, 1, bit_of(turn + 2));
    }
    return r;
}

/* Sleeps while `turn`, which is odd, is under way; and for a record that it does not make durable, also while the next one is. For a
 * limited time: a thread that leads, or that was woken to lead, may be killed. */
static void wait_turn(struct shared_log *l, uint32_t turn, uint64_t end)
{
    enum { SLEEP_NS = 10 * 1000 * 1000 };
    const bool now = end <= __atomic_load_n(&l->target, __ATOMIC_RELAXED);
    const struct timespec limit = clock_timespec(clock_ns() + SLEEP_NS);
    __atomic_fetch_add(&l->asleep, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &l->turn, FUTEX_WAIT_BITSET, turn, &limit, NULL,
            bit_of(now ? turn : turn + 2));
    __atomic_fetch_sub(&l->asleep, 1, __ATOMIC_RELAXED);
}

int sync_wait(struct file *f, uint64_t end)
{
    enum {
        STOPPED_MS = 1000
    }; /* who syncs for longer may have been stopped: then each syncs itself */
    struct shared_log *l = sync_log(f);
    uint64_t until = 0;
    for (unsigned i = 0;; i++) {
        const uint32_t turn = __atomic_load_n(&l->turn, __ATOMIC_ACQUIRE);
        seam_point(SEAM_WAIT, &l->syncing);
        if (__atomic_load_n(&l->durable, __ATOMIC_ACQUIRE) >= end)
            return file_check(f);
        if (page_try_reserve(f, &l->syncing)) {
            if (lead(f, end) < 0)
                return -1;
            continue;
        }
        const uint32_t holder = __atomic_load_n(&l->syncing.holder, __ATOMIC_RELAXED);
        if (file_check(f) < 0)
            return -1;
        const uint64_t now = clock_ns();
        until = until ? until : now + STOPPED_MS * 1000000ull;
        if (now >= until && sync_now(f, sync_tail(f)) < 0)
            return -1;
        if (turn & 1)
            wait_turn(l, turn, end);
        else
            page_pause(i); /* it is about to begin */
        (void)reservation_look_after(f, &l->syncing, holder);
    }
}
