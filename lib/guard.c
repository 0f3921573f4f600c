/* SPDX-License-Identifier: BSD-3-Clause */
/* What a file has in some places while it is not plain: kept in its manifest (guard.h). */
#include "../reflection/birth.h"
#include "../reflection/report.h"
#include "file.h"
#include "table.h"

#include "ato.h"

#include <string.h>

/* Under the lock for mappings, as all that writes the record. */
static int set(struct file *f, uint64_t offset, const void *plain, uint32_t n)
{
    struct pairing *pr = &f->pairing;
    struct manifest_guard before = pr->record.guard, after = {.offset = offset, .bytes = n};
    if (file_check(f) < 0)
        return -1;
    uint64_t size = file_size(f);
    if (n && (offset >= size || n > size - offset))
        return report_error(EFAULT, "%u guarded bytes at %llu of %s, which is %llu bytes long", n,
                            (unsigned long long)offset, pr->path, (unsigned long long)size);
    if (n)
        memcpy(after.plain, plain, n);
    else
        after.offset = 0;
    if (pairing_lock_attach(pr) < 0)
        return -1;
    pr->record.guard = after;
    int r = birth_write_record(pr);
    pairing_unlock_attach(pr);
    if (r < 0) {
        pr->record.guard = before;
        return file_in_doubt(f, "its guard");
    }
    return 0;
}

int ato_set_guard(void *addr, off_t offset, const void *plain, size_t n)
{
    struct mapping *m = table_find_to_change(addr);
    if (!m)
        return -1;
    if (n > MANIFEST_GUARD_MAX)
        return report_error(EINVAL, "%zu guarded bytes: at most %d are kept", n,
                            MANIFEST_GUARD_MAX);
    if (offset < 0)
        return report_error(EINVAL, "guarded bytes at %lld", (long long)offset);
    file_lock_all();
    int r = set(m->file, (uint64_t)offset, plain, (uint32_t)n);
    file_unlock_all();
    return r;
}
