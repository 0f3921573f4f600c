/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of one write through plain memcpy, libato and libpmemobj transactions.
 *
 * Two groups, because a comparison needs equal guarantees. In the first, an acknowledged write survives the
 * death of the process. In the second it is flushed too, as on persistent memory, where it then survives a
 * power cut; for that libpmemobj needs PMEM_IS_PMEM_FORCE=1 on tmpfs, and libato ATO_DOMAIN_PMEM. In each
 * group memcpy, which tears, is the floor.
 *
 * All contenders write the same records in the same order, in turn in short rounds, so that a busy moment of
 * the machine affects all; the median over the rounds is shown. A demonstration on DRAM: it shows the cost of
 * the work around the copy, not the speed of a medium.
 */
#include <ato.h>

#include <libpmem.h>
#include <libpmemobj.h>

#include <err.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define REGION    (4u << 20)  /* what each contender writes in */
#define POOL_SIZE (16u << 20) /* libpmemobj's: the region and its undo logs */
#define ROUNDS    25
#define SIZES     2

static const struct {
    size_t n;
    unsigned writes; /* a round */
} sizes[SIZES] = {{1u << 10, 2000}, {64u << 10, 100}};

struct contender {
    const char *name, *promise;
    void (*open)(struct contender *, const char *path);
    void (*write)(const struct contender *, size_t offset, const void *src, size_t n);
    void (*close)(struct contender *);
    int domain; /* libato's */
    unsigned char *base;
    PMEMobjpool *pool; /* libpmemobj's */
    double ns[SIZES][ROUNDS];
};

static volatile sig_atomic_t interrupted; /* by Ctrl-C and the like: tidy up, then end */

static void note_signal(int sig)
{
    interrupted = sig;
}

/* ---- Contenders ---- */

static int region_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 || posix_fallocate(fd, 0, REGION) != 0)
        err(2, "%s", path);
    return fd;
}

static void mmap_open(struct contender *c, const char *path)
{
    int fd = region_file(path);

    c->base = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (c->base == MAP_FAILED)
        err(2, "%s: mmap", path);
    close(fd);
}

static void mmap_write(const struct contender *c, size_t offset, const void *src, size_t n)
{
    memcpy(c->base + offset, src, n);
}

static void mmap_write_persist(const struct contender *c, size_t offset, const void *src, size_t n)
{
    pmem_memcpy_persist(c->base + offset, src, n);
}

static void mmap_close(struct contender *c)
{
    munmap(c->base, REGION);
}

static void libato_open(struct contender *c, const char *path)
{
    struct ato_options options = {.struct_size = sizeof options, .domain = c->domain};
    int fd = region_file(path);

    c->base = ato_mmap_opt(REGION, fd, 0, &options);
    if (c->base == MAP_FAILED)
        errx(1, "ato_mmap_opt: %s", ato_errormsg());
    close(fd);
}

static void libato_write(const struct contender *c, size_t offset, const void *src, size_t n)
{
    if (!ato_memcpy(c->base + offset, src, n))
        errx(1, "ato_memcpy: %s", ato_errormsg());
}

static void libato_close(struct contender *c)
{
    if (ato_munmap(c->base, REGION, ATO_UNMAP_SPATIAL) != 0)
        errx(1, "ato_munmap: %s", ato_errormsg());
}

static void pool_open(struct contender *c, const char *path)
{
    PMEMoid root;

    c->pool = pmemobj_create(path, "speed_demo", POOL_SIZE, 0600);
    if (!c->pool)
        errx(2, "pmemobj_create: %s", pmemobj_errormsg());
    root = pmemobj_root(c->pool, REGION);
    if (OID_IS_NULL(root))
        errx(2, "pmemobj_root: %s", pmemobj_errormsg());
    c->base = pmemobj_direct(root);
}

/* As a program would: snapshot the range, overwrite it, commit. */
static void pool_write(const struct contender *c, size_t offset, const void *src, size_t n)
{
    if (pmemobj_tx_begin(c->pool, NULL, TX_PARAM_NONE) != 0 ||
        pmemobj_tx_add_range_direct(c->base + offset, n) != 0)
        errx(2, "libpmemobj: %s", pmemobj_errormsg());
    memcpy(c->base + offset, src, n);
    pmemobj_tx_commit();
    if (pmemobj_tx_end() != 0)
        errx(2, "libpmemobj: %s", pmemobj_errormsg());
}

static void pool_close(struct contender *c)
{
    pmemobj_close(c->pool);
}

enum { MEMCPY, ATO_KEPT, MEMCPY_FLUSHED, ATO_FLUSHED, POOL, CONTENDERS };

static struct contender contenders[CONTENDERS] = {
    [MEMCPY] = {.name = "mmap + memcpy",
                .promise = "a kill tears it",
                .open = mmap_open,
                .write = mmap_write,
                .close = mmap_close},
    [ATO_KEPT] = {.name = "libato",
                  .promise = "all or nothing",
                  .open = libato_open,
                  .write = libato_write,
                  .close = libato_close,
                  .domain = ATO_DOMAIN_PROCESS},
    [MEMCPY_FLUSHED] = {.name = "pmem_memcpy_persist",
                        .promise = "a kill tears it",
                        .open = mmap_open,
                        .write = mmap_write_persist,
                        .close = mmap_close},
    [ATO_FLUSHED] = {.name = "libato",
                     .promise = "all or nothing",
                     .open = libato_open,
                     .write = libato_write,
                     .close = libato_close,
                     .domain = ATO_DOMAIN_PMEM},
    [POOL] = {.name = "libpmemobj transaction",
              .promise = "all or nothing",
              .open = pool_open,
              .write = pool_write,
              .close = pool_close},
};

/* ---- Measuring ---- */

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Mean of one round; the order of records is the same for all contenders. */
static double round_ns(const struct contender *c, size_t n, unsigned writes, uint32_t seed,
                       const unsigned char *src)
{
    uint32_t x = seed;
    double start = now_ns();

    for (unsigned i = 0; i < writes; i++) {
        x = x * 1664525u + 1013904223u;
        c->write(c, (x >> 8) % (REGION / n) * n, src, n);
    }
    return (now_ns() - start) / writes;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* Faults, allocations and both homes of every slice are paid for here. */
static void warm_up(const struct contender *c, const unsigned char *src)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t offset = 0; offset < REGION; offset += sizes[SIZES - 1].n)
            c->write(c, offset, src, sizes[SIZES - 1].n);
}

static void measure(void)
{
    static _Alignas(64) unsigned char src[64u << 10];

    memset(src, 'x', sizeof src);
    for (int c = 0; c < CONTENDERS; c++)
        warm_up(&contenders[c], src);
    for (unsigned round = 0; round < ROUNDS && !interrupted; round++)
        for (int s = 0; s < SIZES; s++)
            for (int c = 0; c < CONTENDERS; c++)
                contenders[c].ns[s][round] =
                    round_ns(&contenders[c], sizes[s].n, sizes[s].writes, round, src);
}

static void row(struct contender *c)
{
    printf("    %-24s %-18s %10.0f %10.0f\n", c->name, c->promise, median(c->ns[0], ROUNDS),
           median(c->ns[1], ROUNDS));
}

static void report(void)
{
    puts("");
    printf("ns a write (median of %d rounds; records in random order in %u MiB on tmpfs)\n", ROUNDS,
           REGION >> 20);
    printf("    %-24s %-18s %10s %10s\n", "", "", "1 KiB", "64 KiB");
    puts("  kept in memory: survives the death of the process");
    row(&contenders[MEMCPY]);
    row(&contenders[ATO_KEPT]);
    puts("  flushed and fenced: on persistent memory it would survive a power cut as well");
    row(&contenders[MEMCPY_FLUSHED]);
    row(&contenders[ATO_FLUSHED]);
    row(&contenders[POOL]);
    puts("  (pmem_memcpy_persist has one fence. An atomic write needs a second one, for the");
    puts("  8 bytes that make the others count: the README compares with both.)");
}

static void with_each(const char *folder, void (*visit)(struct contender *, const char *path))
{
    char path[PATH_MAX];

    for (int c = 0; c < CONTENDERS; c++) {
        int n = snprintf(path, sizeof path, "%s/speed-%d", folder, c);

        if (n < 0 || (size_t)n >= sizeof path)
            errx(2, "the name of the folder is too long");
        visit(&contenders[c], path);
    }
}

static void open_one(struct contender *c, const char *path)
{
    c->open(c, path);
}

static void close_one(struct contender *c, const char *path)
{
    c->close(c);
    unlink(path);
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 2 || argv[1][0] == '-') {
        fputs("usage: speed_demo FOLDER\n"
              "Prints ns a write for memcpy, libato and libpmemobj, on files that it makes in\n"
              "FOLDER (about 50 MiB; should be on tmpfs) and removes.\n",
              stderr);
        return 2;
    }
    if (!getenv("PMEM_IS_PMEM_FORCE")) { /* libpmem asks when it is loaded */
        setenv("PMEM_IS_PMEM_FORCE", "1", 1);
        execv("/proc/self/exe", argv);
        err(2, "cannot start again with PMEM_IS_PMEM_FORCE=1");
    }
    catch_signals();
    with_each(argv[1], open_one);
    measure();
    with_each(argv[1], close_one);
    if (interrupted)
        errx(128 + interrupted, "interrupted");
    report();
    return 0;
}
