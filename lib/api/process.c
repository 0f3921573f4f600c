/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library does at fork() and exit(). */
#include "lib/api/files.h"
#include "lib/api/snapshot.h"
#include "lib/file/mutex.h"
#include "lib/file/private_pages.h"
#include "lib/file/table.h"
#include "lib/file/thread.h"
#include "lib/page/handle.h"
#include "reflection/media/fault.h"
#include "reflection/media/locks.h"
#include "reflection/media/races.h"
#include "reflection/media/report.h"
#include "reflection/media/window.h"

#include <pthread.h>

static void before_fork(void)
{
    for (enum mutex i = 0; i < MUTEXES; i++)
        mutex_lock(i);
    pthread_mutex_lock(&window_lock);
    pthread_mutex_lock(&fault_lock);
    pthread_mutex_lock(&report_lock);
}

static void unlock_others(void)
{
    pthread_mutex_unlock(&fault_lock);
    pthread_mutex_unlock(&window_lock);
    for (enum mutex i = MUTEXES; i-- > 0;)
        mutex_unlock(i);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&report_lock);
    unlock_others();
}

/* The child has none of the views (MADV_DONTFORK), and must not keep a lock of the parent alive. It only
 * closes descriptors: an unlock would drop the parent's locks. */
static void in_child(void)
{
    for (uint64_t i = 0; i < TABLE_ENTRIES; i++)
        if (__atomic_load_n(&table_entries[i], __ATOMIC_RELAXED))
            table_entries[i] = NULL;
    handle_forget_all();
    snapshot_forget_all();
    private_pages_forget();
    locks_forget();
    fault_forget_all();
    window_forget_all();
    files_forget();
    thread_forget_others();
    /* Not an unlock: the lock's owner is the parent's thread id. */
    RACES_FREED(&report_lock);
    report_lock = (pthread_mutex_t)REPORT_LOCK_FREE;
    unlock_others();
}

bool process_is_set_up;

/* Before the program's own constructors, so that no thread can fork while this is half done. */
static void __attribute__((constructor(101))) set_up(void)
{
    process_is_set_up = pthread_atfork(before_fork, in_parent, in_child) == 0;
}

/* After all other destructors, and the handlers of atexit(3): they may unmap files. */
static void __attribute__((destructor(101))) at_exit(void)
{
    files_exit();
}
