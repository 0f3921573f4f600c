/* SPDX-License-Identifier: BSD-3-Clause */
#include "transaction.h"

#include "connection.h"
#include "database.h"
#include "direct.h"
#include "fault.h"
#include "length.h"
#include "mask.h"
#include "super_journal.h"

/* A new file has no header that could be masked before its first commit: its guard is set here, when the header is known. */
static int guard_new_file(struct connection *c)
{
    char header[MASK_HEADER];
    if (c->db->guarded || !c->pending.tx || !c->pending.writes)
        return 0;
    if (pending_read(&c->pending, header, sizeof(header), 0) < 0)
        return -1;
    return mask_set_plain(c->pending.view, header);
}

int transaction_commit(struct connection *c, int code)
{
    if (!c->pending.tx || (guard_new_file(c) == 0 && pending_commit(&c->pending) == 0))
        return SQLITE_OK;
    return fault_of_libato(code, "cannot commit to", c->name);
}

void transaction_abandon(struct connection *c)
{
    super_leave(c);
    pending_abort(&c->pending);
    c->refused = c->becomes_wal = false;
}

/* The rollback of a prepared database ends here, too: what is staged by then equals what was there before. That is not certain
 * for a database that could not be prepared, whose super-journal may be gone by then: it is abandoned, and the error makes SQLite
 * drop its cache. */
int transaction_sync(struct connection *c, const char *super)
{
    if (!connection_journals_in_memory(c))
        return SQLITE_OK;
    c->checkpointed = false;
    if (super) {
        if (guard_new_file(c) < 0)
            return fault_of_libato(SQLITE_IOERR_FSYNC, "cannot set the guard of", c->name);
        int r = super_prepare(c, super);
        c->refused = r != SQLITE_OK;
        return r;
    }
    if (c->refused) {
        transaction_abandon(c);
        return SQLITE_IOERR_FSYNC;
    }
    super_give_up(c->super);
    return transaction_commit(c, SQLITE_IOERR_FSYNC);
}

/* Only a VFS above that held its writes back has any now. If a new size cannot be committed, the
 * file is truncated later. */
int transaction_end(struct connection *c)
{
    if (c->prepared)
        return SQLITE_OK;
    if (c->pending.tx && c->pending.writes) {
        int r = transaction_commit(c, SQLITE_IOERR_FSYNC);
        if (r != SQLITE_OK)
            return r;
    } else if (c->pending.tx && pending_commit(&c->pending) < 0) {
        fault_ignored("cannot truncate", c->name);
        pending_abort(&c->pending);
    }
    length_cut(c);
    direct_leave(c);
    c->becomes_wal = false;
    return SQLITE_OK;
}
