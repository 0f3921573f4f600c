/* SPDX-License-Identifier: BSD-3-Clause */
/* The clock of waits and deadlines. */
#ifndef ATO_LIB_FILE_CLOCK_H
#define ATO_LIB_FILE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns CLOCK_MONOTONIC in nanoseconds. */
static inline uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline struct timespec clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}

/* Waits for less than a second, before another try. */
static inline void clock_nap(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

#endif
