/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/journals.h"

#include "lib/page/lane.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/recovery/pointer.h"
#include "reflection/recovery/pool.h"
#include "reflection/recovery/way.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Another folder with files that the journal served: entry k of the folder table is places[k - 1]. */
struct place {
    dev_t device;
    ino_t inode;
    struct folder folder;
    bool pointed; /* the pointer there is durable */
};

struct journals {
    struct journals *next;
    dev_t device; /* of the folder */
    ino_t inode;
    /* Owner, group and mode of all its files: a process that may recover one may recover all. */
    struct trust like;
    struct folder folder;
    struct pool pool;
    struct place *places;
    unsigned nplaces;
    uint64_t busy, stuck; /* one bit per lane */
    unsigned files;
    pthread_mutex_t medium;
    bool failed;    /* its medium failed: no new commits */
    bool abandoned; /* let go with a commit in doubt: not used any more */
};

/* A file's use of a journal. */
struct journals_use {
    struct journals_use *next; /* in the list of the file */
    struct journals *in;
    unsigned folder; /* the file's journal_file.folder */
    bool stuck;      /* a lane there holds a commit in doubt of the file */
};

/* Held for nanoseconds in each journaled commit, and for milliseconds while a pool is created. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t lane_free = PTHREAD_COND_INITIALIZER;
static struct journals *all;
static bool exiting;

/* What a journal has to match: its folder, and owner, group and mode of the original. (Those of its
 * reflection are as near to them as its maker could set them.) */
struct key {
    struct stat folder;
    struct trust like;
};

static int look(const struct file *f, struct key *k)
{
    const struct identity *who = &f->pairing.identity;
    if (fstat(f->pairing.folder.fd, &k->folder) < 0)
        return report_errno(errno, "cannot look at %s", f->pairing.folder.path);
    /* No permission to read: a user that may only read could lock the journal and block all others. */
    k->like = (struct trust){who->owner, who->group, ownership_writers(who->mode & 0666)};
    return 0;
}

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

/* Returns true if the folder table has room for those folders of the files that the journal does not know
 * yet. `j` NULL: the table of a new journal, in the folder of files[0]. */
static bool has_room(const struct journals *j, struct file *const *files, unsigned n)
{
    struct {
        dev_t device;
        ino_t inode;
    } known[1 + JOURNAL_FOLDERS]; /* the journal's own first */
    unsigned count = 0, places = j ? j->nplaces : 0;
    if (places + n - 1 <= JOURNAL_FOLDERS)
        return true;
    if (j) {
        known[count].device = j->device;
        known[count++].inode = j->inode;
    }
    for (unsigned i = 0; i < places; i++, count++) {
        known[count].device = j->places[i].device;
        known[count].inode = j->places[i].inode;
    }
    for (unsigned i = 0; i < n; i++) {
        struct stat st;
        unsigned k = 0;
        if (fstat(files[i]->pairing.folder.fd, &st) < 0)
            return false;
        while (k < count && (known[k].device != st.st_dev || known[k].inode != st.st_ino))
            k++;
        if (k < count)
            continue;
        if (count == 1 + JOURNAL_FOLDERS)
            return false;
        known[count].device = st.st_dev;
        known[count++].inode = st.st_ino;
    }
    return true;
}

static struct journals *find(struct file *const *files, const struct key *k, unsigned n,
                             uint64_t words)
{
    const struct file *f = files[0];
    for (struct journals *j = all; j; j = j->next)
        if (j->device == k->folder.st_dev && j->inode == k->folder.st_ino &&
            j->like.owner == k->like.owner && j->like.group == k->like.group &&
            j->like.mode == k->like.mode && j->pool.journal.domain == f->persist.domain &&
            !is_over(j) && pick(j, n, words) != LANE_NONE && has_room(j, files, n))
            return j;
    return NULL;
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

static struct journals *make(struct file *f, const struct key *k, uint64_t words)
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
        pool_create(&j->pool, &j->folder, &f->persist, choose_words(words), &j->like) == 0) {
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

static void release(struct journals *j)
{
    for (unsigned k = 0; k < j->nplaces; k++)
        folder_close(&j->places[k].folder);
    free(j->places);
    folder_close(&j->folder);
    free(j);
}

/* persist-order J6 (reader: recover_is_due, of a pointer that leads nowhere): the pointers are durably
 * removed before the journal is. So a pointer without its journal says that a journal was lost. */
static bool remove_pointers(struct journals *j)
{
    bool gone = true;
    for (unsigned k = 0; k < j->nplaces; k++)
        if (pointer_remove(&j->places[k].folder, j->pool.name) < 0)
            gone = false;
    return gone;
}

/* Takes 1 from the users of a journal, and removes it with the last one. If a pointer cannot be removed the
 * journal stays, like one of a dead process: the next map in either folder removes both. */
static void drop(struct journals *j)
{
    if (--j->files)
        return;
    unlink_from_list(j);
    if (!j->abandoned)
        (void)pool_close(&j->pool, &j->folder, !j->stuck && remove_pointers(j));
    release(j);
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

static struct journals_use *use(struct file *f, struct journals *j, unsigned folder)
{
    struct journals_use *u = malloc(sizeof(*u));
    if (!u) {
        report_error(ENOMEM, "no memory for a journal");
        return NULL;
    }
    *u = (struct journals_use){.next = f->journals, .in = j, .folder = folder};
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
static struct journals *own(struct file *const *files, unsigned n, uint64_t words)
{
    struct file *f = files[0];
    struct key k;
    if (n > JOURNAL_MAX_FILES || words > JOURNAL_MAX_WORDS) {
        report_error(E2BIG, "a commit of %llu words of %u files is more than a journal can hold",
                     (unsigned long long)words, n);
        return NULL;
    }
    for (struct journals_use *u = f->journals; u; u = u->next)
        if (u->folder == 0 && !is_over(u->in) && pick(u->in, n, words) != LANE_NONE &&
            has_room(u->in, files, n))
            return u->in;
    if (!has_room(NULL, files, n)) {
        report_error(E2BIG,
                     "a commit of files in more than %u other reflection folders is more "
                     "than a journal can hold",
                     JOURNAL_FOLDERS);
        return NULL;
    }
    if (look(f, &k) < 0)
        return NULL;
    struct journals *j = find(files, &k, n, words);
    if (!j)
        j = make(f, &k, words);
    if (!j || use(f, j, 0))
        return j;
    if (!j->files) {
        j->files = 1;
        drop(j);
    }
    return NULL;
}

/* Writes entry k of the folder table, as journals_step() does its steps. */
static int name_folder(struct journals *j, const struct file *f, unsigned k,
                       const struct route *there)
{
    if (f->persist.domain != PERSIST_MSYNC)
        return journal_name_folder(&j->pool.journal, &f->persist, k, there);
    pthread_mutex_lock(&j->medium);
    int r = j->failed ? -1 : journal_name_folder(&j->pool.journal, &f->persist, k, there);
    if (r < 0 && errno != ENAMETOOLONG) {
        __atomic_store_n(&j->failed, true, __ATOMIC_RELAXED);
        errno = EIO;
    }
    pthread_mutex_unlock(&j->medium);
    return r;
}

/* Returns the place of a folder, which has its entry in the folder table; makes both if need be. NULL with
 * errno. */
static struct place *place(struct journals *j, const struct file *f, const struct stat *folder)
{
    for (unsigned k = 0; k < j->nplaces; k++)
        if (j->places[k].device == folder->st_dev && j->places[k].inode == folder->st_ino)
            return &j->places[k];
    const char *path = f->pairing.folder.path;
    struct place *more = realloc(j->places, (j->nplaces + 1) * sizeof(*more));
    if (!more) {
        report_error(ENOMEM, "no memory for a journal");
        return NULL;
    }
    j->places = more;
    struct place *p = &more[j->nplaces];
    *p = (struct place){.device = folder->st_dev, .inode = folder->st_ino};
    if (copy_folder(&p->folder, &f->pairing.folder) < 0)
        return NULL;
    struct route there;
    route_make(&there, &j->folder, &p->folder);
    there.inode = folder->st_ino;
    if (name_folder(j, f, j->nplaces + 1, &there) < 0) {
        report_errno(errno, "cannot name the folder %s in the journal %s/%s", path, j->folder.path,
                     j->pool.name);
        folder_close(&p->folder);
        return NULL;
    }
    j->nplaces++;
    return p;
}

/* Makes a file a user of a journal, which recovery then finds from the file's folder. Returns 0; -1 with
 * errno. */
static int join(struct journals *j, struct file *f)
{
    struct key k;
    if (use_of(f, j))
        return 0;
    if (look(f, &k) < 0)
        return -1;
    if (k.folder.st_dev == j->device && k.folder.st_ino == j->inode)
        return use(f, j, 0) ? 0 : -1;
    struct place *p = place(j, f, &k.folder);
    if (!p)
        return -1;
    const unsigned index = (unsigned)(p - j->places) + 1;
    struct route back;
    /* persist-order J5 (reader: recover_folder): the pointer is durable before the first commit that names a
     * file of its folder. Otherwise the file could be used before that commit is finished. */
    if (!p->pointed) {
        route_make(&back, &p->folder, &j->folder);
        if (pointer_make(&p->folder, j->pool.name, index, &back, &f->persist, &j->like) < 0)
            return -1;
        p->pointed = true;
    }
    return use(f, j, index) ? 0 : -1;
}

/* ---- lanes ---- */

int journals_alike(const struct file *a, const struct file *b)
{
    struct key x, y;
    if (a->persist.domain != b->persist.domain)
        return report_error(
            EXDEV, "%s is mapped in domain %s, and %s in domain %s: no commit can be of both",
            a->pairing.path, domain_name(a->persist.domain), b->pairing.path,
            domain_name(b->persist.domain));
    if (look(a, &x) < 0 || look(b, &y) < 0)
        return -1;
    const bool groups = (x.like.mode | y.like.mode) & S_IWGRP;
    if (x.like.owner == y.like.owner && x.like.mode == y.like.mode &&
        (!groups || x.like.group == y.like.group))
        return 0;
    return report_error(
        EXDEV,
        "%s and %s differ in owner, or in who else may write to them: no commit can "
        "be of both, since who may finish it in one could not in the other",
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
        struct journals *j = own(files, n, words);
        for (unsigned i = 1; j && i < n; i++)
            if (join(j, files[i]) < 0)
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

unsigned journals_folder_of(const struct journal_lane *lane, const struct file *f)
{
    pthread_mutex_lock(&lock);
    const struct journals_use *u = use_of(f, lane->in);
    unsigned folder = u ? u->folder : 0;
    pthread_mutex_unlock(&lock);
    return folder;
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
        if (!j->busy && !j->stuck && !j->abandoned && remove_pointers(j))
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
        release(j);
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
