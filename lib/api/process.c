/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/api/process.h"

#include "lib/api/files.h"
#include "lib/commit/journals.h"
#include "lib/file/mutex.h"
#include "lib/file/page.h"
#include "lib/file/table.h"
#include "lib/file/thread.h"
#include "lib/page/handle.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static void before_fork(void)
{
    for (enum mutex i = 0; i < MUTEXES; i++)
        mutex_lock(i);
    report_before_fork();
}

static void unlock_all(void)
{
    for (enum mutex i = MUTEXES; i-- > 0;)
        mutex_unlock(i);
}

static void in_parent(void)
{
    report_in_parent();
    unlock_all();
}

/* The child has none of the views (MADV_DONTFORK), and must not keep a lock of the parent alive. It only
 * closes descriptors: an unlock would drop the parent's locks. */
static void in_child(void)
{
    for (uint64_t i = 0; i < TABLE_ENTRIES; i++)
        if (__atomic_load_n(&table_entries[i], __ATOMIC_RELAXED))
            table_entries[i] = NULL;
    handle_forget_all();
    locks_forget();
    journals_forget_all();
    files_forget();
    thread_forget_others();
    report_in_child();
    unlock_all();
}

static void at_exit(void)
{
    journals_close_all();
    files_exit();
}

enum { SET_UP_TRIES = 4 };
static pthread_once_t tries[SET_UP_TRIES] = {PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT,
                                             PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT};
static bool forks;
bool process_is_set_up;

static void try_to_set_up(void)
{
    forks = forks || pthread_atfork(before_fork, in_parent, in_child) == 0;
    const bool exits = forks && atexit(at_exit) == 0; /* the last try, if it succeeds */
    if (exits)
        page_set_up();
    __atomic_store_n(&process_is_set_up, exits, __ATOMIC_RELEASE);
}

int process_set_up_first(void)
{
    static unsigned next;
    unsigned i = __atomic_load_n(&next, __ATOMIC_ACQUIRE);
    pthread_once(&tries[i], try_to_set_up);
    if (__atomic_load_n(&process_is_set_up, __ATOMIC_ACQUIRE))
        return 0;
    if (i + 1 < SET_UP_TRIES)
        __atomic_compare_exchange_n(&next, &i, i + 1, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    return report_error(ENOMEM, "no memory to register the handlers of fork and exit");
}
