/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who a thread is. A small number: whose counters it may bump without a locked instruction. And an
 * identity that no other thread ever gets: whose a transaction is, and who waits for whom.
 */
#ifndef ATO_LIB_THREAD_H
#define ATO_LIB_THREAD_H

#include <stdint.h>

/* Numbers below this belong to one living thread each; every other thread has this number. */
#define THREAD_SHARED 64u

extern __thread unsigned thread_number_plus_1 __attribute__((tls_model("initial-exec")));

unsigned thread_register(void);

/* In a forked child: the numbers of the threads that were not inherited are free. */
void thread_forget_others(void);

static inline unsigned thread_number(void)
{
    unsigned n = thread_number_plus_1;
    return n ? n - 1 : thread_register();
}

extern __thread uint64_t thread_own_id __attribute__((tls_model("initial-exec")));

uint64_t thread_make_id(void);

/* Never 0, and never another thread's, not even after this one has ended. */
static inline uint64_t thread_id(void)
{
    uint64_t id = thread_own_id;
    return id ? id : thread_make_id();
}

#endif
