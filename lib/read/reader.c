/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/reader.h"

#include "lib/read/reader_beside.h"
#include "lib/read/reader_quiet.h"
#include "lib/read/reader_state.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int try_once(struct file *f, uint64_t offset, char *dst, uint64_t n)
{
    struct reader *r = f->reader;
    if (reader_state_watches(f))
        return file_check(f) < 0 ? -1 : reader_beside_try(f, offset, dst, n);
    pthread_mutex_lock(&r->lock);
    int done = 0;
    if (r->state != READER_WATCHING) {
        done = reader_quiet_try(f, offset, dst, n);
        if (done == 0 && !reader_quiet_is(f)) /* if it is quiet, it was only too early to tell */
            done = reader_state_find(f) < 0 ? -1 : 0;
    }
    pthread_mutex_unlock(&r->lock);
    return done;
}

int reader_read(struct mapping *m, uint64_t offset, char *dst, uint64_t n)
{
    /* Writers reserve the pages after some tries; a reader can only try again. After EAGAIN too: the holder of a
     * page may have died just now, and another process may be about to recover it. */
    enum { TRIES = 20000, DEAD_TRIES = 1000 };
    unsigned dead = 0;
    for (unsigned i = 0; i < TRIES; i++) {
        int done = try_once(m->file, offset, dst, n);
        if (done > 0) {
            if (!m->quick && reader_state_watches(m->file))
                __atomic_store_n(&m->quick, m->reach, __ATOMIC_RELEASE);
            if (i)
                count(m, COUNT_READ_RETRIES, i);
            return 0;
        }
        if (done < 0 && (errno != EAGAIN || dead++ == DEAD_TRIES))
            return -1;
        if (done < 0 || i > 100)
            reader_state_nap();
    }
    return report_error(EAGAIN, "%s is written to all the time where it is read",
                        m->file->pairing.path);
}

int reader_refresh(struct file *f)
{
    struct reader *r = f->reader;
    int known = 0;
    pthread_mutex_lock(&r->lock);
    if (r->state == READER_PLAIN)
        (void)reader_quiet_note(f);
    if (r->state != READER_WATCHING && !reader_quiet_is(f))
        known = reader_state_find(f);
    pthread_mutex_unlock(&r->lock);
    return known;
}

bool reader_watches(const struct file *f)
{
    return reader_state_watches(f);
}

int reader_size(struct file *f, uint64_t *size)
{
    enum { TRIES = 1000 };
    *size = file_size(f);
    if (!reader_watches(f))
        return 0;
    for (unsigned i = 0; i < TRIES; i++) {
        if (reader_beside_size(f, size))
            return 0;
        if (i > 100)
            reader_state_nap();
    }
    return report_error(
        EAGAIN,
        "the size of %s is not known: a process that may write to it has to recover it first",
        f->pairing.path);
}

void reader_lock_all(void)
{
    reader_state_lock_all();
}

void reader_unlock_all(void)
{
    reader_state_unlock_all();
}

bool reader_record(const struct file *f, struct manifest_record *record)
{
    struct manifest_sizes sizes;
    pthread_mutex_lock(&f->reader->lock);
    bool found =
        f->reader->state != READER_PLAIN && reader_state_manifest(&f->pairing, record, &sizes) == 0;
    pthread_mutex_unlock(&f->reader->lock);
    return found;
}

/* ---- open and close ---- */

int reader_open(struct file *f, int fd, const struct identity *identity,
                const struct file_wish *wish)
{
    struct pairing *pr = &f->pairing;
    struct reader *r = calloc(1, sizeof(*r));
    const char *folder = wish->options->reflection_dir;
    if (!r)
        return report_error(ENOMEM, "no memory to map a file");
    if (!folder)
        folder = secure_getenv("ATO_REFLECTION_DIR");
    pthread_mutex_init(&r->lock, NULL);
    pr->original = pr->reflection = pr->lock = pr->folder.fd = f->shared.fd = -1;
    pr->slot = MANIFEST_SLOTS;
    pr->identity = *identity;
    f->reader = r;
    f->shared.header = &r->own;
    r->own.cut = r->own.gone = r->own.lowest = UINT64_MAX;
    if (folder && *folder) {
        if (strlen(folder) >= sizeof(r->folder)) {
            report_error(ENAMETOOLONG, "the path of the reflection folder is too long");
            goto fail;
        }
        strcpy(r->folder, folder);
        r->wish.folder = r->folder;
    }
    pr->borrowed = wish->options->flags & ATO_BORROW_FD;
    pr->original = pr->borrowed ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (pr->original < 0) {
        report_errno(errno, "cannot duplicate descriptor %d", fd);
        goto fail;
    }
    persist_init(&f->persist, domain_of(pr->original));
    f->max_size = f->limit = file_limit(identity->size, wish);
    f->max_size = (f->max_size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (identity_path(fd, identity, pr->path, &r->name) < 0 || reader_state_find(f) < 0)
        goto fail;
    if (wish->options->domain != ATO_DOMAIN_AUTO && r->state != READER_PLAIN &&
        wish->options->domain != (int)f->persist.domain) {
        report_error(EXDEV, "%s is of domain %s; it cannot be mapped in domain %s", pr->path,
                     domain_name(f->persist.domain), domain_name(wish->options->domain));
        goto fail;
    }
    void *o = domain_map(f->persist.domain, NULL, f->max_size, PROT_READ, pr->original, 0);
    if (o == MAP_FAILED) {
        report_errno(errno, "cannot map %s for reading", pr->path);
        goto fail;
    }
    f->o = o;
    madvise(f->o, f->max_size, MADV_DONTFORK);
    return 0;
fail:;
    int saved = errno;
    reader_close(f);
    errno = saved;
    return -1;
}

void reader_forget(struct file *f)
{
    f->o = f->r = f->shared.base = NULL;
    reader_close(f);
}

void reader_close(struct file *f)
{
    struct reader *r = f->reader;
    if (f->o)
        munmap(f->o, f->max_size);
    if (f->r)
        munmap(f->r, f->r_bytes);
    if (r->state == READER_WATCHING)
        shared_close(&f->shared, false);
    reader_state_close(&f->pairing); /* drops the locks too */
    if (f->pairing.original >= 0 && !f->pairing.borrowed)
        close(f->pairing.original);
    free(r);
}
