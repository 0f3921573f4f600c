/* SPDX-License-Identifier: BSD-3-Clause */
#include "pool.h"

#include "domain.h"
#include "fsops.h"
#include "identity.h"
#include "locks.h"
#include "report.h"
#include "trust.h"

#include <errno.h>
#include <fcntl.h>
#include <libpmemobj.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LAYOUT "libato-journal"

enum { POOL_BYTES = 12 << 20 };

/* The root object is a little larger than the journal, which begins at its first byte that lies on
 * a page of the file: then a line of the journal is a line of the cache, wherever it is mapped. */
enum { ROOT_SLACK = 4096 };

/* Has libpmemobj make a pool of an empty file, with a root object for the journal. Where in the file the
 * journal begins; 0 on error. */
static uint64_t make_pool(const struct folder *f, const char *unfinished, int fd)
{
    char path[64];
    /* Not by its name: somebody could make that a link meanwhile, and libpmemobj follows it. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    PMEMobjpool *pop = pmemobj_create(path, LAYOUT, 0, 0600);
    if (!pop) {
        report_errno(errno, "libpmemobj cannot make the journal %s/%s (%s)", f->path, unfinished,
                     pmemobj_errormsg());
        return 0;
    }
    PMEMoid root = pmemobj_root(pop, JOURNAL_BYTES + ROOT_SLACK);
    if (OID_IS_NULL(root))
        report_errno(errno, "libpmemobj has no room for the journal %s/%s (%s)", f->path,
                     unfinished, pmemobj_errormsg());
    uint64_t at = OID_IS_NULL(root) ? 0 : (root.off + 4095) & ~4095ull;
    int saved = errno;
    pmemobj_close(pop);
    errno = saved;
    return at;
}

/* By a descriptor of its own: a mapping of the locked one would keep the locks alive in a child that is
 * being forked. */
static int map_new(struct pool *pool, const struct folder *f, const char *unfinished,
                   enum persist_domain domain)
{
    int fd = folder_reopen(pool->lock);
    void *map = MAP_FAILED;
    if (fd >= 0)
        map = domain_map(domain, NULL, POOL_BYTES, PROT_READ | PROT_WRITE, fd, 0);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return report_errno(saved, "cannot map the new journal %s/%s", f->path, unfinished);
    madvise(map, POOL_BYTES, MADV_DONTFORK);
    pool->map = map;
    return 0;
}

enum pool_name pool_name_of(const char *name)
{
    const size_t prefix = strlen(POOL_PREFIX), digits = 32;
    if (strncmp(name, POOL_PREFIX, prefix) != 0 ||
        strspn(name + prefix, "0123456789abcdef") != digits)
        return POOL_NO_NAME;
    const char *rest = name + prefix + digits;
    if (!*rest)
        return POOL_NAME;
    return strcmp(rest, POOL_UNFINISHED) == 0 ? POOL_NAME_UNFINISHED : POOL_NO_NAME;
}

int pool_create(struct pool *pool, const struct folder *f, const struct persist *p, uid_t owner,
                gid_t group, mode_t mode)
{
    uint8_t id[16];
    char hex[33], unfinished[80];
    memset(pool, 0, sizeof(*pool));
    pool->lock = -1;
    if (identity_random(id, sizeof(id)) < 0)
        return -1;
    identity_hex(id, hex);
    snprintf(pool->name, sizeof(pool->name), POOL_PREFIX "%s", hex);
    snprintf(unfinished, sizeof(unfinished), "%s" POOL_UNFINISHED, pool->name);

    /* Locked before it is filled: whoever clears away unfinished journals leaves alone what is locked.
     * What was cleared away before it was locked is made again. */
    int named;
    do {
        if (pool->lock >= 0)
            close(pool->lock);
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
    if (fsops->fallocate(pool->lock, 0, 0, POOL_BYTES) < 0) {
        report_errno(errno, "no space for the journal %s/%s (%d bytes)", f->path, unfinished,
                     POOL_BYTES);
        goto fail;
    }
    uint64_t at = make_pool(f, unfinished, pool->lock);
    if (!at || map_new(pool, f, unfinished, p->domain) < 0)
        goto fail;
    journal_make(p, &pool->journal, (char *)pool->map + at, id);
    /* Not before libpmemobj is done with it, which believes what it reads. */
    const struct trust file = {owner, group, mode};
    if (trust_give(&file, pool->lock) < 0) {
        report_errno(errno, "cannot set the mode of the journal %s/%s", f->path, unfinished);
        goto fail;
    }
    /* persist-order J0: what is in the journal is durable before it has its name. */
    if (fsops_fsync(pool->lock) < 0 || fsops->renameat(f->fd, unfinished, pool->name) < 0) {
        report_errno(errno, "cannot finish the journal %s/%s", f->path, pool->name);
        goto fail;
    }
    /* persist-order J0 (reader: recover_folder): the journal can be found before the first commit
     * relies on being found. */
    named = folder_names(f, pool->name, pool->lock);
    if (named == 0) /* somebody put another file in its place before it was renamed */
        report_error(EACCES, "the journal %s/%s is not the file that was made", f->path,
                     pool->name);
    if (named == 1 && folder_sync(f) == 0)
        return 0;
    snprintf(unfinished, sizeof(unfinished), "%s", pool->name);
fail:;
    int saved = errno;
    (void)fsops->unlinkat(f->fd, unfinished, 0);
    pool_peek_end(pool->map);
    close(pool->lock);
    pool->map = NULL;
    pool->lock = -1;
    errno = saved;
    return -1;
}

/* Is there so little space that the holes of a pool might not get theirs? */
static bool is_tight(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) < 0 ||
           (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < 16ull * POOL_BYTES;
}

enum found { NO_JOURNAL, JOURNAL_FOUND, JOURNAL_BROKEN, NOT_KNOWN };

/* Maps the file of a pool and finds the journal in it. JOURNAL_BROKEN (there is something like one)
 * and NOT_KNOWN leave a sentence. `full` is its name there. */
static enum found map_journal(int fd, int prot, struct journal *j, const char *full, void **found)
{
    struct stat st;
    enum found result = NO_JOURNAL;
    if (fstat(fd, &st) < 0) {
        report_errno(errno, "cannot look at the journal %s", full);
        return NOT_KNOWN;
    }
    if (st.st_size != POOL_BYTES)
        return NO_JOURNAL;
    /* A copy may have left out what is zeros; on a full tmpfs even a load from there would be SIGBUS. Not
     * where there is space enough: filling a pool up takes longer than all the rest. */
    if ((prot & PROT_WRITE) && st.st_blocks * 512 < POOL_BYTES && is_tight(fd) &&
        fsops->fallocate(fd, 0, 0, POOL_BYTES) < 0 && errno != EOPNOTSUPP) {
        report_errno(errno, "no space for the journal %s (%d bytes)", full, POOL_BYTES);
        return NOT_KNOWN;
    }
    char *map = domain_map(PERSIST_PMEM, NULL, POOL_BYTES, prot, fd, 0);
    if (map == MAP_FAILED) {
        report_errno(errno, "cannot map the journal %s", full);
        return NOT_KNOWN;
    }
    madvise(map, POOL_BYTES, MADV_DONTFORK);
    *found = map;
    /* The journal lies on a page of the file (make_pool); which one is libpmemobj's business. */
    for (size_t at = 0; at + JOURNAL_BYTES <= POOL_BYTES; at += 4096)
        if (journal_is_at(map + at)) {
            if (journal_take(j, map + at, JOURNAL_BYTES, full) == 0)
                return JOURNAL_FOUND;
            result = JOURNAL_BROKEN;
        }
    munmap(map, POOL_BYTES);
    *found = NULL;
    return result;
}

int pool_open(struct pool *pool, const struct folder *f, const char *name, int lock)
{
    char full[PATH_MAX + 80];
    memset(pool, 0, sizeof(*pool));
    snprintf(pool->name, sizeof(pool->name), "%s", name);
    snprintf(full, sizeof(full), "%s/%s", f->path, name);
    pool->lock = -1;
    /* Not by libpmemobj: it believes what it reads, and a damaged pool is a SIGSEGV in it (I5). */
    switch (map_journal(lock, PROT_READ | PROT_WRITE, &pool->journal, full, &pool->map)) {
    case JOURNAL_FOUND:
        break;
    case NO_JOURNAL:
        return report_error(EUCLEAN, "the journal %s is damaged: no valid header is found in it",
                            full);
    default:
        return -1;
    }
    pool->lock = lock;
    return 0;
}

int pool_close(struct pool *pool, const struct folder *f, bool remove)
{
    int result = 0;
    if (remove) {
        /* Synced, because a power cut could bring back half of a journal of domain process, which
         * flushed nothing: lanes that make no sense, and block every file of the folder. */
        if (fsops->unlinkat(f->fd, pool->name, 0) < 0 && errno != ENOENT)
            result = report_errno(errno, "cannot remove the journal %s/%s", f->path, pool->name);
        else
            result = folder_sync(f);
    }
    int saved = errno;
    pool_peek_end(pool->map);
    /* Not by closing alone: a child that is just being forked has the descriptor too. */
    (void)locks_drop(pool->lock, 0, 0);
    close(pool->lock);
    pool->map = NULL;
    pool->lock = -1;
    errno = saved;
    return result;
}

int pool_peek(int fd, const struct folder *f, const char *name, struct journal *j, void **map)
{
    char full[PATH_MAX + 80];
    snprintf(full, sizeof(full), "%s/%s", f->path, name);
    *map = NULL;
    switch (map_journal(fd, PROT_READ, j, full, map)) {
    case JOURNAL_FOUND:
        return 1;
    case NOT_KNOWN:
        return -1;
    default:
        return 0;
    }
}

void pool_peek_end(void *map)
{
    if (map)
        munmap(map, POOL_BYTES);
}

void pool_forget(struct pool *pool)
{
    close(pool->lock);
    pool->lock = -1;
    pool->map = NULL; /* was not inherited */
}
