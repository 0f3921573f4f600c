/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two identities of a thread. A small number: it selects the counters that the thread may increment without a
 * locked instruction. And an id that no other thread ever gets: it names the thread that used a transaction
 * last, and waiting threads.
 */
#ifndef ATO_LIB_FILE_THREAD_H
#define ATO_LIB_FILE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Numbers below this belong to one living thread each; all other threads have this number. */
#define THREAD_SHARED 64u

extern __thread unsigned thread_number_plus_1 __attribute__((tls_model("initial-exec")));

unsigned thread_register(void);

/* Starts a thread that blocks all signals but SIGBUS: they are for the program's own threads. Returns 0; an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* Called in a forked child: frees the numbers of threads that it did not inherit. */
void thread_forget_others(void);

static inline unsigned thread_number(void)
{
    unsigned n = thread_number_plus_1;
    return n ? n - 1 : thread_register();
}

/* Returns the number that the calling thread has and no other; THREAD_SHARED or more: it has none, or none yet. */
static inline unsigned thread_own_number(void)
{
    return thread_number_plus_1 - 1;
}

extern __thread uint64_t thread_own_id __attribute__((tls_model("initial-exec")));

uint64_t thread_make_id(void);

/* The thread's id. Never 0, and never reused by another thread, even after this one has ended. */
static inline uint64_t thread_id(void)
{
    uint64_t id = thread_own_id;
    return id ? id : thread_make_id();
}

#endif
