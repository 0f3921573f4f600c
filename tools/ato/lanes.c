/* SPDX-License-Identifier: BSD-3-Clause */
#include "lanes.h"

#include "look.h"

#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/recovery/pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Returns the journal of a pool's file, in memory that the caller frees; NULL if there is none, or
 * no memory. */
static char *read_journal(int fd, uint64_t length, struct journal *j)
{
    struct pool_place place;
    if (pool_find(fd, length, "found", &place) != POOL_FOUND)
        return NULL;
    size_t n = (size_t)place.bytes, got = 0;
    char *bytes = aligned_alloc(4096, (n + 4095) & ~(size_t)4095);
    if (!bytes)
        return NULL;
    while (got < n) {
        ssize_t more = pread(fd, bytes + got, n - got, (off_t)(place.begin + got));
        if (more <= 0)
            break;
        got += (size_t)more;
    }
    if (journal_take(j, bytes, got, "found") == 0)
        return bytes;
    free(bytes);
    return NULL;
}

/* Visits the journal that `j` locates. */
static void visit_one(struct lanes j, bool all, void (*visit)(void *arg, const struct lanes *j),
                      void *arg)
{
    const struct folder *f = j.at.folder;
    const char *name = j.at.name;
    int fd = look_into(f, name, &j.at.st);
    char *first = NULL, *second = NULL;
    if (fd < 0 && errno == ENOENT) /* removed meanwhile */
        return;
    if (fd < 0) {
        j.kind = errno == EINVAL || errno == ELOOP ? LANES_DAMAGED : LANES_FORBIDDEN;
        j.error = errno;
        visit(arg, &j);
        return;
    }
    j.alive = locks_ask(fd, 0, 1) == LOCKS_TAKEN;
    if (pool_name_of(name) != POOL_NAME) {
        j.kind = LANES_UNFINISHED;
    } else {
        first = read_journal(fd, (uint64_t)j.at.st.st_size, &j.journal);
        if (first && j.alive) {
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
            second = read_journal(fd, (uint64_t)j.at.st.st_size, &j.again);
        }
        if (!first || (j.alive && !second))
            j.kind = LANES_DAMAGED;
    }
    /* A journal that was removed while it was read, by its owner or a recovery, is not visited. */
    if ((all || !j.alive) && (j.kind != LANES_DAMAGED || folder_names(f, name, fd)))
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
    while ((entry = readdir(dir))) {
        struct lanes j = {.at = {.folder = f, .name = entry->d_name}, .kind = LANES_READ};
        if (pool_name_of(entry->d_name) != POOL_NO_NAME)
            visit_one(j, all, visit, arg);
    }
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
