/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shows SQLite's tests the files that SQLite has written and that are in memory. The tests look for journals on the
 * disk (whether one exists, its length, its content), and for pages in the files of open databases, also during
 * transactions. So these tests check the content that SQLite wrote.
 *
 * This file follows SQLite's calls on those files; shown_calls.c shows them. A journal that SQLite closed without
 * deleting it is shown with its last content. SQLite's count of open files includes them.
 *
 * The linker makes the VFS call the functions named __wrap_ here instead of its own; these call the originals
 * (-Wl,--wrap).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sqlite/connection.h"
#include "lib/sqlite/journals.h"
#include "lib/sqlite/mask.h"

#include "shown.h"

typedef int sync_call(sqlite3_file *file, int flags);

struct shown *shown_all;
pthread_mutex_t shown_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* SQLite's counter of open files; it is only in its test programs. */
extern int sqlite3_open_file_count __attribute__((weak));

static void count_open(int more)
{
    if (&sqlite3_open_file_count)
        sqlite3_open_file_count += more;
}

/* Its counters of syncs; likewise. */
extern int sqlite3_sync_count __attribute__((weak));
extern int sqlite3_fullsync_count __attribute__((weak));

static void count_sync(int flags)
{
    if (!&sqlite3_sync_count)
        return;
    sqlite3_sync_count++;
    sqlite3_fullsync_count += (flags & 0x0F) == SQLITE_SYNC_FULL;
}

/* ---- the list ---- */

/* A VFS above may have moved the handle of a database, as appendvfs does: the connection stays where it is. */
static struct shown **find_file(const sqlite3_file *file)
{
    struct shown **s = &shown_all;
    while (*s && (*s)->file != file && (const void *)(*s)->connection != file->pMethods)
        s = &(*s)->next;
    return s;
}

/* While it is not mapped, the file of a database is up to date itself. */
static bool is_up_to_date(const struct shown *s)
{
    return s->is_database && !s->connection->pending.view;
}

static bool is_shown(const struct shown *s, const char *name)
{
    return !s->nameless && strcmp(s->name, name) == 0 && !is_up_to_date(s);
}

struct shown **shown_find(const char *name)
{
    struct shown **found = NULL, **s = &shown_all;
    for (; *s; s = &(*s)->next)
        if (is_shown(*s, name) && (!found || ((*s)->is_database && (*s)->connection->pending.tx)))
            found = s;
    return found ? found : s;
}

static void forget(struct shown **s)
{
    struct shown *gone = *s;
    *s = gone->next;
    free(gone->kept.at);
    free(gone);
}

void shown_forget(const char *name)
{
    struct shown **s = shown_find(name);
    if (*s && (*s)->file)
        (*s)->nameless = true;
    else if (*s)
        forget(s);
}

/* These calls go around failing.c: no test asks for errors of them. */
void *__real_ato_memcpy(void *dst, const void *src, size_t n);
int __real_pending_read(struct pending *s, void *to, int n, sqlite3_int64 offset);

static sqlite3_int64 length_of(const struct shown *s)
{
    sqlite3_int64 size = -1;
    if (!s->is_database)
        (void)s->methods.xFileSize(s->file, &size);
    else if (s->connection->pending.tx)
        size = s->connection->pending.size;
    else
        size = (sqlite3_int64)ato_size(s->connection->pending.view);
    return size;
}

static bool read_all(const struct shown *s, void *to, int n)
{
    if (!s->is_database)
        return s->methods.xRead(s->file, to, n, 0) == SQLITE_OK;
    struct pending *pending = &s->connection->pending;
    const bool done = pending->tx ? __real_pending_read(pending, to, n, 0) == 0
                                  : __real_ato_memcpy(to, pending->view, (size_t)n) != NULL;
    if (done && n >= MASK_HEADER)
        mask_uncover(to);
    return done;
}

static bool copy_open(const struct shown *s, struct bytes *to)
{
    to->size = length_of(s);
    if (to->size < 0 || to->size >= INT_MAX)
        return false;
    to->at = malloc((size_t)to->size + 1);
    if (to->at && (!to->size || read_all(s, to->at, (int)to->size)))
        return true;
    free(to->at);
    return false;
}

bool shown_copy(const struct shown *s, struct bytes *to)
{
    *to = (struct bytes){.size = s->kept.size};
    if (!s->file) {
        to->at = malloc((size_t)to->size + 1);
        return to->at && memcpy(to->at, s->kept.at, (size_t)to->size);
    }
    if (!s->is_database)
        return copy_open(s, to);
    pthread_mutex_lock(&s->connection->in_call); /* keeps the view where it is */
    const bool done = copy_open(s, to);
    pthread_mutex_unlock(&s->connection->in_call);
    return done;
}

/* ---- SQLite's calls on them ---- */

static int shown_close(sqlite3_file *file)
{
    struct bytes kept;
    pthread_mutex_lock(&shown_lock);
    struct shown **s = find_file(file);
    const sqlite3_io_methods methods = (*s)->methods;
    const bool is_database = (*s)->is_database;
    const bool is_kept = !is_database && !(*s)->nameless && shown_copy(*s, &kept);
    if (is_kept) {
        (*s)->kept = kept;
        (*s)->file = NULL;
    } else {
        forget(s);
    }
    if (!is_database)
        count_open(-1);
    pthread_mutex_unlock(&shown_lock);
    return methods.xClose(file);
}

/* A commit of libato is the sync of the database. */
static int shown_sync(sqlite3_file *file, int flags)
{
    const struct connection *c = connection_of(file);
    pthread_mutex_lock(&shown_lock);
    sync_call *sync = (*find_file(file))->methods.xSync;
    pthread_mutex_unlock(&shown_lock);
    if (c->pending.view && !c->wrote_below)
        count_sync(flags);
    return sync(file, flags);
}

static int shown_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 offset)
{
    pthread_mutex_lock(&shown_lock);
    const int r = (*find_file(file))->methods.xWrite(file, from, n, offset);
    pthread_mutex_unlock(&shown_lock);
    return r;
}

static int shown_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    pthread_mutex_lock(&shown_lock);
    const int r = (*find_file(file))->methods.xTruncate(file, size);
    pthread_mutex_unlock(&shown_lock);
    return r;
}

/* Adds the file to the list. */
static void show(sqlite3_file *file, const char *name, bool is_database)
{
    struct shown *s = calloc(1, sizeof(*s) + strlen(name) + 1);
    if (!s)
        return;
    *s = (struct shown){.file = file,
                        .methods = *file->pMethods,
                        .heard = *file->pMethods,
                        .is_database = is_database};
    strcpy(s->name, name);
    pthread_mutex_lock(&shown_lock);
    if (is_database) {
        s->connection = connection_of(file);
        (void)REAL(stat)(name, &s->was);
        s->connection->methods.xClose = shown_close; /* the methods lead to the connection */
        s->connection->methods.xSync = shown_sync;
    } else {
        s->heard.xClose = shown_close;
        s->heard.xWrite = shown_write;
        s->heard.xTruncate = shown_truncate;
        file->pMethods = &s->heard;
        shown_forget(name);
        count_open(1);
    }
    s->next = shown_all;
    shown_all = s;
    pthread_mutex_unlock(&shown_lock);
}

static void show_journal(sqlite3_file *file, const char *name, int flags)
{
    if (file->pMethods == &memory_file_methods && flags & SQLITE_OPEN_CREATE)
        show(file, name, false);
}

int __real_rollback_journal_open(sqlite3_vfs *below, const char *name, sqlite3_file *file,
                                 int flags, int *out_flags);
int __wrap_rollback_journal_open(sqlite3_vfs *below, const char *name, sqlite3_file *file,
                                 int flags, int *out_flags);

int __wrap_rollback_journal_open(sqlite3_vfs *below, const char *name, sqlite3_file *file,
                                 int flags, int *out_flags)
{
    const int r = __real_rollback_journal_open(below, name, file, flags, out_flags);
    show_journal(file, name, flags);
    return r;
}

int __real_methods_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                        int *out_flags);
int __wrap_methods_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                        int *out_flags);

int __wrap_methods_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                        int *out_flags)
{
    const int r = __real_methods_open(below, name, file, flags, out_flags);
    if (r != SQLITE_OK)
        return r;
    /* Scripts copy open databases, and open the copy: it needs ?prefer=file. */
    connection_of(file)->wants.prefer = ATO_PREFER_FILE;
    show(file, name, true);
    return r;
}

static void forget_journal(const char *name)
{
    pthread_mutex_lock(&shown_lock);
    shown_forget(name);
    pthread_mutex_unlock(&shown_lock);
}

int __real_rollback_journal_delete(sqlite3_vfs *below, const char *name, int sync);
int __wrap_rollback_journal_delete(sqlite3_vfs *below, const char *name, int sync);

int __wrap_rollback_journal_delete(sqlite3_vfs *below, const char *name, int sync)
{
    forget_journal(name);
    return __real_rollback_journal_delete(below, name, sync);
}
