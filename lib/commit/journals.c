/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/journals.h"

#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/recovery/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct journals {
    struct journals *next;
    dev_t device; /* of the folder */
    ino_t inode;
    /* Owner, group and mode of all its files: a process that may recover one may recover all. */
    struct trust like;
    struct folder folder;
    struct pool pool;
    uint64_t busy, stuck; /* one bit per lane */
    unsigned files;
    pthread_mutex_t medium;
    bool failed;    /* its medium failed: no new commits */
    bool abandoned; /* let go with a commit in doubt: not used any more */
};

/* What a journal has to match: its folder, and owner, group and mode of the original. (Those of its
 * reflection are as near to them as its maker could set them.) */
struct journal_key {
    struct stat folder;
    struct trust like;
};

/* A file's use of a journal. */
struct journals_use {
    struct journals_use *next; /* in the list of the file */
    struct journals *in;
    bool stuck; /* a lane there holds a commit in doubt of the file */
};

/* Held for nanoseconds in each journaled commit, and for milliseconds while a pool is created. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t lane_free = PTHREAD_COND_INITIALIZER;
static struct journals *all;
static bool exiting;

/* ---- one journal ---- */

/* Sets *k for a journal in the file's folder. Returns 0; -1 with errno. */
static int key_of(const struct file *f, struct journal_key *k)
{
    const struct identity *identity = &f->pairing.identity;
    if (fstat(f->pairing.folder.fd, &k->folder) < 0)
        return report_errno(errno, "cannot look at %s", f->pairing.folder.path);
    /* No permission to read: a user that may only read could lock the journal and block all others. */
    k->like =
        (struct trust){identity->owner, identity->group, ownership_writers(identity->mode & 0666)};
    return 0;
}

/* Returns true if the journal is for files like `f`, whose key is `k`. */
static bool matches(const struct journals *j, const struct journal_key *k, const struct file *f)
{
    return j->device == k->folder.st_dev && j->inode == k->folder.st_ino &&
           j->like.owner == k->like.owner && j->like.group == k->like.group &&
           j->like.mode == k->like.mode && j->pool.journal.domain == f->persist.domain;
}

static int copy_folder(struct folder *to, const struct folder *from)
{
    memcpy(to->path, from->path, sizeof(to->path));
    to->fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 3);
    return to->fd < 0 ? report_errno(errno, "cannot duplicate a descriptor") : 0;
}

/* Returns the capacity of a new journal: the usual one, or if `words` is more a power of two, so that later
 * commits of that size fit, too. */
static uint64_t choose_words(uint64_t words)
{
    uint64_t n = JOURNAL_WORDS;
    if (words > n)
        for (n = 1; n < words;)
            n *= 2;
    return n;
}

/* Makes a journal in the file's folder, with room for a commit of so many words. Returns NULL with errno. */
static struct journals *make(struct file *f, const struct journal_key *k, uint64_t words)
{
    struct journals *j = calloc(1, sizeof(*j));
    if (!j) {
        report_error(ENOMEM, "no memory for a journal");
        return NULL;
    }
    j->device = k->folder.st_dev;
    j->inode = k->folder.st_ino;
    j->like = k->like;
    pthread_mutex_init(&j->medium, NULL);
    if (copy_folder(&j->folder, &f->pairing.folder) == 0 &&
        pool_create(&j->pool, &j->folder, &f->persist, choose_words(words), &j->like) == 0)
        return j;
    int saved = errno;
    folder_close(&j->folder);
    free(j);
    errno = saved;
    return NULL;
}

/* Frees what the process has of the journal, which stays on the media. */
static void free_journal(struct journals *j)
{
    folder_close(&j->folder);
    free(j);
}

/* Returns true if the journal takes no new commits. */
static bool is_over(const struct journals *j)
{
    return j->abandoned || __atomic_load_n(&j->failed, __ATOMIC_RELAXED);
}

/* Returns the smallest free lane that holds so many words of so many files; LANE_BUSY if all such lanes are
 * busy; LANE_NONE if there are none. */
enum { LANE_BUSY = -1, LANE_NONE = -2 };
static int pick(const struct journals *j, unsigned files, uint64_t words)
{
    int found = LANE_NONE;
    for (unsigned lane = 0; lane < j->pool.journal.lanes; lane++) {
        if (words > journal_capacity(&j->pool.journal, lane, files) || (j->stuck >> lane & 1))
            continue;
        if (!(j->busy >> lane & 1))
            return (int)lane;
        found = LANE_BUSY;
    }
    return found;
}

/* ---- all journals; with the lock ---- */

static struct journals *find(const struct file *f, const struct journal_key *k, unsigned n,
                             uint64_t words)
{
    for (struct journals *j = all; j; j = j->next)
        if (matches(j, k, f) && !is_over(j) && pick(j, n, words) != LANE_NONE)
            return j;
    return NULL;
}

static void unlink_from_list(struct journals *j)
{
    struct journals **at = &all;
    while (*at && *at != j)
        at = &(*at)->next;
    if (*at)
        *at = j->next;
}

/* Takes 1 from the users of a journal, and removes it with the last one. */
static void drop(struct journals *j)
{
    if (--j->files)
        return;
    unlink_from_list(j);
    if (!j->abandoned)
        (void)pool_close(&j->pool, &j->folder, !j->stuck);
    free_journal(j);
}

/* Lets a journal go as if its owner had died: the next map of a file that its lanes name recovers it. Other
 * files of the process go on with a new one. Waits while lanes are busy. With the lock. */
static void abandon(struct journals *j)
{
    j->abandoned = true;
    while (j->busy)
        pthread_cond_wait(&lane_free, &lock);
    (void)pool_close(&j->pool, &j->folder, false);
}

/* ---- users of journals; with the lock ---- */

static struct journals_use *use_of(const struct file *f, const struct journals *j)
{
    struct journals_use *u = f->journals;
    while (u && u->in != j)
        u = u->next;
    return u;
}

static struct journals_use *use(struct file *f, struct journals *j)
{
    struct journals_use *u = malloc(sizeof(*u));
    if (!u) {
        report_error(ENOMEM, "no memory for a journal");
        return NULL;
    }
    *u = (struct journals_use){.next = f->journals, .in = j};
    f->journals = u;
    j->files++;
    return u;
}

/* Ends the file's use of journals that have failed or were abandoned. Returns false if one of them is busy,
 * perhaps with a commit of this file that is about to fail: then the caller waits. */
static bool leave_those_over(struct file *f)
{
    for (struct journals_use **at = &f->journals; *at;) {
        struct journals_use *u = *at;
        if (!is_over(u->in)) {
            at = &u->next;
            continue;
        }
        if (u->in->busy)
            return false;
        if (u->stuck && !u->in->abandoned) { /* stays until the file is unmapped */
            at = &u->next;
            continue;
        }
        *at = u->next;
        drop(u->in);
        free(u);
    }
    return true;
}

/* Returns a journal in the folder of files[0] with a lane for such a commit; makes one if need be. NULL with
 * errno. */
static struct journals *own(struct file *f, unsigned n, uint64_t words)
{
    struct journal_key k;
    if (n > JOURNAL_MAX_FILES || words > JOURNAL_MAX_WORDS) {
        report_error(E2BIG, "a commit of %llu words of %u files is more than a journal can hold",
                     (unsigned long long)words, n);
        return NULL;
    }
    for (struct journals_use *u = f->journals; u; u = u->next)
        if (!is_over(u->in) && pick(u->in, n, words) != LANE_NONE)
            return u->in;
    if (key_of(f, &k) < 0)
        return NULL;
    struct journals *j = find(f, &k, n, words);
    if (!j && (j = make(f, &k, words))) {
        j->next = all;
        all = j;
    }
    if (!j || use(f, j))
        return j;
    if (!j->files) {
        j->files = 1;
        drop(j);
    }
    return NULL;
}

/* ---- lanes ---- */

int journals_alike(const struct file *a, const struct file *b)
{
    struct journal_key x, y;
    if (a->persist.domain != b->persist.domain)
        return report_error(
            EXDEV, "%s is mapped in domain %s, and %s in domain %s: no commit can be of both",
            a->pairing.path, domain_name(a->persist.domain), b->pairing.path,
            domain_name(b->persist.domain));
    if (key_of(a, &x) < 0 || key_of(b, &y) < 0)
        return -1;
    if (x.folder.st_dev != y.folder.st_dev || x.folder.st_ino != y.folder.st_ino)
        return report_error(
            EXDEV,
            "%s and %s have their reflections in two folders, %s and %s: no commit "
            "can be of both. Make them plain ('ato deploy'), then map both with one "
            "reflection_dir or ATO_REFLECTION_DIR",
            a->pairing.path, b->pairing.path, a->pairing.folder.path, b->pairing.folder.path);
    const bool groups = (x.like.mode | y.like.mode) & S_IWGRP;
    if (x.like.owner == y.like.owner && x.like.mode == y.like.mode &&
        (!groups || x.like.group == y.like.group))
        return 0;
    return report_error(
        EXDEV,
        "%s and %s differ in owner, or in the other users that may write to them: no commit can "
        "be of both, since a process that may finish it in one could not in the other",
        a->pairing.path, b->pairing.path);
}

int journals_take_lane(struct file *const *files, unsigned n, uint64_t words,
                       struct journal_lane *lane)
{
    int result = -1;
    pthread_mutex_lock(&lock);
    for (;;) {
        if (exiting) {
            report_error(ECANCELED, "the process is exiting: its journals are gone");
            break;
        }
        unsigned ready = 0;
        while (ready < n && leave_those_over(files[ready]))
            ready++;
        if (ready < n) {
            pthread_cond_wait(&lane_free, &lock);
            continue;
        }
        struct journals *j = own(files[0], n, words);
        for (unsigned i = 1; j && i < n; i++)
            if (!use_of(files[i], j) && !use(files[i], j))
                j = NULL;
        if (!j)
            break;
        int free_one = pick(j, n, words);
        if (free_one >= 0) {
            j->busy |= 1ull << free_one;
            *lane = (struct journal_lane){j, &j->pool.journal, (unsigned)free_one};
            result = 0;
            break;
        }
        pthread_cond_wait(&lane_free, &lock);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int journals_step(const struct journal_lane *lane, int (*step)(struct journal_writer *w),
                  struct journal_writer *w)
{
    struct journals *j = lane->in;
    if (lane->journal->domain != PERSIST_MSYNC)
        return step(w);
    pthread_mutex_lock(&j->medium);
    int r = j->failed ? -1 : step(w);
    if (r < 0)
        __atomic_store_n(&j->failed, true, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&j->medium);
    if (r < 0)
        errno = EIO;
    return r;
}

void journals_give_lane(const struct journal_lane *lane)
{
    pthread_mutex_lock(&lock);
    lane->in->busy &= ~(1ull << lane->lane);
    pthread_cond_broadcast(&lane_free);
    pthread_mutex_unlock(&lock);
}

void journals_leave_lane(struct file *const *files, unsigned n, const struct journal_lane *lane)
{
    pthread_mutex_lock(&lock);
    lane->in->stuck |= 1ull << lane->lane;
    lane->in->busy &= ~(1ull << lane->lane);
    for (unsigned i = 0; i < n; i++) {
        struct journals_use *u = use_of(files[i], lane->in);
        if (u)
            u->stuck = true;
    }
    pthread_cond_broadcast(&lane_free);
    pthread_mutex_unlock(&lock);
}

void journals_detach(struct file *f)
{
    pthread_mutex_lock(&lock);
    while (f->journals) {
        struct journals_use *u = f->journals;
        f->journals = u->next;
        if (u->stuck && !u->in->abandoned)
            abandon(u->in);
        drop(u->in);
        free(u);
    }
    pthread_mutex_unlock(&lock);
}

void journals_close_all(void)
{
    /* The lock is taken if exit() was called within a call of the library, or another thread is in one. Then
     * everything stays as after a kill. */
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    exiting = true;
    for (struct journals *j = all; j; j = j->next) {
        /* Other threads may still be in a commit: their journals are left for recovery. The pools stay
         * mapped, since these threads go on until the process ends. */
        if (!j->busy && !j->stuck && !j->abandoned)
            (void)fsops->unlinkat(j->folder.fd, j->pool.name, 0);
    }
    pthread_mutex_unlock(&lock);
}

void journals_forget_all(void)
{
    lane_free = (pthread_cond_t)PTHREAD_COND_INITIALIZER; /* its waiters exist in the parent only */
    struct journals *next;
    for (struct journals *j = all; j; j = next) {
        next = j->next;
        if (!j->abandoned)
            pool_forget(&j->pool);
        free_journal(j);
    }
    all = NULL;
}

void journals_forget(struct file *f)
{
    while (f->journals) {
        struct journals_use *u = f->journals;
        f->journals = u->next;
        free(u);
    }
}

void journals_lock(void)
{
    pthread_mutex_lock(&lock);
}

void journals_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
