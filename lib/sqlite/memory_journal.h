/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rollback journal in memory. SQLite uses it for ROLLBACK and ROLLBACK TO, and it goes when the connection closes it. After a
 * crash there is nothing to roll back: nothing of the transaction has reached the database. Other connections must not see
 * it, so that xAccess() says it does not exist.
 */
#ifndef ATO_SQLITE_MEMORY_JOURNAL_H
#define ATO_SQLITE_MEMORY_JOURNAL_H

#include "bytes.h"

struct memory_journal {
    sqlite3_file as_file; /* first */
    struct bytes bytes;
};

/* What is on the disk under the name of a journal. SQLite plays a journal back (it is hot) if its first byte is not 0. */
enum journal_left {
    JOURNAL_NONE,
    JOURNAL_HOT,
    JOURNAL_COLD,
    JOURNAL_NO_FILE, /* a folder */
    JOURNAL_UNKNOWN, /* it could not be read */
};

enum journal_left memory_journal_on_disk(const char *name);

/* Opens a journal in memory. What was `left` on the disk under its name is deleted; SQLITE_CANTOPEN if it is hot and cannot be
 * deleted. */
int memory_journal_open(struct memory_journal *j, sqlite3_vfs *below, const char *name,
                        enum journal_left left);

#endif
