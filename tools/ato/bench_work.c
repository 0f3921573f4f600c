/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench_work.h"

#include "lib/file/clock.h"
#include "reflection/format/layout.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"
#include "reflection/pairing/folder.h"

#include "ato.h"

#include <errno.h>
#include <fcntl.h>
#include <libpmem.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xmmintrin.h>

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

/* Returns the first word; the pages of a write are neighbours. The stores are volatile since nothing reads them. */
static volatile uint64_t *store_words(struct bench *b, uint64_t at, uint32_t bytes)
{
    volatile uint64_t *word = (volatile uint64_t *)(b->floor + 2 * HALF) + at / PAGE_BYTES;
    for (uint32_t i = 0; i < layout_pages(bytes); i++)
        word[i] = ++b->words;
    return word;
}

/* msync() of whole pages from the lowest to the highest of these writes' bytes, each of `bytes` bytes at `from + at[i] / unit`. */
static int sync_all(struct bench *b, uint64_t from, const uint64_t *at, uint64_t unit,
                    unsigned writes, uint64_t bytes)
{
    uint64_t low = at[0], high = at[0];
    for (unsigned i = 1; i < writes; i++) {
        low = at[i] < low ? at[i] : low;
        high = at[i] > high ? at[i] : high;
    }
    const uint64_t begin = (from + low / unit) / PAGE_BYTES * PAGE_BYTES;
    if (msync(b->floor + begin, from + high / unit + bytes - begin, MS_SYNC) < 0)
        return failed(b, "msync of a file in %.500s: %s", b->folder, report_reason(errno));
    return 0;
}

static int floor_write(struct bench *b, const uint64_t *at, uint32_t bytes, unsigned writes)
{
    switch (b->domain) {
    case ATO_DOMAIN_PMEM:
        for (unsigned i = 0; i < writes; i++)
            pmem_memcpy_nodrain(b->floor + at[i], b->source, bytes);
        pmem_drain();
        for (unsigned i = 0; i < writes; i++)
            pmem_flush((const void *)store_words(b, at[i], bytes), 8 * layout_pages(bytes));
        pmem_drain();
        return 0;
    case ATO_DOMAIN_MSYNC:
        for (unsigned i = 0; i < writes; i++)
            memcpy(b->floor + at[i], b->source, bytes);
        if (sync_all(b, 0, at, 1, writes, bytes) < 0)
            return -1;
        for (unsigned i = 0; i < writes; i++)
            store_words(b, at[i], bytes);
        return sync_all(b, 2 * HALF, at, PAGE_BYTES / 8, writes, 8 * layout_pages(bytes));
    default:
        for (unsigned i = 0; i < writes; i++)
            memcpy(b->floor + at[i], b->source, bytes);
        if (b->domain == ATO_DOMAIN_EADR)
            _mm_sfence();
        for (unsigned i = 0; i < writes; i++)
            store_words(b, at[i], bytes);
        if (b->domain == ATO_DOMAIN_EADR)
            _mm_sfence();
        return 0;
    }
}

static int floor_map(struct bench *b)
{
    void *at = mmap(NULL, SMALL, PROT_READ | PROT_WRITE, MAP_SHARED, b->floor_fd, 0);
    if (at == MAP_FAILED)
        return failed(b, "mmap of a file in %.500s: %s", b->folder, report_reason(errno));
    munmap(at, SMALL);
    return 0;
}

static int floor_do(struct bench *b, const struct bench_operation *o, const uint64_t *at)
{
    switch (o->kind) {
    case BENCH_READ:
        memcpy(b->found, b->floor + *at, o->bytes);
        __asm__ volatile("" ::"r"(b->found) : "memory"); /* the bytes count as used */
        return 0;
    case BENCH_MAP:
        return floor_map(b);
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
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/%s", b->folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return failed(b, "cannot make %.900s: %s", path, report_reason(errno));
    memset(block, 'o', sizeof(block));
    bool good = fallocate(fd, 0, 0, (off_t)bytes) == 0;
    for (uint64_t at = 0; good && at < bytes;) {
        const uint64_t n = bytes - at < sizeof(block) ? bytes - at : sizeof(block);
        const ssize_t done = pwrite(fd, block, n, (off_t)at);
        good = done > 0;
        at += good ? (uint64_t)done : 0;
    }
    if (!good || fsync(fd) < 0) {
        (void)failed(b, "cannot fill %.900s: %s", path, report_reason(errno));
        close(fd);
        return -1;
    }
    return fd;
}

/* Reads the second half, since a page's first read costs more than others. */
static int warm_up(struct bench *b)
{
    for (uint64_t at = HALF; at < 2 * HALF; at += sizeof(b->found))
        if (!ato_memcpy(b->found, b->base + at, sizeof(b->found)))
            return failed_in_libato(b);
    return 0;
}

/* Gives each page of the first half a random bitmap: neighbouring slices are in different homes, as after many small
 * writes. Not more pages at a time than the lanes in the manifest take. */
static int scatter(struct bench *b, bool (*stop)(void))
{
    enum { PAGES = 128 };
    static char pages[PAGES * PAGE_BYTES];
    memset(pages, 'r', sizeof(pages));
    for (uint64_t from = 0; from < HALF && !stop(); from += sizeof(pages)) {
        if (!ato_memcpy(b->base + from, pages, sizeof(pages)))
            return failed_in_libato(b);
        ato_tx *tx = ato_tx_begin(0);
        bool good = tx != NULL;
        for (uint64_t at = 0; good && at < sizeof(pages); at += SLICE_BYTES)
            if (next_random(b) & 1)
                good = ato_tx_memcpy(tx, b->base + from + at, b->source, SLICE_BYTES, 0) != NULL;
        if (!good || ato_tx_commit(tx) < 0) {
            (void)failed_in_libato(b);
            if (tx)
                ato_tx_abort(tx);
            return -1;
        }
    }
    return 0;
}

static int map_large(struct bench *b)
{
    struct ato_status st = {.struct_size = sizeof(st)};
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
    void *at = domain_map((enum persist_domain)b->domain, NULL, WORDS_END, PROT_READ | PROT_WRITE,
                          b->floor_fd, 0);
    if (at == MAP_FAILED)
        return failed(b, "mmap of a file in %.500s: %s", b->folder, report_reason(errno));
    b->floor = at;
    /* Page tables, if the kernel can make them at once; libato's are made by scatter() and warm_up(). */
    (void)madvise(at, WORDS_END,
                  b->domain == ATO_DOMAIN_MSYNC ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
    return 0;
}

int bench_open(struct bench *b, const char *folder, bool (*stop)(void))
{
    memset(b, 0, sizeof(*b));
    b->floor_fd = b->fd = b->small_fd = -1;
    b->random = 20261127;
    memset(b->source, 's', sizeof(b->source));
    char made[PATH_MAX];
    if (snprintf(made, sizeof(made), "%s/.ato-bench-XXXXXX", folder) >= (int)sizeof(made))
        return failed(b, "the name of the folder is too long");
    if (!mkdtemp(made))
        return failed(b, "no folder can be made there: %s", report_reason(errno));
    strcpy(b->folder, made);
    if (stop() || (b->fd = make_file(b, "file", 2 * HALF)) < 0 || stop() ||
        (b->floor_fd = make_file(b, "floor", WORDS_END)) < 0 || stop() ||
        (b->small_fd = make_file(b, "small", SMALL)) < 0)
        return *b->error ? -1 : 0;
    if (map_large(b) < 0 || map_floor(b) < 0 || map_small(b, ATO_UNMAP_FAST) < 0 ||
        scatter(b, stop) < 0)
        return -1;
    return warm_up(b);
}

static void remove_file(const struct bench *b, const char *name, int fd)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/%s", b->folder, name);
    (void)unlink(path);
    if (fd >= 0)
        close(fd);
}

int bench_close(struct bench *b)
{
    char path[PATH_MAX + 16];
    int r = 0;
    if (!*b->folder)
        return 0;
    if (b->floor)
        munmap(b->floor, WORDS_END);
    if (b->base && ato_munmap(b->base, 2 * HALF, ATO_UNMAP_SPATIAL) < 0)
        r = failed_in_libato(b);
    if (b->floor && map_small(b, ATO_UNMAP_SPATIAL) < 0)
        r = -1;
    remove_file(b, "file", b->fd);
    remove_file(b, "floor", b->floor_fd);
    remove_file(b, "small", b->small_fd);
    snprintf(path, sizeof(path), "%s/" FOLDER_NAME "/" FOLDER_NOTE, b->folder);
    (void)unlink(path);
    snprintf(path, sizeof(path), "%s/" FOLDER_NAME, b->folder);
    (void)rmdir(path);
    if (rmdir(b->folder) < 0 && r == 0)
        r = failed(b, "cannot remove %.900s: %s", b->folder, report_reason(errno));
    return r;
}
