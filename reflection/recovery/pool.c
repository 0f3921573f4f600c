/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/pool.h"

#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
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
 * offset in the file; 0 on error. */
static uint64_t make_pool(const struct folder *f, const char *unfinished, int fd, uint64_t words)
{
    char path[64];
    /* Not by its name: another user could replace the name by a link, which libpmemobj would
     * follow. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    PMEMobjpool *pop = pmemobj_create(path, LAYOUT, 0, 0600);
    if (!pop) {
        report_errno(errno, "libpmemobj cannot make the journal %s/%s (%s)", f->path, unfinished,
                     pmemobj_errormsg());
        return 0;
    }
    PMEMoid root = pmemobj_root(pop, journal_bytes(words) + ROOT_SLACK);
    if (OID_IS_NULL(root))
        report_errno(errno, "libpmemobj has no room for the journal %s/%s (%s)", f->path,
                     unfinished, pmemobj_errormsg());
    uint64_t at = OID_IS_NULL(root) ? 0 : (root.off + 4095) & ~4095ull;
    int saved = errno;
    pmemobj_close(pop);
    errno = saved;
    return at;
}

static int map_new(struct pool *pool, const struct folder *f, const char *unfinished,
                   enum persist_domain domain)
{
    pool->map = folder_map(pool->lock, domain, pool->bytes, 0);
    return pool->map ? 0
                     : report_errno(errno, "cannot map the new journal %s/%s", f->path, unfinished);
}

void pool_name(char name[POOL_NAME_BYTES], uint64_t number)
{
    snprintf(name, POOL_NAME_BYTES, POOL_PREFIX "%012" PRIx64, number);
}

enum pool_name pool_name_of(const char *name, uint64_t *number)
{
    const size_t prefix = strlen(POOL_PREFIX), digits = 12;
    if (strncmp(name, POOL_PREFIX, prefix) != 0 ||
        strspn(name + prefix, "0123456789abcdef") != digits)
        return POOL_NO_NAME;
    if (number)
        *number = strtoul(name + prefix, NULL, 16);
    const char *rest = name + prefix + digits;
    if (*rest == '\0')
        return POOL_NAME;
    return strcmp(rest, POOL_UNFINISHED) == 0 ? POOL_NAME_UNFINISHED : POOL_NO_NAME;
}

static void unmap(struct pool *pool)
{
    if (pool->map)
        munmap(pool->map, pool->bytes);
    pool->map = NULL;
}

int pool_create(struct pool *pool, const struct folder *f, const struct persist *p, uint64_t words,
                const struct trust *like)
{
    char unfinished[POOL_NAME_BYTES + sizeof(POOL_UNFINISHED)];
    memset(pool, 0, sizeof(*pool));
    pool->lock = -1;
    pool->bytes = pool_bytes(words);
    if (identity_random(&pool->number, sizeof(pool->number)) < 0)
        return -1;
    pool->number = (pool->number >> 17) + 1; /* not 0, and within what a journal word holds */
    pool_name(pool->name, pool->number);
    snprintf(unfinished, sizeof(unfinished), "%s" POOL_UNFINISHED, pool->name);

    /* Locked before it is filled: a process that clears away unfinished journals skips locked ones. If
     * the file was removed before it was locked, another one is made. */
    int named;
    do {
        locks_close(pool->lock);
        pool->lock = fsops->create(f->fd, unfinished, O_RDWR | O_EXCL, 0600);
        if (pool->lock < 0)
            return report_errno(errno, "cannot make the journal %s/%s", f->path, unfinished);
        if (locks_wait(pool->lock, 0, 1) < 0) {
            report_errno(errno, "cannot lock the new journal %s/%s", f->path, unfinished);
            goto fail;
        }
        named = folder_names(f, unfinished, pool->lock);
        if (named < 0)
            goto fail;
    } while (named == 0);
    if (fsops->fallocate(pool->lock, 0, 0, (off_t)pool->bytes) < 0) {
        report_errno(errno,
                     "cannot allocate the journal %s/%s: a commit of several pages needs a "
                     "journal, which takes %" PRIu64 " bytes in that folder",
                     f->path, unfinished, pool->bytes);
        goto fail;
    }
    uint64_t at = make_pool(f, unfinished, pool->lock, words);
    if (!at || map_new(pool, f, unfinished, p->domain) < 0)
        goto fail;
    journal_make(p, &pool->journal, (char *)pool->map + at, pool->number, words);
    /* Only now: libpmemobj, which was used until here, trusts the bytes that it reads. */
    if (ownership_give(like, pool->lock) < 0) {
        report_errno(errno, "cannot set the mode of the journal %s/%s", f->path, unfinished);
        goto fail;
    }
    /* persist-order J0: the journal's content is durable before it has its name. */
    if (fsops_fsync(pool->lock) < 0 || fsops->renameat(f->fd, unfinished, pool->name) < 0) {
        report_errno(errno, "cannot finish the journal %s/%s", f->path, pool->name);
        goto fail;
    }
    /* persist-order J0 (reader: pool_open): the journal's name is durable before a manifest names it (N1). */
    named = folder_names(f, pool->name, pool->lock);
    if (named == 0) /* another file took its place before the renaming */
        report_error(EACCES, "the journal %s/%s was replaced by another file while it was made",
                     f->path, pool->name);
    if (named == 1 && folder_sync(f) == 0)
        return 0;
    snprintf(unfinished, sizeof(unfinished), "%s", pool->name);
fail:;
    int saved = errno;
    (void)fsops->unlinkat(f->fd, unfinished, 0);
    unmap(pool);
    locks_close(pool->lock);
    pool->lock = -1;
    errno = saved;
    return -1;
}

/* Returns true if there may be too little space to fill the holes of a pool. */
static bool is_tight(int fd, uint64_t bytes)
{
    struct statfs fs;
    return fstatfs(fd, &fs) < 0 || (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < 16 * bytes;
}

/* The journal lies on a page boundary (make_pool); which one depends on libpmemobj. */
int pool_find(int fd, uint64_t length, const char *full, struct pool_place *place)
{
    _Alignas(8) char head[sizeof(struct journal_header)];
    bool broken = false;
    for (uint64_t at = 4096; at < POOL_HEAD_BYTES && at + 4096 <= length; at += 4096) {
        ssize_t n = pread(fd, head, sizeof(head), (off_t)at);
        if (n < 0)
            return report_errno(errno, "cannot read the journal %s", full);
        if (n < (ssize_t)sizeof(head))
            break;
        if (!journal_is_at(head))
            continue;
        *place = (struct pool_place){at, journal_length(head, length - at, full)};
        if (place->bytes)
            return 0;
        broken = true;
    }
    return broken ? -1
                  : report_error(EUCLEAN,
                                 "the journal %s is damaged: no valid header is found in it", full);
}

/* Maps the journal that lies at `place` of the file. */
static int map_found(struct pool *pool, int fd, const struct pool_place *place, const char *full)
{
    const uint64_t bytes = place->begin + place->bytes;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return report_errno(errno, "cannot stat the journal %s", full);
    /* A copy of the file may have holes instead of zeros; on a full tmpfs even a load from a hole is SIGBUS.
     * Not needed if there is space enough, and filling up a pool takes longer than all the rest. */
    if ((uint64_t)st.st_blocks * 512 < bytes && is_tight(fd, bytes) &&
        fsops->fallocate(fd, 0, 0, (off_t)bytes) < 0 && errno != EOPNOTSUPP)
        return report_errno(errno, "cannot allocate the journal %s, %" PRIu64 " bytes", full,
                            bytes);
    char *map = domain_map(PERSIST_PMEM, NULL, bytes, PROT_READ | PROT_WRITE, fd, 0);
    if (map == MAP_FAILED)
        return report_errno(errno, "cannot map the journal %s", full);
    madvise(map, bytes, MADV_DONTFORK);
    pool->map = map;
    pool->bytes = bytes;
    return journal_take(&pool->journal, map + place->begin, place->bytes, pool->number, full);
}

/* Not by libpmemobj (I5): see the head of pool.h. */
static int open_locked(struct pool *pool, int fd, const char *full)
{
    struct stat st;
    struct pool_place place;
    if (fstat(fd, &st) < 0)
        return report_errno(errno, "cannot stat the journal %s", full);
    if (pool_find(fd, (uint64_t)st.st_size, full, &place) < 0)
        return -1;
    return map_found(pool, fd, &place, full);
}

int pool_open(struct pool *pool, const struct folder *f, uint64_t number, const struct trust *file)
{
    char full[PATH_MAX + POOL_NAME_BYTES];
    memset(pool, 0, sizeof(*pool));
    pool->number = number;
    pool_name(pool->name, number);
    snprintf(full, sizeof(full), "%s/%s", f->path, pool->name);
    /* O_NONBLOCK: any user may make a named pipe of that name. */
    pool->lock = openat(f->fd, pool->name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (pool->lock < 0)
        return report_errno(errno, "cannot open the journal %s", full);
    locks_keep(pool->lock);
    int r = ownership_check(file, pool->lock, f->path, pool->name);
    if (r == 0 && locks_wait(pool->lock, 1, 1) < 0)
        r = report_errno(errno, "cannot lock the journal %s", full);
    if (r == 0 && (r = folder_names(f, pool->name, pool->lock)) >= 0) /* not removed meanwhile? */
        r = r ? 0 : report_error(ENOENT, "the journal %s is gone", full);
    if (r == 0)
        r = open_locked(pool, pool->lock, full);
    if (r < 0) {
        int saved = errno;
        (void)pool_close(pool, f, false);
        errno = saved;
    }
    return r;
}

int pool_close(struct pool *pool, const struct folder *f, bool remove)
{
    int result = 0;
    /* Not synced: if a power cut brings the file back, no manifest names it. */
    if (remove && fsops->unlinkat(f->fd, pool->name, 0) < 0 && errno != ENOENT)
        result = report_errno(errno, "cannot remove the journal %s/%s", f->path, pool->name);
    int saved = errno;
    unmap(pool);
    locks_close(pool->lock);
    pool->lock = -1;
    errno = saved;
    return result;
}

void pool_forget(struct pool *pool)
{
    close(pool->lock);
    pool->lock = -1;
    pool->map = NULL; /* not inherited */
}
