/* SPDX-License-Identifier: BSD-3-Clause */
/* Decides whether a journal matters to a file that is about to be mapped. */
#include "reflection/recovery/recover.h"

#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/recovery/found.h"
#include "reflection/recovery/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* For a journal that the caller may not open. A journal has owner, group and mode of the reflections that it
 * serves, so another owner, group or mode means that it does not matter. Returns 0; -1 with a sentence. */
static int judge_forbidden(const struct folder *f, const char *name,
                           const struct recover_file *file)
{
    struct stat journal, own;
    if (fstatat(f->fd, name, &journal, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT
                   ? 0
                   : report_errno(errno, "cannot stat the journal %s/%s", f->path, name);
    if (fstat(file->manifest, &own) < 0)
        return report_errno(errno, "cannot stat a manifest in %s", f->path);
    const bool alike = (journal.st_uid == own.st_uid || (own.st_mode & S_IWGRP)) &&
                       journal.st_gid == own.st_gid &&
                       (journal.st_mode & 0666) == ownership_writers(own.st_mode & 0666);
    /* Where all users may write to the file, its journals may have any owner and group. */
    const bool for_all = file->in_use && (journal.st_mode & own.st_mode & S_IWOTH);
    if (!alike && !for_all)
        return 0;
    return report_error(EACCES,
                        "no permission to open the journal %s/%s, which may hold a commit of this "
                        "file: map the file once as a user that may open it",
                        f->path, name);
}

/* For the journal that is open as `fd`; closes it. Returns as recover_is_due(). */
static int opened_is_due(const struct folder *f, const char *name, int fd,
                         const struct recover_file *file)
{
    enum locks_answer owner = locks_ask(fd, 0, 1);
    int due = owner == LOCKS_FREE ? folder_names(f, name, fd) : 0;
    struct pool pool;
    if (due == 1) {
        if (pool_open(&pool, f, name, fd) < 0) {
            due = file->in_use; /* recover_folder() reports what is wrong */
        } else {
            due = replay_settle(f, &pool) < 0 ? -1 : found_names_file(&pool.journal, file);
            (void)pool_close(&pool, f, false);
            return due;
        }
    } else if (owner == LOCKS_FAILED) {
        due = report_errno(errno, "cannot ask for the lock of the journal %s/%s", f->path, name);
    } else if (owner == LOCKS_TAKEN) {
        due = pool_peek(&pool, fd, f, name);
        if (due == 1)
            due = found_names_file(&pool.journal, file);
        pool_peek_end(&pool);
    }
    close(fd);
    return due;
}

static int needs_recovery(const struct folder *f, const char *name, const void *arg)
{
    const struct recover_file *file = arg;
    struct stat st;
    int fd = found_open(f, name, &st, &file->trust);
    if (fd == FOUND_FORBIDDEN)
        return judge_forbidden(f, name, file);
    if (fd == FOUND_OTHERS && found_was_of_group(&st, &file->trust))
        return found_judge(f, name, file, 0);
    return fd < 0 ? (fd == -1 ? -1 : 0) : opened_is_due(f, name, fd, file);
}

int recover_is_due(const struct folder *f, const struct recover_file *file)
{
    static const struct found_visits ask = {needs_recovery, NULL};
    return found_each(f, &ask, file, NULL);
}
