/* SPDX-License-Identifier: BSD-3-Clause */
#include "lanes.h"

#include "look.h"

#include "../../reflection/locks.h"
#include "../../reflection/pool.h"
#include "../../reflection/report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { POOL_LENGTH = 12 << 20 };

/* The journal in a pool's file (FORMAT.md: at its first byte that lies on a page), in memory that
 * the caller frees; NULL: there is none, or errno is EIO or ENOMEM. */
static char *read_journal(int fd, struct journal *j)
{
    char *bytes = aligned_alloc(4096, POOL_LENGTH);
    size_t got = 0;
    if (!bytes)
        return NULL;
    while (got < POOL_LENGTH) {
        ssize_t n = pread(fd, bytes + got, POOL_LENGTH - got, (off_t)got);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    for (size_t at = 0; at + JOURNAL_BYTES <= got; at += 4096)
        if (journal_is_at(bytes + at) && journal_take(j, bytes + at, JOURNAL_BYTES, "found") == 0)
            return bytes;
    free(bytes);
    return NULL;
}

static void visit_one(const struct folder *f, const char *name, bool all,
                      void (*visit)(void *arg, const struct lanes *j), void *arg)
{
    struct lanes j = {.name = name, .kind = LANES_READ};
    struct stat st;
    int fd = look_into(f, name, &st);
    char *first = NULL, *second = NULL;
    if (fd < 0 && errno == ENOENT)
        return; /* removed meanwhile */
    if (fd < 0) {
        j.kind = errno == EINVAL || errno == ELOOP ? LANES_DAMAGED : LANES_FORBIDDEN;
        j.error = errno;
        visit(arg, &j);
        return;
    }
    j.alive = locks_ask(fd, 0, 1) == LOCKS_TAKEN;
    if (j.alive && !all) {
        close(fd);
        return;
    }
    if (pool_name_of(name) == POOL_NAME_UNFINISHED) {
        j.kind = LANES_UNFINISHED;
        if (!j.alive) { /* its maker may be about to lock it */
            nanosleep(&(struct timespec){.tv_nsec = 3 * 1000 * 1000}, NULL);
            j.alive = locks_ask(fd, 0, 1) == LOCKS_TAKEN || folder_names(f, name, fd) == 0;
        }
    } else if (st.st_size != POOL_LENGTH) {
        j.kind = LANES_DAMAGED;
    } else {
        first = read_journal(fd, &j.journal);
        if (first && j.alive) {
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
            second = read_journal(fd, &j.again);
        }
        if (!first || (j.alive && !second))
            j.kind = LANES_DAMAGED;
    }
    /* What its owner, or somebody's recovery, took away while we were reading is no finding. */
    if (j.kind != LANES_DAMAGED || folder_names(f, name, fd))
        visit(arg, &j);
    free(first);
    free(second);
    close(fd);
}

enum journal_finding lanes_look(const struct lanes *j, unsigned lane, struct journal_view *v)
{
    enum journal_finding found = journal_look(&j->journal, lane, v);
    if (found == JOURNAL_DAMAGED && j->alive)
        found = journal_look(&j->again, lane, v);
    return found;
}

int lanes_each(const struct folder *f, bool all, void (*visit)(void *arg, const struct lanes *j),
               void *arg)
{
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    if (!dir) {
        int r = report_errno(errno, "cannot list the reflection folder %s", f->path);
        if (fd >= 0)
            close(fd);
        return r;
    }
    while ((entry = readdir(dir)))
        if (pool_name_of(entry->d_name) != POOL_NO_NAME)
            visit_one(f, entry->d_name, all, visit, arg);
    closedir(dir);
    return 0;
}

struct due {
    const uint8_t *id;
    int count;
};

static void count_due(void *arg, const struct lanes *j)
{
    struct due *due = arg;
    struct journal_view v;
    if (j->kind != LANES_READ)
        return;
    for (unsigned lane = 0; lane < j->journal.lanes; lane++) {
        if (lanes_look(j, lane, &v) != JOURNAL_COMMITTED)
            continue;
        for (unsigned i = 0; i < v.nfiles; i++)
            if (memcmp(v.files[i].id, due->id, 16) == 0) {
                due->count++;
                break;
            }
    }
}

int lanes_count_due(const struct folder *f, const uint8_t id[16])
{
    struct due due = {.id = id};
    return lanes_each(f, false, count_due, &due) < 0 ? -1 : due.count;
}
