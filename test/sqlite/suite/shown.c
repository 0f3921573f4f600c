/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shows SQLite's tests the files that SQLite has written, where these lie in memory: they look for journals on
 * the disk (is there one, how long is it, what is in it), and for pages in the files of databases that are open,
 * also for those of open transactions. So those tests check that what SQLite wrote is what it has.
 *
 * Of the program's and Tcl's calls of the C library these ask here first: access, stat, lstat, open, fopen,
 * unlink, opendir, readdir and closedir. Only relative names are looked at: SQLite and libato use whole ones, and
 * see what is on the disk; nothing that is tested here knows of this. Who opens a journal, or a database that this
 * process has open, gets a copy that can only be read. A journal that lies on the disk comes before one in
 * memory; one that SQLite closed, and did not delete, is shown as it was then. In SQLite's count of open files they
 * are files.
 *
 * The linker has the VFS call the functions named __wrap_ here instead of its own, and they call those
 * (-Wl,--wrap).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/sqlite/connection.h"
#include "lib/sqlite/memory_journal.h"
#include "lib/sqlite/methods.h"
#include "lib/sqlite/super_journal.h"

struct shown {
    struct shown *next;
    sqlite3_file *file; /* NULL: closed, and this was in it: */
    struct bytes kept;
    const sqlite3_io_methods *methods; /* its own */
    sqlite3_io_methods heard;          /* those that tell of what SQLite does */
    bool is_database;
    struct stat was; /* of a database: the file that it was opened as */
    bool nameless;   /* it was deleted, and is open */
    char name[];     /* the whole of it, as SQLite has it */
};

static struct shown *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* SQLite's count, for its tests; the other programs have none. */
extern int sqlite3_open_file_count __attribute__((weak));

static void count_open(int more)
{
    if (&sqlite3_open_file_count)
        sqlite3_open_file_count += more;
}

/* ---- the C library's ---- */

typedef int open_call(const char *name, int flags, ...);
typedef int access_call(const char *name, int mode);
typedef int stat_call(const char *name, struct stat *st);
typedef int lstat_call(const char *name, struct stat *st);
typedef int unlink_call(const char *name);
typedef FILE *fopen_call(const char *name, const char *mode);
typedef DIR *opendir_call(const char *name);
typedef struct dirent *readdir_call(DIR *folder);
typedef int closedir_call(DIR *folder);

#define REAL(call) ((call##_call *)dlsym(RTLD_NEXT, #call))

/* ---- which there are ---- */

static struct shown **find_file(const sqlite3_file *file)
{
    struct shown **s = &all;
    while (*s && (*s)->file != file)
        s = &(*s)->next;
    return s;
}

static struct connection *connection_of(const struct shown *s)
{
    return ((const struct connection_file *)s->file)->connection;
}

/* With a journal on the disk the file of a database has what it has. */
static bool is_shown(const struct shown *s, const char *name)
{
    return !s->nameless && strcmp(s->name, name) == 0 &&
           !(s->is_database && connection_of(s)->journal_file);
}

/* Of several connections only the one that writes has something staged. */
static struct shown **find_name(const char *name)
{
    struct shown **found = NULL, **s = &all;
    for (; *s; s = &(*s)->next)
        if (is_shown(*s, name) && (!found || ((*s)->is_database && connection_of(*s)->pending.tx)))
            found = s;
    return found ? found : s;
}

static void forget(struct shown **s)
{
    struct shown *gone = *s;
    *s = gone->next;
    bytes_free(&gone->kept);
    free(gone);
}

/* Its name goes, and so does it when nobody has it open. */
static void forget_name(const char *name)
{
    struct shown **s = find_name(name);
    if (*s && (*s)->file)
        (*s)->nameless = true;
    else if (*s)
        forget(s);
}

/* failing.c's, which these are not: nobody asked for errors of them. */
void *__real_ato_memcpy(void *dst, const void *src, size_t n);
int __real_pending_read(struct pending *s, void *to, int n, sqlite3_int64 offset);

static sqlite3_int64 length_of(const struct shown *s)
{
    sqlite3_int64 size = -1;
    if (!s->is_database)
        (void)s->methods->xFileSize(s->file, &size);
    else if (connection_of(s)->pending.tx)
        size = connection_of(s)->pending.size;
    else if (connection_of(s)->pending.view)
        size = (sqlite3_int64)ato_size(connection_of(s)->pending.view);
    return size;
}

static bool read_all(const struct shown *s, void *to, int n)
{
    if (!s->is_database)
        return s->methods->xRead(s->file, to, n, 0) == SQLITE_OK;
    struct pending *pending = &connection_of(s)->pending;
    return pending->tx ? __real_pending_read(pending, to, n, 0) == 0
                       : __real_ato_memcpy(to, pending->view, (size_t)n) != NULL;
}

static bool copy_open(const struct shown *s, struct bytes *to)
{
    const sqlite3_int64 size = length_of(s);
    if (size < 0 || size >= INT_MAX)
        return false;
    char *at = malloc((size_t)size + 1);
    const bool done = at && (!size || read_all(s, at, (int)size)) &&
                      bytes_write(to, at, (int)size, 0) == SQLITE_OK;
    free(at);
    return done;
}

/* A copy of what is in it; false. */
static bool copy(const struct shown *s, struct bytes *to)
{
    *to = (struct bytes){0};
    if (!s->file)
        return bytes_write(to, s->kept.at, (int)s->kept.size, 0) == SQLITE_OK;
    if (!s->is_database)
        return copy_open(s, to);
    pthread_mutex_lock(&connection_of(s)->in_call); /* its view stays where it is */
    const bool done = copy_open(s, to);
    pthread_mutex_unlock(&connection_of(s)->in_call);
    return done;
}

/* ---- what SQLite does with them ---- */

static int shown_close(sqlite3_file *file)
{
    struct bytes kept;
    pthread_mutex_lock(&lock);
    struct shown **s = find_file(file);
    const sqlite3_io_methods *methods = (*s)->methods;
    const bool is_database = (*s)->is_database;
    const bool is_kept = !is_database && !(*s)->nameless && copy(*s, &kept);
    if (is_kept) {
        (*s)->kept = kept;
        (*s)->file = NULL;
    } else {
        forget(s);
    }
    if (!is_database)
        count_open(-1);
    pthread_mutex_unlock(&lock);
    return methods->xClose(file);
}

static int shown_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 offset)
{
    pthread_mutex_lock(&lock);
    const int r = (*find_file(file))->methods->xWrite(file, from, n, offset);
    pthread_mutex_unlock(&lock);
    return r;
}

static int shown_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    pthread_mutex_lock(&lock);
    const int r = (*find_file(file))->methods->xTruncate(file, size);
    pthread_mutex_unlock(&lock);
    return r;
}

/* From now on it is shown. */
static void show(sqlite3_file *file, const char *name, bool is_database)
{
    struct shown *s = calloc(1, sizeof(*s) + strlen(name) + 1);
    if (!s)
        return;
    *s = (struct shown){.file = file,
                        .methods = file->pMethods,
                        .heard = *file->pMethods,
                        .is_database = is_database};
    if (is_database)
        (void)REAL(stat)(name, &s->was);
    strcpy(s->name, name);
    s->heard.xClose = shown_close;
    pthread_mutex_lock(&lock);
    if (!is_database) {
        s->heard.xWrite = shown_write;
        s->heard.xTruncate = shown_truncate;
        forget_name(name);
        count_open(1);
    }
    file->pMethods = &s->heard;
    s->next = all;
    all = s;
    pthread_mutex_unlock(&lock);
}

int __real_memory_journal_open(struct memory_journal *j, struct connection *its_own,
                               sqlite3_vfs *below, const char *name, enum journal_left left);
int __wrap_memory_journal_open(struct memory_journal *j, struct connection *its_own,
                               sqlite3_vfs *below, const char *name, enum journal_left left);

int __wrap_memory_journal_open(struct memory_journal *j, struct connection *its_own,
                               sqlite3_vfs *below, const char *name, enum journal_left left)
{
    const int r = __real_memory_journal_open(j, its_own, below, name, left);
    if (r == SQLITE_OK)
        show(&j->as_file, name, false);
    return r;
}

int __real_super_open(struct super_file *f, sqlite3_vfs *below, const char *name, int flags,
                      int *out_flags);
int __wrap_super_open(struct super_file *f, sqlite3_vfs *below, const char *name, int flags,
                      int *out_flags);

int __wrap_super_open(struct super_file *f, sqlite3_vfs *below, const char *name, int flags,
                      int *out_flags)
{
    const int r = __real_super_open(f, below, name, flags, out_flags);
    if (r == SQLITE_OK && f->super)
        show(&f->as_file, name, false);
    return r;
}

int __real_methods_open(struct connection_file *f, sqlite3_vfs *below, const char *name, int flags,
                        int *out_flags);
int __wrap_methods_open(struct connection_file *f, sqlite3_vfs *below, const char *name, int flags,
                        int *out_flags);

int __wrap_methods_open(struct connection_file *f, sqlite3_vfs *below, const char *name, int flags,
                        int *out_flags)
{
    const int r = __real_methods_open(f, below, name, flags, out_flags);
    if (r != SQLITE_OK)
        return r;
    /* Scripts copy open databases, and go on with the copy: as with ?prefer=file. */
    f->connection->takes_file = true;
    show(&f->as_file, name, true);
    return r;
}

int __real_super_delete(const char *name, bool *mine);
int __wrap_super_delete(const char *name, bool *mine);

int __wrap_super_delete(const char *name, bool *mine)
{
    pthread_mutex_lock(&lock);
    forget_name(name);
    pthread_mutex_unlock(&lock);
    return __real_super_delete(name, mine);
}

/* ---- who asks ---- */

/* The whole of a relative name; false. `path` has 2 * PATH_MAX. */
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

/* Others may have deleted it, and made another. */
static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Who is shown to one who asks for `name`, with the lock; NULL, without. */
static const struct shown *look(const char *name)
{
    char path[2 * PATH_MAX];
    struct stat st;
    if (!all || !make_whole(name, path))
        return NULL;
    pthread_mutex_lock(&lock);
    const struct shown *s = *find_name(path);
    const bool is_there = REAL(lstat)(name, &st) == 0;
    if (s && (s->is_database ? is_there && is_same(&s->was, &st) : !is_there))
        return s;
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* A file with what is in it, that can only be read; -1. Gives back the lock. */
static int copy_of(const struct shown *s)
{
    struct bytes bytes;
    const int fd = memfd_create("journal", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool done = copy(s, &bytes) && fd >= 0 &&
                      write(fd, bytes.at, (size_t)bytes.size) == bytes.size &&
                      lseek(fd, 0, SEEK_SET) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0;

    pthread_mutex_unlock(&lock);
    bytes_free(&bytes);
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

/* A journal: that a database is there is to be seen on the disk. */
static const struct shown *look_for_journal(const char *name)
{
    const struct shown *s = look(name);
    if (!s || !s->is_database)
        return s;
    pthread_mutex_unlock(&lock);
    return NULL;
}

int access(const char *name, int mode)
{
    if (!look_for_journal(name))
        return REAL(access)(name, mode);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int stat_shown(const char *name, struct stat *st, stat_call *real)
{
    const struct shown *s = look_for_journal(name);
    if (!s)
        return real(name, st);
    const int fd = copy_of(s), r = fd < 0 ? -1 : fstat(fd, st);
    if (fd >= 0)
        close(fd);
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
        forget_name(path);
    pthread_mutex_unlock(&lock);
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

/* ---- who lists a folder: they come after those on the disk ---- */

struct listing {
    struct listing *next;
    DIR *folder;
    size_t behind; /* how many of all that are shown it is past */
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
        pthread_mutex_lock(&lock);
        l->next = listings;
        listings = l;
        pthread_mutex_unlock(&lock);
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
    const struct shown *s = all;
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
    pthread_mutex_lock(&lock);
    struct listing *l = *find_listing(folder);
    entry = l ? list_next(l) : NULL;
    pthread_mutex_unlock(&lock);
    return entry;
}

int closedir(DIR *folder)
{
    pthread_mutex_lock(&lock);
    struct listing **l = find_listing(folder), *gone = *l;
    if (gone)
        *l = gone->next;
    pthread_mutex_unlock(&lock);
    free(gone);
    return REAL(closedir)(folder);
}

/* ---- the same by the names that programs have whose offsets have 64 bits: all have, here ---- */

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
