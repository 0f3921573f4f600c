/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small number for each thread: whose counters it may bump without a locked instruction, and who
 * of a process holds a page.
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

#endif
