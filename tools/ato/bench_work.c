/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench_work.h"

#include "trial.h"

#include "lib/file/clock.h"
#include "reflection/format/layout.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include "ato.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xmmintrin.h>
#if HAVE_LIBPMEM
#include <libpmem.h>
#else /* map_floor() refuses persistent memory */
#define pmem_memcpy_nodrain memcpy
#define pmem_drain          _mm_sfence
#endif

/* Writes go to the first half of the file, reads to the second, whose slices stay at home. */
#define HALF  (32ull << 20)
#define SMALL (1ull << 20)
#define WORDS_END                                                                                  \
    (2 * HALF + HALF / PAGE_BYTES * 8) /* of the floor's file: its words are at its end */

const struct bench_operation bench_operations[BENCH_OPERATIONS] = {
    {BENCH_WRITE, "write 64 B", 64, 1},
    {BENCH_WRITE, "write 1 KiB", 1024, 1},
    {BENCH_WRITE, "write 4 KiB", 4096, 1},
    {BENCH_WRITE, "write 8 KiB, two pages", 8192, 1},
    {BENCH_READ, "read 4 KiB", 4096, 1},
    {BENCH_TRANSACTION, "transaction, 8 x 256 B", 256, 8},
    {BENCH_MAP, "map, unmap fast, 1 MiB", SMALL, 1},
};

static int __attribute__((format(printf, 2, 3))) failed(struct bench *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(b->error, sizeof(b->error), format, args);
    va_end(args);
    return -1;
}

static int failed_in_libato(struct bench *b)
{
    return failed(b, "%s", ato_errormsg());
}

static uint64_t next_random(struct bench *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    return b->random;
}

/* ---- the floor ---- */

static void floor_store(const struct bench *b, uint64_t at, const void *bytes, uint64_t n)
{
    if (b->domain == ATO_DOMAIN_PMEM)
        pmem_memcpy_nodrain(b->floor + at, bytes, n);
    else
        memcpy(b->floor + at, bytes, n);
}

/* Makes durable what was stored between these offsets. */
static int floor_fence(struct bench *b, uint64_t begin, uint64_t end)
{
    if (b->domain == ATO_DOMAIN_PMEM)
        pmem_drain();
    else if (b->domain == ATO_DOMAIN_EADR)
        _mm_sfence();
    else if (b->domain == ATO_DOMAIN_DISK && msync(b->floor + begin, end - begin, MS_SYNC) < 0)
        return failed(b, "msync of a file in %.500s: %s", b->folder, report_reason(errno));
    return 0;
}

/* The pages of a write are neighbours. */
static int floor_write(struct bench *b, const uint64_t *at, uint32_t bytes, unsigned writes)
{
    for (unsigned i = 0; i < writes; i++)
        floor_store(b, at[i], b->source, bytes);
    if (floor_fence(b, 0, HALF) < 0)
        return -1;
    for (unsigned i = 0; i < writes; i++)
        for (uint64_t page = at[i] / PAGE_BYTES; page * PAGE_BYTES < at[i] + bytes; page++) {
            b->word++;
            floor_store(b, 2 * HALF + page * 8, &b->word, 8);
        }
    return floor_fence(b, 2 * HALF, WORDS_END);
}

static int floor_do(struct bench *b, const struct bench_operation *o, const uint64_t *at)
{
    void *view;
    switch (o->kind) {
    case BENCH_READ:
        memcpy(b->found, b->floor + *at, o->bytes);
        __asm__ volatile("" ::"r"(b->found) : "memory"); /* the bytes count as used */
        return 0;
    case BENCH_MAP:
        view = mmap(NULL, SMALL, PROT_READ | PROT_WRITE, MAP_SHARED, b->floor_fd, 0);
        if (view == MAP_FAILED)
            return failed(b, "mmap of a file in %.500s: %s", b->folder, report_reason(errno));
        return munmap(view, SMALL);
    default:
        return floor_write(b, at, o->bytes, o->writes);
    }
}

/* ---- libato ---- */

static int transact(struct bench *b, const uint64_t *at, uint32_t bytes, unsigned writes)
{
    ato_tx *tx = ato_tx_begin(0);
    if (!tx)
        return failed_in_libato(b);
    bool good = true;
    for (unsigned i = 0; good && i < writes; i++)
        good = ato_tx_memcpy(tx, b->base + at[i], b->source, bytes, 0) != NULL;
    if (good && ato_tx_commit(tx) == 0)
        return 0;
    (void)failed_in_libato(b);
    ato_tx_abort(tx);
    return -1;
}

static int map_small(struct bench *b, int mode)
{
    void *at = ato_mmap(NULL, SMALL, PROT_READ | PROT_WRITE, MAP_SHARED, b->small_fd, 0);
    if (at == MAP_FAILED || ato_munmap(at, SMALL, mode) < 0)
        return failed_in_libato(b);
    return 0;
}

static int libato_do(struct bench *b, const struct bench_operation *o, const uint64_t *at)
{
    switch (o->kind) {
    case BENCH_WRITE:
        return ato_memcpy(b->base + *at, b->source, o->bytes) ? 0 : failed_in_libato(b);
    case BENCH_READ:
        return ato_memcpy(b->found, b->base + *at, o->bytes) ? 0 : failed_in_libato(b);
    case BENCH_MAP:
        return map_small(b, ATO_UNMAP_FAST);
    default:
        return transact(b, at, o->bytes, o->writes);
    }
}

/* ---- a batch ---- */

int bench_batch(struct bench *b, const struct bench_operation *o, unsigned n, bool libato_first,
                double *floor_ns, double *libato_ns)
{
    const unsigned each = o->writes;
    if (n > BENCH_MAX_BATCH / each)
        n = BENCH_MAX_BATCH / each;
    for (unsigned i = 0; i < n * each; i++)
        b->at[i] =
            (o->kind == BENCH_READ ? HALF : 0) + next_random(b) % (HALF / o->bytes) * o->bytes;
    for (int turn = 0; turn < 2; turn++) {
        const bool libato = (turn == 0) == libato_first;
        const uint64_t begin = clock_ns();
        for (unsigned i = 0; i < n; i++)
            if ((libato ? libato_do : floor_do)(b, o, b->at + i * each) < 0)
                return -1;
        *(libato ? libato_ns : floor_ns) = (double)(clock_ns() - begin) / n;
    }
    return 0;
}

/* ---- the files ---- */

/* A new file with space for all of its bytes, which are not zero: nothing is a hole. Returns its descriptor. */
static int make_file(struct bench *b, const char *name, uint64_t bytes)
{
    static char block[1 << 20];
    const int fd = trial_file(b->folder, name);
    memset(block, 'o', sizeof(block));
    bool good = fd >= 0 && fallocate(fd, 0, 0, (off_t)bytes) == 0;
    for (uint64_t at = 0; good && at < bytes; at += sizeof(block))
        good = pwrite(fd, block, bytes - at < sizeof(block) ? bytes - at : sizeof(block),
                      (off_t)at) > 0;
    if (good && fsync(fd) == 0)
        return fd;
    (void)failed(b, "cannot fill %.900s/%s: %s", b->folder, name, report_reason(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

/* A page's first read and first write cost more than others. Not more pages at a time than the lanes in the manifest take. */
static int warm_up(struct bench *b, bool (*stop)(void))
{
    static char pages[128 * PAGE_BYTES];
    for (uint64_t at = 0; at < 2 * HALF && !stop(); at += sizeof(pages))
        if (!ato_memcpy(pages, b->base + at, sizeof(pages)) ||
            (at < HALF && !ato_memcpy(b->base + at, pages, sizeof(pages))))
            return failed_in_libato(b);
    return 0;
}

static int map_large(struct bench *b)
{
    struct ato_stat st = {.struct_size = sizeof(st)};
    void *at = ato_mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
    if (at == MAP_FAILED)
        return failed_in_libato(b);
    b->base = at;
    if (ato_stat(at, &st) < 0)
        return failed_in_libato(b);
    b->domain = st.domain;
    return 0;
}

static int map_floor(struct bench *b)
{
    if (!HAVE_LIBPMEM && b->domain == ATO_DOMAIN_PMEM)
        return failed(b,
                      "this ato was built without libpmem, with which it compares libato on "
                      "persistent memory (%.500s)",
                      b->folder);
    void *at = domain_map((enum persist_domain)b->domain, NULL, WORDS_END, PROT_READ | PROT_WRITE,
                          b->floor_fd, 0);
    if (at == MAP_FAILED)
        return failed(b, "mmap of a file in %.500s: %s", b->folder, report_reason(errno));
    b->floor = at;
    /* Page tables, if the kernel can make them at once; libato's are made by warm_up(). */
    (void)madvise(at, WORDS_END,
                  b->domain == ATO_DOMAIN_DISK ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
    return 0;
}

int bench_open(struct bench *b, const char *folder, bool (*stop)(void))
{
    memset(b, 0, sizeof(*b));
    b->floor_fd = b->fd = b->small_fd = -1;
    b->random = 20261127;
    memset(b->source, 's', sizeof(b->source));
    if (trial_make(b->folder, folder, "bench") < 0) {
        b->folder[0] = '\0';
        return failed(b, "no folder can be made there: %s", report_reason(errno));
    }
    if (stop() || (b->fd = make_file(b, "file", 2 * HALF)) < 0 || stop() ||
        (b->floor_fd = make_file(b, "floor", WORDS_END)) < 0 || stop() ||
        (b->small_fd = make_file(b, "small", SMALL)) < 0)
        return *b->error ? -1 : 0;
    if (map_large(b) < 0 || map_floor(b) < 0 || map_small(b, ATO_UNMAP_FAST) < 0)
        return -1;
    return warm_up(b, stop);
}

int bench_close(struct bench *b)
{
    const int all[] = {b->fd, b->floor_fd, b->small_fd};
    int r = 0;
    if (!*b->folder)
        return 0;
    if (b->base && ato_munmap(b->base, 2 * HALF, ATO_UNMAP_SPATIAL) < 0)
        r = failed_in_libato(b);
    if (b->floor && (munmap(b->floor, WORDS_END) < 0 || map_small(b, ATO_UNMAP_SPATIAL) < 0))
        r = -1;
    for (int i = 0; i < 3; i++)
        if (all[i] >= 0)
            close(all[i]);
    if (trial_remove(b->folder) < 0 && r == 0)
        r = failed(b, "cannot remove %.900s: %s", b->folder, report_reason(errno));
    return r;
}
