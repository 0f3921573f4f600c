/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory_file.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 16 << 10, KEPT_ROOM = 1 << 20 };

static struct memory_file *of(sqlite3_file *file)
{
    return (struct memory_file *)file;
}

static void drop(struct memory_file *f)
{
    free(f->at);
    f->at = NULL;
    f->size = f->room = 0;
}

static int file_close(sqlite3_file *file)
{
    drop(of(file));
    return SQLITE_OK;
}

static int file_read(sqlite3_file *file, void *to, int n, sqlite3_int64 offset)
{
    const struct memory_file *f = of(file);
    const sqlite3_int64 left = f->size - offset;
    const size_t there = left >= n ? (size_t)n : left > 0 ? (size_t)left : 0;
    if (there)
        memcpy(to, f->at + offset, there);
    memset((char *)to + there, 0, (size_t)n - there);
    return there == (size_t)n ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int make_room(struct memory_file *f, sqlite3_int64 end)
{
    sqlite3_int64 room = f->room ? f->room : FIRST_ROOM;
    while (room < end)
        room *= 2;
    if (room == f->room)
        return SQLITE_OK;
    char *at = realloc(f->at, (size_t)room);
    if (!at)
        return SQLITE_IOERR_NOMEM;
    f->at = at;
    f->room = room;
    return SQLITE_OK;
}

static int file_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 offset)
{
    struct memory_file *f = of(file);
    const sqlite3_int64 end = offset + n;
    int r = f->before_write ? f->before_write(f->name, from, n) : SQLITE_OK;
    if (r == SQLITE_OK)
        r = make_room(f, end);
    if (r != SQLITE_OK)
        return r;
    if (offset > f->size)
        memset(f->at + f->size, 0, (size_t)(offset - f->size));
    memcpy(f->at + offset, from, (size_t)n);
    if (end > f->size)
        f->size = end;
    return SQLITE_OK;
}

/* Some of the memory is kept for the next use. */
static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct memory_file *f = of(file);
    if (size < f->size)
        f->size = size;
    if (!f->size && f->room > KEPT_ROOM)
        drop(f);
    return SQLITE_OK;
}

static int file_sync(sqlite3_file *file, int flags)
{
    (void)file, (void)flags;
    return SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    *size = of(file)->size;
    return SQLITE_OK;
}

static int file_control(sqlite3_file *file, int what, void *arg)
{
    (void)file, (void)what, (void)arg;
    return SQLITE_NOTFOUND;
}

static int file_none(sqlite3_file *file)
{
    (void)file;
    return 0;
}

/* SQLite locks no journal. */
const sqlite3_io_methods memory_file_methods = {
    .iVersion = 1,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xFileControl = file_control,
    .xSectorSize = file_none,
    .xDeviceCharacteristics = file_none,
};
