/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/pool.h"

#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libpmemobj.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAYOUT "libato-journal"

/* libpmemobj's own needs (its lanes, its heap's tables): 6 MiB are enough for any size of the pool. */
enum { BESIDE_BYTES = 6 << 20 };

uint64_t pool_bytes(uint64_t words)
{
    uint64_t bytes = (journal_bytes(words) + BESIDE_BYTES + 4095) & ~4095ull;
    return bytes < POOL_LEAST_BYTES ? POOL_LEAST_BYTES : bytes;
}

/* The root object is a little larger than the journal, which begins at the object's first byte on a page
 * boundary of the file: so a line of the journal is a cache line, wherever it is mapped. */
enum { ROOT_SLACK = 4096 };

/* Has libpmemobj make a pool in an empty file, with a root object for the journal. Returns the journal's
 * offset in the file; 0 and errno on error. */
static uint64_t make_pool(int fd, uint64_t words)
{
    char path[64];
    /* Not by its name: another user could replace the name by a link, which libpmemobj would
     * follow. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    PMEMobjpool *pop = pmemobj_create(path, LAYOUT, 0, 0600);
    if (!pop)
        return 0;
    PMEMoid root = pmemobj_root(pop, journal_bytes(words) + ROOT_SLACK);
    KEEP_ERRNO();
    pmemobj_close(pop);
    return OID_IS_NULL(root) ? 0 : (root.off + 4095) & ~4095ull;
}

void pool_name(char name[POOL_NAME_BYTES], uint64_t number)
{
    snprintf(name, POOL_NAME_BYTES, POOL_PREFIX "%012" PRIx64, number);
}

bool pool_name_of(const char *name, uint64_t *number)
{
    const size_t prefix = strlen(POOL_PREFIX), digits = 12;
    if (strncmp(name, POOL_PREFIX, prefix) != 0 || strlen(name) != prefix + digits ||
        strspn(name + prefix, "0123456789abcdef") != digits)
        return false;
    if (number)
        *number = strtoul(name + prefix, NULL, 16);
    return true;
}

/* Makes an empty file, locked before it is filled: a process that clears away journals that no manifest names skips locked
 * ones. If the file was removed before it was locked, another one is made. */
static int make_file(struct pool *pool, const struct folder *f)
{
    int named = 0;
    while (named == 0) {
        locks_close(pool->lock);
        pool->lock = fsops->create(f->fd, pool->name, O_RDWR | O_EXCL, 0600);
        if (pool->lock < 0)
            return -1;
        locks_keep(pool->lock);
        if (locks_wait(pool->lock, F_WRLCK, 0, 1) < 0)
            return -1;
        named = folder_names(f, pool->name, pool->lock);
    }
    return named < 0 ? -1 : fsops->fallocate(pool->lock, 0, 0, (off_t)pool->bytes);
}

static int fill(struct pool *pool, const struct folder *f, const struct persist *p, uint64_t words,
                const struct trust *like)
{
    const uint64_t at = make_pool(pool->lock, words);
    if (!at || !(pool->map = folder_map(pool->lock, O_RDWR, pool->bytes, 0)))
        return -1;
    journal_make(p, &pool->journal, (char *)pool->map + at, pool->number, words);
    /* The owner only now: libpmemobj, which was used until here, trusts the bytes that it reads. */
    if (ownership_give(like, pool->lock) < 0)
        return -1;
    /* persist-order J0 (reader: pool_open): content and name of the journal are durable before a manifest names it (N1). */
    if (fsops_fsync(pool->lock) < 0)
        return -1;
    const int named = folder_names(f, pool->name, pool->lock);
    if (named == 0) /* another user gave its name to another file */
        errno = EACCES;
    return named == 1 ? folder_sync(f) : -1;
}

static void begin(struct pool *pool, const struct folder *f, uint64_t number)
{
    memset(pool, 0, sizeof(*pool));
    pool->lock = -1;
    pool->number = number;
    pool_name(pool->name, number);
    snprintf(pool->path, sizeof(pool->path), "%s/%s", f->path, pool->name);
}

int pool_create(struct pool *pool, const struct folder *f, const struct persist *p, uint64_t words,
                const struct trust *like)
{
    uint64_t random;
    if (identity_random(&random, sizeof(random)) < 0)
        return -1;
    begin(pool, f, (random >> 17) + 1); /* not 0, and within what a journal word holds */
    pool->bytes = pool_bytes(words);
    if (make_file(pool, f) == 0 && fill(pool, f, p, words, like) == 0)
        return 0;
    report_errno(errno,
                 "cannot make the journal %s: a large commit, or one of several files, needs a "
                 "journal, which takes %" PRIu64 " bytes in that folder",
                 pool->path, pool->bytes);
    KEEP_ERRNO();
    (void)pool_close(pool, f, pool->lock >= 0);
    return -1;
}

/* The journal lies on a page boundary (make_pool); which one depends on libpmemobj. */
int pool_find(struct journal *j, char *bytes, uint64_t length, uint64_t number, const char *full)
{
    bool broken = false;
    for (uint64_t at = 4096; at < POOL_HEAD_BYTES && at + 4096 <= length; at += 4096) {
        if (memcmp(bytes + at, &(uint64_t){JOURNAL_MAGIC}, sizeof(uint64_t)) != 0)
            continue;
        if (journal_take(j, bytes + at, length - at, number, full) == 0)
            return 0;
        broken = true;
    }
    return broken ? -1
                  : report_error(EUCLEAN,
                                 "the journal %s is damaged: no valid header is found in it", full);
}

/* Maps the first n bytes. */
static int map_found(struct pool *pool, const struct stat *st, uint64_t n)
{
    if (pool->map)
        munmap(pool->map, pool->bytes);
    pool->bytes = n;
    /* A copy of the file may have holes instead of zeros; on a full tmpfs even a load from a hole is SIGBUS. */
    if ((uint64_t)st->st_blocks * 512 < n &&
        fsops->fallocate(pool->lock, FALLOC_FL_KEEP_SIZE, 0, (off_t)n) < 0 && errno != EOPNOTSUPP)
        return report_errno(errno, "cannot allocate the journal %s, %" PRIu64 " bytes", pool->path,
                            n);
    pool->map = folder_map(pool->lock, O_RDWR, n, 0);
    return pool->map ? 0 : report_errno(errno, "cannot map the journal %s", pool->path);
}

/* Not by libpmemobj (I5): see the head of pool.h. */
static int open_locked(struct pool *pool)
{
    struct stat st;
    if (fstat(pool->lock, &st) < 0)
        return report_errno(errno, "cannot stat the journal %s", pool->path);
    if (st.st_size < 4096)
        return report_error(EUCLEAN, "the journal %s is damaged: it is too short", pool->path);
    const uint64_t length = (uint64_t)st.st_size;
    uint64_t n = length < POOL_LEAST_BYTES ? length : POOL_LEAST_BYTES;
    /* First the header, then all up to the journal's end. */
    for (uint64_t mapped = 0; mapped < n;
         n = (uint64_t)(journal_end(&pool->journal) - (char *)pool->map)) {
        mapped = n;
        if (map_found(pool, &st, n) < 0 ||
            pool_find(&pool->journal, pool->map, length, pool->number, pool->path) < 0)
            return -1;
    }
    return 0;
}

int pool_open(struct pool *pool, const struct folder *f, uint64_t number, const struct trust *file)
{
    begin(pool, f, number);
    pool->lock = folder_lock_file(f, pool->name, O_RDWR, 1, file, "the journal");
    if (pool->lock < 0)
        return -1;
    const int r = open_locked(pool);
    if (r < 0)
        (void)pool_close(pool, f, false);
    return r;
}

int pool_close(struct pool *pool, const struct folder *f, bool remove)
{
    int result = 0;
    /* Not synced: if a power cut brings the file back, no manifest names it. */
    if (remove && fsops->unlinkat(f->fd, pool->name, 0) < 0 && errno != ENOENT)
        result = folder_error(f, pool->name, "cannot remove the journal");
    KEEP_ERRNO();
    if (pool->map)
        munmap(pool->map, pool->bytes);
    locks_close(pool->lock);
    pool->map = NULL;
    pool->lock = -1;
    return result;
}
