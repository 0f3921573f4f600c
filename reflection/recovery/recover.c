/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/recover.h"

#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/recovery/found.h"
#include "reflection/recovery/replay.h"

#include <errno.h>

/* What to recover. */
struct wanted {
    const struct trust *file;
    uint64_t process;              /* the maker of the journals; 0: any */
    const struct recover_file *of; /* the file of recover_process() */
};

/* Finds whether the owner of a journal is dead. LOCKS_MINE: yes, and its byte is locked now. */
static enum locks_answer ask_owner(const struct wanted *wanted, int fd)
{
    /* The kernel drops the locks of a dying process one by one. */
    if (wanted->process)
        return locks_wait(fd, 0, 1) == 0 ? LOCKS_MINE : LOCKS_FAILED;
    return locks_try(fd, 0, 1);
}

/* Recovers the journal that is open as `fd`; closes it. */
static int recover_opened(const struct found_journal *journal, int fd, const struct wanted *wanted)
{
    const struct folder *f = journal->folder;
    int result = 0, named = 0;
    locks_keep(fd);
    if (locks_wait(fd, 1, 1) < 0)
        result = report_errno(errno, "cannot lock the journal %s/%s", f->path, journal->name);
    else if ((named = folder_names(f, journal->name, fd)) < 0)
        result = -1;
    if (named == 1) {
        enum locks_answer owner = ask_owner(wanted, fd);
        struct pool pool;
        if (owner == LOCKS_FAILED) {
            result = report_errno(errno, "cannot lock the journal %s/%s", f->path, journal->name);
        } else if (owner == LOCKS_MINE) { /* its owner is dead */
            result = pool_open(&pool, f, journal->name, fd);
            if (result == 0) {
                result = replay_all(journal, &pool);
                /* The journal may be another user's, in a folder where users can remove only their own
                 * files: it holds no commit any more, and may stay. */
                if (pool_close(&pool, f, result == 0) < 0 && errno != EPERM && errno != EACCES)
                    result = -1;
                return result < 0 ? -1 : 0; /* pool_close() closed fd */
            }
        }
    }
    locks_close(fd);
    return result;
}

/* Waits for the owner of a journal of a process that no longer has the file mapped, where its maker may not
 * write to the file any more. */
static int await_others(const struct folder *f, const char *name, const struct recover_file *file)
{
    enum { PATIENCE_MS = 30000 };
    int found = found_judge(f, name, file, PATIENCE_MS);
    return found == 1
               ? report_error(EBUSY,
                              "journal %s/%s: its process has been exiting for 30 s and still "
                              "holds the lock; map the file again when that process is gone",
                              f->path, name)
               : found;
}

static int forbidden(const struct folder *f, const char *name, int fd)
{
    return fd == FOUND_FORBIDDEN
               ? report_error(EACCES,
                              "no permission to open the journal %s/%s of a dead process: map the "
                              "file once as a user that may open it",
                              f->path, name)
               : -1;
}

static int recover_journal(const struct folder *f, const char *name, const void *arg)
{
    const struct wanted *wanted = arg;
    struct found_journal journal = {.folder = f, .name = name};
    if (wanted->process && !pool_is_of(name, wanted->process))
        return 0;
    int fd = found_open(f, name, &journal.st, wanted->file);
    /* If it may not be opened, due.c decides whether that matters. But a journal of `process`, which had
     * this very file mapped, was made so that all users that may write to the file can open it: then it
     * is an error. */
    if (fd == FOUND_OTHERS && wanted->process && found_was_of_group(&journal.st, wanted->file))
        return await_others(f, name, wanted->of);
    if (fd < 0)
        return fd == -1 || (fd == FOUND_FORBIDDEN && wanted->process) ? forbidden(f, name, fd) : 0;
    return recover_opened(&journal, fd, wanted);
}

/* Removes an unfinished journal: it has no content. A living maker has locked it, or is about
 * to: then the maker finds that the name is gone, and starts again. */
static int clear_unfinished(const struct folder *f, const char *name, const void *arg)
{
    const struct wanted *wanted = arg;
    struct stat st;
    int fd = found_open(f, name, &st, wanted->file);
    if (fd < 0)
        return fd == -1 ? -1 : 0;
    locks_keep(fd);
    if (locks_try(fd, 0, 1) == LOCKS_MINE && folder_names(f, name, fd) == 1 &&
        fsops->unlinkat(f->fd, name, 0) == 0)
        report_log(REPORT_INFO, "removed the unfinished journal %s/%s", f->path, name);
    locks_close(fd);
    return 0;
}

static int recover(const struct folder *f, const struct wanted *wanted)
{
    static const struct found_visits recover = {recover_journal, clear_unfinished};
    struct report_kept failure = {0};
    if (found_each(f, &recover, wanted, &failure) < 0)
        return -1;
    if (failure.error)
        report_again(&failure);
    return failure.error != 0;
}

int recover_folder(const struct folder *f, const struct trust *file)
{
    const struct wanted all = {.file = file};
    return recover(f, &all);
}

int recover_process(const struct folder *f, const struct recover_file *file, uint64_t process)
{
    const struct wanted wanted = {.file = &file->trust, .process = process, .of = file};
    return recover(f, &wanted) == 0 ? 0 : -1;
}
