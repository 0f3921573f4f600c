/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/background.h"

#include "lib/commit/reclaim.h"
#include "lib/file/clock.h"
#include "lib/file/mutex.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Between two batches, without the mutex: long enough for a thread that waits for it to get it. */
enum { PAUSE_NS = 100 * 1000 };
/* Between two looks without being asked, since other processes write to the files too, and pages that were held are free again:
 * first soon, then twice as long each time. */
enum { SOON_NS = 4 * 1000 * 1000, SELDOM_NS = 1000 * 1000 * 1000 };

/* Linked by next_served; changed with MUTEX_FILES and MUTEX_BACKGROUND. */
static struct file *files;
static pthread_t thread;
static bool runs;         /* guarded by MUTEX_FILES */
static bool ends;         /* the thread is asked to end */
static uint32_t is_asked; /* a futex: the thread is to look at its files */

static void wait_until_asked(uint64_t ns)
{
    const struct timespec limit = {(time_t)(ns / SELDOM_NS), (long)(ns % SELDOM_NS)};
    syscall(SYS_futex, &is_asked, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0);
}

static void ask(void)
{
    if (!__atomic_exchange_n(&is_asked, 1, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &is_asked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *serve(void *unused)
{
    for (uint64_t ns = SOON_NS;; ns = lesser(2 * ns, SELDOM_NS)) {
        bool again = false;
        /* Before the looks that follow. */
        if (__atomic_exchange_n(&is_asked, 0, __ATOMIC_SEQ_CST))
            ns = SOON_NS;
        if (__atomic_load_n(&ends, __ATOMIC_SEQ_CST))
            return unused;
        mutex_lock(MUTEX_BACKGROUND);
        for (struct file *f = files; f; f = f->next_served)
            again |= reclaim_step(f);
        mutex_unlock(MUTEX_BACKGROUND);
        if (!again) {
            wait_until_asked(ns);
            continue;
        }
        clock_nap(PAUSE_NS);
        ns = SOON_NS;
    }
}

int background_start(void)
{
    const int error = runs ? 0 : thread_start(&thread, serve, NULL);
    if (error)
        return report_errno(error, "cannot start the thread that ATO_BACKGROUND asks for");
    runs = true;
    return 0;
}

/* Atomic: writers look at it without a lock. */
static void set_served(struct file *f, unsigned n)
{
    __atomic_store_n(&f->served, n, __ATOMIC_RELAXED);
}

void background_serve(struct file *f)
{
    mutex_lock(MUTEX_BACKGROUND);
    set_served(f, f->served + 1);
    if (f->served == 1) {
        f->next_served = files;
        files = f;
    }
    mutex_unlock(MUTEX_BACKGROUND);
    ask();
}

void background_leave(struct file *f)
{
    struct file **at = &files;
    mutex_lock(MUTEX_BACKGROUND);
    set_served(f, f->served - 1);
    if (!f->served) {
        while (*at != f)
            at = &(*at)->next_served;
        *at = f->next_served;
    }
    mutex_unlock(MUTEX_BACKGROUND);
}

void background_rest(void)
{
    KEEP_ERRNO();
    if (!runs || files)
        return;
    __atomic_store_n(&ends, true, __ATOMIC_SEQ_CST);
    ask();
    pthread_join(thread, NULL);
    runs = ends = false;
}

void background_wake(struct file *f, uint64_t more)
{
    if (__atomic_load_n(&f->served, __ATOMIC_RELAXED) && reclaim_is_due(f, more))
        ask();
}

void background_forget(void)
{
    files = NULL;
    runs = ends = false;
}
