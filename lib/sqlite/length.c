/* SPDX-License-Identifier: BSD-3-Clause */
#include "length.h"

#include "connection.h"
#include "database.h"
#include "fault.h"

sqlite3_int64 length_of_view(const struct connection *c)
{
    return c->pending.view ? (sqlite3_int64)ato_size(c->pending.view) : -1;
}

void length_cut(struct connection *c)
{
    if (c->shorter && database_length(c->db) > length_of_view(c))
        database_renew(c, false);
    c->shorter = false;
}

sqlite3_int64 length_committed(const struct connection *c)
{
    const sqlite3_int64 size = length_of_view(c);
    return c->cut_to && c->cut_to - 1 < size ? c->cut_to - 1 : size;
}

/* Returns whether another process made the file longer than it is mapped here. libato gives the end of the mapping as its size
 * then. */
static bool is_outgrown(const struct connection *c, sqlite3_int64 size)
{
    const sqlite3_int64 reach = (sqlite3_int64)c->db->view.max_size;
    return size >= reach && database_length(c->db) > reach;
}

int length_get(struct connection *c, sqlite3_int64 *size)
{
    if (c->direct && !c->pending.tx)
        return c->below->xFileSize(c->file, size);
    *size = c->pending.tx ? c->pending.size : length_committed(c);
    if (!c->pending.tx && is_outgrown(c, *size)) {
        database_renew(c, false);
        *size = length_committed(c);
        if (is_outgrown(c, *size))
            return fault(SQLITE_IOERR_FSTAT,
                         "another process made %s longer than this process has it mapped: close "
                         "all its connections here, then open it again",
                         c->name);
    }
    return *size < 0 ? fault_of_libato(SQLITE_IOERR_FSTAT, "cannot find the size of", c->name)
                     : SQLITE_OK;
}

/* In this order: a process of libato's that makes the file longer changes the file's length first. */
bool length_look(struct connection *c)
{
    const sqlite3_int64 size = length_of_view(c), length = database_length(c->db);
    c->cut_to = !c->direct && length >= 0 && length < size ? length + 1 : 0;
    return length != size && length != c->looked_at;
}

void length_find(struct connection *c)
{
    /* The lengths may stay different: a file that got shorter keeps its length while other processes have it mapped. */
    if (c->pending.view && length_look(c)) {
        c->looked_at = database_length(c->db);
        database_renew(c, true);
        (void)length_look(c);
    }
}

int length_require(struct connection *c, int code)
{
    c->looked_at = -1;
    length_find(c);
    if (database_length(c->db) == length_of_view(c))
        return SQLITE_OK;
    return fault(
        code,
        "another program changed the length of %s while several processes had it open through ato: "
        "each of these has to read or close the database before it can be written to",
        c->name);
}
