/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/api/open.h"

#include "lib/api/files.h"
#include "lib/file/attach.h"
#include "lib/file/space.h"
#include "lib/file/views.h"
#include "lib/read/guard.h"
#include "lib/read/reader.h"
#include "lib/recovery/peers.h"
#include "reflection/media/domain.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"
#include "reflection/pairing/removal.h"
#include "reflection/recovery/pairing_open.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

int open_flush_words(struct file *f)
{
    uint64_t chunks = (layout_pages(f->pairing.size) + CHUNK_PAGES - 1) / CHUNK_PAGES;
    if (f->settled)
        return 0;
    FOR_EACH_META(chunk, f->pairing.reflection, 0, chunks)
    {
        if (chunk == UINT64_MAX)
            return report_errno(errno, "cannot search the bitmaps of %s", f->pairing.path);
        /* In domain msync the flush stores to the meta page, to make it dirty. On a file system with
         * small blocks, parts of that page may be holes after a backup was restored: allocate them
         * first. */
        if (f->persist.domain == PERSIST_MSYNC && space_make_meta(f, chunk) < 0)
            return -1;
        if (persist_flush_any(&f->persist, f->r + layout_meta_page(chunk), PAGE_BYTES) < 0)
            return report_errno(errno, "cannot make the bitmaps of %s durable", f->pairing.path);
    }
    persist_fence(&f->persist);
    f->settled = true;
    return 0;
}

/* For the first process that attaches: makes new shared memory, and removes that of dead processes.
 * With the attach lock. Returns 0; -1 with errno. */
static int attach_first(struct file *f, const struct ato_options *o)
{
    struct pairing *pr = &f->pairing;
    uint64_t generation = pr->record.shm_generation;
    f->settled = pr->settled;
    /* A system call at the first touch of each page would cost far more. */
    if (f->persist.domain == PERSIST_MSYNC && open_flush_words(f) < 0)
        return -1;
    if (!pr->record.guard.bytes &&
        guard_make(&pr->record.guard, o->guard_offset, o->guard_plain, o->guard_bytes) < 0)
        return -1;
    if (pr->newborn && pr->record.guard.bytes)
        memcpy(pr->record.guarded, o->guard_masked ? o->guard_masked : o->guard_plain,
               pr->record.guard.bytes);
    pr->record.domain = f->persist.domain;
    pr->record.device = pr->identity.device;
    identity_boot(pr->record.boot_id);
    /* The first record names the object that is made next, so that after a kill the next process removes that. */
    if (pr->newborn && pairing_use(pr, generation + 1) < 0)
        return -1;
    if (shared_create(&f->shared, &pr->record, &generation, f->max_size, pr->size,
                      &pr->identity.trust) < 0)
        return -1;
    f->shared.header->settled = f->settled;
    if (attach_enter(f) < 0)
        return -1;
    return pr->newborn && generation == pr->record.shm_generation ? 0 : pairing_use(pr, generation);
}

/* Implements pairing_wish.join. */
static int attach_to_others(struct pairing *pr, void *arg)
{
    struct file *f = arg;
    int r = shared_join(&f->shared, &pr->record, &pr->identity.trust, pr->path, O_RDWR);
    if (r != 0)
        return r < 0 ? -1 : PAIRING_NOT_YET;
    f->settled = f->shared.header->settled;
    if (attach_enter(f) == 0)
        return 0;
    shared_close(&f->shared, false);
    return -1;
}

/* Returns 0; -1 with EFBIG if the shared memory of the other processes has no room for the states of all pages. */
static int fit_others(const struct file *f)
{
    const uint64_t most = f->shared.capacity * PAGE_BYTES;
    if (!f->pairing.joined || f->max_size <= most)
        return 0;
    return report_error(
        EFBIG,
        "other processes have %s mapped with room for %llu bytes: a mapping up to byte %llu does "
        "not fit. Use a smaller max_size, or map the file when they have unmapped it",
        f->pairing.path, (unsigned long long)most, (unsigned long long)f->limit);
}

/* Returns 0; -1 with EBUSY if this process has mapped another file with the same id: one is an image of the
 * other (a snapshot, a copied file system). Pages and locks are ordered by id, so two files must not share
 * it. */
static int check_not_mapped_twice(const struct file *f)
{
    const struct file *g = files_with_id(f->pairing.record.id);
    if (g)
        return report_error(EBUSY,
                            "%s and %s, which this process has mapped, have the same id: one is an "
                            "image of the other. Unmap that file first",
                            f->pairing.path, g->pairing.path);
    return 0;
}

/* Closes a file that this process has never written to, in any state, as if this process had died; and frees f. Keeps errno. */
static void abandon(struct file *f)
{
    KEEP_ERRNO();
    bool last = locks_wait(f->pairing.lock, 0, 1) == 0 && pairing_others(&f->pairing) == 0;
    /* Nothing is in its reflection if no other process had it mapped. */
    if (last && f->pairing.newborn && (!f->shared.header || f->shared.header->entered <= 1))
        removal_of_failed_birth(&f->pairing);
    attach_leave(f);
    files_destroy(f, last);
}

/* Opens a file for writing: fills in *f. Returns 0; -1 with errno, and f is freed. */
static int make_writer(struct file *f, int fd, const struct identity *identity,
                       const struct file_wish *wish)
{
    f->shared.fd = -1;
    pthread_mutex_init(&f->medium, NULL);
    pthread_mutex_init(&f->attach, NULL);
    int domain = wish->options->domain;
    if (domain == ATO_DOMAIN_AUTO)
        domain = domain_from_name(secure_getenv("ATO_DURABILITY"));
    struct pairing_wish pw = {.folder = wish->options->reflection_dir,
                              .domain = domain,
                              .borrow = wish->options->flags & ATO_BORROW_FD,
                              .prefer_file = wish->options->flags & ATO_PREFER_FILE,
                              .prefer_reflection = wish->options->flags & ATO_PREFER_REFLECTION,
                              .join = attach_to_others,
                              .recover = peers_recover_journal,
                              .arg = f};
    if (domain < 0 || pairing_open(&f->pairing, fd, identity, &pw) < 0) {
        free(f);
        return -1;
    }
    f->persist = f->pairing.persist;
    file_set_limit(f, f->pairing.size, wish);
    f->holes_fault = domain_is_memory(f->pairing.original) != 0;
    f->r_holes_fault = domain_is_memory(f->pairing.reflection) != 0;
    if (check_not_mapped_twice(f) == 0 && fit_others(f) == 0 && views_map(f) == 0 &&
        (f->pairing.joined || attach_first(f, wish->options) == 0) && file_check(f) == 0 &&
        pairing_unlock_attach(&f->pairing) == 0) {
        if (f->pairing.joined)
            (void)peers_recover_all(f); /* if it fails, the calls that need it report the error */
        return 0;
    }
    abandon(f);
    return -1;
}

static struct file *make(int fd, const struct identity *identity, const struct file_wish *wish)
{
    struct file *f = calloc(1, sizeof(*f));
    if (!f)
        return report_null(ENOMEM, "no memory to map a file");
    if (wish->access == O_RDWR && make_writer(f, fd, identity, wish) < 0)
        return NULL;
    if (wish->access != O_RDWR && reader_open(f, fd, identity, wish) < 0) {
        files_destroy(f, false);
        return NULL;
    }
    files_add(f);
    return f;
}

static int fits(const struct file *f, const struct file_wish *wish)
{
    const struct ato_options *o = wish->options;
    if (f->pairing.borrowed || (o->flags & ATO_BORROW_FD))
        return report_error(EBUSY,
                            "this process has %s mapped already, and with ATO_BORROW_FD a file can "
                            "be mapped only once",
                            f->pairing.path);
    if (o->domain != ATO_DOMAIN_AUTO && o->domain != (int)f->persist.domain)
        return report_error(
            EXDEV, "%s is mapped in domain %s; it cannot be mapped in domain %s at the same time",
            f->pairing.path, domain_name(f->persist.domain), domain_name(o->domain));
    if (o->max_size > f->limit || wish->end > f->max_size)
        return report_error(
            EFBIG,
            "%s is mapped with a max_size of %llu bytes; a mapping up to byte %llu does not fit. "
            "Unmap it, then map it with a larger max_size",
            f->pairing.path, (unsigned long long)f->limit,
            (unsigned long long)(o->max_size > wish->end ? o->max_size : wish->end));
    return file_check(f);
}

struct file *open_file(int fd, const struct file_wish *wish)
{
    struct identity identity;
    if (identity_of(fd, &identity) < 0)
        return NULL;
    /* Prefers a file that was opened for writing, even if this descriptor is read-only. */
    struct file *f = files_find(&identity, false);
    if (!f && wish->access != O_RDWR)
        f = files_find(&identity, true);
    if (!f)
        f = make(fd, &identity, wish);
    else if (fits(f, wish) < 0)
        return NULL;
    if (f)
        f->mappings++;
    return f;
}

void open_undo(struct file *f)
{
    if (--f->mappings)
        return;
    files_remove(f);
    if (f->reader)
        files_destroy(f, false);
    else
        abandon(f);
}
