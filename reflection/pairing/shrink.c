/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/shrink.h"

#include "reflection/format/layout.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t *shrink_word(const struct pairing *pr)
{
    return (uint64_t *)(pr->manifest + MANIFEST_SHRINK_WORD);
}

uint64_t shrink_from(const struct pairing *pr)
{
    return manifest_shrunk(pr->manifest, pr->size);
}

static int manifest_failed(const struct pairing *pr)
{
    report_errno(errno, "cannot make the manifest of %s durable", pr->path);
    errno = EIO;
    return GROWTH_LOST;
}

int shrink_announce(struct pairing *pr)
{
    uint64_t *word = shrink_word(pr);
    if (shrink_from(pr)) /* announced already, and durable before the size word that goes with it */
        return 0;
    persist_store_word(&pr->persist, word, manifest_encode_size(pr->size));
    /* persist-order S1 (reader: growth_settle): the old length is durable in the shrink word before the
     * size word says less. Otherwise the file could not be distinguished from one that another program
     * made longer. No fence is needed: a size word that is stored by itself lies in the same cache line,
     * which keeps the order of its stores; and J1's fence comes before the commit line of a lane with a
     * size word. */
    if (persist_flush_word(&pr->persist, word) < 0)
        return manifest_failed(pr);
    return 0;
}

/* Clears words of pages behind the end, and the last page's bits behind it, if the reflection keeps them when
 * it is cut: if they share a meta page with words within. */
static int clear_words(const struct pairing *pr)
{
    uint64_t pages = layout_pages(pr->size), page = pr->size / PAGE_BYTES;
    if (pages == 0 || pr->size % (CHUNK_PAGES * PAGE_BYTES) == 0)
        return 0; /* the meta page is cut off too, or has no such word */
    uint64_t chunk = page / CHUNK_PAGES, at = layout_meta_page(chunk);
    uint64_t there = meta_next(pr->reflection, chunk, chunk + 1);
    if (there == UINT64_MAX)
        return report_errno(errno, "cannot search the bitmaps of %s", pr->path);
    if (there != chunk)
        return 0;
    /* Parts of the meta page may be holes, after a backup. */
    if (fsops->fallocate(pr->reflection, FALLOC_FL_KEEP_SIZE, (off_t)at, PAGE_BYTES) < 0)
        return report_errno(errno, "cannot allocate the bitmaps of %s", pr->path);
    char *map = domain_map(pr->persist.domain, NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                           pr->reflection, (off_t)at);
    if (map == MAP_FAILED)
        return report_errno(errno, "cannot map the bitmaps of %s", pr->path);
    if (domain_make_storable(pr->persist.domain, map, PAGE_BYTES) < 0) {
        munmap(map, PAGE_BYTES);
        return report_error(ENOSPC, "no space for the pages beside the bitmaps of %s", pr->path);
    }
    uint64_t *words = (uint64_t *)map;
    for (uint64_t i = page % CHUNK_PAGES; i < CHUNK_PAGES; i++) {
        uint64_t behind = ~bitmap_within(chunk * CHUNK_PAGES + i, pr->size);
        /* Stores at least one word. Others may be 0 already by stores of a dead process, not durable after a
         * failed msync: they become durable with the page, which this store makes dirty.
         * explorer: tear word survives: while the shrink word is there, a process that finds half of the
         * word clears it again. */
        if (words[i] & behind || i == CHUNK_PAGES - 1)
            persist_store_word(&pr->persist, &words[i], words[i] & ~behind);
    }
    munmap(map, PAGE_BYTES); /* S4: shrink_finish() syncs the reflection */
    return 0;
}

static int cut(const struct pairing *pr, int fd, uint64_t to, const char *what)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return report_errno(errno, "cannot stat %s%s", what, pr->path);
    if ((uint64_t)st.st_size > to && fsops->ftruncate(fd, (off_t)to) < 0)
        return report_errno(errno, "cannot make %s%s %llu bytes long", what, pr->path,
                            (unsigned long long)to);
    return 0;
}

int shrink_finish(struct pairing *pr)
{
    uint64_t *word = shrink_word(pr);
    if (!shrink_from(pr))
        return 0;
    if (clear_words(pr) < 0 ||
        cut(pr, pr->reflection, layout_reflection_bytes(pr->size), "the reflection of ") < 0 ||
        cut(pr, pr->original, pr->size, "") < 0)
        return -1;
    /* persist-order S4 (reader: shrink_from, in a later adopt): words and lengths of both files are durable
     * before the shrink word no longer says that they are to be cleared and cut. */
    if (fsops_fsync(pr->reflection) < 0)
        return report_errno(errno, "cannot make the reflection of %s durable", pr->path);
    if (fsops_fsync(pr->original) < 0)
        return report_errno(errno, "cannot make the length of %s durable", pr->path);
    persist_store_word(&pr->persist, word, 0);
    if (persist_flush_word(&pr->persist, word) < 0)
        return manifest_failed(pr);
    /* persist-order S5 (reader: growth_settle): the withdrawal is durable before the file is clean:
     * bytes that another program appends then must not count as the part that was cut off. */
    persist_fence(&pr->persist);
    return 0;
}

int shrink_wipe(struct pairing *pr)
{
    uint64_t from = shrink_from(pr);
    if (from && fsops_punch(pr->original, (off_t)pr->size, (off_t)(from - pr->size)) < 0)
        return report_errno(errno, "cannot clear the bytes beyond the end of %s", pr->path);
    return 0;
}
