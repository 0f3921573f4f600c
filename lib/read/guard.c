/* SPDX-License-Identifier: BSD-3-Clause */
/* Guarded bytes: what a file has in one place while it is not plain. The manifest keeps the plain ones
 * (reflection/pairing/guard.h). */
#include "lib/read/guard.h"

#include "lib/file/attach.h"
#include "lib/file/calls.h"
#include "lib/file/mutex.h"
#include "lib/file/table.h"
#include "lib/read/range.h"
#include "lib/read/read.h"
#include "lib/read/reader.h"
#include "reflection/media/report.h"
#include "reflection/pairing/birth.h"
#include "reflection/pairing/guard.h"

#include "ato_engine.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct manifest_guard guard_of(struct file *f)
{
    pthread_mutex_t *lock = f->reader ? &f->reader->lock : &mutexes[MUTEX_GUARD];
    struct manifest_record record = {0};
    enum manifest_finding found = MANIFEST_DAMAGED;
    int which;
    pthread_mutex_lock(lock);
    /* A reader's plain file has no manifest. Another process may have written both copies, one after the other, meanwhile: try
     * again. */
    for (int i = 0; i < 8 && f->pairing.manifest && found != MANIFEST_VALID; i++)
        found = manifest_read(f->pairing.manifest, &record, &which);
    pthread_mutex_unlock(lock);
    return record.guard;
}

/* Checks whether the guard `kept` may be replaced by `wish`: not by one at another place, nor by one
 * that names as plain what the file now has instead. Otherwise a program that maps a file again, and
 * gives the masked bytes as plain ones, would lose the plain ones. Returns 0; -1 with EEXIST or
 * another errno. */
static int check_replacing(struct mapping *m, const struct manifest_guard *kept,
                           const struct manifest_guard *wish)
{
    char now[MANIFEST_GUARD_MAX];
    const char *path = m->file->pairing.path;
    unsigned long long at = kept->offset;
    if (kept->offset != wish->offset || kept->bytes != wish->bytes)
        return report_error(EEXIST,
                            "%s has a guard, of %u bytes at %llu: remove that (a guard of 0 bytes) "
                            "before you set another one",
                            path, kept->bytes, at);
    if (read_bytes(m, wish->offset, now, wish->bytes, NULL, true) < 0)
        return -1;
    if (memcmp(now, wish->plain, wish->bytes) == 0)
        return report_error(
            EEXIST,
            "%s has a guard, and the bytes given for %llu are the masked ones of the file, not its "
            "plain ones: give the plain bytes, or remove the guard (a guard of 0 bytes)",
            path, at);
    return 0;
}

/* Does not take MUTEX_FILES: its holder may be waiting for another process. The file stays mapped while
 * the call runs. */
static int set(struct mapping *m, struct manifest_guard *after)
{
    struct file *f = m->file;
    struct pairing *pr = &f->pairing;
    struct manifest_guard before = guard_of(f);
    if (file_check(f) < 0)
        return -1;
    after->first = after->bytes && ((m->flags & ATO_MASK_FIRST) || before.first) &&
                   !guard_is_foreign(pr, after);
    if (memcmp(&before, after, sizeof(before)) == 0)
        return 0;
    if (after->bytes && before.bytes && check_replacing(m, &before, after) < 0)
        return -1;
    if (attach_lock(f) < 0)
        return -1;
    /* One flush at a time, as in file_sync(): size word and record lie in one file. */
    pthread_mutex_lock(&f->medium);
    mutex_lock(MUTEX_GUARD);
    int r = pairing_refresh(pr);
    /* Another thread or process may have set one since it was looked at. */
    const bool again = r == 0 && memcmp(&pr->record.guard, &before, sizeof(before)) != 0;
    if (r == 0 && !again) {
        pr->record.guard = *after;
        r = birth_write_record(pr);
        if (r < 0 || file_is_poisoned(f))
            r = file_in_doubt(f, "its guard");
    }
    mutex_unlock(MUTEX_GUARD);
    pthread_mutex_unlock(&f->medium);
    (void)attach_unlock(f); /* the result stays r; the next attach reports a failed unlock */
    return again ? set(m, after) : r;
}

int guard_make(struct manifest_guard *g, off_t offset, const void *plain, size_t n)
{
    if (n > MANIFEST_GUARD_MAX)
        return report_error(EINVAL, "%zu guarded bytes are too many: at most %d are possible", n,
                            MANIFEST_GUARD_MAX);
    if (offset < 0 || (uint64_t)offset > LAYOUT_MAX_BYTES - n)
        return report_error(EINVAL, "%lld is not a valid offset of guarded bytes",
                            (long long)offset);
    *g = (struct manifest_guard){.offset = n ? (uint64_t)offset : 0, .bytes = (uint32_t)n};
    if (n)
        memcpy(g->plain, plain, n);
    return 0;
}

int ato_set_guard(void *addr, off_t offset, const void *plain, size_t n)
{
    struct mapping *m = table_find_to_change(addr);
    struct manifest_guard g;
    if (!m)
        return -1;
    CALL_ON(call, m);
    return guard_make(&g, offset, plain, n) < 0 ? -1 : set(m, &g);
}

int ato_read_original(void *dst, const void *src, size_t n)
{
    struct range from;
    if (n == 0)
        return range_empty(src, src);
    if (range_find(&from, src, n) < 0)
        return -1;
    if (!from.m)
        return range_none(src, src);
    CALL_ON(call, from.m);
    struct file *f = from.m->file;
    if (!f->reader && n == 1) /* as a look at a mask */
        *(char *)dst = f->o[from.offset];
    else if (!f->reader)
        memcpy(dst, f->o + from.offset, n);
    else if (pread(f->pairing.original, dst, n, (off_t)from.offset) != (ssize_t)n)
        return report_errno(EIO, "cannot read %s", f->pairing.path);
    return file_check(f);
}
