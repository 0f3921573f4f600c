/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations that `ato bench` measures, done by libato and by the floor, on files of their own.
 *
 * The floor is what a library with a bitmap for each page cannot do without: it makes the bytes durable, then a word of
 * 8 bytes for each page, and has one copy of the file. It is not atomic.
 *
 *   pmem      stores and flushes of the bytes, a fence; the same of the words
 *   eadr      the same without flushes
 *   msync     memcpy() and msync() of the bytes, then of the words
 *   process   memcpy(), and plain stores of the words
 *
 * The floor of a read is memcpy(), that of a map mmap() and munmap().
 *
 * The files are in a new folder. Errors: -1 with a sentence in `error`.
 */
#ifndef ATO_TOOLS_BENCH_WORK_H
#define ATO_TOOLS_BENCH_WORK_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bench_kind { BENCH_WRITE, BENCH_READ, BENCH_TRANSACTION, BENCH_MAP };

struct bench_operation {
    enum bench_kind kind;
    const char *name;
    uint32_t bytes;  /* of each write or read; of the mapping */
    unsigned writes; /* of a transaction; else 1 */
};

enum { BENCH_OPERATIONS = 7, BENCH_MAX_BATCH = 2048 };
extern const struct bench_operation bench_operations[BENCH_OPERATIONS];

struct bench {
    char folder[PATH_MAX]; /* made; "": not yet */
    char error[1024];
    int floor_fd, fd, small_fd;
    char *floor, *base; /* the floor's file, libato's file */
    int domain;
    uint64_t random, word; /* state of the generator; what the floor stores */
    uint64_t at[BENCH_MAX_BATCH];
    _Alignas(64) char source[8192];
    _Alignas(64) char found[4096];
};

/* Makes the folder and the files. Ends early, without an error, if `stop` says so. */
int bench_open(struct bench *b, const char *folder, bool (*stop)(void));

/* Removes them; also after a bench_open() that failed or ended early. -1 with a sentence: something is left. */
int bench_close(struct bench *b);

/* Does `n` operations (at most BENCH_MAX_BATCH), at the same random offsets on both sides, and stores the nanoseconds of one operation.
 * `libato_first`: the order of the sides. */
int bench_batch(struct bench *b, const struct bench_operation *o, unsigned n, bool libato_first,
                double *floor_ns, double *libato_ns);

#endif
