/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/guard.h"

#include "reflection/format/layout.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"

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

bool guard_is_off(int file, const struct manifest_guard *g)
{
    uint8_t first;
    if (!g->bytes)
        return true;
    ssize_t n = pread(file, &first, 1, (off_t)g->offset);
    return n == 0 || (n == 1 && first == g->plain[0]);
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
    memcpy(words, map + at, n);
    memcpy((char *)words + before, bytes, g->bytes);
    /* persist-order P4 (reader: removal_start_over): the bytes are visible before the attribute is removed, and durable
     * together with that. Other processes must see both words of a pair together: of a masked header (lib/sqlite/mask.h) they
     * would remember the plain counter beside the mask. The pair of the first byte comes last, since guard_is_off() looks at
     * that byte. Such a store is a locked instruction, which the stores after it do not pass: no fence is needed. */
    for (unsigned i = n; i > 0; i -= 16)
        persist_store_pair(&p, (uint64_t *)(map + at + i - 16), words + (i - 16) / 8);
    munmap(map, pages);
    return 0;
}

int guard_put(struct pairing *pr, bool on)
{
    const struct manifest_guard *g = &pr->record.guard;
    const uint8_t *masked = pr->record.guarded;
    uint8_t now[MANIFEST_GUARD_MAX];
    if (!g->bytes || masked[0] == g->plain[0]) /* no mask */
        return 0;
    const int there = read_guarded(pr, now);
    if (there <= 0 || on)
        return there <= 0 ? there : store(pr, masked);
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
