/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/journals.h"

#include "lib/file/clock.h"
#include "lib/file/mutex.h"
#include "lib/file/page.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/recovery/redo.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <unistd.h>

struct journals {
    struct journals *next;
    struct redo redo;
    uint64_t busy;      /* one bit per lane */
    struct file *users; /* by next_user: their manifests name the journal. All are alike */
    pthread_mutex_t medium;
    uint32_t failed; /* its medium failed */
    bool over; /* takes no new commits and stays: a commit is in doubt, or a manifest may name it */
};

/* MUTEX_JOURNALS guards this. It is held for nanoseconds in each commit through a journal, and for milliseconds while
 * one is made or named. */
static struct journals *all;
static bool exiting;

/* ---- a file's own lanes ---- */

/* Between two looks for a free lane: a commit takes as long as its flushes. */
enum { NAP_NS = 50 * 1000 };

/* While there is one thread, no locked instruction is needed: it would wait for the non-temporal stores before it. */
static bool try_own(struct file *f, struct journal_lane *lane)
{
    uint32_t idle = __atomic_load_n(&f->idle_lanes, __ATOMIC_RELAXED);
    do {
        if (!idle)
            return false;
        if (__libc_single_threaded) {
            f->idle_lanes = idle & (idle - 1);
            break;
        }
    } while (!__atomic_compare_exchange_n(&f->idle_lanes, &idle, idle & (idle - 1), false,
                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    *lane =
        (struct journal_lane){.journal = &f->lanes, .of = f, .lane = (unsigned)__builtin_ctz(idle)};
    return true;
}

/* With the lock. */
static int map_area(struct file *f)
{
    const struct pairing *pr = &f->pairing;
    char *area = area_map(pr->lock, pr->slot, pr->path, &f->pairing.faults);
    if (!area)
        return -1;
    f->area = area;
    f->lanes = journal_of_slot(area + MANIFEST_AREA_LANES, f->persist.domain);
    __atomic_store_n(&f->idle_lanes, (1u << JOURNAL_SLOT_LANES) - 1, __ATOMIC_RELEASE);
    return 0;
}

/* ---- one journal ---- */

/* Returns the users that may write to the original. (Owner, group and mode of its reflection are as near to the original's as
 * its maker could set them.) */
static struct trust like_of(const struct file *f)
{
    const struct trust *t = &f->pairing.identity.trust;
    const mode_t writers = t->mode & 0222;
    /* None for users that may only read: they could lock the journal. */
    return (struct trust){t->owner, t->group, t->mode & (0600 | writers | writers << 1)};
}

/* Returns true if a process that may recover the one may recover the other. */
static bool same_writers(const struct file *a, const struct file *b)
{
    const struct trust x = like_of(a), y = like_of(b);
    return x.owner == y.owner && x.mode == y.mode && (x.group == y.group || !(x.mode & S_IWGRP));
}

static bool same_folder(const struct file *a, const struct file *b)
{
    return a->pairing.folder.device == b->pairing.folder.device &&
           a->pairing.folder.inode == b->pairing.folder.inode;
}

/* Finds a journal for files like `f`, or makes one, which no file uses yet. Returns NULL with errno. */
static struct journals *find_or_make(struct file *f)
{
    struct journals *j = all;
    const struct trust like = like_of(f);
    while (j && (j->over || j->redo.journal.domain != f->persist.domain ||
                 !same_folder(j->users, f) || !same_writers(j->users, f)))
        j = j->next;
    if (j)
        return j;
    if (!(j = calloc(1, sizeof(*j))))
        return report_null(ENOMEM, "no memory for a journal");
    pthread_mutex_init(&j->medium, NULL);
    redo_sweep(&f->pairing.folder); /* what dead processes left: the disk may be nearly full */
    if (redo_create(&j->redo, &f->pairing.folder, &f->persist, &like) < 0) {
        free(j);
        return NULL;
    }
    j->next = all;
    all = j;
    return j;
}

/* Takes the smallest free lane that holds so many words of so many files. Returns 1; 0 if all such lanes are busy; -1. */
static int pick(struct journals *j, unsigned files, uint64_t words, struct journal_lane *lane)
{
    const struct journal *of = &j->redo.journal;
    for (unsigned i = 0; i < of->lanes; i++) {
        if (j->busy >> i & 1)
            continue;
        if (words > journal_capacity(of, i, files)) {
            if (i + 1 < of->lanes)
                continue;
            if (redo_grow(&j->redo, words) < 0)
                return -1;
        }
        j->busy |= 1ull << i;
        *lane = (struct journal_lane){.journal = of, .lane = i, .in = j};
        return 1;
    }
    return 0;
}

/* Removes a journal from the file's folder, unless a file uses it. */
static void drop(struct journals *j, const struct file *f)
{
    struct journals **at = &all;
    if (j->users)
        return;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    redo_close(&j->redo, &f->pairing.folder, !j->over);
    free(j);
}

/* Stores the journal word of the file's slot, as journals_step(): the journal's number, or 0. Returns 0; -1: the journal is over.
 * That is so also at exit if another thread is at it, or this one was when it called exit(). */
static int name_journal(struct file *f, struct journals *j, uint64_t number)
{
    int (*const lock)(pthread_mutex_t *) = exiting ? pthread_mutex_trylock : pthread_mutex_lock;
    int r = -1;
    if (lock(&f->medium) == 0) {
        r = file_check(f);
        if (r == 0 && (r = area_set_journal(&f->persist, f->area, number, f->pairing.path)) < 0)
            file_poison(f);
        pthread_mutex_unlock(&f->medium);
    }
    j->over |= r < 0;
    return r;
}

/* Ends the file's use of its journal: no commit of it is under way there. Returns 0; -1 with EIO: it is poisoned, and a lane may
 * hold its commit in doubt, so its manifest goes on naming the journal. */
static int leave_journal(struct file *f)
{
    struct journals *j = f->journal;
    struct file **at = &j->users;
    const int r = name_journal(f, j, 0);
    while (*at != f)
        at = &(*at)->next_user;
    *at = f->next_user;
    f->journal = NULL;
    drop(j, f);
    return r;
}

/* Makes all files use the journal. Returns 1; 0: another commit has to end first; -1. */
static int use_for_all(const struct part *first, struct journals *j)
{
    for (const struct part *part = first; part; part = part->next) {
        struct file *f = part->mapping->file;
        if (f->journal == j)
            continue;
        if (f->journal && f->journal->busy) /* perhaps with a commit of this file */
            return 0;
        if ((f->journal && leave_journal(f) < 0) || (!f->area && map_area(f) < 0) ||
            name_journal(f, j, j->redo.number) < 0)
            return -1;
        f->journal = j;
        f->next_user = j->users;
        j->users = f;
    }
    return 1;
}

/* ---- lanes ---- */

int journals_alike(const struct file *a, const struct file *b)
{
    if (a->persist.domain != b->persist.domain)
        return report_error(
            EXDEV, "%s is mapped in domain %s, and %s in domain %s: no commit can be of both",
            a->pairing.path, domain_name(a->persist.domain), b->pairing.path,
            domain_name(b->persist.domain));
    if (!same_folder(a, b))
        return report_error(
            EXDEV,
            "%s and %s have their reflections in two folders, %s and %s: no commit "
            "can be of both. Make them plain ('ato deploy'), then map both with one "
            "reflection_dir or ATO_REFLECTION_DIR",
            a->pairing.path, b->pairing.path, a->pairing.folder.path, b->pairing.folder.path);
    if (same_writers(a, b))
        return 0;
    return report_error(
        EXDEV,
        "%s and %s differ in owner, or in the other users that may write to them: no commit can "
        "be of both, since a process that may finish it in one could not in the other",
        a->pairing.path, b->pairing.path);
}

/* Takes a lane in a journal. With the lock. Returns 1; 0: try again, when others may have done anything; -1. */
static int take_in_journal(const struct part *first, uint64_t words, struct journal_lane *lane)
{
    unsigned files = 0;
    for (const struct part *part = first; part; part = part->next)
        files++;
    if (exiting)
        return report_error(ECANCELED, "the process is exiting: its journals are gone");
    if (files > JOURNAL_MAX_FILES || words > JOURNAL_MAX_WORDS)
        return report_error(E2BIG,
                            "a commit of %llu words of %u files is more than a journal can hold",
                            (unsigned long long)words, files);
    struct journals *j = find_or_make(first->mapping->file);
    if (!j)
        return -1;
    int r = use_for_all(first, j);
    if (r > 0)
        r = pick(j, files, words, lane);
    KEEP_ERRNO();
    drop(j, first->mapping->file); /* a new one, if no file uses it */
    return r;
}

int journals_take_lane(const struct part *first, uint64_t words, struct journal_lane *lane)
{
    struct file *f = first->mapping->file;
    const bool own = !first->next && words <= JOURNAL_SLOT_WORDS;
    for (unsigned i = 0; !own || !try_own(f, lane); i++) {
        int r;
        if (own && i) { /* lanes with a commit in doubt never become free */
            r = file_check(f);
        } else {
            mutex_lock(MUTEX_JOURNALS);
            r = !own ? take_in_journal(first, words, lane) : f->area ? 0 : map_area(f);
            mutex_unlock(MUTEX_JOURNALS);
        }
        if (r != 0)
            return r < 0 ? -1 : 0;
        if (own && i < PAGE_SPINS)
            page_pause(i);
        else
            clock_nap(NAP_NS);
    }
    return 0;
}

int journals_step(const struct journal_lane *lane, int (*step)(struct journal_writer *w),
                  struct journal_writer *w)
{
    struct journals *j = lane->in;
    /* A file's own lanes are in its views, and a fault there has poisoned it. */
    if (lane->journal->domain != PERSIST_MSYNC)
        return step(w) < 0 || (j && j->redo.faults.met) ? -1 : 0;
    pthread_mutex_t *medium = j ? &j->medium : &lane->of->medium;
    uint32_t *failed = j ? &j->failed : &lane->of->shared.header->poisoned;
    pthread_mutex_lock(medium);
    int r = __atomic_load_n(failed, __ATOMIC_RELAXED) ? -1 : step(w);
    if (j && j->redo.faults.met)
        r = -1;
    if (r < 0)
        __atomic_store_n(failed, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(medium);
    return r;
}

void journals_give_lane(const struct journal_lane *lane, bool in_doubt)
{
    const uint32_t idle = in_doubt ? 0 : 1u << lane->lane;
    struct journals *j = lane->in;
    if (j) {
        mutex_lock(MUTEX_JOURNALS);
        j->busy &= ~(1ull << lane->lane);
        j->over |= in_doubt;
        mutex_unlock(MUTEX_JOURNALS);
    } else if (__libc_single_threaded) {
        lane->of->idle_lanes |= idle;
    } else {
        __atomic_fetch_or(&lane->of->idle_lanes, idle, __ATOMIC_RELEASE);
    }
}

void journals_detach(struct file *f)
{
    mutex_lock(MUTEX_JOURNALS);
    while (f->journal && file_is_poisoned(f) && f->journal->busy) {
        mutex_unlock(MUTEX_JOURNALS);
        clock_nap(NAP_NS);
        mutex_lock(MUTEX_JOURNALS);
    }
    if (f->journal)
        (void)leave_journal(f);
    mutex_unlock(MUTEX_JOURNALS);
    area_unmap(f->area);
    f->area = NULL;
}

void journals_close_all(void)
{
    /* A lock is taken if exit() was called within a call of the library, or another thread is in one. Then
     * everything stays as after a kill. */
    if (pthread_mutex_trylock(&mutexes[MUTEX_JOURNALS]) != 0)
        return;
    exiting = true;
    for (struct journals *j = all, *next; j; j = next) {
        next = j->next;
        /* Other threads may still be in a commit, and go on until the process ends: their journals are left for recovery. */
        for (struct file *f = j->busy ? NULL : j->users, *other; f; f = other) {
            other = f->next_user;
            (void)leave_journal(f);
        }
    }
    mutex_unlock(MUTEX_JOURNALS);
}

void journals_forget_all(void)
{
    struct journals *next;
    for (struct journals *j = all; j; j = next) {
        next = j->next;
        close(j->redo.lock); /* again, unless locks_forget() did not know it */
        free(j);
    }
    all = NULL;
}
