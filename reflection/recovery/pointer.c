/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/pointer.h"

#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/recovery/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POINTER_HEAD "ato-journal-at 1 "

enum { MOST_BYTES = sizeof(POINTER_HEAD) + 10 + 8 + 2 * PATH_MAX };

void pointer_name(const char *journal, char name[80])
{
    snprintf(name, 80, "%.60s" POOL_POINTER, journal);
}

/* ---- writing ---- */

/* Returns the length of the text: a multiple of 8, as all that is stored to the media. */
static size_t compose(char text[MOST_BYTES], unsigned index, const struct route *route)
{
    char where[2 * PATH_MAX];
    int blanks = 1;
    size_t n = (size_t)snprintf(text, MOST_BYTES, POINTER_HEAD "%u", index);
    size_t bytes = route_write(route, where, sizeof(where));
    while ((n + (size_t)blanks + bytes) % 8)
        blanks++;
    n += (size_t)snprintf(text + n, MOST_BYTES - n, "%*s", blanks, "");
    memcpy(text + n, where, bytes);
    n += bytes;
    text[n - 1] = '\n'; /* replaces the last 0 */
    return n;
}

/* Through a descriptor of its own: a mapping of the locked one would keep the lock in a child that is being
 * forked. */
static int fill(int lock, const char *text, size_t n, const struct persist *p)
{
    if (fsops->fallocate(lock, 0, 0, (off_t)n) < 0)
        return -1;
    int fd = folder_reopen(lock);
    void *map = MAP_FAILED;
    if (fd >= 0)
        map = domain_map(p->domain, NULL, n, PROT_READ | PROT_WRITE, fd, 0);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    if (map == MAP_FAILED)
        return -1;
    persist_copy(p, map, text, n);
    munmap(map, n);
    return 0;
}

/* Makes the file under its unfinished name, locked before it is filled, as pool_create() does. Returns its
 * descriptor; -1. */
static int begin(const struct folder *at, const char *unfinished)
{
    for (;;) {
        int lock = fsops->create(at->fd, unfinished, O_RDWR | O_EXCL, 0600);
        if (lock < 0)
            return report_errno(errno, "cannot make the pointer %s/%s", at->path, unfinished);
        int named = -1;
        if (locks_wait(lock, 0, 1) < 0)
            report_errno(errno, "cannot lock the new pointer %s/%s", at->path, unfinished);
        else
            named = folder_names(at, unfinished, lock);
        if (named == 1)
            return lock;
        int saved = errno;
        close(lock);
        if (named < 0) {
            (void)fsops->unlinkat(at->fd, unfinished, 0);
            errno = saved;
            return -1;
        }
    }
}

int pointer_make(const struct folder *at, const char *journal, unsigned index,
                 const struct route *route, const struct persist *p, const struct trust *like)
{
    char name[80], unfinished[96], text[MOST_BYTES];
    pointer_name(journal, name);
    snprintf(unfinished, sizeof(unfinished), "%s" POOL_UNFINISHED, name);
    size_t n = compose(text, index, route);
    int lock = begin(at, unfinished);
    if (lock < 0)
        return -1;
    int named = 0;
    /* persist-order J5 (reader: pointer_read): the content of the pointer is durable before it has its name,
     * and the name before a commit relies on it. */
    if (fill(lock, text, n, p) < 0 || ownership_give(like, lock) < 0 || fsops_fsync(lock) < 0 ||
        fsops->renameat(at->fd, unfinished, name) < 0)
        report_errno(errno, "cannot make the pointer %s/%s to the journal in %s", at->path, name,
                     route->absolute);
    else if ((named = folder_names(at, name, lock)) == 0)
        report_error(EACCES, "the pointer %s/%s was replaced by another file while it was made",
                     at->path, name);
    else if (named == 1 && folder_sync(at) == 0) {
        close(lock);
        return 0;
    }
    int saved = errno;
    (void)fsops->unlinkat(at->fd, unfinished, 0);
    if (named == 1)
        (void)fsops->unlinkat(at->fd, name, 0);
    close(lock);
    errno = saved;
    return -1;
}

int pointer_remove(const struct folder *at, const char *journal)
{
    char name[80];
    pointer_name(journal, name);
    if (fsops->unlinkat(at->fd, name, 0) < 0 && errno != ENOENT)
        return report_errno(errno, "cannot remove the pointer %s/%s", at->path, name);
    return folder_sync(at);
}

/* ---- reading ---- */

/* I5. `text` has `n` bytes, and a 0 behind them. */
static bool parse(char *text, size_t n, struct pointer *to)
{
    const size_t head = strlen(POINTER_HEAD);
    if (n < head + 1 || memcmp(text, POINTER_HEAD, head) != 0 || text[n - 1] != '\n' ||
        text[head] < '1')
        return false;
    const char *end = text + head;
    uint64_t index = 0;
    for (; *end >= '0' && *end <= '9' && index <= UINT32_MAX; end++)
        index = index * 10 + (uint64_t)(*end - '0');
    if (index == 0 || index > UINT32_MAX || *end != ' ')
        return false;
    const size_t blanks = strspn(end, " ");
    char *const last = text + n - 1;
    const char *path = end + blanks, *zero = memchr(path, 0, (size_t)(last - path));
    bool more = zero && memchr(zero + 1, 0, (size_t)(last - zero - 1));
    if (blanks > 8 || more || (zero && zero + 1 == last))
        return false;
    to->index = (unsigned)index;
    *last = '\0';
    return route_read(&to->route, path, (size_t)(last + 1 - path));
}

int pointer_read(struct pointer *to, int fd, const struct folder *at, const char *name)
{
    char text[MOST_BYTES + 1];
    ssize_t n = pread(fd, text, MOST_BYTES, 0);
    if (n < 0)
        return report_errno(errno, "cannot read the pointer %s/%s", at->path, name);
    text[n] = '\0';
    if (n == MOST_BYTES || !parse(text, (size_t)n, to))
        return report_error(EUCLEAN, "%s/%s is not a valid journal pointer", at->path, name);
    snprintf(to->journal, sizeof(to->journal), "%.*s", (int)(strlen(name) - strlen(POOL_POINTER)),
             name);
    return 0;
}
