/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shows the files of shown.h to calls of the C library that the program and Tcl make: access, stat, lstat, open, fopen,
 * unlink, opendir, readdir and closedir look in the list first.
 *
 * Only relative names are looked up: SQLite and libato use absolute ones, and see the files on the disk. A call that
 * opens a journal, or a database that this process has open, gets a read-only copy. A journal on the disk comes before
 * one in memory.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shown.h"

typedef int open_call(const char *name, int flags, ...);
typedef int access_call(const char *name, int mode);
typedef int lstat_call(const char *name, struct stat *st);
typedef int unlink_call(const char *name);
typedef FILE *fopen_call(const char *name, const char *mode);
typedef DIR *opendir_call(const char *name);
typedef struct dirent *readdir_call(DIR *folder);
typedef int closedir_call(DIR *folder);

/* ---- one file ---- */

/* Makes a relative name absolute; false if it is not possible. `path` has 2 * PATH_MAX bytes. */
static bool make_whole(const char *name, char *path)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    char folder[PATH_MAX] = ".", whole[PATH_MAX];
    if (*name == '/' || (size_t)(last - name) >= sizeof(folder))
        return false;
    if (slash)
        memcpy(folder, name, (size_t)(last - name));
    return realpath(folder, whole) && snprintf(path, 2 * PATH_MAX, "%s/%s", whole, last) > 0;
}

/* False if another process has replaced the file. */
static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Returns the listed file of this name, and takes the lock; or NULL, without the lock. */
static const struct shown *look(const char *name)
{
    char path[2 * PATH_MAX];
    struct stat st;
    if (!shown_all || !make_whole(name, path))
        return NULL;
    pthread_mutex_lock(&shown_lock);
    const struct shown *s = *shown_find(path);
    const bool is_there = REAL(lstat)(name, &st) == 0;
    if (s && (s->is_database ? is_there && is_same(&s->was, &st) : !is_there))
        return s;
    pthread_mutex_unlock(&shown_lock);
    return NULL;
}

/* Returns a read-only file with this content, or -1. Gives the lock back. */
static int copy_of(const struct shown *s)
{
    struct bytes bytes;
    const int fd = memfd_create("journal", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool done = shown_copy(s, &bytes) && fd >= 0 &&
                      write(fd, bytes.at, (size_t)bytes.size) == bytes.size &&
                      lseek(fd, 0, SEEK_SET) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0;

    pthread_mutex_unlock(&shown_lock);
    free(bytes.at);
    if (!done && fd >= 0)
        close(fd);
    return done ? fd : -1;
}

static int open_shown(const char *name, int flags, mode_t mode)
{
    const struct shown *s = (flags & O_ACCMODE) == O_RDONLY ? look(name) : NULL;
    return s ? copy_of(s) : REAL(open)(name, flags, mode);
}

static bool takes_mode(int flags)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

int open(const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = takes_mode(flags) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open_shown(name, flags, mode);
}

/* Only a journal: whether a database exists is seen on the disk. */
static const struct shown *look_for_journal(const char *name)
{
    const struct shown *s = look(name);
    if (!s || !s->is_database)
        return s;
    pthread_mutex_unlock(&shown_lock);
    return NULL;
}

int access(const char *name, int mode)
{
    if (!look_for_journal(name))
        return REAL(access)(name, mode);
    pthread_mutex_unlock(&shown_lock);
    return 0;
}

/* Of a database only the length is shown: everything else is seen on the disk. */
static int stat_shown(const char *name, struct stat *st, stat_call *real)
{
    struct stat copied;
    const struct shown *s = look(name);
    if (!s)
        return real(name, st);
    const bool is_database = s->is_database;
    const int fd = copy_of(s);
    int r = fd < 0 ? -1 : fstat(fd, &copied);
    if (fd >= 0)
        close(fd);
    if (is_database)
        r = real(name, st);
    else if (r == 0)
        *st = copied;
    if (r == 0 && fd >= 0)
        st->st_size = copied.st_size;
    return r;
}

int stat(const char *restrict name, struct stat *restrict st)
{
    return stat_shown(name, st, REAL(stat));
}

int lstat(const char *restrict name, struct stat *restrict st)
{
    return stat_shown(name, st, REAL(lstat));
}

int unlink(const char *name)
{
    char path[2 * PATH_MAX];
    if (!look_for_journal(name))
        return REAL(unlink)(name);
    if (make_whole(name, path))
        shown_forget(path);
    pthread_mutex_unlock(&shown_lock);
    return 0;
}

FILE *fopen(const char *restrict name, const char *restrict mode)
{
    const struct shown *s = *mode == 'r' && !strchr(mode, '+') ? look(name) : NULL;
    if (!s)
        return REAL(fopen)(name, mode);
    const int fd = copy_of(s);
    return fd < 0 ? NULL : fdopen(fd, mode);
}

/* ---- listing a folder: the listed files come after those on the disk ---- */

struct listing {
    struct listing *next;
    DIR *folder;
    size_t behind; /* the number of listed files passed */
    struct dirent entry;
    char path[]; /* ends in '/' */
};

static struct listing *listings;

DIR *opendir(const char *name)
{
    char path[PATH_MAX];
    DIR *folder = REAL(opendir)(name);
    struct listing *l =
        folder && realpath(name, path) ? calloc(1, sizeof(*l) + strlen(path) + 2) : NULL;
    if (l) {
        l->folder = folder;
        sprintf(l->path, "%s/", path);
        pthread_mutex_lock(&shown_lock);
        l->next = listings;
        listings = l;
        pthread_mutex_unlock(&shown_lock);
    }
    return folder;
}

static struct listing **find_listing(const DIR *folder)
{
    struct listing **l = &listings;
    while (*l && (*l)->folder != folder)
        l = &(*l)->next;
    return l;
}

static bool is_in(const struct shown *s, const char *path)
{
    const size_t n = strlen(path);
    struct stat st;
    return !s->nameless && !s->is_database && strncmp(s->name, path, n) == 0 &&
           !strchr(s->name + n, '/') &&
           strlen(s->name + n) < sizeof(((struct dirent *)0)->d_name) &&
           REAL(lstat)(s->name, &st) < 0;
}

static struct dirent *list_next(struct listing *l)
{
    const struct shown *s = shown_all;
    size_t i = 0;
    for (; s && (i < l->behind || !is_in(s, l->path)); s = s->next)
        i++;
    l->behind = i + 1;
    if (!s)
        return NULL;
    l->entry = (struct dirent){.d_ino = 1, .d_type = DT_REG, .d_reclen = sizeof(l->entry)};
    strcpy(l->entry.d_name, s->name + strlen(l->path));
    return &l->entry;
}

struct dirent *readdir(DIR *folder)
{
    struct dirent *entry = REAL(readdir)(folder);
    if (entry)
        return entry;
    pthread_mutex_lock(&shown_lock);
    struct listing *l = *find_listing(folder);
    entry = l ? list_next(l) : NULL;
    pthread_mutex_unlock(&shown_lock);
    return entry;
}

int closedir(DIR *folder)
{
    pthread_mutex_lock(&shown_lock);
    struct listing **l = find_listing(folder), *gone = *l;
    if (gone)
        *l = gone->next;
    pthread_mutex_unlock(&shown_lock);
    free(gone);
    return REAL(closedir)(folder);
}

/* ---- the same for the names of calls with 64-bit offsets, which all programs here use ---- */

_Static_assert(sizeof(struct stat64) == sizeof(struct stat), "stat64() is stat()");

int open64(const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = takes_mode(flags) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open_shown(name, flags, mode);
}

int stat64(const char *restrict name, struct stat64 *restrict st)
{
    return stat(name, (struct stat *)st);
}

int lstat64(const char *restrict name, struct stat64 *restrict st)
{
    return lstat(name, (struct stat *)st);
}

FILE *fopen64(const char *restrict name, const char *restrict mode)
{
    return fopen(name, mode);
}
