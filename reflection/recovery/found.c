/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/found.h"

#include "reflection/media/locks.h"
#include "reflection/recovery/pool.h"
#include "reflection/recovery/way.h"

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

/* ---- journals of other folders ---- */

/* Returns 1 if the journal that is open as `fd` names the folder that led to it, 0 if not, -1 on
 * error. A journal that cannot be read counts as the right one: its recovery reports the error. */
static int is_meant(const struct found_way *to, int fd)
{
    struct pool pool;
    int found = pool_peek(&pool, fd, &to->folder, to->journal.name);
    int meant = found == 1 ? linked_knows_origin(&to->journal, &pool.journal) : 1;
    int saved = errno;
    pool_peek_end(&pool);
    errno = saved;
    return meant;
}

/* Opens the journal that one of the routes leads to. Returns as found_follow(). */
static int follow_one(struct found_way *to, int which, const struct trust *file)
{
    if (route_open(&to->pointer.route, to->journal.from, which, &to->folder) < 0) {
        if (errno == ENOTDIR)
            errno = ENOENT;
        return FOUND_GONE;
    }
    int fd = found_open(&to->folder, to->journal.name, &to->journal.st, file);
    if (fd ==
        FOUND_OTHERS) { /* the pointer's maker is trusted, so the pointer means another journal */
        errno = ESTALE;
        return FOUND_GONE;
    }
    if (fd < 0)
        return fd;
    int meant = is_meant(to, fd);
    if (meant == 1)
        return fd;
    int saved = meant < 0 ? errno : ESTALE;
    close(fd);
    errno = saved;
    return meant < 0 ? -1 : FOUND_GONE;
}

int found_follow(struct found_way *to, const struct folder *f, const char *name,
                 const struct trust *file)
{
    struct stat st;
    to->folder.fd = -1;
    int fd = found_open(f, name, &st, file);
    if (fd < 0)
        return fd == FOUND_GONE ? FOUND_OTHERS : fd;
    int journal = pointer_read(&to->pointer, fd, f, name);
    if (journal == 0) {
        int error = ENOENT;
        to->journal = (struct linked){.folder = &to->folder,
                                      .name = to->pointer.journal,
                                      .from = f,
                                      .index = to->pointer.index};
        journal = FOUND_GONE;
        for (int which = 0; which < ROUTES && journal == FOUND_GONE; which++) {
            folder_close(&to->folder);
            journal = follow_one(to, which, file);
            if (journal == FOUND_GONE && errno != ENOENT)
                error = errno;
        }
        /* The journal may just have been removed, after its pointers. */
        int named = journal == FOUND_GONE ? folder_names(f, name, fd) : 1;
        if (journal != -1)
            errno = error;
        if (named != 1)
            journal = named < 0 ? -1 : FOUND_OTHERS;
    }
    int saved = errno;
    close(fd);
    if (journal < 0 && journal != FOUND_FORBIDDEN)
        folder_close(&to->folder);
    errno = saved;
    return journal;
}

int found_judge_gone(const struct found_way *to, const struct folder *f, const char *name,
                     const struct recover_file *file)
{
    const struct pointer *p = &to->pointer;
    const int err = errno;
    const char *found = err == ENOENT   ? "does not exist"
                        : err == ESTALE ? "does not name this folder"
                                        : "cannot be reached";
    if (file->in_use)
        return report_error(
            err == ENOENT ? ESTALE : err,
            "%s/%s points to the journal %s in %s, but that journal %s. It may hold a commit of "
            "the file, whose last user died: bring it back or, if it is lost, remove the pointer",
            f->path, name, p->journal, p->route.absolute, found);
    report_log(REPORT_WARNING,
               "%s/%s points to the journal %s in %s, but that journal %s. The file does not need "
               "it, since no process died with the file mapped",
               f->path, name, p->journal, p->route.absolute, found);
    return 0;
}

/* Reads a pointer whose maker could write to the file as a member of its group, and may no
 * longer. Returns 1; 0 if it is not such a pointer; -1. */
static int read_others_pointer(struct pointer *to, const struct folder *f, const char *name,
                               const struct recover_file *file)
{
    struct stat st;
    if (fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : report_errno(errno, "cannot stat %s/%s", f->path, name);
    if (!S_ISREG(st.st_mode) || ownership_maker(&file->trust, &st) ||
        !found_was_of_group(&st, &file->trust))
        return 0;
    int fd = openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0
                               : report_errno(errno,
                                              "cannot open the pointer %s/%s, whose owner may no "
                                              "longer write to the file",
                                              f->path, name);
    int result = pointer_read(to, fd, f, name) < 0 ? -1 : 1;
    int saved = errno;
    close(fd);
    errno = saved;
    return result;
}

/* The pointer is not trusted: it may lead anywhere. */
int found_judge_way(const struct folder *f, const char *name, const struct recover_file *file,
                    unsigned naps)
{
    struct found_way to;
    struct stat st;
    int error = ENOENT, found = read_others_pointer(&to.pointer, f, name, file);
    if (found <= 0)
        return found;
    for (int which = 0; which < ROUTES; which++) {
        const bool there = route_open(&to.pointer.route, f, which, &to.folder) == 0 &&
                           fstatat(to.folder.fd, to.pointer.journal, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (there)
            found = found_judge(&to.folder, to.pointer.journal, file, naps);
        else if (errno != ENOENT && errno != ENOTDIR)
            error = errno;
        int saved = errno;
        folder_close(&to.folder);
        errno = saved;
        if (there)
            return found;
    }
    errno = error;
    return found_judge_gone(&to, f, name, file);
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
    case POOL_NAME_POINTER:
        return v->visits->pointer(v->folder, name, v->arg);
    case POOL_NAME_UNFINISHED:
    case POOL_NAME_POINTER_UNFINISHED:
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
