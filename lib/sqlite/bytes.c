/* SPDX-License-Identifier: BSD-3-Clause */
#include "bytes.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 16 << 10, KEPT_ROOM = 1 << 20 };

int bytes_read(const struct bytes *b, void *to, int n, sqlite3_int64 offset)
{
    sqlite3_int64 there = b->size - offset;
    if (there >= n) {
        memcpy(to, b->at + offset, (size_t)n);
        return SQLITE_OK;
    }
    if (there < 0)
        there = 0;
    if (there)
        memcpy(to, b->at + offset, (size_t)there);
    memset((char *)to + there, 0, (size_t)(n - there));
    return SQLITE_IOERR_SHORT_READ;
}

static int make_room(struct bytes *b, sqlite3_int64 end)
{
    sqlite3_int64 room = b->room ? b->room : FIRST_ROOM;
    while (room < end)
        room *= 2;
    if (room == b->room)
        return SQLITE_OK;
    char *at = realloc(b->at, (size_t)room);
    if (!at)
        return SQLITE_IOERR_NOMEM;
    b->at = at;
    b->room = room;
    return SQLITE_OK;
}

int bytes_write(struct bytes *b, const void *from, int n, sqlite3_int64 offset)
{
    const sqlite3_int64 end = offset + n;
    if (make_room(b, end) != SQLITE_OK)
        return SQLITE_IOERR_NOMEM;
    if (offset > b->size)
        memset(b->at + b->size, 0, (size_t)(offset - b->size));
    memcpy(b->at + offset, from, (size_t)n);
    if (end > b->size)
        b->size = end;
    return SQLITE_OK;
}

void bytes_cut(struct bytes *b, sqlite3_int64 size)
{
    if (size < b->size)
        b->size = size;
    if (!b->size && b->room > KEPT_ROOM)
        bytes_free(b);
}

void bytes_free(struct bytes *b)
{
    free(b->at);
    *b = (struct bytes){0};
}
