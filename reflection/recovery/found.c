/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/found.h"

#include "reflection/media/locks.h"
#include "reflection/recovery/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int found_open(const struct folder *f, const char *name, struct stat *st, const struct trust *file)
{
    const char *path = f->path;
    /* O_NONBLOCK: any user may make a named pipe of that name. */
    int fd = openat(f->fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int err = errno;
    if ((fd >= 0 ? fstat(fd, st) : fstatat(f->fd, name, st, AT_SYMLINK_NOFOLLOW)) < 0) {
        if (errno == ENOENT)
            return FOUND_GONE;
        report_errno(errno, "cannot stat the journal %s/%s", path, name);
    } else if (!ownership_maker(file, st)) {
        report_log(REPORT_INFO,
                   "skipped the journal %s/%s: its owner, user %u, may not write to the file", path,
                   name, (unsigned)st->st_uid);
        if (fd >= 0)
            close(fd);
        return FOUND_OTHERS;
    } else if (fd < 0 && err == EACCES) {
        return FOUND_FORBIDDEN;
    } else if (fd < 0) {
        report_errno(err, "cannot open the journal %s/%s, which may need recovery", path, name);
    } else if (ownership_kind(st, path, name) == 0) {
        return fd;
    }
    err = errno;
    if (fd >= 0)
        close(fd);
    errno = err;
    return -1;
}

/* ---- journals of users that may no longer write to the file ---- */

bool found_was_of_group(const struct stat *found, const struct trust *file)
{
    return found->st_gid == file->group && found->st_mode & ~file->mode & S_IWGRP;
}

bool found_names_file(const struct journal *j, const struct recover_file *file)
{
    struct journal_view v;
    if (!file->in_use)
        return false;
    for (unsigned lane = 0; lane < j->lanes; lane++) {
        enum journal_finding found = journal_look(j, lane, &v);
        if (found == JOURNAL_DAMAGED)
            return true;
        if (found != JOURNAL_COMMITTED)
            continue;
        for (unsigned i = 0; i < v.nfiles; i++)
            if (memcmp(v.files[i].id, file->id, 16) == 0)
                return true;
    }
    return false;
}

int found_judge(const struct folder *f, const char *name, const struct recover_file *file,
                unsigned naps)
{
    struct pool pool;
    int fd = openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0
                               : report_errno(errno,
                                              "cannot open the journal %s/%s of a dead process, "
                                              "whose owner may no longer write to the file",
                                              f->path, name);
    enum locks_answer owner = locks_ask(fd, 0, 1);
    for (unsigned i = 0; i < naps && owner == LOCKS_TAKEN; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        owner = locks_ask(fd, 0, 1);
    }
    int found = pool_copy(&pool, fd, f, name);
    if (found == 1)
        found = found_names_file(&pool.journal, file);
    if (found == 1 && owner == LOCKS_FREE)
        found = report_error(
            EACCES,
            "the journal %s/%s of a dead process holds a commit of the file, but its owner may no "
            "longer write to the file: give back that permission, then map the file",
            f->path, name);
    int saved = errno;
    pool_peek_end(&pool);
    close(fd);
    errno = saved;
    return found;
}

/* ---- all names of a folder ---- */

struct visiting {
    const struct found_visits *visits;
    const struct folder *folder;
    const void *arg;
    struct report_kept *failure;
};

static int visit_name(const struct visiting *v, const char *name)
{
    switch (pool_name_of(name)) {
    case POOL_NAME:
        return v->visits->journal(v->folder, name, v->arg);
    case POOL_NAME_UNFINISHED:
        return v->visits->unfinished ? v->visits->unfinished(v->folder, name, v->arg) : 0;
    default:
        return 0;
    }
}

static int visit_one(void *arg, const char *name)
{
    const struct visiting *v = arg;
    int result = visit_name(v, name);
    if (result >= 0 || !v->failure)
        return result;
    report_keep(v->failure);
    return 0;
}

int found_each(const struct folder *f, const struct found_visits *v, const void *arg,
               struct report_kept *failure)
{
    struct visiting visiting = {v, f, arg, failure};
    return folder_each_name(f, visit_one, &visiting);
}
