/* SPDX-License-Identifier: BSD-3-Clause */
/* What bench.py compares with: the same calls in C. */
#include "ato.h"

#include <stdint.h>
#include <time.h>

enum { SPREAD = 64 }; /* pages, one after the other */

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void *loop_map(int fd, uint64_t size);
uint64_t loop_run(char *at, uint64_t n, unsigned times, int writes);

void *loop_map(int fd, uint64_t size)
{
    void *at = ato_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Returns the nanoseconds that these writes or reads of n bytes took; 0: one failed. */
uint64_t loop_run(char *at, uint64_t n, unsigned times, int writes)
{
    static char bytes[1 << 16];
    const uint64_t began = now();
    for (unsigned i = 0; i < times; i++) {
        char *there = at + (uint64_t)(i % SPREAD) * 4096;
        if (!(writes ? ato_memcpy(there, bytes, n) : ato_memcpy(bytes, there, n)))
            return 0;
    }
    return now() - began;
}
