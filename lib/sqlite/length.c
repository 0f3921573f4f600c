/* SPDX-License-Identifier: BSD-3-Clause */
#include "length.h"

#include "connection.h"
#include "database.h"
#include "fault.h"

sqlite3_int64 length_of_view(const struct connection *c)
{
    return c->staged.view ? (sqlite3_int64)ato_size(c->staged.view) : -1;
}

void length_cut(struct connection *c)
{
    if (c->shorter && database_length(c->db) > length_of_view(c))
        database_renew(c->db, c, false, c->name);
    c->shorter = false;
}

sqlite3_int64 length_committed(const struct connection *c)
{
    const sqlite3_int64 size = length_of_view(c);
    return c->cut_to && c->cut_to - 1 < size ? c->cut_to - 1 : size;
}

/* Another process may have made it longer than it is mapped here: its size is where the mapping ends, then. */
static bool is_outgrown(const struct connection *c, sqlite3_int64 size)
{
    return size >= c->reach && database_length(c->db) > c->reach;
}

int length_get(struct connection *c, sqlite3_int64 *size)
{
    if (c->direct && !c->staged.tx)
        return c->real->pMethods->xFileSize(c->real, size);
    *size = c->staged.tx ? c->staged.size : length_committed(c);
    if (!c->staged.tx && is_outgrown(c, *size)) {
        database_renew(c->db, c, false, c->name);
        *size = length_committed(c);
        if (is_outgrown(c, *size))
            return fault(SQLITE_IOERR_FSTAT,
                         "another process has made %s longer than it is mapped here", c->name);
    }
    return *size < 0 ? fault_of_libato(SQLITE_IOERR_FSTAT, "cannot tell the size of", c->name)
                     : SQLITE_OK;
}

/* In this order: another process may make it longer, which begins with its length. */
bool length_look(struct connection *c)
{
    const sqlite3_int64 size = length_of_view(c), length = database_length(c->db);
    c->cut_to = length >= 0 && length < size ? length + 1 : 0;
    return length != size && length != c->looked_at;
}

void length_find(struct connection *c)
{
    if (!c->staged.view)
        database_renew(c->db, c, false, c->name);
    /* A length that lasts is of a file that got shorter, and that others have mapped. */
    if (length_look(c)) {
        c->looked_at = database_length(c->db);
        database_renew(c->db, c, true, c->name);
        (void)length_look(c);
    }
}

int length_require(struct connection *c, int code)
{
    c->looked_at = -1;
    length_find(c);
    if (database_length(c->db) == length_of_view(c))
        return SQLITE_OK;
    return fault(code,
                 "%s got another length while several processes had it open through ato: it can be "
                 "written to when each of them has looked at it, or closed it",
                 c->name);
}
