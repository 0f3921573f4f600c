/* SPDX-License-Identifier: BSD-3-Clause */
#include "file.h"

#include "../reflection/domain.h"
#include "../reflection/fsops.h"
#include "../reflection/locks.h"
#include "../reflection/meta.h"
#include "../reflection/report.h"
#include "deploy.h"
#include "journals.h"
#include "peers.h"
#include "reader.h"
#include "scarce.h"
#include "space.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Guards `all`. One lock for the process, since mapping and unmapping are rare. No call that moves data takes
 * it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *all;

void file_lock_all(void)
{
    pthread_mutex_lock(&lock);
}

void file_unlock_all(void)
{
    pthread_mutex_unlock(&lock);
}

int file_msync(struct file *f, const void *addr, bool word, size_t n, const char *site)
{
    pthread_mutex_lock(&f->medium);
    int r = word ? PERSIST_CALL(flush_word)(&f->persist, (const uint64_t *)addr, site)
                 : PERSIST_CALL(flush_data)(&f->persist, addr, n, site);
    if (r < 0)
        file_poison(f);
    else
        r = file_check(f);
    pthread_mutex_unlock(&f->medium);
    return r < 0 ? report_error(EIO,
                                "the medium of %s failed: what was not durable yet may be lost; "
                                "unmap the file everywhere and map it anew",
                                f->pairing.path)
                 : 0;
}

int file_say_poisoned(const struct file *f)
{
    return report_error(EIO,
                        "the medium of %s failed while a commit was made durable; unmap the file "
                        "everywhere and map it anew",
                        f->pairing.path);
}

int file_in_doubt(struct file *f, const char *what)
{
    file_poison(f);
    return report_errno(EIO,
                        "the medium failed while %s was made durable in %s: whether it counts is "
                        "seen when the file is mapped anew",
                        what, f->pairing.path);
}

static bool holes_fault(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) < 0 || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Maps views of both files up to max_size, so that growing needs no new view. An access beyond the end of a
 * file would be SIGBUS; the size check of each call prevents it. Returns 0; -1 with errno. */
static int map_views(struct file *f)
{
    const struct pairing *pr = &f->pairing;
    f->r_bytes = layout_reflection_bytes(f->max_size);
    void *o =
        domain_map(f->persist.domain, NULL, f->max_size, PROT_READ | PROT_WRITE, pr->original, 0);
    if (o == MAP_FAILED)
        return report_errno(errno, "cannot map %s for writing", pr->path);
    f->o = o;
    void *r =
        domain_map(f->persist.domain, NULL, f->r_bytes, PROT_READ | PROT_WRITE, pr->reflection, 0);
    if (r == MAP_FAILED)
        return report_errno(errno, "cannot map the reflection of %s", pr->path);
    f->r = r;
    madvise(f->o, f->max_size, MADV_DONTFORK);
    madvise(f->r, f->r_bytes, MADV_DONTFORK);
    f->chunks = calloc(layout_pages(f->max_size) / CHUNK_PAGES + 1, sizeof(*f->chunks));
    if (!f->chunks)
        return report_error(ENOMEM, "no memory to map %s", pr->path);
    return 0;
}

static void unmap_views(struct file *f)
{
    if (f->o)
        munmap(f->o, f->max_size);
    if (f->r)
        munmap(f->r, f->r_bytes);
    free(f->chunks);
    f->o = f->r = NULL;
    f->chunks = NULL;
}

/* Makes the views longer if other processes have made the file longer than they are. No thread is in a call
 * on the file. Returns 0; -1 with errno and the old views. */
static int lengthen_views(struct file *f, uint64_t size)
{
    if (size <= f->max_size)
        return 0;
    struct file before = *f;
    f->o = f->r = NULL;
    f->chunks = NULL;
    f->limit = size;
    f->max_size = round_up(size, PAGE_BYTES);
    if (map_views(f) == 0) {
        unmap_views(&before);
        return 0;
    }
    unmap_views(f);
    f->o = before.o;
    f->r = before.r;
    f->chunks = before.chunks;
    f->limit = before.limit;
    f->max_size = before.max_size;
    f->r_bytes = before.r_bytes;
    return -1;
}

static void destroy(struct file *f, bool remove_shared)
{
    int saved = errno;
    unmap_views(f);
    if (f->shared.header)
        shared_close(&f->shared, remove_shared);
    pairing_close(&f->pairing);
    free(f);
    errno = saved;
}

/* Makes all words durable as they are visible (R4, for the whole file). Meta pages that are holes have none.
 * Returns 0; -1 with errno. */
static int settle_words(struct file *f)
{
    uint64_t chunks = (layout_pages(f->pairing.size) + CHUNK_PAGES - 1) / CHUNK_PAGES;
    for (uint64_t chunk = 0;; chunk++) {
        chunk = meta_next(f->pairing.reflection, chunk, chunks);
        if (chunk == UINT64_MAX)
            return report_errno(errno, "cannot look for the bitmaps of %s", f->pairing.path);
        if (chunk == chunks)
            break;
        /* In domain msync the flush stores to the meta page, to make it dirty. On a file system with small
         * blocks, parts of the page may be holes, after a backup: so it needs space first. */
        if (f->persist.domain == PERSIST_MSYNC && space_make_meta(f, chunk) < 0)
            return -1;
        if (persist_flush_any(&f->persist, f->r + layout_meta_page(chunk), PAGE_BYTES) < 0)
            return report_errno(errno, "cannot make the bitmaps of %s durable", f->pairing.path);
    }
    persist_fence(&f->persist);
    return 0;
}

/* For the first process to attach: makes the shared memory anew, whatever dead processes left. With the
 * attach lock. Returns 0; -1 with errno. */
static int attach_first(struct file *f)
{
    struct pairing *pr = &f->pairing;
    const struct trust trust = identity_trust(&pr->identity);
    uint64_t generation = pr->record.shm_generation;
    if (!pr->settled && f->persist.domain == PERSIST_MSYNC) {
        /* All words at once: a system call at the first touch of each page would cost far more. */
        if (settle_words(f) < 0)
            return -1;
        pr->settled = true;
    }
    f->settled = pr->settled;
    pr->record.domain = f->persist.domain;
    pr->record.device = pr->identity.device;
    identity_boot(pr->record.boot_id);
    if (shared_create(&f->shared, &pr->record, &generation, f->max_size, pr->size, &trust) < 0)
        return -1;
    f->shared.header->settled = f->settled;
    return peers_enter(f) < 0 ? -1 : pairing_use(pr, generation);
}

/* Implements pairing_wish.join. */
static int attach_to_others(struct pairing *pr, void *arg)
{
    struct file *f = arg;
    const struct trust trust = identity_trust(&pr->identity);
    int r = shared_join(&f->shared, &pr->record, &trust, pr->path);
    if (r != 0)
        return r < 0 ? -1 : PAIRING_NOT_YET;
    f->settled = f->shared.header->settled;
    if (peers_enter(f) == 0)
        return 0;
    int saved = errno;
    shared_close(&f->shared, false);
    errno = saved;
    return -1;
}

/* Lowers limit and max_size if the shared memory of the other processes has room for fewer page states.
 * Returns 0; -1 with EFBIG if the file, or what the caller asks for, does not fit. */
static int fit_others(struct file *f, const struct file_wish *wish)
{
    const uint64_t most = f->shared.capacity * PAGE_BYTES;
    if (!f->pairing.joined || f->max_size <= most)
        return 0;
    if (wish->options->max_size <= most && wish->end <= most && f->pairing.size <= most) {
        f->limit = f->max_size = most;
        return 0;
    }
    return report_error(EFBIG,
                        "%s is mapped by other processes, with room for %llu bytes in all: a "
                        "mapping up to %llu does not fit",
                        f->pairing.path, (unsigned long long)most, (unsigned long long)f->limit);
}

uint64_t file_limit(uint64_t size, const struct file_wish *wish)
{
    uint64_t n = wish->options->max_size;
    if (n == 0)
        n = 1ull << 30;
    if (n < size)
        n = size;
    return n < wish->end ? wish->end : n;
}

/* Returns 0; -1 with EBUSY if this process has mapped another file with the same id: one is an image of the
 * other (a snapshot, a copied file system). Pages and locks are ordered by id, so two files must not share
 * it. */
static int check_not_mapped_twice(const struct file *f)
{
    for (const struct file *g = all; g; g = g->next)
        if (!g->reader && memcmp(g->pairing.record.id, f->pairing.record.id, 16) == 0)
            return report_error(
                EBUSY,
                "%s is an image of %s, which this process has mapped: they carry the "
                "same id",
                f->pairing.path, g->pairing.path);
    return 0;
}

static struct file *make_reader(int fd, const struct identity *who, const struct file_wish *wish)
{
    struct file *f = calloc(1, sizeof(*f));
    if (!f) {
        report_error(ENOMEM, "no memory to map a file");
        return NULL;
    }
    if (reader_open(f, fd, who, wish) < 0) {
        int saved = errno;
        free(f);
        errno = saved;
        return NULL;
    }
    f->next = all;
    all = f;
    return f;
}

static struct file *make(int fd, const struct identity *who, const struct file_wish *wish)
{
    if (wish->access != O_RDWR)
        return make_reader(fd, who, wish);
    struct file *f = calloc(1, sizeof(*f));
    if (!f) {
        report_error(ENOMEM, "no memory to map a file");
        return NULL;
    }
    f->shared.fd = -1;
    pthread_mutex_init(&f->medium, NULL);
    pthread_mutex_init(&f->attach, NULL);
    const char *folder = wish->options->reflection_dir;
    if (!folder)
        folder = secure_getenv("ATO_REFLECTION_DIR");
    struct pairing_wish pw = {.folder = folder && *folder ? folder : NULL,
                              .domain = wish->options->domain,
                              .domain_word = secure_getenv("ATO_DURABILITY"),
                              .borrow = wish->options->flags & ATO_BORROW_FD,
                              .prefer_file = wish->options->flags & ATO_PREFER_FILE,
                              .prefer_reflection = wish->options->flags & ATO_PREFER_REFLECTION,
                              .join = attach_to_others,
                              .arg = f};
    if (pairing_open(&f->pairing, fd, who, &pw) < 0) {
        int saved = errno;
        free(f);
        errno = saved;
        return NULL;
    }
    f->persist = f->pairing.persist;
    f->limit = file_limit(f->pairing.size, wish);
    f->max_size = round_up(f->limit, PAGE_BYTES);
    f->holes_fault = holes_fault(f->pairing.original);
    f->r_holes_fault = holes_fault(f->pairing.reflection);
    if (check_not_mapped_twice(f) == 0 && fit_others(f, wish) == 0 && map_views(f) == 0 &&
        (f->pairing.joined || attach_first(f) == 0) && file_check(f) == 0 &&
        pairing_unlock_attach(&f->pairing) == 0) {
        f->next = all;
        all = f;
        if (f->pairing.joined)
            (void)peers_recover_all(f); /* if it fails, the calls that need it report that */
        return f;
    }
    if (f->shared.header)
        peers_leave(f);
    destroy(f, !f->pairing.joined);
    return NULL;
}

static int fits(const struct file *f, const struct file_wish *wish)
{
    const struct ato_options *o = wish->options;
    if (f->pairing.borrowed || (o->flags & ATO_BORROW_FD))
        return report_error(EBUSY,
                            "%s is mapped in this process: with ATO_BORROW_FD it is mapped once",
                            f->pairing.path);
    if (o->domain != ATO_DOMAIN_AUTO && o->domain != (int)f->persist.domain)
        return report_error(EXDEV, "%s is mapped in domain %s; it cannot be in domain %s too",
                            f->pairing.path, domain_name(f->persist.domain),
                            domain_name(o->domain));
    if (o->max_size > f->limit || wish->end > f->max_size)
        return report_error(
            EFBIG,
            "%s is mapped with a largest size of %llu bytes; a mapping up to %llu "
            "does not fit",
            f->pairing.path, (unsigned long long)f->limit,
            (unsigned long long)(o->max_size > wish->end ? o->max_size : wish->end));
    return file_check(f);
}

static struct file *find(const struct identity *who, bool reader)
{
    struct file *f = all;
    while (f && (f->pairing.identity.inode != who->inode ||
                 f->pairing.identity.device != who->device || !f->reader == reader))
        f = f->next;
    return f;
}

struct file *file_open(int fd, const struct file_wish *wish)
{
    struct identity who;
    if (identity_of(fd, &who) < 0)
        return NULL;
    /* Prefers a file that was opened for writing, even if this descriptor is read-only. */
    struct file *f = find(&who, false);
    if (!f && wish->access != O_RDWR)
        f = find(&who, true);
    if (!f)
        f = make(fd, &who, wish);
    else if (fits(f, wish) < 0)
        return NULL;
    if (f)
        f->mappings++;
    return f;
}

static void forget(struct file *f)
{
    struct file **at = &all;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
}

/* Returns 0; -1 with ESTALE if a file was cut by other means: then parts of the original to deploy to, or
 * words to go by, may be missing. */
static int check_length(const struct file *f)
{
    struct stat st;
    uint64_t size = file_size(f);
    if (fstat(f->pairing.reflection, &st) < 0)
        return report_errno(errno, "cannot look at the reflection of %s", f->pairing.path);
    if ((uint64_t)st.st_size < layout_reflection_bytes(size))
        return report_error(
            ESTALE,
            "the reflection of %s was cut by other means while it was mapped: the file "
            "cannot be made plain",
            f->pairing.path);
    if (fstat(f->pairing.original, &st) < 0)
        return report_errno(errno, "cannot look at %s", f->pairing.path);
    if ((uint64_t)st.st_size < size)
        return report_error(ESTALE,
                            "%s was cut by other means while it was mapped, to %lld bytes of %llu: "
                            "it is not made plain before it is as long as it was",
                            f->pairing.path, (long long)st.st_size, (unsigned long long)size);
    return 0;
}

/* The state of file_close() for the last mapping of this process. */
struct leaving {
    struct deploying deploying;
    bool plain;
    /* Too little space for deploy_file(): scarce_deploy() goes on, with the attach lock, if no other process
     * has the file mapped. */
    bool scarce;
    /* A commit is, or may be, in doubt: the file stays `in use`, and the next map recovers it. */
    bool doubt;
    uint64_t entered; /* shared_header.entered at the last make_ready() */
};

static bool is_ready(const struct file *f, const struct leaving *l)
{
    return l->doubt || l->entered == f->shared.header->entered;
}

/* Deploys the whole file. Returns 0; -1 with errno; 1 if the caller must retry while holding the attach lock. */
static int bring_home(struct file *f, struct leaving *l)
{
    if (check_length(f) < 0)
        return -1;
    if (!l->scarce) {
        const int r = deploy_file(f, &l->deploying);
        /* Not where reading a hole may be SIGBUS: scarce.c makes holes, and readers without a lock could read
         * them. */
        l->scarce = r < 0 && scarce_is(errno) && !f->r_holes_fault;
        return l->scarce ? 1 : r;
    }
    /* persist-order R4 (reader: W5 in scarce.c): words not touched since a process died become durable, too. */
    if (!f->settled && settle_words(f) < 0)
        return -1;
    return scarce_deploy(f, &l->deploying);
}

/* Does the work that may take long before the last process detaches. Idempotent: returns at once if it
 * succeeded before and no process has attached since. Returns 0; -1 with errno; 1 if the caller must retry
 * while holding the attach lock. */
static int make_ready(struct file *f, struct leaving *l)
{
    const uint64_t entered = f->shared.header->entered;
    if (is_ready(f, l))
        return 0;
    if (lengthen_views(f, f->pairing.size) < 0)
        return -1;
    const int home = l->plain ? bring_home(f, l) : 0;
    if (home != 0)
        return home;
    /* State `clean` says that words are durable as they are visible, also words that were not touched since a
     * process died. They are durable before the record is stored, not with it: the record may become visible
     * and its writer die, and the process that finds it flushes no words. */
    if (!l->plain && !f->settled && settle_words(f) < 0)
        return -1;
    l->entered = entered;
    return 0;
}

/* Takes the attach lock and looks whether this is the last process that has the file mapped. Returns 1 if so:
 * what dead processes held is freed, or l->doubt is set; 0 if not; -1 with errno and without the lock. */
static int lock_and_look(struct file *f, struct leaving *l)
{
    struct pairing *pr = &f->pairing;
    /* A process may die between the recovery and the lock: try again. */
    for (int i = 0; i < 100; i++) {
        struct report_kept why = {0};
        if (peers_recover_all(f) < 0)
            report_keep(&why);
        if (peers_lock(f) < 0)
            return -1;
        int others = pairing_others(pr);
        if (others > 0)
            return 0;
        if (others == 0 && (why.error || !peers_any_dead(f))) {
            int r = pairing_refresh(pr);
            if (r == 0)
                r = pairing_refresh_size(pr);
            if (r == 0 && why.error)
                report_again(&why);
            l->doubt = r < 0 || why.error || file_is_poisoned(f);
            return 1;
        }
        (void)peers_unlock(f);
        if (others < 0)
            return -1;
    }
    return report_error(EBUSY, "processes that have %s mapped keep dying", pr->path);
}

/* Detaches from a file that other processes keep mapped. With the attach lock. */
static int detach(struct file *f)
{
    f->mappings--;
    forget(f);
    journals_detach(f);
    unmap_views(f);
    shared_forget_holder(&f->shared, f->holder);
    peers_leave(f);
    destroy(f, false); /* closing its descriptor drops the locks */
    return 0;
}

/* Detaches from a file that no other process has mapped. With the attach lock. The mapping is gone from here
 * on, even on failure: the media are consistent, and the next map recovers a state that could not be written.
 * Returns 0; -1 with errno. */
static int detach_last(struct file *f, const struct leaving *l)
{
    struct pairing *pr = &f->pairing;
    const bool written = f->shared.header->written;
    f->mappings--;
    forget(f);
    journals_detach(f);
    unmap_views(f); /* before mtime is recorded: the kernel moves it for stores through a mapping */
    char shared[sizeof(f->shared.name)];
    memcpy(shared, f->shared.name, sizeof(shared));
    /* Removed while there still is a manifest that tells its name. */
    bool removed = shared_close(&f->shared, true);
    int r = 0;
    if (l->doubt && l->plain)
        r = report_error(EIO,
                         "%s is unmapped, but not plain: a commit is in doubt, which the next map "
                         "recovers",
                         pr->path);
    else if (!l->doubt)
        r = l->plain ? pairing_remove(pr) : pairing_clean(pr, written);
    int saved = errno;
    if (!removed) /* retry: after this nothing tells the name */
        (void)fsops->shm_unlink(shared);
    errno = saved;
    destroy(f, true);
    return r;
}

static void close_reader(struct file *f)
{
    forget(f);
    reader_close(f);
    free(f);
}

int file_close(struct file *f, const struct ato_unmap_options *options, bool *kept)
{
    struct leaving l = {.deploying.options = options,
                        .plain = options->mode == ATO_UNMAP_SPATIAL || !f->pairing.has_attributes};
    *kept = false;
    if (f->mappings > 1) {
        f->mappings--;
        return 0;
    }
    if (f->reader) {
        close_reader(f);
        return 0;
    }
    *kept = true;
    int last = lock_and_look(f, &l);
    /* Make ready without the attach lock, since processes that are about to map the file wait for it. Repeat
     * that if others came and went meanwhile. EFAULT: they made the file shorter. */
    for (int i = 0; i < 3 && last > 0 && !is_ready(f, &l) && !l.scarce; i++) {
        if (peers_unlock(f) < 0 || (make_ready(f, &l) < 0 && errno != EFAULT))
            return -1;
        last = lock_and_look(f, &l);
    }
    for (int r; last > 0 && (r = make_ready(f, &l)) != 0;) {
        if (peers_unlock(f) < 0 || r < 0)
            return -1;
        locks_let_others();
        last = lock_and_look(f, &l);
    }
    if (last < 0)
        return -1;
    pthread_mutex_unlock(&f->attach); /* no other thread is in a call on the file */
    *kept = false;
    return last ? detach_last(f, &l) : detach(f);
}

void file_abandon(struct file *f)
{
    if (--f->mappings)
        return;
    int saved = errno;
    if (f->reader) {
        close_reader(f);
        errno = saved;
        return;
    }
    forget(f);
    journals_detach(f);
    bool last = peers_lock(f) == 0 && pairing_others(&f->pairing) == 0;
    peers_leave(f);
    destroy(f, last);
    errno = saved;
}

void file_exit_all(void)
{
    /* The lock is taken if exit() was called within a call of the library, or another thread is in one. Then
     * everything stays as after a kill. */
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    /* Waits for nothing: if another process has the attach lock the object stays, for the next map to remove. */
    for (struct file *f = all; f; f = f->next) {
        if (f->reader || locks_try(f->pairing.lock, 0, 1) != LOCKS_MINE)
            continue;
        if (pairing_others(&f->pairing) == 0)
            (void)fsops->shm_unlink(f->shared.name);
        (void)locks_drop(f->pairing.lock, 0, 1);
    }
    file_unlock_all();
}

void file_forget_all(void)
{
    for (struct file *f = all; f;) {
        struct file *next = f->next;
        if (f->reader) {
            reader_forget(f);
            free(f);
            f = next;
            continue;
        }
        /* The child did not inherit the views: there is nothing to unmap. */
        close(f->shared.fd);
        free(f->shared.ready);
        pairing_forget(&f->pairing);
        journals_forget(f);
        free(f->chunks);
        free(f);
        f = next;
    }
    all = NULL;
}
