/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/length.h"

#include "reflection/format/layout.h"
#include "reflection/media/bitmap.h"
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

/* ---- what an interruption left ---- */

int growth_was_cut(int original, uint64_t is, uint64_t longest, uint64_t growth)
{
    char bytes[PAGE_BYTES];
    /* In the slice that contains the end, O may be the invalid home and hold anything: start behind that
     * slice. */
    off_t at = (off_t)((longest + SLICE_BYTES - 1) / SLICE_BYTES * SLICE_BYTES);
    if (is <= longest || is > growth)
        return 0;
    while ((at = lseek(original, at, SEEK_DATA)) >= 0) {
        ssize_t n = pread(original, bytes, sizeof(bytes), at);
        if (n < 0)
            return -1;
        for (ssize_t i = 0; i < n; i++)
            if (bytes[i])
                return 0;
        if (n == 0)
            return 1;
        at += n;
    }
    return errno == ENXIO ? 1 : -1;
}

/* Cuts a file that is longer than `to`, or makes it longer if it is shorter. */
static int set_length(const struct pairing *pr, int fd, uint64_t to, bool longer, const char *what)
{
    const off_t is = fsops_length(fd);
    const bool differs = longer ? (uint64_t)is < to : (uint64_t)is > to;
    if (is < 0 || (differs && fsops->ftruncate(fd, (off_t)to) < 0))
        return report_errno(errno, "cannot make %s%s %llu bytes long", what, pr->path,
                            (unsigned long long)to);
    return 0;
}

/* After a failed sync: bytes of other processes may be lost too. */
static int lost(const struct pairing *pr, const char *what)
{
    report_errno(errno, "cannot make %s %s durable", what, pr->path);
    errno = EIO;
    return GROWTH_LOST;
}

/* Stores a word of the manifest: durable after the next fence. Returns 0; GROWTH_LOST. */
static int store_word(const struct pairing *pr, unsigned at, uint64_t value)
{
    uint64_t *word = (uint64_t *)(pr->manifest + at);
    persist_store_word(&pr->persist, word, value);
    return persist_flush_word(&pr->persist, word) < 0 ? lost(pr, "the manifest of") : 0;
}

static int say_length(const struct pairing *pr, uint64_t is, uint64_t size)
{
    return report_error(ESTALE,
                        "%s is %" PRIu64 " bytes long, but its manifest says %" PRIu64
                        ": another program %s or replaced it. Give it that length again (what was "
                        "added is to be copied before); or, " PAIRING_KEEP_FILE,
                        pr->path, is, size, is > size ? "extended" : "truncated");
}

int growth_check(const struct pairing *pr)
{
    struct manifest_sizes before, s;
    off_t is;
    if (!manifest_sizes(pr->manifest, &s))
        return 0; /* damaged: that is told where it counts */
    do {
        before = s;
        is = fsops_length(pr->original);
        const uint64_t longest = growth_longest(s.size, s.shrunk);
        if (is < 0)
            return report_errno(errno, "cannot find the length of %s", pr->path);
        /* Up to the growth word a growth may be under way. */
        if ((uint64_t)is >= s.size && ((uint64_t)is <= longest || (uint64_t)is <= s.growth))
            return 0;
    } while (manifest_sizes(pr->manifest, &s) && memcmp(&before, &s, sizeof(s)) != 0);
    return say_length(pr, (uint64_t)is, s.size);
}

int growth_settle(struct pairing *pr)
{
    struct manifest_sizes s;
    (void)manifest_sizes(pr->manifest, &s); /* not damaged: pr->size was read from it */
    const off_t length = fsops_length(pr->original);
    if (length < 0)
        return report_errno(errno, "cannot find the length of %s", pr->path);
    uint64_t is = (uint64_t)length, longest = growth_longest(pr->size, s.shrunk);
    int was_cut = growth_was_cut(pr->original, is, longest, s.growth);
    if (was_cut < 0)
        return report_errno(errno, "cannot read the bytes beyond the recorded end of %s", pr->path);
    if (was_cut && set_length(pr, pr->original, longest, false, "") < 0)
        return -1;
    if (!was_cut && (is < pr->size || is > longest))
        return say_length(pr, is, pr->size);
    /* persist-order G3 (reader: growth_settle): the rest is cut off durably, by whichever process, before the growth
     * word changes or is removed: without that word the file is not known to be too long. */
    if (s.growth && s.growth != pr->size && fsops_fsync(pr->original) < 0)
        return lost(pr, "the length of");
    return 0;
}

uint64_t shrink_from(const struct pairing *pr)
{
    struct manifest_sizes s;
    (void)manifest_sizes(pr->manifest, &s); /* not damaged, as above */
    return s.shrunk > pr->size ? s.shrunk : 0;
}

/* ---- longer ---- */

int growth_end(struct pairing *pr, uint64_t to)
{
    struct manifest_sizes s;
    int r = 0;
    (void)manifest_sizes(pr->manifest, &s); /* not damaged, as above */
    /* Another program may have given the original the length `to`, with zeros, as a growth does. Not if the end was within a slice: what
     * that program put there is not known. */
    const uint64_t longest = growth_longest(pr->size, s.shrunk);
    if (to <= s.growth || longest % SLICE_BYTES || fsops_length(pr->original) != (off_t)to ||
        growth_was_cut(pr->original, to, longest, to) != 1)
        r = growth_settle(pr);
    if (r < 0 || s.growth <= pr->size || (r = store_word(pr, MANIFEST_GROWTH_WORD, 0)) < 0)
        return r;
    /* persist-order G5 (reader: growth_settle): the withdrawal is durable before another program may write to the file:
     * zeros that it appends must not count as those of the growth. */
    persist_fence(&pr->persist);
    return 0;
}

uint64_t growth_reached(const struct pairing *pr)
{
    struct manifest_sizes s;
    const off_t is = fsops_length(pr->original);
    return is > 0 && manifest_sizes(pr->manifest, &s) && (uint64_t)is == s.growth ? s.growth : 0;
}

int growth_prepare(struct pairing *pr, uint64_t to)
{
    uint64_t longest = growth_longest(pr->size, shrink_from(pr));
    uint64_t page;
    /* I5: the bits of new pages must be 0, but for those that the file had before. (Sparse: place_build() has checked all words.) */
    const int found = pr->record.format != LAYOUT_DENSE
                          ? 0
                          : meta_find(pr->reflection, LAYOUT_DENSE, layout_pages(longest),
                                      layout_pages(to), &page, 1);
    if (found < 0)
        return report_errno(errno, "cannot read the bitmaps of %s", pr->path);
    if (found)
        return report_error(EUCLEAN,
                            "the reflection of %s, %s/%" PRIu64 ", has a bitmap of page "
                            "%" PRIu64 ", beyond the end of the file",
                            pr->path, pr->folder.path, pr->identity.inode, page);
    const off_t is = fsops_length(pr->original);
    if (is < 0)
        return report_errno(errno, "cannot find the length of %s", pr->path);
    /* A file that has the length already got it from another program, and keeps it if the growth is interrupted. */
    const bool has_it = (uint64_t)is >= to;
    if (to > longest && !has_it) {
        if (store_word(pr, MANIFEST_GROWTH_WORD, manifest_encode_size(to)) < 0)
            return GROWTH_LOST;
        /* persist-order G1 (reader: growth_settle): the new length is durable in the growth word before
         * the original has it. Otherwise the file could not be distinguished from one that another
         * program made longer. */
        persist_fence(&pr->persist);
    }
    if (pr->record.format != LAYOUT_LOG) {
        if (set_length(pr, pr->reflection, layout_reflection_bytes(pr->record.format, to), true,
                       "the reflection of ") < 0)
            return -1;
        if (fsops_fsync(pr->reflection) < 0)
            return lost(pr, "the reflection of");
    }
    if (set_length(pr, pr->original, to, true, "") < 0)
        return -1;
    /* persist-order G2 (reader: adopt): both files have the new length before the size word says it. */
    if (fsops_fsync(pr->original) == 0)
        return 0;
    int r = lost(pr, "the length of");
    (void)set_length(pr, pr->original, longest, false, "");
    errno = EIO;
    return r;
}

/* ---- shorter ---- */

int shrink_announce(struct pairing *pr, uint64_t to)
{
    /* Announced already: durable before the size word that goes with it. */
    if (to >= pr->size || shrink_from(pr))
        return 0;
    /* persist-order S1 (reader: growth_settle): the old length is durable in the shrink word before the
     * size word says less. Otherwise the file could not be distinguished from one that another program
     * made longer. No fence is needed: a size word that is stored by itself lies in the same cache line,
     * which keeps the order of its stores; and J1's fence comes before the commit line of a lane with a
     * size word. */
    return store_word(pr, MANIFEST_SHRINK_WORD, manifest_encode_size(pr->size));
}

/* Clears words of pages behind the end, and the last page's bits behind it, in one meta page, of n entries. */
static int clear_chunk(struct pairing *pr, const struct meta_chunk *c, int64_t n)
{
    const uint32_t format = pr->record.format;
    const uint64_t *const pages = c->pages, first = c->first, end = pr->size / PAGE_BYTES,
                          at = layout_meta_page(format, first / layout_chunk(format));
    int64_t i = 0;
    while (i < n && pages[i] < end)
        i++;
    if (i == n)
        return 0;
    /* Parts of the meta page may be holes, after a backup. */
    if (fsops->fallocate(pr->reflection, FALLOC_FL_KEEP_SIZE, (off_t)at, PAGE_BYTES) < 0)
        return report_errno(errno, "cannot allocate the bitmaps of %s", pr->path);
    char *map = domain_map(pr->persist.domain, NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                           pr->reflection, (off_t)at);
    if (map == MAP_FAILED)
        return report_errno(errno, "cannot map the bitmaps of %s", pr->path);
    fault_watch(map, PAGE_BYTES, &pr->faults);
    if (domain_make_storable(pr->persist.domain, map, PAGE_BYTES) < 0) {
        fault_unmap(map, PAGE_BYTES);
        return report_error(ENOSPC, "no space for the pages beside the bitmaps of %s", pr->path);
    }
    for (; i < n; i++) {
        uint64_t *word = (uint64_t *)(map + layout_word(format, first + (uint64_t)i) - at);
        const uint64_t within = pages[i] < end   ? ~0ull
                                : pages[i] > end ? 0
                                                 : bitmap_within(end, pr->size);
        const uint64_t behind = ~within;
        /* Stores at least one word. Others may be 0 already by stores of a dead process, not durable after a
         * failed msync: they become durable with the page, which this store makes dirty.
         * explorer: tear word survives: while the shrink word is there, a process that finds half of the
         * word clears it again. */
        if (*word & behind || i == n - 1)
            persist_store_word(&pr->persist, word, *word & ~behind);
    }
    fault_unmap(map, PAGE_BYTES); /* S4: shrink_finish() syncs the reflection */
    /* Gives RefPages back. Words that are not durable yet do no harm: while the shrink word is there they are cleared again. */
    for (i = 0; format == LAYOUT_SPARSE && i < n; i++)
        if (pages[i] >= layout_pages(pr->size) && pages[i] &&
            fsops_punch(pr->reflection, (off_t)layout_refpage(format, first + (uint64_t)i),
                        PAGE_BYTES) < 0 &&
            errno != EOPNOTSUPP)
            return report_errno(errno, "cannot give space of the reflection of %s back", pr->path);
    return 0;
}

int shrink_finish(struct pairing *pr)
{
    if (!shrink_from(pr))
        return 0;
    /* A sparse reflection keeps its length: the places of its pages are in any order. Of a dense one, later meta pages are cut off. */
    const bool dense = pr->record.format == LAYOUT_DENSE;
    const uint64_t last = pr->size / PAGE_BYTES / CHUNK_PAGES;
    struct meta_chunk *c HEAP = calloc(1, sizeof(*c));
    int64_t n = c ? 1 : -1;
    if (c && dense)
        c->next = last;
    while (n > 0 &&
           (n = meta_step(pr->reflection, pr->record.format, dense ? last + 1 : UINT64_MAX, c)) > 0)
        if (clear_chunk(pr, c, n) < 0)
            return -1;
    if (n < 0)
        return report_errno(errno, "cannot read the bitmaps of %s", pr->path);
    if ((dense && set_length(pr, pr->reflection, layout_reflection_bytes(LAYOUT_DENSE, pr->size),
                             false, "the reflection of ") < 0) ||
        set_length(pr, pr->original, pr->size, false, "") < 0)
        return -1;
    /* persist-order S4 (reader: shrink_finish, in a later adopt): words and lengths of both files are durable
     * before the shrink word no longer says that they are to be cleared and cut. */
    if (fsops_fsync(pr->reflection) < 0 || fsops_fsync(pr->original) < 0)
        return report_errno(errno, "cannot make the length of %s, or of its reflection, durable",
                            pr->path);
    if (store_word(pr, MANIFEST_SHRINK_WORD, 0) < 0)
        return GROWTH_LOST;
    /* persist-order S5 (reader: growth_settle): the withdrawal is durable before the file is clean:
     * bytes that another program appends then must not count as the part that was cut off. */
    persist_fence(&pr->persist);
    return 0;
}
