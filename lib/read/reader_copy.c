/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/reader_copy.h"

#include "lib/file/page.h"
#include "lib/read/read.h"
#include "lib/read/reader_state.h"
#include "reflection/media/copy.h"
#include "reflection/media/races.h"
#include "reflection/media/report.h"
#include "reflection/pairing/lookup.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- by the words on the media ---- */

static int read_exactly(const struct file *f, int fd, char *to, uint64_t n, uint64_t at)
{
    ssize_t got = pread(fd, to, n, (off_t)at);
    if (got < 0)
        return report_errno(errno, "cannot read %s", f->pairing.path);
    memset(to + got, 0, n - (uint64_t)got);
    return 0;
}

/* Copies bytes of a page by its word on the media. It uses pread(), so nothing can fault. Returns 0; -1 with errno. */
static int copy_by_word(struct file *f, uint64_t page, unsigned begin, unsigned n, char *dst)
{
    _Alignas(64) char o[PAGE_BYTES], r[PAGE_BYTES];
    const unsigned from = begin / SLICE_BYTES * SLICE_BYTES;
    const uint64_t bytes = (begin + n + SLICE_BYTES - 1) / SLICE_BYTES * SLICE_BYTES - from;
    const int reflection = f->pairing.reflection;
    uint64_t word = 0;
    if (reflection >= 0 && read_exactly(f, reflection, (char *)&word, 8, layout_word(page)) < 0)
        return -1;
    /* R4. Flushing a line changes nothing on the media, so a reader may do it. In domain msync it would; but there
     * all words are settled (open.h). */
    if (word && !f->settled && f->persist.domain != PERSIST_MSYNC &&
        page_flush_words(&f->persist, file_word(f, page), 1, f->pairing.path) < 0)
        return -1;
    const uint64_t touched = word & bitmap_touched(begin, n);
    if (read_exactly(f, f->pairing.original, o + from, bytes, page * PAGE_BYTES + from) < 0 ||
        (touched && read_exactly(f, reflection, r + from, bytes,
                                 layout_reflected(page * PAGE_BYTES) + from) < 0))
        return -1;
    copy_gather_range(f->persist.kernel, dst, o, r, word, begin, n);
    return 0;
}

static int beyond(const struct file *f, uint64_t end)
{
    return report_error(EFAULT, "up to byte %llu of %s, which is not that long by now",
                        (unsigned long long)end, f->pairing.path);
}

/* ---- beside writers ---- */

int reader_copy_beside(struct file *f, uint64_t offset, char *dst, uint64_t n, uint64_t *version,
                       uint32_t *marked)
{
    const struct page_state *s = &f->shared.header->sizing;
    uint64_t now;
    int r = 1;
    *marked = 0;
    seam_point(SEAM_CHECK, f);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    now = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
    if (!(now & 1)) {
        *marked = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
        return file_check(f);
    }
    /* A shrink cuts off pages that are not loaded without a change of their states. */
    if (now != *version)
        memset(version + 1, 0xff,
               page_span_count(offset, n) * sizeof(*version)); /* READ_NOT_COPIED */
    *version = now;
    if (offset + n > file_size(f))
        return beyond(f, offset + n);
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        s = shared_look(&f->shared, page);
        now = s ? __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) : 0; /* 0: not loaded */
        if (now != *++version) {
            r = 0;
            if (now && !(now & 1)) {
                *marked = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
            } else {
                *version = now;
                seam_point(SEAM_VERSION, f);
                RACES_MEANT_BEGIN(); /* as in read_try() */
                if (now)
                    read_copy(f, s, page, (unsigned)begin, (unsigned)bytes, dst);
                else
                    r = copy_by_word(f, page, (unsigned)begin, (unsigned)bytes, dst);
                RACES_MEANT_END(dst, bytes);
                if (r < 0)
                    return -1;
            }
        }
        dst += bytes;
    }
    /* After the versions: a takeover that fails poisons the file before it removes a mark. */
    return file_check(f) < 0 ? -1 : r;
}

/* ---- while no process writes ---- */

static int64_t ns_between(struct timespec from, struct timespec to)
{
    return (int64_t)(to.tv_sec - from.tv_sec) * 1000000000 + (to.tv_nsec - from.tv_nsec);
}

/* Returns true if a change now might leave the ctime as it is: within the same tick of the clock by which the
 * kernel stamps files, or, on file systems that keep whole seconds, for two seconds. */
static bool is_young(struct timespec changed)
{
    struct timespec now, tick;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0 ||
        clock_getres(CLOCK_REALTIME_COARSE, &tick) < 0)
        return true;
    const int64_t age = ns_between(changed, now);
    return age >= 0 && age < (changed.tv_nsec ? tick.tv_nsec : 2000000000);
}

bool reader_copy_note(struct file *f)
{
    struct reader *r = f->reader;
    struct stat st;
    if (fstat(f->pairing.original, &st) < 0)
        return false;
    r->changed = st.st_ctim;
    r->own.size = (uint64_t)st.st_size;
    return !is_young(r->changed);
}

bool reader_copy_is_quiet(const struct file *f)
{
    const struct pairing *pr = &f->pairing;
    const struct manifest_record *known = &f->reader->record;
    struct manifest_record record;
    struct attribute a;
    struct stat st;
    int which;
    if (f->reader->state == READER_PLAIN)
        return attribute_read(pr->original, pr->path, &a) == ATTRIBUTE_NONE &&
               fstat(pr->original, &st) == 0 && ns_between(st.st_ctim, f->reader->changed) == 0;
    if (fstat(pr->original, &st) < 0)
        return false;
    const struct identity now = {.size = (uint64_t)st.st_size,
                                 .mtime_sec = st.st_mtim.tv_sec,
                                 .mtime_nsec = (uint64_t)st.st_mtim.tv_nsec};
    const struct lookup_names n = lookup_names(pr->identity.inode);
    /* Checks the manifest's name too: a manifest that was set aside keeps its old content. */
    return f->reader->manifest &&
           manifest_read(f->reader->manifest, &record, &which) == MANIFEST_VALID &&
           record.sequence == known->sequence &&
           folder_names(&pr->folder, n.manifest, pr->lock) == 1 && identity_unwritten(&now, known);
}

int reader_copy_quiet(struct file *f, uint64_t offset, char *dst, uint64_t n)
{
    if (f->reader->state == READER_PLAIN && !reader_copy_note(f))
        return 0;
    if (offset + n > f->reader->own.size)
        return reader_copy_is_quiet(f) ? beyond(f, offset + n) : 0;
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        seam_point(SEAM_VERSION, f);
        if (copy_by_word(f, page, (unsigned)begin, (unsigned)bytes, dst) < 0)
            return -1;
        dst += bytes;
    }
    return reader_copy_is_quiet(f);
}
