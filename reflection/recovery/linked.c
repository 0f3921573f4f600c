/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/linked.h"

#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/ownership.h"
#include "reflection/recovery/pool.h"
#include "reflection/recovery/way.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns true if errno says that the file does not exist, false if that is unknown. */
static bool is_absence(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENXIO;
}

/* Opens `name` in `f`, if a user that may write to the journal made it. Returns a descriptor; NONE if there
 * is no such file; -1. */
enum { NONE = -2 };

static int open_made(const struct linked *j, const struct folder *f, const char *name)
{
    struct stat st;
    const struct trust journal = ownership_of(&j->st);
    int fd = openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return is_absence(errno) ? NONE : -1;
    int result = fd;
    if (fstat(fd, &st) < 0)
        result = -1;
    else if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || !ownership_maker(&journal, &st))
        result = NONE;
    int saved = errno;
    if (result < 0)
        close(fd);
    errno = saved;
    return result;
}

/* Returns 1 if a route from `f` leads to the journal, 0 if not, -1 on error. */
static int arrives(const struct linked *j, const struct folder *f, const struct route *route)
{
    int error = 0;
    bool here = false;
    for (int which = 0; which < ROUTES && !here; which++) {
        struct folder in;
        struct stat st;
        if (route_open(route, f, which, &in) < 0 ||
            fstatat(in.fd, j->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            error = is_absence(errno) ? error : errno;
        else
            here = st.st_dev == j->st.st_dev && st.st_ino == j->st.st_ino;
        folder_close(&in);
    }
    errno = error;
    return here ? 1 : error ? -1 : 0;
}

/* Checks whether `f` has a pointer for entry `k` that leads to the journal. */
static enum linked_answer look_for_pointer(const struct linked *j, const struct folder *f,
                                           unsigned k)
{
    char name[80];
    enum linked_answer answer = LINKED_FAILED;
    pointer_name(j->name, name);
    int fd = open_made(j, f, name);
    if (fd < 0)
        return fd == NONE ? LINKED_STRANGER : LINKED_FAILED;
    struct pointer *p = malloc(sizeof(*p));
    if (!p) {
        report_error(ENOMEM, "no memory to read a pointer");
    } else if (pointer_read(p, fd, f, name) < 0) {
        answer = errno == EUCLEAN ? LINKED_STRANGER : LINKED_FAILED;
    } else if (p->index != k) {
        answer = LINKED_STRANGER;
    } else {
        int here = arrives(j, f, &p->route);
        answer = here < 0 ? LINKED_FAILED : here ? LINKED_OPEN : LINKED_ASTRAY;
    }
    int saved = errno;
    free(p);
    close(fd);
    errno = saved;
    return answer;
}

static void mark_name(const struct linked *j, char name[80])
{
    snprintf(name, 80, "%.60s" POOL_GONE, j->name);
}

static int is_marked(const struct linked *j, const struct folder *f)
{
    char name[80];
    mark_name(j, name);
    int fd = open_made(j, f, name);
    if (fd < 0)
        return fd == NONE ? 0 : -1;
    close(fd);
    return 1;
}

/* Checks the folder that one of the routes leads to. */
static enum linked_answer look_at(const struct linked *j, unsigned k, const struct route *route,
                                  int which, struct folder *to)
{
    if (route_open(route, j->folder, which, to) < 0)
        return LINKED_FAILED;
    enum linked_answer answer = look_for_pointer(j, to, k);
    int marked = answer == LINKED_STRANGER ? is_marked(j, to) : 0;
    return marked < 0 ? LINKED_FAILED : marked ? LINKED_GONE : answer;
}

/* Returns the better answer of both routes. If both fail, errno is one that means more than
 * absence, if there is one. */
static enum linked_answer look(const struct linked *j, unsigned k, const struct route *route,
                               struct folder *to)
{
    static const int worth[] = {
        [LINKED_STRANGER] = 1, [LINKED_GONE] = 2, [LINKED_ASTRAY] = 3, [LINKED_OPEN] = 4};
    enum linked_answer best = LINKED_FAILED;
    int error = ENOENT;
    for (int which = 0; which < ROUTES && best != LINKED_OPEN; which++) {
        struct folder f;
        enum linked_answer here = look_at(j, k, route, which, &f);
        if (here == LINKED_FAILED && !is_absence(errno))
            error = errno;
        if (here != LINKED_FAILED && (best == LINKED_FAILED || worth[here] > worth[best])) {
            best = here;
            folder_close(to);
            *to = f;
        } else {
            folder_close(&f);
        }
    }
    /* If one place could not be read, the other answer is not certain. */
    if (best != LINKED_OPEN && error != ENOENT)
        best = LINKED_FAILED;
    if (best != LINKED_OPEN && best != LINKED_GONE)
        folder_close(to);
    errno = error;
    return best;
}

/* For an entry that leads to no linked folder: if the entry means the folder that led here, which was
 * moved, opens that folder again. */
static enum linked_answer take_origin(const struct linked *j, unsigned k, const struct route *route,
                                      struct folder *to)
{
    struct stat st;
    if (!j->from || j->index != k || fstat(j->from->fd, &st) < 0 || st.st_ino != route->inode ||
        st.st_dev != j->st.st_dev || look_for_pointer(j, j->from, k) != LINKED_OPEN)
        return LINKED_STRANGER;
    strcpy(to->path, j->from->path);
    to->fd = fcntl(j->from->fd, F_DUPFD_CLOEXEC, 3);
    if (to->fd >= 0)
        return LINKED_OPEN;
    report_errno(errno, "cannot duplicate a descriptor");
    return LINKED_FAILED;
}

static void say_why(const struct linked *j, const struct route *route, enum linked_answer answer,
                    int error)
{
    switch (answer) {
    case LINKED_FAILED:
        report_errno(
            error,
            "cannot open the folder %s, whose files the journal %s/%s names: the journal stays "
            "until that succeeds. If these files are lost, make an empty file %s" POOL_GONE
            " in a folder at that place",
            route->absolute, j->folder->path, j->name, j->name);
        break;
    case LINKED_STRANGER:
        report_error(ESTALE,
                     "the journal %s/%s names files in %s, which has no pointer to it: the folder "
                     "was replaced, or is not mounted. Bring it back; if its files are lost, make "
                     "an empty file %s" POOL_GONE " in it",
                     j->folder->path, j->name, route->absolute, j->name);
        break;
    case LINKED_ASTRAY:
        report_error(ESTALE,
                     "the journal %s/%s names files in %s, whose pointer leads to another journal: "
                     "one of the two folders was moved or copied. Move it back",
                     j->folder->path, j->name, route->absolute);
        break;
    case LINKED_GONE:
    case LINKED_OPEN:
        break;
    }
}

enum linked_answer linked_open(const struct linked *j, const struct journal *table, unsigned k,
                               struct folder *to)
{
    to->fd = -1;
    struct route *route = malloc(sizeof(*route));
    if (!route) {
        report_error(ENOMEM, "no memory to look for the folders of a journal");
        return LINKED_FAILED;
    }
    enum linked_answer answer = LINKED_FAILED;
    if (!journal_folder(table, k, route)) {
        report_error(EUCLEAN, "the folder table of the journal %s/%s has no entry %u",
                     j->folder->path, j->name, k);
        goto out;
    }
    answer = look(j, k, route, to);
    int error = errno;
    /* Not after other failures: the folder may be at the place that could not be read. */
    if (answer == LINKED_STRANGER || (answer == LINKED_FAILED && error == ENOENT)) {
        enum linked_answer origin = take_origin(j, k, route, to);
        if (origin != LINKED_STRANGER) {
            answer = origin;
            goto out;
        }
    }
    say_why(j, route, answer, error);
out:;
    int saved = errno;
    free(route);
    errno = saved;
    return answer;
}

int linked_knows_origin(const struct linked *j, const struct journal *table)
{
    struct folder to;
    struct stat here, there;
    /* No valid entry: the table is damaged, or the pointer is forged. The pointer counts if it leads
     * here; a forged one is harmless, since the folders that lanes name are found without it. */
    if (!journal_folder(table, j->index, NULL)) {
        enum linked_answer answer = look_for_pointer(j, j->from, j->index);
        return answer == LINKED_FAILED ? -1 : answer == LINKED_OPEN;
    }
    enum linked_answer answer = linked_open(j, table, j->index, &to);
    int same = answer == LINKED_FAILED && !is_absence(errno) ? -1 : 0;
    if (answer == LINKED_OPEN)
        same = fstat(to.fd, &here) == 0 && fstat(j->from->fd, &there) == 0 &&
               here.st_dev == there.st_dev && here.st_ino == there.st_ino;
    int saved = errno;
    folder_close(&to);
    errno = saved;
    return same;
}

/* Removes the pointer from one folder. Returns REMOVED; NOT_THERE, durably: it may be in another folder;
 * GIVEN_UP if there is a mark; -1. */
enum { NOT_THERE = 0, REMOVED = 1, GIVEN_UP = 2 };

static int remove_in(const struct linked *j, const struct folder *at, unsigned k)
{
    char name[80];
    switch (look_for_pointer(j, at, k)) {
    case LINKED_OPEN:
        return pointer_remove(at, j->name) < 0 ? -1 : REMOVED;
    case LINKED_ASTRAY:
        return report_error(
            ESTALE, "the pointer to the journal %s in the folder %s leads to another journal",
            j->name, at->path);
    case LINKED_STRANGER:
        break;
    case LINKED_GONE:
    case LINKED_FAILED:
        return -1;
    }
    mark_name(j, name);
    int marked = is_marked(j, at);
    if (marked == 1 && fsops->unlinkat(at->fd, name, 0) < 0)
        report_log(REPORT_WARNING, "cannot remove %s/%s", at->path, name);
    return marked == 1 ? GIVEN_UP : folder_sync(at) < 0 ? -1 : NOT_THERE;
}

int linked_remove(const struct linked *j, const struct journal *table, unsigned k)
{
    struct route *route = malloc(sizeof(*route));
    if (!route)
        return report_error(ENOMEM, "no memory to look for the folders of a journal");
    int error = ENOENT, done = NOT_THERE;
    bool looked = false;
    if (j->from && j->index == k)
        done = remove_in(j, j->from, k);
    if (done >= 0 && done != REMOVED)
        done = journal_folder(table, k, route) ? NOT_THERE : REMOVED; /* no entry, no pointer */
    for (int which = 0; which < ROUTES && done == NOT_THERE; which++) {
        struct folder at;
        if (route_open(route, j->folder, which, &at) == 0) {
            done = remove_in(j, &at, k);
            looked = true; /* a restored folder looks like a new one in its place */
            done = done == GIVEN_UP ? NOT_THERE : done;
        } else if (!is_absence(errno)) {
            error = errno;
        }
        folder_close(&at);
    }
    if (done == NOT_THERE && (!looked || error != ENOENT))
        done =
            report_errno(error, "cannot find the folder %s, which may hold a pointer to a journal",
                         route->absolute);
    int saved = errno;
    free(route);
    errno = saved;
    return done < 0 ? -1 : 0;
}
