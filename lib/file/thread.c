/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/thread.h"

#include <signal.h>

__thread unsigned thread_number_plus_1 __attribute__((tls_model("initial-exec")));

static pthread_key_t at_exit_of_thread;
static int have_key;
static uint64_t taken; /* bit n: a thread has number n */

static void give_back(void *number_plus_1)
{
    unsigned n = (unsigned)(uintptr_t)number_plus_1 - 1;
    thread_number_plus_1 = 0;
    /* Release: the next thread with this number sees this thread's counts in the counters. */
    __atomic_fetch_and(&taken, ~(1ull << n), __ATOMIC_RELEASE);
}

static void __attribute__((constructor(101))) make_key(void)
{
    have_key = pthread_key_create(&at_exit_of_thread, give_back) == 0;
}

unsigned thread_register(void)
{
    unsigned n = THREAD_SHARED;
    uint64_t seen = __atomic_load_n(&taken, __ATOMIC_RELAXED);
    while (have_key && ~seen) {
        unsigned free = (unsigned)__builtin_ctzll(~seen);
        if (!__atomic_compare_exchange_n(&taken, &seen, seen | 1ull << free, 0, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        if (pthread_setspecific(at_exit_of_thread, (void *)(uintptr_t)(free + 1)) == 0)
            n = free;
        else
            __atomic_fetch_and(&taken, ~(1ull << free), __ATOMIC_RELEASE);
        break;
    }
    thread_number_plus_1 = n + 1;
    return n;
}

__thread uint64_t thread_own_id __attribute__((tls_model("initial-exec")));

uint64_t thread_make_id(void)
{
    static uint64_t last;
    thread_own_id = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return thread_own_id;
}

void thread_forget_others(void)
{
    unsigned own = thread_number_plus_1;
    __atomic_store_n(&taken, own && own <= THREAD_SHARED ? 1ull << (own - 1) : 0, __ATOMIC_RELAXED);
}

int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* fault.h */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
