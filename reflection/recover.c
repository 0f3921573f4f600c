/* SPDX-License-Identifier: BSD-3-Clause */
#include "recover.h"

#include "fsops.h"
#include "layout.h"
#include "locks.h"
#include "manifest.h"
#include "named.h"
#include "pool.h"
#include "report.h"
#include "visible.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* I5: 1 it is to be stored; 0 its file is gone; -1 with a sentence. */
static int check_word(const struct journal_view *v, const struct journal_word *w,
                      const struct recover_target *targets)
{
    const unsigned file = journal_word_file(w);
    const uint64_t offset = journal_word_offset(w);
    uint64_t size;
    if (file >= v->nfiles) /* somebody changed the lane since it was looked at */
        return report_error(EUCLEAN, "a lane of a journal is being written to");
    const struct recover_target *to = &targets[file];
    if (!(journal_word_is_size(w) ? (void *)to->size : (void *)to->reflection))
        return 0;
    if (journal_word_is_size(w)) {
        if (manifest_decode_size(w->value, &size) && layout_reflection_bytes(size) <= to->bytes)
            return 1;
        return report_error(EUCLEAN,
                            "a journal has the size word 0x%" PRIx64 " for the file of the "
                            "reflection %s/%s, which is %" PRIu64 " bytes long: it is no size that "
                            "fits",
                            w->value, to->folder, to->name, to->bytes);
    }
    if (layout_is_word(offset, to->bytes))
        return 1;
    return report_error(EUCLEAN,
                        "a journal names offset %" PRIu64 " of the reflection %s/%s, which is "
                        "%" PRIu64 " bytes long and has no bitmap word there",
                        offset, to->folder, to->name, to->bytes);
}

/* Where the i-th word of a lane goes, and what it is. It is copied, and checked each time: who may write to the
 * journal may do so now. 1; 0: nowhere; -1. */
struct target_word {
    const struct recover_target *to;
    uint64_t *word, value;
};

static int target_word(const struct journal_view *v, uint64_t i,
                       const struct recover_target *targets, struct target_word *t)
{
    const struct journal_word w = *(const volatile struct journal_word *)&v->words[i];
    int apply = check_word(v, &w, targets);
    if (apply <= 0)
        return apply;
    t->to = &targets[journal_word_file(&w)];
    t->word = journal_word_is_size(&w) ? t->to->size
                                       : (uint64_t *)(t->to->reflection + journal_word_offset(&w));
    t->value = w.value;
    return 1;
}

/* So many msync() calls take as long as one fsync() of all, in most cases. */
enum { FEW_FLUSHES = 8 };

static bool may_sync(const struct recover_target *to)
{
    return to->fd > 0 && to->persist.domain == PERSIST_MSYNC;
}

/* Words in many pages: once for each file, but for sizes. What else was stored there goes along; of this commit that
 * is durable. */
static int sync_files(const struct journal_view *v, const struct recover_target *targets)
{
    for (unsigned i = 0; i < v->nfiles; i++)
        if (may_sync(&targets[i]) && fsops_fsync(targets[i].fd) < 0)
            return report_errno(errno, "cannot make the replayed words of %s/%s durable",
                                targets[i].folder, targets[i].name);
    return 0;
}

int recover_apply(const struct journal_view *v, const struct recover_target *targets)
{
    const struct persist *last = NULL;
    const uint64_t *flushed = NULL;
    uint64_t flushes = 0;
    struct target_word t;
    for (uint64_t i = 0; i < v->nwords; i++)
        if (target_word(v, i, targets, &t) < 0)
            return -1;
    /* persist-order R1 (writer: W1 in lib/flip.c): the bytes that these words make valid were
     * durable before the commit line existed, so that the words may be stored in any order. I1.
     * explorer: tear word survives: the lane is committed until it is retired, and whoever finds half
     * of a word stores it again. */
    for (uint64_t i = 0; i < v->nwords; i++) {
        int apply = target_word(v, i, targets, &t);
        if (apply < 0)
            return -1;
        if (!apply)
            continue;
        persist_store_word(&t.to->persist, t.word, t.value);
        flushes +=
            may_sync(t.to) && !(flushed && persist_shares_flush(&t.to->persist, flushed, t.word));
        flushed = t.word;
    }
    const bool at_once = flushes > FEW_FLUSHES;
    if (at_once && sync_files(v, targets) < 0)
        return -1;
    /* As they were committed: once for the words of a line, or in domain msync of a meta page, that follow one
     * another. */
    flushed = NULL;
    for (uint64_t i = 0; i < v->nwords; i++) {
        int apply = target_word(v, i, targets, &t);
        if (apply < 0)
            return -1;
        if (!apply || (at_once && may_sync(t.to) && t.word != t.to->size))
            continue;
        if (flushed && persist_shares_flush(&t.to->persist, flushed, t.word))
            continue;
        if (persist_flush_word(&t.to->persist, t.word) < 0)
            return report_errno(errno, "cannot make the replayed words of %s/%s durable",
                                t.to->folder, t.to->name);
        flushed = t.word;
        last = &t.to->persist;
    }
    if (last)
        persist_fence(last);
    return 0;
}

/* ---- one journal ---- */

static int replay_lane(struct named *n, const struct persist *p, const struct journal_view *v,
                       struct visible *visible)
{
    struct recover_target *targets = calloc(v->nfiles, sizeof(*targets));
    if (!targets)
        return report_error(ENOMEM, "no memory to replay a journal");
    int applied = named_targets(n, v, targets);
    if (applied == 0)
        applied = recover_apply(v, targets);
    free(targets);
    if (applied < 0)
        return -1;
    visible_show(visible, v); /* before it is retired, as in flip.c */
    if (journal_retire_view(p, v) < 0)
        return report_errno(errno, "cannot make the replayed journal %s/%s durable",
                            n->journal->folder->path, n->journal->name);
    return 0;
}

/* Makes what a dead journal shows durable as it is. */
static int settle_lanes(const struct folder *f, const struct pool *pool)
{
    struct persist p;
    persist_init(&p, pool->journal.domain);
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++)
        if (journal_settle(&pool->journal, &p, lane) < 0)
            return report_errno(errno, "cannot make the journal %s/%s durable", f->path,
                                pool->name);
    return 0;
}

/* 1: it may be removed; 0: all is done, and a pointer to it stays; -1. */
static int replay_all(const struct linked *journal, struct pool *pool)
{
    const struct folder *f = journal->folder;
    struct named n;
    struct visible visible = {.named = NULL};
    struct persist p;
    struct journal_view v;
    int result = -1;
    uint64_t replayed = 0;
    persist_init(&p, pool->journal.domain);
    if (named_begin(&n, journal, &pool->journal) < 0 || settle_lanes(f, pool) < 0)
        goto out;
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++) {
        enum journal_finding found = journal_look(&pool->journal, lane, &v);
        if (found == JOURNAL_DAMAGED) {
            report_error(EUCLEAN, "lane %u of the journal %s/%s is damaged", lane, f->path,
                         pool->name);
            goto out;
        }
        if (found == JOURNAL_COMMITTED && named_add(&n, &v) < 0)
            goto out;
    }
    if (named_acquire(&n) < 0 || visible_begin(&visible, &n) < 0)
        goto out;
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++)
        if (journal_look(&pool->journal, lane, &v) == JOURNAL_COMMITTED &&
            visible_hide(&visible, &v) < 0)
            goto out;
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++) {
        if (journal_look(&pool->journal, lane, &v) != JOURNAL_COMMITTED)
            continue;
        if (replay_lane(&n, &p, &v, &visible) < 0)
            goto out;
        replayed++;
    }
    if (replayed)
        report_log(REPORT_INFO, "finished %" PRIu64 " commits of the dead journal %s/%s", replayed,
                   f->path, pool->name);
    result = named_remove_pointers(&n);
out:
    visible_end(&visible);
    named_end(&n);
    return result;
}

/* Opens the file of a journal, or a pointer. The descriptor; GONE; OTHERS, no matter for this file;
 * FORBIDDEN; -1 error. */
enum { GONE = -2, OTHERS = -3, FORBIDDEN = -4 };

static int open_found(const struct folder *f, const char *name, struct stat *st,
                      const struct trust *file)
{
    const char *path = f->path;
    /* O_NONBLOCK: anybody may make a named pipe of that name. */
    int fd = openat(f->fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int err = errno;
    if ((fd >= 0 ? fstat(fd, st) : fstatat(f->fd, name, st, AT_SYMLINK_NOFOLLOW)) < 0) {
        if (errno == ENOENT)
            return GONE;
        report_errno(errno, "cannot look at the journal %s/%s", path, name);
    } else if (!trust_maker(file, st)) {
        report_log(REPORT_INFO, "the journal %s/%s of user %u is not for this file", path, name,
                   (unsigned)st->st_uid);
        if (fd >= 0)
            close(fd);
        return OTHERS;
    } else if (fd < 0 && err == EACCES) {
        return FORBIDDEN;
    } else if (fd < 0) {
        report_errno(err, "cannot open the journal %s/%s to see whether it needs recovery", path,
                     name);
    } else if (trust_kind(st, path, name) == 0) {
        return fd;
    }
    err = errno;
    if (fd >= 0)
        close(fd);
    errno = err;
    return -1;
}

/* What is recovered. */
struct wanted {
    const struct trust *file;
    uint64_t process;              /* whose journals; 0: all */
    const struct recover_file *of; /* one process's: what it held */
};

/* Is the owner of a journal dead? LOCKS_MINE: yes. */
static enum locks_answer ask_owner(const struct wanted *wanted, int fd)
{
    /* The kernel takes away the locks of the dead one by one. */
    if (wanted->process)
        return locks_wait(fd, 0, 1) == 0 ? LOCKS_MINE : LOCKS_FAILED;
    return locks_try(fd, 0, 1);
}

/* The journal that is open as `fd`, which is closed. */
static int recover_opened(const struct linked *journal, int fd, const struct wanted *wanted)
{
    const struct folder *f = journal->folder;
    int result = 0, named = 0;
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
                /* A colleague's, in a folder where everybody takes away only what is his own: it holds
                 * nothing any more, and may stay. */
                if (pool_close(&pool, f, result == 1) < 0 && errno != EPERM && errno != EACCES)
                    result = -1;
                return result < 0 ? -1 : 0; /* pool_close closed fd */
            }
        }
    }
    locks_close(fd);
    return result;
}

/* Does some lane of a journal hold a commit of the file? Or something that is none. Who unmapped the file
 * cleanly has seen all its commits retired. */
static bool names_file(const struct journal *j, const struct recover_file *file)
{
    struct journal_view v;
    if (!file->in_use)
        return false;
    for (unsigned lane = 0; lane < j->lanes; lane++) {
        enum journal_finding found = journal_look(j, lane, &v);
        if (found == JOURNAL_DAMAGED)
            return true;
        if (found != JOURNAL_COMMITTED)
            continue;
        for (unsigned i = 0; i < v.nfiles; i++)
            if (memcmp(v.files[i].id, file->id, 16) == 0)
                return true;
    }
    return false;
}

/* Made for the file's group, which may not write to it now: perhaps it could when the file's user died. Nobody
 * else can make one that looks so in a folder where he may not write. */
static bool was_of_group(const struct stat *found, const struct trust *file)
{
    return found->st_gid == file->group && found->st_mode & ~file->mode & S_IWGRP;
}

/* Before the file, or what a dead process held of it, is anybody's, what was committed has to be finished. But this
 * journal is another user's, who may not write to it any more. `naps`: how long to wait for an owner who is dying. 1: he
 * is not dead yet, and the journal holds a commit of the file, or is just being written to; 0: it holds none; -1 with
 * EACCES, it does. */
static int judge_others(const struct folder *f, const char *name, const struct recover_file *file,
                        unsigned naps)
{
    struct pool pool;
    int fd = openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT
                   ? 0
                   : report_errno(errno,
                                  "cannot open the journal %s/%s of a dead process, of a user who "
                                  "may not write to the file any more",
                                  f->path, name);
    enum locks_answer owner = locks_ask(fd, 0, 1);
    for (unsigned i = 0; i < naps && owner == LOCKS_TAKEN; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        owner = locks_ask(fd, 0, 1);
    }
    int found = pool_copy(&pool, fd, f, name);
    if (found == 1)
        found = names_file(&pool.journal, file);
    if (found == 1 && owner == LOCKS_FREE)
        found = report_error(EACCES,
                             "the journal %s/%s of a dead process holds a commit of the file, and "
                             "is of a user who may not write to that any more",
                             f->path, name);
    int saved = errno;
    pool_peek_end(&pool);
    close(fd);
    errno = saved;
    return found;
}

/* Of a process that no longer has the file mapped. */
static int await_others(const struct folder *f, const char *name, const struct recover_file *file)
{
    int found = judge_others(f, name, file, 30000);
    return found == 1
               ? report_error(EBUSY,
                              "the journal %s/%s is of a process that neither lives nor dies",
                              f->path, name)
               : found;
}

static int forbidden(const struct folder *f, const char *name, int fd)
{
    return fd == FORBIDDEN
               ? report_error(EACCES, "no permission to open the journal %s/%s of a dead process",
                              f->path, name)
               : -1;
}

static int recover_journal(const struct folder *f, const char *name, const void *arg)
{
    const struct wanted *wanted = arg;
    struct linked journal = {.folder = f, .name = name};
    if (wanted->process && !pool_is_of(name, wanted->process))
        return 0;
    int fd = open_found(f, name, &journal.st, wanted->file);
    /* One that may not be opened: needs_recovery() tells whether that matters. Who had this very file mapped
     * made his so that all may open it who may write to the file. */
    if (fd == OTHERS && wanted->process && was_of_group(&journal.st, wanted->file))
        return await_others(f, name, wanted->of);
    if (fd < 0)
        return fd == -1 || (fd == FORBIDDEN && wanted->process) ? forbidden(f, name, fd) : 0;
    return recover_opened(&journal, fd, wanted);
}

/* A journal that was never finished holds nothing, nor does such a pointer. Its maker holds its lock, or is
 * just about to take it: then it finds that the name is gone, and begins anew. */
static int clear_unfinished(const struct folder *f, const char *name, const void *arg)
{
    const struct wanted *wanted = arg;
    struct stat st;
    int fd = open_found(f, name, &st, wanted->file);
    if (fd < 0)
        return fd == -1 ? -1 : 0;
    if (locks_try(fd, 0, 1) == LOCKS_MINE && folder_names(f, name, fd) == 1 &&
        fsops->unlinkat(f->fd, name, 0) == 0)
        report_log(REPORT_INFO, "removed the unfinished journal %s/%s", f->path, name);
    locks_close(fd);
    return 0;
}

/* ---- journals of other folders ---- */

/* Where a pointer leads. */
struct followed {
    struct pointer pointer;
    struct folder folder;
    struct linked journal;
};

/* Does the journal that was opened as `fd` know the folder that we came from? 1, 0, -1. One that cannot be read
 * is the one that was meant: who recovers it says what is wrong. */
static int is_meant(const struct followed *to, int fd)
{
    struct pool pool;
    int found = pool_peek(&pool, fd, &to->folder, to->journal.name);
    int meant = found == 1 ? linked_knows_origin(&to->journal, &pool.journal) : 1;
    int saved = errno;
    pool_peek_end(&pool);
    errno = saved;
    return meant;
}

/* The journal where one of the ways leads; as follow(). */
static int follow_one(struct followed *to, int which, const struct trust *file)
{
    if (route_open(&to->pointer.route, to->journal.from, which, &to->folder) < 0) {
        if (errno == ENOTDIR)
            errno = ENOENT;
        return GONE;
    }
    int fd = open_found(&to->folder, to->journal.name, &to->journal.st, file);
    if (fd == OTHERS) { /* the pointer's maker is trusted: so it is not the journal that he meant */
        errno = ESTALE;
        return GONE;
    }
    if (fd < 0)
        return fd;
    int meant = is_meant(to, fd);
    if (meant == 1)
        return fd;
    int saved = meant < 0 ? errno : ESTALE;
    close(fd);
    errno = saved;
    return meant < 0 ? -1 : GONE;
}

/* Follows the pointer `name` in `f`. The journal's descriptor, and to->folder is open; OTHERS: no matter for
 * this file; FORBIDDEN: the pointer is, or, with to->folder open, the journal; GONE: it leads nowhere, or to
 * a journal that does not know it, and errno says why; -1 error. */
static int follow(struct followed *to, const struct folder *f, const char *name,
                  const struct trust *file)
{
    struct stat st;
    to->folder.fd = -1;
    int fd = open_found(f, name, &st, file);
    if (fd < 0)
        return fd == GONE ? OTHERS : fd;
    int journal = pointer_read(&to->pointer, fd, f, name);
    if (journal == 0) {
        int error = ENOENT;
        to->journal = (struct linked){.folder = &to->folder,
                                      .name = to->pointer.journal,
                                      .from = f,
                                      .index = to->pointer.index};
        journal = GONE;
        for (int which = 0; which < ROUTES && journal == GONE; which++) {
            folder_close(&to->folder);
            journal = follow_one(to, which, file);
            if (journal == GONE && errno != ENOENT)
                error = errno;
        }
        /* It may just have been removed, after its pointers. */
        int named = journal == GONE ? folder_names(f, name, fd) : 1;
        if (journal != -1)
            errno = error;
        if (named != 1)
            journal = named < 0 ? -1 : OTHERS;
    }
    int saved = errno;
    close(fd);
    if (journal < 0 && journal != FORBIDDEN)
        folder_close(&to->folder);
    errno = saved;
    return journal;
}

/* What is to be done before the pages of a dead process are anybody's again cannot be done. */
static int lost_way(const struct followed *to, const struct folder *f, const char *name, int fd)
{
    if (fd == FORBIDDEN)
        return to->folder.fd < 0 ? forbidden(f, name, fd)
                                 : forbidden(&to->folder, to->pointer.journal, fd);
    return report_errno(errno, "the journal %s of a dead process, in %s, where %s/%s leads",
                        to->pointer.journal, to->pointer.route.absolute, f->path, name);
}

/* Of a dead process's, whose maker could write to the file when he had it mapped, perhaps. It is not followed, to see
 * what its journal holds: it leads where he likes. */
static int judge_others_pointer(const struct folder *f, const char *name, const struct trust *file)
{
    struct stat st;
    int fd = open_found(f, name, &st, file);
    if (fd >= 0)
        close(fd);
    return fd == OTHERS && was_of_group(&st, file)
               ? report_error(
                     EACCES,
                     "%s/%s leads to a journal of a dead process, and is of a user who may "
                     "not write to the file any more",
                     f->path, name)
               : 0;
}

static int recover_pointed(const struct folder *f, const char *name, const void *arg)
{
    const struct wanted *wanted = arg;
    struct followed to;
    if (wanted->process && !pool_is_of(name, wanted->process))
        return 0;
    if (wanted->process && judge_others_pointer(f, name, wanted->file) < 0)
        return -1;
    int fd = follow(&to, f, name, wanted->file);
    int result = fd == -1 ? -1 : 0; /* pointed_needs_recovery() speaks of those that are gone */
    if (fd >= 0)
        result = recover_opened(&to.journal, fd, wanted);
    else if (wanted->process && (fd == GONE || fd == FORBIDDEN))
        result = lost_way(&to, f, name, fd);
    folder_close(&to.folder);
    return result;
}

/* ---- is one due? ---- */

/* A journal has owner, group and mode of the reflections that it serves. */
static int judge_forbidden(const struct folder *f, const char *name,
                           const struct recover_file *file)
{
    struct stat journal, own;
    if (fstatat(f->fd, name, &journal, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT
                   ? 0
                   : report_errno(errno, "cannot look at the journal %s/%s", f->path, name);
    if (fstat(file->manifest, &own) < 0)
        return report_errno(errno, "cannot look at a manifest in %s", f->path);
    const bool alike = (journal.st_uid == own.st_uid || (own.st_mode & S_IWGRP)) &&
                       journal.st_gid == own.st_gid &&
                       (journal.st_mode & 0666) == trust_writers(own.st_mode & 0666);
    /* That of one of the others who may write to the file is theirs alone. */
    const bool for_all = file->in_use && (journal.st_mode & own.st_mode & S_IWOTH);
    if (!alike && !for_all)
        return 0;
    return report_error(EACCES, "no permission to open the journal %s/%s, which may name this file",
                        f->path, name);
}

/* The journal that is open as `fd`, which is closed. */
static int opened_is_due(const struct folder *f, const char *name, int fd,
                         const struct recover_file *file)
{
    enum locks_answer owner = locks_ask(fd, 0, 1);
    int due = owner == LOCKS_FREE ? folder_names(f, name, fd) : 0;
    struct pool pool;
    if (due == 1) {
        if (pool_open(&pool, f, name, fd) < 0) {
            due = file->in_use; /* recover_folder() says what is wrong */
        } else {
            due = settle_lanes(f, &pool) < 0 ? -1 : names_file(&pool.journal, file);
            (void)pool_close(&pool, f, false);
            return due;
        }
    } else if (owner == LOCKS_FAILED) {
        due = report_errno(errno, "cannot ask for the lock of the journal %s/%s", f->path, name);
    } else if (owner == LOCKS_TAKEN) {
        due = pool_peek(&pool, fd, f, name);
        if (due == 1)
            due = names_file(&pool.journal, file);
        pool_peek_end(&pool);
    }
    close(fd);
    return due;
}

static int needs_recovery(const struct folder *f, const char *name, const void *arg)
{
    const struct recover_file *file = arg;
    struct stat st;
    int fd = open_found(f, name, &st, &file->trust);
    if (fd == FORBIDDEN)
        return judge_forbidden(f, name, file);
    if (fd == OTHERS && was_of_group(&st, &file->trust))
        return judge_others(f, name, file, 0);
    return fd < 0 ? (fd == -1 ? -1 : 0) : opened_is_due(f, name, fd, file);
}

/* A pointer that leads nowhere. */
static int judge_gone(const struct followed *to, const struct folder *f, const char *name,
                      const struct recover_file *file)
{
    const struct pointer *p = &to->pointer;
    const int err = errno;
    const char *found = err == ENOENT   ? "is not"
                        : err == ESTALE ? "has another folder in place of this one"
                                        : "cannot be reached";
    if (file->in_use)
        return report_error(err == ENOENT ? ESTALE : err,
                            "%s/%s says that the journal %s lies in %s, where it %s: it may hold a "
                            "commit of the file, whose last user died. If it is gone for good, "
                            "remove the former",
                            f->path, name, p->journal, p->route.absolute, found);
    report_log(REPORT_WARNING,
               "%s/%s says that the journal %s lies in %s, where it %s: no matter for a file that "
               "nobody died with",
               f->path, name, p->journal, p->route.absolute, found);
    return 0;
}

/* A pointer of a user who perhaps could write to the file when he had it mapped. It leads where he likes: so what is there
 * is read, and nothing else. As judge_others(). */
static int judge_others_pointed(const struct folder *f, const char *name,
                                const struct recover_file *file)
{
    struct followed to;
    struct stat st;
    int found = 0, error = ENOENT;
    int fd = openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : report_errno(errno, "cannot open %s/%s", f->path, name);
    if (pointer_read(&to.pointer, fd, f, name) < 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    close(fd);
    for (int which = 0; which < ROUTES; which++) {
        if (route_open(&to.pointer.route, f, which, &to.folder) == 0 &&
            fstatat(to.folder.fd, to.pointer.journal, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            found = judge_others(&to.folder, to.pointer.journal, file, 0);
            error = 0;
        } else if (errno != ENOENT && errno != ENOTDIR) {
            error = errno;
        }
        int saved = errno;
        folder_close(&to.folder);
        errno = saved;
        if (error == 0)
            return found;
    }
    errno = error;
    return judge_gone(&to, f, name, file);
}

/* The pointer, or what it leads to, is another user's. */
static int judge_others_way(const struct folder *f, const char *name,
                            const struct recover_file *file)
{
    struct stat st;
    if (!file->in_use || fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        trust_maker(&file->trust, &st) || !was_of_group(&st, &file->trust))
        return 0;
    return judge_others_pointed(f, name, file);
}

static int pointed_needs_recovery(const struct folder *f, const char *name, const void *arg)
{
    const struct recover_file *file = arg;
    struct followed to;
    int due = 0, fd = follow(&to, f, name, &file->trust);
    if (fd == OTHERS)
        due = judge_others_way(f, name, file);
    else if (fd == FORBIDDEN)
        due = to.folder.fd < 0 ? judge_forbidden(f, name, file)
                               : judge_forbidden(&to.folder, to.pointer.journal, file);
    else if (fd == GONE)
        due = judge_gone(&to, f, name, file);
    else if (fd == -1)
        due = -1;
    else if (fd >= 0)
        due = opened_is_due(&to.folder, to.pointer.journal, fd, file);
    folder_close(&to.folder);
    return due;
}

/* ---- all of a folder ---- */

typedef int visit(const struct folder *f, const char *name, const void *arg);

struct visits {
    visit *journal, *pointer, *unfinished;
};

struct visiting {
    const struct visits *visits;
    const struct folder *folder;
    const void *arg;
    struct report_kept *failure;
};

static int visit_name(const struct visiting *v, const char *name)
{
    switch (pool_name_of(name)) {
    case POOL_NAME:
        return v->visits->journal(v->folder, name, v->arg);
    case POOL_NAME_POINTER:
        return v->visits->pointer(v->folder, name, v->arg);
    case POOL_NAME_UNFINISHED:
    case POOL_NAME_POINTER_UNFINISHED:
        return v->visits->unfinished ? v->visits->unfinished(v->folder, name, v->arg) : 0;
    default:
        return 0;
    }
}

static int visit_one(void *arg, const char *name)
{
    const struct visiting *v = arg;
    int result = visit_name(v, name);
    if (result >= 0 || !v->failure)
        return result;
    report_keep(v->failure);
    return 0;
}

/* Until one answers other than 0; with `failure`, which takes the first one: all of them. */
static int each_name(const struct folder *f, const struct visits *v, const void *arg,
                     struct report_kept *failure)
{
    struct visiting visiting = {v, f, arg, failure};
    return folder_each_name(f, visit_one, &visiting);
}

static int recover(const struct folder *f, const struct wanted *wanted)
{
    static const struct visits recover = {recover_journal, recover_pointed, clear_unfinished};
    struct report_kept failure = {0};
    if (each_name(f, &recover, wanted, &failure) < 0)
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
    const struct wanted his = {.file = &file->trust, .process = process, .of = file};
    return recover(f, &his) == 0 ? 0 : -1;
}

int recover_is_due(const struct folder *f, const struct recover_file *file)
{
    static const struct visits ask = {needs_recovery, pointed_needs_recovery, NULL};
    return each_name(f, &ask, file, NULL);
}
