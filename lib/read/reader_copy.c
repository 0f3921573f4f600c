/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/reader_copy.h"

#include "lib/page/reservation.h"
#include "lib/read/read.h"
#include "lib/read/reader_state.h"
#include "reflection/media/report.h"
#include "reflection/pairing/lookup.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
        return reader_copy_is_quiet(f) ? reservation_beyond(f, offset + n) : 0;
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        seam_point(SEAM_VERSION, f);
        if (read_by_word(f, page, (unsigned)begin, (unsigned)bytes, dst) < 0)
            return -1;
        dst += bytes;
    }
    return reader_copy_is_quiet(f);
}
