/* SPDX-License-Identifier: BSD-3-Clause */
#include "journals.h"

#include "ato.h"
#include "connection.h"
#include "data.h"
#include "database.h"
#include "fault.h"
#include "share.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- rollback journals ---- */

static const char ending[] = "-journal";

static bool has_journal(const struct connection *c, const void *journal)
{
    const size_t n = strlen(c->name);
    const char *name = journal;
    return strncmp(c->name, name, n) == 0 && strcmp(name + n, ending) == 0;
}

static bool writes_journal(const struct connection *c, const void *journal)
{
    return connection_writes(c) && has_journal(c, journal);
}

/* Returns the connection that has RESERVED and a rollback journal of this name; NULL. The connection is this thread's. */
static struct connection *writer_of(const char *journal)
{
    struct connection *c = share_in_memory(journal);
    return c && c->journal == journal && connection_writes(c)
               ? c
               : database_find(writes_journal, journal);
}

/* A journal on the disk was written after SQLite had looked for one, by a process that has died. Nothing of that process's
 * transaction is in the database, since this connection has held SHARED all the time. SQLite itself would overwrite such a
 * journal; a journal in memory would leave it there, to be played back over later commits. While this connection has RESERVED
 * no other one writes a journal. */
static int delete_left(sqlite3_vfs *below, const char *name)
{
    const int durably = 1;
    int is_left = 1;
    errno = 0;
    int r = below->xAccess(below, name, SQLITE_ACCESS_EXISTS, &is_left);
    if (r == SQLITE_OK && is_left)
        r = below->xDelete(below, name, durably);
    if (r == SQLITE_OK || r == SQLITE_IOERR_DELETE_NOENT)
        return SQLITE_OK;
    const bool is_medium = errno == 0 || errno == EIO;
    return fault(
        is_medium ? r : SQLITE_CANTOPEN,
        "cannot delete %s, a journal of another process, which SQLite could play back over "
        "later commits: delete it",
        name);
}

/* Returns whether this transaction of SQLite's has begun to change the database. */
static bool is_changed_by(const struct connection *c, const void *user)
{
    return __atomic_load_n(&c->writer, __ATOMIC_RELAXED) == user;
}

/* Returns whether libato can commit both together; false with ato_errormsg(). If that is not known the commit tells. */
static bool fit_together(struct connection *a, struct connection *b)
{
    /* The views stay mapped (database.c, at_exit()). */
    pthread_mutex_lock(&a->in_call);
    pthread_mutex_lock(&b->in_call);
    const char *x = a->pending.view, *y = b->pending.view;
    const bool fit = !x || !y || ato_tx_together(x, y) == 0 || errno != EXDEV;
    pthread_mutex_unlock(&b->in_call);
    pthread_mutex_unlock(&a->in_call);
    return fit;
}

/* SQLite commits one database after the other if the main one has no file: then libato need not commit both together. */
static int check_together(sqlite3 *user, struct connection *before, struct connection *c)
{
    if (*sqlite3_db_filename(user, "main") == '\0' || fit_together(before, c))
        return SQLITE_OK;
    /* SQLITE_ERROR leaves the transaction open, but does not always undo what the statement has done. That matters if it has
     * changed the first database, which takes a temporary trigger: SQLITE_IOERR makes SQLite roll the transaction back. */
    const bool may_have_triggers = sqlite3_db_filename(user, "temp");
    return fault_of_libato(may_have_triggers ? SQLITE_IOERR_WRITE : SQLITE_ERROR,
                           "cannot write in this transaction to", c->name);
}

/* The length of a journal's header. */
enum { HEADER = 28 };

/* The header begins with zeros, and is all zeros at the end of a transaction. With synchronous=OFF it begins with other bytes:
 * SQLite commits such a database by itself. */
static int write_header(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    static const char zeros[HEADER];
    if (offset || n < HEADER || !c->user)
        return SQLITE_OK;
    const bool begins = *(const char *)from == 0 && memcmp(from, zeros, HEADER) != 0;
    sqlite3 *user = begins ? *c->user : NULL;
    /* All that it has changed fit together, so that one suffices. It is the calling thread's. */
    struct connection *before = user ? database_find(is_changed_by, user) : NULL;
    const int r = before && before != c ? check_together(user, before, c) : SQLITE_OK;
    if (r == SQLITE_OK)
        __atomic_store_n(&c->writer, user, __ATOMIC_RELAXED);
    return r;
}

/* ---- super-journals ---- */

static bool is_member(const struct connection *c, const void *name)
{
    return c->super && strcmp(c->super, name) == 0;
}

static bool is_prepared(const struct connection *c, const void *name)
{
    return is_member(c, name) && c->prepared; /* no member: another thread's */
}

bool super_exists(const char *name)
{
    return database_find(is_member, name);
}

void super_give_up(const char *name)
{
    struct connection *c;
    while (name && (c = database_find(is_prepared, name)) != NULL)
        c->prepared = false;
}

static void set_super(struct connection *c, char *name)
{
    database_lock();
    free(c->super);
    c->super = name;
    database_unlock();
}

void super_leave(struct connection *c)
{
    super_give_up(c->super);
    if (c->super)
        set_super(c, NULL);
}

/* The members' parts are one transaction; after a failure nothing is staged. The connections are this thread's, but the process may
 * be about to end in another one (database.c, at_exit()). A member that was not prepared has nothing staged. */
int super_delete(const char *name)
{
    struct connection *c, *all[PENDING_MOST];
    struct pending *staged[PENDING_MOST];
    int n = 0, r = SQLITE_OK;
    bool is_lost = false;
    while (n < PENDING_MOST && (c = database_find(is_prepared, name)) != NULL) {
        pthread_mutex_lock(&c->in_call);
        c->prepared = false;
        is_lost |= c->refused; /* by at_exit() in another thread */
        if (r == SQLITE_OK && c->pending.tx)
            r = data_finish(c);
        staged[n] = &c->pending;
        all[n++] = c;
    }
    if (is_lost)
        r = SQLITE_IOERR_FSYNC;
    else if (r == SQLITE_OK && pending_commit_all(staged, n) < 0)
        r = fault_of_libato(SQLITE_IOERR_FSYNC, "cannot make one commit to all databases of",
                            all[0]->name);
    for (int i = 0; i < n; i++) {
        data_give_up(all[i]); /* after the commit nothing is staged */
        if (r == SQLITE_OK)
            set_super(all[i], NULL);
        pthread_mutex_unlock(&all[i]->in_call);
    }
    return r;
}

/* Returns whether a database is a file. That is no journal's that SQLite names of a database in memory (:memory:, mode=memory,
 * vfs=memdb), which no crash leaves. */
static bool has_file(const char *journal)
{
    struct stat st;
    char *name = *journal == '/' ? strndup(journal, strlen(journal) - strlen(ending)) : NULL;
    const bool has = *journal == '/' && (!name || stat(name, &st) == 0 || errno != ENOENT);
    free(name);
    return has;
}

/* SQLite writes one name per call. A database that cannot take part is refused here, before any journal names the super-journal:
 * otherwise the first database that is rolled back would delete the super-journal, and the next one would take the transaction
 * for committed. (Bytes that are no name come from a shim that simulates crashes.) */
static int write_name(const char *super, const void *from, int n)
{
    const char *journal = from;
    if (n < (int)sizeof(ending) ||
        memcmp(journal + n - sizeof(ending), ending, sizeof(ending)) != 0)
        return SQLITE_OK;
    struct connection *c = database_find(writes_journal, journal);
    if (c && connection_journals_in_memory(c)) {
        super_give_up(c->super);
        set_super(c, strdup(super));
        return c->super ? SQLITE_OK : SQLITE_IOERR_NOMEM;
    }
    /* SQLite also names databases in WAL mode, which commit by their log: no connection has RESERVED. */
    if (!c && (database_find(has_journal, journal) || !has_file(journal)))
        return SQLITE_OK;
    return fault(
        SQLITE_IOERR_WRITE,
        "%s: in a transaction over several databases, all journals must be in memory or all on the "
        "disk: open all with vfs=ato and none with journal=file, or all with journal=file",
        journal);
}

static bool journals_on_disk(const struct connection *c, const void *journal)
{
    return (c->wants.journal_file || c->plays_back) && has_journal(c, journal);
}

/* Returns whether the main database's rollback journal is on the disk: SQLite adds 12 characters to its name. If it is not written
 * to, any connection to it tells, which may be another thread's: it is not used without the lock. It has none if this VFS has left
 * the database to the one below. */
static bool is_on_disk(const char *name)
{
    char journal[PATH_MAX];
    (void)snprintf(journal, sizeof(journal), "%.*s%s", (int)strlen(name) - 12, name, ending);
    const struct connection *writer = database_find(writes_journal, journal);
    return writer
               ? journals_on_disk(writer, journal)
               : !database_find(has_journal, journal) || database_find(journals_on_disk, journal);
}

/* ---- files in memory ---- */

enum { FIRST_ROOM = 16 << 10, KEPT_ROOM = 1 << 20 };

static struct memory_file *of(sqlite3_file *file)
{
    return (struct memory_file *)file;
}

/* A rollback journal is emptied: the transaction is over. */
static void end_change(const struct memory_file *f)
{
    if (f->c)
        __atomic_store_n(&f->c->writer, NULL, __ATOMIC_RELAXED);
}

static void drop(struct memory_file *f)
{
    free(f->at);
    f->at = NULL;
    f->size = f->room = 0;
}

static int file_close(sqlite3_file *file)
{
    end_change(of(file));
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
    int r = make_room(f, end); /* first: a header that is not stored begins no transaction */
    if (r == SQLITE_OK)
        r = f->c ? write_header(f->c, from, n, offset) : write_name(f->name, from, n);
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
    if (!size)
        end_change(f);
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

/* Opens an empty file. c: of a rollback journal, else NULL. */
static int memory_file_open(sqlite3_file *file, const char *name, struct connection *c, int flags,
                            int *out_flags)
{
    *(struct memory_file *)file =
        (struct memory_file){.as_file.pMethods = &memory_file_methods, .name = name, .c = c};
    if (out_flags)
        *out_flags = flags;
    return SQLITE_OK;
}

/* ---- xOpen and xDelete ---- */

int rollback_journal_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                          int *out_flags)
{
    /* SQLite opens a journal for reading to see whether it is hot. A connection that writes has opened its own before. */
    struct connection *c = flags & SQLITE_OPEN_READWRITE ? writer_of(name) : NULL;
    if (c) {
        /* A journal that is opened without CREATE was left on the disk by another process. */
        c->journaled = flags & SQLITE_OPEN_CREATE && !c->wants.journal_file;
        c->plays_back = !c->journaled;
    }
    if (!c || c->plays_back)
        return below->xOpen(below, name, file, flags, out_flags);
    const int r = c->db->memory ? SQLITE_OK : delete_left(below, name);
    return r == SQLITE_OK ? memory_file_open(file, name, c, flags, out_flags) : r;
}

int rollback_journal_delete(sqlite3_vfs *below, const char *name, int sync)
{
    struct connection *c = writer_of(name);
    const bool in_memory = c && c->journaled;
    /* With SQLITE_IOCAP_UNDELETABLE_WHEN_OPEN of a VFS above it stays open over transactions. */
    const bool may_lack = c && connection_journals_in_memory(c);
    if (c)
        c->plays_back = c->journaled = false;
    /* The transaction of a journal in memory is committed or rolled back by now. */
    if (in_memory)
        return SQLITE_OK;
    const int r = below->xDelete(below, name, sync);
    return r == SQLITE_IOERR_DELETE_NOENT && may_lack ? SQLITE_OK : r;
}

int super_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    const bool is_new = flags & SQLITE_OPEN_CREATE;
    if (is_new ? is_on_disk(name) : !super_exists(name))
        return below->xOpen(below, name, file, flags, out_flags);
    super_give_up(name); /* SQLite reads one only to find out whether a rollback needs it */
    return memory_file_open(file, name, NULL, flags, out_flags);
}
