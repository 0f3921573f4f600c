/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The methods that SQLite calls on an open database, how it ends a transaction, and the PRAGMAs. Each call that uses the view
 * holds the connection's mutex.
 *
 * SQLite's handle is the one of the VFS below, with other methods: what needs no work here (shared memory, the size of a sector)
 * goes to that VFS at once.
 */
#include "connection.h"

#include "data.h"
#include "database.h"
#include "fault.h"
#include "journals.h"
#include "share.h"
#include "share_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Begins each call that uses the view. The mutex is nearly always free. */
static struct connection *enter(sqlite3_file *file)
{
    struct connection *c = connection_of(file);
    pthread_mutex_lock(&c->in_call);
    c->file = file; /* a VFS above may move it after xOpen, as SQLite's own appendvfs does */
    c->error = errno;
    return c;
}

/* Restores errno after a success. The VFS below may look at errno after a failure of its own that did not set it,
 * and would report an ENXIO of libato's (from SEEK_DATA) as a damaged file system. */
static int leave(struct connection *c, int result)
{
    if (result == SQLITE_OK)
        errno = c->error;
    pthread_mutex_unlock(&c->in_call);
    return result;
}

/*
 * ---- the end of a transaction ----
 *
 * SQLite says what becomes of it by these calls:
 *
 *   commit    xSync with something staged; COMMIT_PHASETWO, with synchronous=OFF, or if a VFS above gives no xSync on
 *   abandon   the lock drops below RESERVED, or the database is closed
 *
 * Errors are logged.
 */

/* Does COMMIT give EXCLUSIVE back, and return what xUnlock returns? Of an attached database it is not known: another one may fail first, and
 * PRAGMA locking_mode is only told to the main one. (Without that pragma: a SQLite may have been built with the mode exclusive.) */
static bool gives_back(const struct connection *c)
{
    sqlite3 *user = c->user ? *c->user : NULL;
    return user && sqlite3_db_filename(user, "main") == c->name && c->gave_back && !c->keeps_locks;
}

/* If others wait to write; and so are some that follow. */
static bool is_early(struct connection *c)
{
    enum { SOON = 16 };
    bool was_refused;
    if (!gives_back(c))
        return false;
    const bool may = locks_may_hand_over(&c->db->locks, &was_refused);
    if (may || was_refused)
        c->early = may ? SOON : 0;
    return c->early && c->early--;
}

static enum pending_commit when_durable(struct connection *c)
{
    /* Of several databases each commit is durable before their journals go. */
    if (!c->db->memory || c->lock < SQLITE_LOCK_EXCLUSIVE || c->becomes_wal || share_had_wal(c) ||
        share_memory_writes_several(c))
        return PENDING_DURABLE;
    if (c->pending.relaxed && c->rollback != JOURNAL_ON_DISK)
        return PENDING_RELAXED;
    return is_early(c) ? PENDING_EARLY : PENDING_DURABLE;
}

/* Commits what is staged, if anything is. Returns SQLITE_OK; SQLITE_IOERR_FSYNC, or a code that says more: nothing is staged any
 * more. SQLite rolls back then, and undoes only what it has staged itself, which data_finish() adds to. */
static int commit(struct connection *c)
{
    int r = c->pending.tx ? data_finish(c) : SQLITE_OK;
    /* The process ends: what was staged is gone (database.c, at_exit()). With a journal on the disk nothing was. */
    if (c->db->gone && c->lock >= SQLITE_LOCK_RESERVED && c->rollback != JOURNAL_ON_DISK)
        r = SQLITE_IOERR_FSYNC;
    if (r == SQLITE_OK && c->pending.tx && pending_commit(&c->pending, when_durable(c)) < 0)
        r = fault_of_libato(SQLITE_IOERR_FSYNC, "cannot commit to", c->name);
    c->committed |= r == SQLITE_OK;
    if (r != SQLITE_OK)
        data_give_up(c);
    return r;
}

/* ---- locks ---- */

static int connection_lock(sqlite3_file *file, int level)
{
    struct connection *c = enter(file);
    const int r = share_lock(c, level);
    int has = r == SQLITE_OK ? level : c->lock;
    /* As with SQLite's own VFS: while readers end, no new ones begin. */
    if (c->db->memory && r == SQLITE_BUSY && level == SQLITE_LOCK_EXCLUSIVE &&
        c->lock == SQLITE_LOCK_RESERVED)
        has = SQLITE_LOCK_PENDING;
    if (has > c->lock)
        __atomic_store_n(&c->lock, has, __ATOMIC_RELAXED);
    return leave(c, r);
}

static int unlock(struct connection *c, int level)
{
    c->complete = false;
    /* Before other connections may write: their transactions would wait for the pages of this one. */
    if (level < SQLITE_LOCK_RESERVED && c->lock >= SQLITE_LOCK_RESERVED)
        data_give_up(c);
    /* With journal_mode=truncate or persist SQLite keeps the journal open, and writes to it, until it gives its last lock back. */
    if (level == SQLITE_LOCK_NONE)
        c->rollback = JOURNAL_NONE;
    c->gave_back |= c->committed && level < SQLITE_LOCK_RESERVED;
    c->deletes_durably = c->committed = false;
    /* Before another connection has the lock: its journal must not be taken for this connection's. */
    const int before = c->lock;
    if (level < before)
        __atomic_store_n(&c->lock, level, __ATOMIC_RELAXED);
    if (level < SQLITE_LOCK_RESERVED)
        pending_note(&c->pending);
    const int r = share_unlock(c, before, level);
    /* Others may write from now on. COMMIT returns what is returned here. */
    return level < SQLITE_LOCK_RESERVED && pending_await(&c->pending) < 0 && r == SQLITE_OK
               ? fault_of_libato(SQLITE_IOERR_FSYNC, "cannot commit to", c->name)
               : r;
}

static int connection_unlock(sqlite3_file *file, int level)
{
    struct connection *c = enter(file);
    return leave(c, unlock(c, level));
}

static int connection_look(sqlite3_file *file, int *is_reserved)
{
    struct connection *c = enter(file);
    return leave(c, share_look(c, is_reserved));
}

/*
 * ---- PRAGMAs ----
 *
 *   ato_lock_wait_ms [= N] how long a lock in memory is waited for, whatever the busy handler says
 *   ato_stat              the fields of struct ato_stat, and what the write lock does, as JSON
 *   ato_unmap [= M]       how the file is unmapped if this connection is closed last: plain, fast
 */

static const char *const policies[] = {
    [ATO_READ_LAZY] = "lazy",
    [ATO_READ_GATHER] = "gather",
    [ATO_READ_EAGER] = "eager",
};
static const char *const domains[] = {
    [ATO_DOMAIN_PMEM] = "pmem",
    [ATO_DOMAIN_EADR] = "eadr",
    [ATO_DOMAIN_DISK] = "disk",
    [ATO_DOMAIN_PROCESS] = "process",
};

/* words[0] becomes the answer, or the sentence of the error. */
static int refuse(const struct connection *c, char **words, const char *why)
{
    words[0] = words[2] ? sqlite3_mprintf("%s=%s of %s: %s", words[1], words[2], c->name, why)
                        : sqlite3_mprintf("%s of %s: %s", words[1], c->name, why);
    return words[0] ? fault(SQLITE_ERROR, "%s", words[0]) : SQLITE_NOMEM;
}

static int pragma_stat(struct connection *c, char **words)
{
    struct ato_stat st = {.struct_size = sizeof(st)};
    struct locks_use use;
    char holder[16] = "null";
    if (ato_stat(c->pending.view, &st) < 0)
        return refuse(c, words, ato_errormsg());
    locks_tell_use(&c->db->locks, &use);
    if (use.holder)
        (void)snprintf(holder, sizeof(holder), "%u", use.holder);
    words[0] = sqlite3_mprintf(
        "{\"domain\":\"%s\",\"read_policy\":\"%s\",\"size\":%llu,\"slices_in_reflection\":%llu,"
        "\"reflection_bytes\":%llu,\"writes\":%llu,\"bytes_written\":%llu,\"reads\":%llu,"
        "\"bytes_read\":%llu,\"bytes_to_media\":%llu,\"flips\":%llu,\"commits_single\":%llu,"
        "\"commits_rtm\":%llu,\"commits_journal\":%llu,\"rtm_aborts\":%llu,"
        "\"deployed_slices\":%llu,\"read_retries\":%llu,\"write_lock\":{\"holder\":%s,"
        "\"held_ms\":%llu,\"waiting\":%u,\"holds\":%llu,\"waits\":%llu,"
        "\"longest_hold_ms\":%llu,\"longest_wait_ms\":%llu}}",
        domains[st.domain], policies[st.read_policy], st.size, st.slices_in_reflection,
        st.reflection_bytes, st.writes, st.bytes_written, st.reads, st.bytes_read,
        st.bytes_to_media, st.flips, st.commits_single, st.commits_rtm, st.commits_journal,
        st.rtm_aborts, st.deployed_slices, st.read_retries, holder, use.held / 1000000, use.waiting,
        use.holds, use.waits, use.longest_hold / 1000000, use.longest_wait / 1000000);
    return SQLITE_OK;
}

static int pragma_wait(struct connection *c, char **words)
{
    if (words[2] && !parameters_read_wait(words[2], &c->wants.lock_wait_ms))
        return refuse(c, words, "it must be " PARAMETERS_WAIT);
    words[0] = sqlite3_mprintf("%u", c->wants.lock_wait_ms);
    return SQLITE_OK;
}

static int pragma_unmap(struct connection *c, char **words)
{
    const int mode = words[2] ? parameters_find(words[2], parameters_unmap) : c->wants.unmap_fast;
    if (mode < 0)
        return refuse(c, words, "it must be plain or fast");
    c->wants.unmap_fast = mode;
    words[0] = sqlite3_mprintf("%s", parameters_unmap[mode]);
    return SQLITE_OK;
}

/* `words` is the argument of FCNTL_PRAGMA. SQLITE_NOTFOUND: the pragma is not this VFS's. */
static int pragma(struct connection *c, char **words)
{
    static const struct {
        const char *name;
        bool needs_view;
        int (*run)(struct connection *c, char **words);
    } all[] = {{"ato_lock_wait_ms", false, pragma_wait},
               {"ato_stat", true, pragma_stat},
               {"ato_unmap", false, pragma_unmap}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        if (sqlite3_stricmp(words[1], all[i].name) != 0)
            continue;
        if (share_memory_begin(c, false) != SQLITE_OK)
            return refuse(c, words, "the database cannot be mapped now: the log says why");
        if (all[i].needs_view && !c->pending.view)
            return refuse(c, words,
                          "the database is not mapped before it is written to, on a disk twice");
        const int r = all[i].run(c, words);
        return words[0] ? r : SQLITE_NOMEM;
    }
    return SQLITE_NOTFOUND;
}

/* ---- what SQLite has to say, and to ask ---- */

unsigned connection_keepers;

static void keep_locks(struct connection *c, bool keeps)
{
    if (keeps != c->keeps_locks)
        __atomic_fetch_add(&connection_keepers, keeps ? 1 : -1u, __ATOMIC_RELAXED);
    __atomic_store_n(&c->keeps_locks, keeps, __ATOMIC_RELAXED);
}

/* PRAGMA synchronous = `word`. SQLite takes any other word for normal. In a transaction it refuses the change. */
static void set_synchronous(struct connection *c, const char *word)
{
    static const char *const relaxed[] = {"normal", "1", "on", "yes",  "true",
                                          "off",    "0", "no", "false"};
    if (!c->user || !sqlite3_get_autocommit(*c->user))
        return;
    c->pending.relaxed = false;
    for (size_t i = 0; i < sizeof(relaxed) / sizeof(*relaxed); i++)
        c->pending.relaxed |= sqlite3_stricmp(word, relaxed[i]) == 0;
}

/* Of newer versions than the one that this is compiled with. */
enum { NULL_IO = 43, BLOCK_ON_CONNECT = 44 };

static int control(struct connection *c, int what, void *arg)
{
    int r;
    switch (what) {
    case SQLITE_FCNTL_SYNC:
        /* All is written, and xSync comes unless synchronous is OFF. No commit is made here: a VFS above that holds writes back until
         * xSync may still have some, and a rollback would be committed in part. */
        return SQLITE_OK;
    case SQLITE_FCNTL_COMMIT_PHASETWO:
        r = commit(c);
        if (r !=
            SQLITE_OK) /* after another error than these two SQLite would trust its cache (fault.c) */
            return r == SQLITE_FULL || (r & 0xff) == SQLITE_IOERR ? r : SQLITE_IOERR_FSYNC;
        if (c->becomes_wal)
            data_complete(c);
        else if (c->lock == SQLITE_LOCK_EXCLUSIVE)
            share_forget_wal(c);
        c->becomes_wal = false;
        return SQLITE_OK;
    case SQLITE_FCNTL_CKPT_START:
        c->checkpoint = true;
        c->complete = c->cache_is_old = false;
        return data_begin_below(c,
                                SQLITE_IOERR_WRITE); /* SQLite goes on: so the writes look again */
    case SQLITE_FCNTL_CKPT_DONE:
        c->checkpoint = false;
        c->cache_is_old = true;
        return SQLITE_OK;
    case SQLITE_FCNTL_SIZE_HINT:
        return data_expect(c, *(sqlite3_int64 *)arg);
    case SQLITE_FCNTL_CHUNK_SIZE:
        c->chunk = *(int *)arg > 0 ? *(int *)arg : 0;
        return SQLITE_OK;
    case SQLITE_FCNTL_LOCKSTATE:
        if (!c->db->memory)
            return c->below->xFileControl(c->file, what, arg);
        *(int *)arg = c->lock;
        return SQLITE_OK;
    case SQLITE_FCNTL_HAS_MOVED:
        if (!c->db->memory)
            return c->below->xFileControl(c->file, what, arg);
        /* SQLite asks before each transaction that writes: data_finish() looks then. */
        *(int *)arg = !connection_writes(c) && database_has_moved(c);
        return SQLITE_OK;
    case SQLITE_FCNTL_BUSYHANDLER:
        c->busy = ((int (**)(void *))arg)[0];
        c->busy_arg = ((void **)arg)[1];
        return SQLITE_OK;
    case SQLITE_FCNTL_PDB:
        c->user = arg;
        share_memory_set_opener(c, *c->user);
        return c->below->xFileControl(c->file, what, arg);
    case SQLITE_FCNTL_PRAGMA:
        if (sqlite3_stricmp(((char **)arg)[1], "locking_mode") == 0 && ((char **)arg)[2])
            keep_locks(c, sqlite3_stricmp(((char **)arg)[2], "exclusive") == 0);
        if (sqlite3_stricmp(((char **)arg)[1], "synchronous") == 0 && ((char **)arg)[2])
            set_synchronous(c, ((char **)arg)[2]);
        r = pragma(c, arg);
        return r == SQLITE_NOTFOUND ? c->below->xFileControl(c->file, what, arg) : r;
    case NULL_IO: /* closes the file, and with that drops the process's locks on it */
    case BLOCK_ON_CONNECT: /* waits in the kernel for SHARED, which others refuse as long as they have the database open */
        return SQLITE_NOTFOUND;
    default:
        r = c->below->xFileControl(c->file, what, arg);
        if (r == SQLITE_OK && what == SQLITE_FCNTL_VFSNAME)
            *(char **)arg = sqlite3_mprintf("ato/%z", *(char **)arg);
        return r;
    }
}

/* Not SAFE_APPEND and SEQUENTIAL, which save syncs of a journal: a journal in memory has no syncs. Not BATCH_ATOMIC of a VFS
 * below: batches would not be staged. */
static int connection_characteristics(sqlite3_file *file)
{
    return connection_of(file)->below->xDeviceCharacteristics(file) & ~SQLITE_IOCAP_BATCH_ATOMIC;
}

/* ---- open and close ---- */

static int connection_close(sqlite3_file *file)
{
    struct connection *c = enter(file);
    data_give_up(c);
    keep_locks(c, false);
    (void)unlock(c, SQLITE_LOCK_NONE);
    share_end(c);
    const int r = leave(c, c->below->xClose(c->file));
    database_close(c);
    free(c);
    return r;
}

/* ---- as a file ---- */

static int connection_read(sqlite3_file *file, void *to, int n, sqlite3_int64 offset)
{
    struct connection *c = enter(file);
    return leave(c, data_read(c, to, n, offset));
}

static int connection_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 offset)
{
    struct connection *c = enter(file);
    /* SQLite writes the first page of a commit first. */
    int r = offset == 0 && data_may_go_below(c) ? rollback_journal_put(c) : SQLITE_OK;
    if (r == SQLITE_OK)
        r = data_write(c, from, n, offset);
    return leave(c, r);
}

static int connection_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct connection *c = enter(file);
    return leave(c, data_resize(c, size));
}

/* A commit is durable as far as the domain reaches. */
static int connection_sync(sqlite3_file *file, int flags)
{
    struct connection *c = enter(file);
    int r = commit(c);
    if (r == SQLITE_OK && (c->wrote_below || !c->pending.view)) {
        r = c->below->xSync(c->file, flags);
        c->wrote_below &= r != SQLITE_OK;
    }
    return leave(c, r);
}

static int connection_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct connection *c = enter(file);
    return leave(c, data_length(c, size));
}

static int connection_control(sqlite3_file *file, int what, void *arg)
{
    struct connection *c = enter(file);
    return leave(c, control(c, what, arg));
}

/* SQLite does not ask for pages (iVersion). A VFS above that does, as SQLite's own appendvfs, gets none, and has to read. */
static int connection_fetch(sqlite3_file *file, sqlite3_int64 offset, int n, void **page)
{
    (void)file, (void)offset, (void)n;
    *page = NULL;
    return SQLITE_OK;
}

static int connection_unfetch(sqlite3_file *file, sqlite3_int64 offset, void *page)
{
    (void)file, (void)offset, (void)page;
    return SQLITE_OK;
}

/* The methods of the VFS below, some of which are replaced; not xFetch, which gives out pages of a mapping that would have to
 * stay. SQLite calls those of shared memory if they are set: a VFS without it (unix-none) has none. */
static void set_methods(struct connection *c)
{
    const bool has_more = c->below->iVersion >= 2;
    memcpy(&c->methods, c->below,
           has_more ? offsetof(sqlite3_io_methods, xFetch) : offsetof(sqlite3_io_methods, xShmMap));
    c->methods.iVersion = 2;
    c->methods.xClose = connection_close;
    c->methods.xRead = connection_read;
    c->methods.xWrite = connection_write;
    c->methods.xTruncate = connection_truncate;
    c->methods.xSync = connection_sync;
    c->methods.xFileSize = connection_size;
    c->methods.xLock = connection_lock;
    c->methods.xUnlock = connection_unlock;
    c->methods.xCheckReservedLock = connection_look;
    c->methods.xFileControl = connection_control;
    c->methods.xFetch = connection_fetch;
    c->methods.xUnfetch = connection_unfetch;
    c->methods.xDeviceCharacteristics = connection_characteristics;
    c->file->pMethods = &c->methods;
    memcpy((char *)c->file + connection_offset, &c, sizeof(c));
}

int methods_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                 int *out_flags)
{
    struct connection *c = calloc(1, sizeof(*c));
    int opened = flags;
    if (!c)
        return SQLITE_NOMEM;
    *c = (struct connection){.vfs = below,
                             .file = file,
                             .name = name,
                             .journal = sqlite3_filename_journal(name),
                             .wal = sqlite3_filename_wal(name),
                             .line = -1,
                             .counter = -1,
                             .in_call = PTHREAD_MUTEX_INITIALIZER};
    int r = below->xOpen(below, name, file, flags, &opened);
    c->below = file->pMethods;
    c->writable = !(opened & SQLITE_OPEN_READONLY);
    if (r == SQLITE_OK)
        r = parameters_read(&c->wants, name);
    if (r == SQLITE_OK)
        r = database_open(c);
    if (r != SQLITE_OK) {
        if (c->below)
            (void)c->below->xClose(file);
        file->pMethods = NULL;
        free(c);
        return r;
    }
    set_methods(c);
    if (out_flags)
        *out_flags = opened;
    return SQLITE_OK;
}
