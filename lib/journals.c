/* SPDX-License-Identifier: BSD-3-Clause */
#include "journals.h"

#include "../reflection/fsops.h"
#include "../reflection/pool.h"
#include "../reflection/report.h"

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
    uid_t owner; /* of the file and of all its files: who may recover one may recover the other */
    gid_t group;
    mode_t mode;
    struct folder folder;
    struct pool pool;
    uint64_t busy, stuck; /* lanes, a bit each */
    unsigned files;
    pthread_mutex_t medium;
    bool failed;    /* its medium did: no new commits */
    bool abandoned; /* let go with a commit in doubt: for nobody any more */
};

/* Taken for nanoseconds on each journaled commit; creating a pool holds it for milliseconds once.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t lane_free = PTHREAD_COND_INITIALIZER;
static struct journals *all;
static bool exiting;

/* What a journal has to match: its folder, and owner, group and mode of the reflection. */
struct key {
    struct stat folder, reflection;
};

static bool fits(const struct journals *j, const struct file *f, const struct key *k)
{
    return j->device == k->folder.st_dev && j->inode == k->folder.st_ino &&
           j->owner == k->reflection.st_uid && j->group == k->reflection.st_gid &&
           j->mode == trust_writers(k->reflection.st_mode & 0666) && !j->abandoned &&
           !__atomic_load_n(&j->failed, __ATOMIC_RELAXED) &&
           j->pool.journal.domain == f->persist.domain;
}

static struct journals *find(const struct file *f, const struct key *k)
{
    struct journals *j = all;
    while (j && !fits(j, f, k))
        j = j->next;
    return j;
}

static struct journals *make(struct file *f, const struct key *k)
{
    struct journals *j = calloc(1, sizeof(*j));
    if (!j) {
        report_error(ENOMEM, "no memory for a journal");
        return NULL;
    }
    j->device = k->folder.st_dev;
    j->inode = k->folder.st_ino;
    j->owner = k->reflection.st_uid;
    j->group = k->reflection.st_gid;
    /* Not for who may only read: he could lock it, and have everybody wait. */
    j->mode = trust_writers(k->reflection.st_mode & 0666);
    pthread_mutex_init(&j->medium, NULL);
    memcpy(j->folder.path, f->pairing.folder.path, sizeof(j->folder.path));
    j->folder.fd = fcntl(f->pairing.folder.fd, F_DUPFD_CLOEXEC, 3);
    if (j->folder.fd < 0) {
        report_errno(errno, "cannot duplicate a descriptor");
    } else if (pool_create(&j->pool, &j->folder, &f->persist, j->owner, j->group, j->mode) == 0) {
        j->next = all;
        all = j;
        return j;
    }
    int saved = errno;
    folder_close(&j->folder);
    free(j);
    errno = saved;
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

/* One file less; the last one takes the journal along. */
static void drop(struct journals *j)
{
    if (--j->files)
        return;
    unlink_from_list(j);
    if (!j->abandoned)
        (void)pool_close(&j->pool, &j->folder, !j->stuck);
    folder_close(&j->folder);
    free(j);
}

/* Lets a journal go as if its owner had died: the next map of a file that its lanes name recovers
 * it. Other files of the process go on with a new one. */
static void abandon(struct journals *j)
{
    j->abandoned = true;
    while (j->busy)
        pthread_cond_wait(&lane_free, &lock);
    (void)pool_close(&j->pool, &j->folder, false);
}

/* With the lock held. */
static int attach(struct file *f)
{
    struct key k;
    while (f->journals &&
           (f->journals->abandoned || __atomic_load_n(&f->journals->failed, __ATOMIC_RELAXED))) {
        struct journals *j = f->journals;
        if (j->busy) { /* with a commit of this file, perhaps, which is about to find out */
            pthread_cond_wait(&lane_free, &lock);
            continue;
        }
        f->journals = NULL;
        drop(j);
    }
    if (f->journals)
        return 0;
    if (fstat(f->pairing.folder.fd, &k.folder) < 0 ||
        fstat(f->pairing.reflection, &k.reflection) < 0)
        return report_errno(errno, "cannot look at %s", f->pairing.folder.path);
    struct journals *j = find(f, &k);
    if (!j)
        j = make(f, &k);
    if (!j)
        return -1;
    j->files++;
    f->journals = j;
    return 0;
}

/* The smallest free lane that holds so many words; UINT_MAX: none free; UINT_MAX - 1: none fits. */
static unsigned pick(const struct journals *j, uint64_t words)
{
    bool fits = false;
    for (unsigned lane = 0; lane < j->pool.journal.lanes; lane++) {
        if (words > journal_capacity(&j->pool.journal, lane, 1) || (j->stuck >> lane & 1))
            continue;
        fits = true;
        if (!(j->busy >> lane & 1))
            return lane;
    }
    return fits ? UINT32_MAX : UINT32_MAX - 1;
}

int journals_take_lane(struct file *f, uint64_t words, struct journal_lane *lane)
{
    int result = -1;
    pthread_mutex_lock(&lock);
    for (;;) {
        if (exiting) {
            report_error(ECANCELED, "the process is exiting: its journals are gone");
            break;
        }
        if (attach(f) < 0)
            break;
        unsigned n = pick(f->journals, words);
        if (n == UINT32_MAX - 1) {
            report_error(E2BIG, "a write of %llu pages is more than the journal holds",
                         (unsigned long long)words);
            break;
        }
        if (n != UINT32_MAX) {
            f->journals->busy |= 1ull << n;
            *lane = (struct journal_lane){f->journals, &f->journals->pool.journal, n};
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

void journals_leave_lane(struct file *f, const struct journal_lane *lane)
{
    pthread_mutex_lock(&lock);
    lane->in->stuck |= 1ull << lane->lane;
    lane->in->busy &= ~(1ull << lane->lane);
    f->stuck = true;
    pthread_cond_broadcast(&lane_free);
    pthread_mutex_unlock(&lock);
}

void journals_detach(struct file *f)
{
    pthread_mutex_lock(&lock);
    struct journals *j = f->journals;
    f->journals = NULL;
    if (j) {
        if (f->stuck && !j->abandoned)
            abandon(j);
        drop(j);
    }
    pthread_mutex_unlock(&lock);
}

void journals_close_all(void)
{
    /* Taken: somebody exits from within a call of ours, or another thread is in one. Then everything
     * stays as after a kill. */
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    exiting = true;
    for (struct journals *j = all; j; j = j->next) {
        /* Other threads may be within a commit still; theirs is left for recovery. The pool stays
         * mapped: the process goes away in a moment, and they do not know it. */
        if (!j->busy && !j->stuck && !j->abandoned)
            (void)fsops->unlinkat(j->folder.fd, j->pool.name, 0);
    }
    pthread_mutex_unlock(&lock);
}

void journals_forget_all(void)
{
    lane_free = (pthread_cond_t)PTHREAD_COND_INITIALIZER; /* its waiters are not here */
    struct journals *next;
    for (struct journals *j = all; j; j = next) {
        next = j->next;
        if (!j->abandoned)
            pool_forget(&j->pool);
        folder_close(&j->folder);
        free(j);
    }
    all = NULL;
}

void journals_lock(void)
{
    pthread_mutex_lock(&lock);
}

void journals_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
