/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/file.h"

#include "reflection/format/log.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"

#include "ato.h"

#include <unistd.h>

void file_set_limit(struct file *f, uint64_t size, const struct file_wish *wish)
{
    const uint64_t n = wish->options->max_size ? wish->options->max_size : 1ull << 30;
    f->limit = n < size ? size : n;
    if (f->limit < wish->end)
        f->limit = wish->end;
    f->max_size = layout_pages(f->limit) * PAGE_BYTES;
}

int file_sync(struct file *f, int fd, const char *what)
{
    pthread_mutex_lock(&f->medium);
    int r = file_check(f);
    if (r == 0 && fsops->fdatasync(fd) < 0)
        r = file_in_doubt(f, what);
    pthread_mutex_unlock(&f->medium);
    return r;
}

int file_refresh_size(struct file *f)
{
    const struct shared_header *h = f->shared.header;
    const bool in_log =
        f->logged && shared_log_has_size(&h->log); /* before: it may come home meanwhile */
    if (pairing_refresh_size(&f->pairing) < 0)
        return -1;
    if (in_log)
        f->pairing.size = __atomic_load_n(&h->size, __ATOMIC_ACQUIRE);
    return 0;
}

int file_log(const struct file *f, struct log_file *log)
{
    const struct shared_log *l = &f->shared.header->log;
    *log = (struct log_file){.fd = f->pairing.reflection,
                             .header = {.edition = __atomic_load_n(&l->edition, __ATOMIC_RELAXED),
                                        .salt = l->salt,
                                        .capacity = l->capacity,
                                        .origin = l->origin,
                                        .start = __atomic_load_n(&l->start, __ATOMIC_ACQUIRE)}};
    return log->header.capacity >= LOG_RING_AT && log->header.capacity <= LAYOUT_MAX_BYTES &&
                   log->header.capacity % LOG_RING_AT == 0
               ? 0
               : report_error(EUCLEAN, "the shared memory of %s is damaged", f->pairing.path);
}

int file_load_log(struct file *f)
{
    struct shared_log *l = &f->shared.header->log;
    struct log_file log;
    const int valid = log_open(&log, f->pairing.reflection);
    if (valid <= 0)
        return report_error(valid < 0 ? errno : EUCLEAN, "cannot read the header of the log of %s",
                            f->pairing.path);
    __atomic_store_n(&l->edition, log.header.edition, __ATOMIC_RELAXED);
    l->salt = log.header.salt;
    __atomic_store_n(&l->capacity, log.header.capacity, __ATOMIC_RELAXED);
    l->origin = log.header.origin;
    __atomic_store_n(&l->start, log.header.start, __ATOMIC_RELEASE);
    return 0;
}

int file_read_words(const struct file *f, uint64_t first, uint64_t n, uint64_t *words,
                    uint64_t *pages)
{
    if (meta_read(f->pairing.reflection, file_format(f), first, n, words, pages) != (int64_t)n)
        return report_error(EIO,
                            "cannot read the bitmaps from place %llu on of the reflection of %s",
                            (unsigned long long)first, f->pairing.path);
    return 0;
}

uint64_t file_places(const struct file *f, uint64_t size)
{
    if (!f->sparse)
        return f->logged ? 0 : layout_pages(size);
    const off_t length = fsops_length(f->pairing.reflection);
    if (length < 0)
        report_errno(errno, "cannot find the length of the reflection of %s", f->pairing.path);
    /* Whole chunks: it had at least that length when it was mapped. */
    return length < 0 ? UINT64_MAX
                      : lesser((uint64_t)length / layout_meta_page(LAYOUT_SPARSE, 1) * CHUNK_SPARSE,
                               LAYOUT_PLACES);
}

const char *file_what_is_cut(const struct file *f)
{
    const struct pairing *pr = &f->pairing;
    const uint64_t is = file_size(f), size = is ? is : pr->size; /* its page may be lost */
    const off_t o = fsops_length(pr->original), r = fsops_length(pr->reflection),
                manifest = fsops_length(pr->lock);
    if (o >= 0 && (uint64_t)o < size)
        return "";
    const uint64_t least =
        f->logged ? LOG_RING_AT + __atomic_load_n(&f->shared.header->log.capacity, __ATOMIC_RELAXED)
                  : layout_reflection_bytes(file_format(f), size);
    if (r >= 0 && (uint64_t)r < least)
        return f->logged ? "the log of " : "the reflection of ";
    if (manifest >= 0 && manifest < MANIFEST_BYTES)
        return "the manifest of ";
    return shared_is_cut(&f->shared) ? "the shared memory of " : NULL;
}

int file_say_poisoned(const struct file *f)
{
    const char *cut = file_what_is_cut(f);
    if (cut)
        return report_error(EIO,
                            "another program made %s%s shorter while it was mapped: every call on "
                            "it fails. %s",
                            cut, f->pairing.path, pairing_way_out(&f->pairing));
    return report_error(EIO,
                        "the medium of %s failed: bytes that were not durable yet may be lost. %s",
                        f->pairing.path, pairing_way_out(&f->pairing));
}

int file_in_doubt(struct file *f, const char *what)
{
    file_poison(f);
    return report_errno(EIO,
                        "the medium failed while %s was made durable in %s: it may be durable or "
                        "not. %s",
                        what, f->pairing.path, pairing_way_out(&f->pairing));
}
