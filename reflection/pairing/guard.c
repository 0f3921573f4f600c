/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/guard.h"

#include "reflection/format/layout.h"
#include "reflection/format/log.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Reads the guarded bytes that the file has. Returns 1; 0 if the file ends before their end; -1. */
static int read_guarded(const struct pairing *pr, uint8_t bytes[MANIFEST_GUARD_MAX])
{
    const struct manifest_guard *g = &pr->record.guard;
    ssize_t n = pread(pr->original, bytes, g->bytes, (off_t)g->offset);
    if (n < 0)
        return report_errno(errno, "cannot read the guarded bytes of %s", pr->path);
    return (uint32_t)n == g->bytes;
}

enum { UNREADABLE = -1, BEHIND_END = -2 };

/* Reads the first guarded byte that the file has. Returns it, or one of these. */
static int first_byte(int file, const struct manifest_guard *g)
{
    uint8_t first;
    const ssize_t n = pread(file, &first, 1, (off_t)g->offset);
    return n == 1 ? first : n < 0 ? UNREADABLE : BEHIND_END;
}

bool guard_is_off(int file, const struct manifest_guard *g)
{
    const int first = g->bytes ? first_byte(file, g) : BEHIND_END;
    return first == BEHIND_END || first == g->plain[0];
}

/* Returns 1 if one of these slices of a page, which are valid in R, has a byte other than 0; else 0; -1. */
static int has_bytes(int reflection, uint32_t format, uint64_t place, uint64_t word)
{
    static const char zeros[SLICE_BYTES];
    char page[PAGE_BYTES];
    const ssize_t n =
        word ? pread(reflection, page, sizeof(page), (off_t)layout_refpage(format, place)) : 0;
    for (unsigned i = 0; i < (n < 0 ? 0 : n / SLICE_BYTES); i++)
        if (word >> i & 1 && memcmp(page + i * SLICE_BYTES, zeros, SLICE_BYTES) != 0)
            return 1;
    return n < 0 ? -1 : 0;
}

/* The slices of a page with the guarded bytes: the mask may be on its way home. */
static uint64_t guarded_slices(const struct manifest_guard *g, uint64_t page)
{
    const uint64_t first = g->offset / SLICE_BYTES, last = (g->offset + g->bytes - 1) / SLICE_BYTES;
    uint64_t mask = 0;
    for (uint64_t slice = first; slice <= last; slice++)
        if (slice / PAGE_SLICES == page)
            mask |= 1ull << slice % PAGE_SLICES;
    return mask;
}

/* Returns whether this first byte is that of a mask of ATO_MASK_FIRST. */
static bool is_mask(const struct manifest_guard *g, int first)
{
    return (first ^ g->plain[0]) == 0xff;
}

/* Returns 1 if a record of a log has slices other than the guarded ones with a byte other than 0, as has_bytes(); else 0; -1. */
static int record_has_bytes(const struct log_file *log, const struct log_view *v, uint64_t at,
                            void *arg)
{
    static const char zeros[SLICE_BYTES];
    char slice[SLICE_BYTES];
    for (uint64_t i = 0; i < v->record.pages; i++) {
        const uint64_t guarded = guarded_slices(arg, v->pages[i].page);
        for (uint64_t left = v->pages[i].slices; left; left &= left - 1, at += SLICE_BYTES) {
            if (guarded & left & -left)
                continue;
            if (log_read(log, at, slice, SLICE_BYTES) < 0)
                return -1;
            if (memcmp(slice, zeros, SLICE_BYTES) != 0)
                return 1;
        }
    }
    return 0;
}

bool guard_is_foreign(const struct pairing *pr, const struct manifest_guard *g)
{
    const int first = first_byte(pr->original, g);
    return first > 0 && first != g->plain[0] && !is_mask(g, first);
}

int guard_was_overwritten(int file, int reflection, const struct manifest_guard *g, uint32_t format,
                          uint64_t size, const char *path)
{
    int found = 0;
    int64_t n = 1;
    if (!g->bytes || !g->first || g->offset >= size)
        return 0;
    const int first = first_byte(file, g);
    /* It may be 0 as long as all of a new file's bytes are in the reflection. */
    if (first <= 0 ? first != BEHIND_END : is_mask(g, first))
        return 0;
    if (format == LAYOUT_LOG) {
        struct log_file log;
        struct manifest_guard guard = *g;
        found = log_open(&log, reflection);
        if (found > 0) {
            uint64_t position = log.header.start;
            found = log_walk(&log, &position, UINT64_MAX, record_has_bytes, &guard);
        }
        return found < 0 ? report_errno(errno, "cannot read the log of %s", path) : found;
    }
    struct meta_chunk *c HEAP = calloc(1, sizeof(*c));
    if (!c)
        return report_error(ENOMEM, "no memory to read the reflection of %s", path);
    while (!found && (n = meta_step(reflection, format, UINT64_MAX, c)) > 0)
        for (int64_t i = 0; i < n && !found; i++)
            found = has_bytes(reflection, format, c->first + (uint64_t)i,
                              c->words[i] & ~guarded_slices(g, c->pages[i]));
    return n < 0 || found < 0 ? report_errno(errno, "cannot read the reflection of %s", path)
                              : found;
}

int guard_check(const struct pairing *pr, const struct manifest_guard *g, uint64_t size)
{
    const int r =
        guard_was_overwritten(pr->original, pr->reflection, g, pr->record.format, size, pr->path);
    return r <= 0 ? r
                  : report_error(
                        ESTALE,
                        "another program overwrote %s while libato held it: its guarded bytes, %u "
                        "at %" PRIu64 ", have no mask, and its reflection %s/%s holds parts of the "
                        "content from before: " PAIRING_CHOOSE,
                        pr->path, g->bytes, g->offset, pr->folder.path, pr->names.reflection);
}

int guard_note(struct pairing *pr)
{
    memset(pr->record.guarded, 0, sizeof(pr->record.guarded));
    return read_guarded(pr, pr->record.guarded) < 0 ? -1 : 0;
}

static int store(struct pairing *pr, const uint8_t *bytes)
{
    const struct manifest_guard *g = &pr->record.guard;
    /* The pairs of words around the bytes, one or two: `n` bytes from `at` on, in the whole pages around them. */
    const uint64_t page = g->offset / PAGE_BYTES * PAGE_BYTES,
                   pages = layout_pages(g->offset + g->bytes) * PAGE_BYTES - page;
    const unsigned before = (unsigned)(g->offset % 16), at = (unsigned)(g->offset - page) - before,
                   n = (before + g->bytes + 15) / 16 * 16;
    uint64_t words[2 * MANIFEST_GUARD_MAX / 8];
    struct persist p;
    persist_init(&p, pr->record.domain);
    /* On tmpfs a store into a hole is SIGBUS if there is no space. */
    if (fsops->fallocate(pr->original, FALLOC_FL_KEEP_SIZE, (off_t)page, (off_t)pages) < 0)
        return report_errno(errno, "cannot allocate space for the guarded bytes of %s", pr->path);
    char *map =
        domain_map(p.domain, NULL, pages, PROT_READ | PROT_WRITE, pr->original, (off_t)page);
    if (map == MAP_FAILED)
        return report_errno(errno, "cannot map %s to change its guarded bytes", pr->path);
    fault_watch(map, pages, &pr->faults);
    memcpy(words, map + at, n);
    memcpy((char *)words + before, bytes, g->bytes);
    /* persist-order P4 (reader: removal_start_over): the bytes are visible before the attribute is removed, and durable
     * together with that. Other processes must see both words of a pair together: of a masked header (lib/sqlite/mask.h) they
     * would remember the plain counter beside the mask. The pair of the first byte comes last, since guard_is_off() looks at
     * that byte. Such a store is a locked instruction, which the stores after it do not pass: no fence is needed. */
    for (unsigned i = n; i > 0; i -= 16)
        persist_store_pair(&p, (uint64_t *)(map + at + i - 16), words + (i - 16) / 8);
    fault_unmap(map, pages);
    return 0;
}

int guard_renew(struct pairing *pr)
{
    const struct manifest_guard *g = &pr->record.guard;
    const uint32_t format = pr->record.format;
    const uint64_t page = g->offset / PAGE_BYTES, at = g->offset % PAGE_BYTES,
                   needed = guarded_slices(g, page);
    struct meta_chunk *c HEAP = calloc(1, sizeof(*c));
    uint8_t bytes[MANIFEST_GUARD_MAX];
    int64_t n = c ? 1 : -1;
    while (n > 0 && at + g->bytes <= PAGE_BYTES &&
           (n = meta_step(pr->reflection, format, UINT64_MAX, c)) > 0)
        for (int64_t i = 0; i < n; i++) {
            const uint64_t from = layout_refpage(format, c->first + (uint64_t)i) + at;
            if (c->pages[i] != page || (c->words[i] & needed) != needed)
                continue;
            if (pread(pr->reflection, bytes, g->bytes, (off_t)from) != (ssize_t)g->bytes)
                return report_errno(errno, "cannot read the reflection of %s", pr->path);
            if (bytes[0] != g->plain[0])
                return store(pr, bytes);
        }
    if (n < 0)
        return report_errno(errno, "cannot read the reflection of %s", pr->path);
    pr->record.guard.first = 0;
    return 0;
}

int guard_put(struct pairing *pr)
{
    const struct manifest_guard *g = &pr->record.guard;
    const uint8_t *masked = pr->record.guarded;
    uint8_t now[MANIFEST_GUARD_MAX];
    if (!g->bytes || masked[0] == g->plain[0]) /* no mask */
        return 0;
    const int there = read_guarded(pr, now);
    if (there <= 0)
        return there;
    for (uint32_t i = 0; i < g->bytes; i++)
        if (now[i] != masked[i] && now[i] != g->plain[i]) {
            report_log(REPORT_WARNING,
                       "another program wrote to the guarded bytes of %s, %" PRIu32 " at %" PRIu64
                       ": they are not restored",
                       pr->path, g->bytes, g->offset);
            return 0;
        }
    /* Plain bytes are not stored again, since another program may change them meanwhile. */
    return memcmp(now, g->plain, g->bytes) == 0 ? 0 : store(pr, g->plain);
}
