/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/later.h"

#include "lib/commit/sync.h"
#include "lib/file/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint32_t state_of(const struct file *f)
{
    return __atomic_load_n(&f->later, __ATOMIC_ACQUIRE);
}

static bool change(struct file *f, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(&f->later, &from, to, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED);
}

static void wake(struct file *f)
{
    syscall(SYS_futex, &f->later, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Sleeps while the state is `state`, until then at most; 0: without end. */
static void sleep_while(struct file *f, uint32_t state, uint64_t until)
{
    for (uint64_t now = 0; state_of(f) == state && (!until || (now = clock_ns()) < until);) {
        const struct timespec most = clock_timespec(until - now);
        syscall(SYS_futex, &f->later, FUTEX_WAIT_PRIVATE, state, until ? &most : NULL, NULL, 0);
    }
}

/* A failure poisons the file, which its next call reports. */
static void sync_due(struct file *f)
{
    /* Between the state and the look at the log: pairs with the one in later_sync(). */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    (void)sync_wait(f, sync_tail(f));
}

static void *run(void *arg)
{
    struct file *f = arg;
    uint64_t from = 0; /* of the oldest commit that may not be durable */
    sleep_while(f, LATER_BEGUN, 0);
    for (;;) {
        if (state_of(f) == LATER_RESTS) {
            sleep_while(f, LATER_RESTS, 0);
            from = 0;
        }
        from = from ? from : clock_ns();
        sleep_while(f, LATER_DUE, from + f->relaxed_ms * 1000000);
        from = clock_ns();
        const bool ends = !change(f, LATER_DUE, LATER_RESTS);
        sync_due(f);
        if (ends)
            return NULL;
    }
}

bool later_start(struct file *f)
{
    for (;;) {
        const uint32_t state = state_of(f);
        if (state == LATER_DUE)
            return true;
        if (state == LATER_BEGUN) /* by another thread */
            sleep_while(f, LATER_BEGUN, 0);
        else if (state == LATER_RESTS && change(f, LATER_RESTS, LATER_DUE))
            return wake(f), true;
        else if (state == LATER_NONE && change(f, LATER_NONE, LATER_BEGUN))
            break;
    }
    const bool started = thread_start(&f->later_thread, run, f) == 0;
    __atomic_store_n(&f->later, started ? LATER_DUE : LATER_NONE, __ATOMIC_SEQ_CST);
    wake(f);
    return started;
}

void later_end(struct file *f)
{
    if (state_of(f) == LATER_NONE)
        return;
    __atomic_store_n(&f->later, LATER_ENDS, __ATOMIC_SEQ_CST);
    wake(f);
    pthread_join(f->later_thread, NULL);
    __atomic_store_n(&f->later, LATER_NONE, __ATOMIC_RELAXED);
}
