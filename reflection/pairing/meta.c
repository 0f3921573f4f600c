/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/meta.h"

#include "reflection/format/log.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/pairing.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

uint64_t meta_next(int reflection, uint32_t format, uint64_t chunk, uint64_t chunks)
{
    const uint64_t chunk_bytes = layout_meta_page(format, 1);
    while (chunk < chunks) {
        uint64_t at = layout_meta_page(format, chunk);
        off_t data = lseek(reflection, (off_t)at, SEEK_DATA);
        if (data < 0) /* ENXIO: holes to the end; otherwise the file system does not tell */
            return errno == ENXIO ? chunks : chunk;
        if ((uint64_t)data < at + PAGE_BYTES)
            return chunk;
        /* Holes up to `data`: go on with the first meta page that does not end before it. */
        chunk = ((uint64_t)data + chunk_bytes - PAGE_BYTES) / chunk_bytes;
    }
    return chunks;
}

int64_t meta_read(int reflection, uint32_t format, uint64_t first, uint64_t n, uint64_t *words,
                  uint64_t *pages)
{
    struct layout_entry entries[CHUNK_SPARSE];
    const bool dense = format == LAYOUT_DENSE;
    const uint64_t each = dense ? 8 : sizeof(*entries);
    const off_t at = (off_t)(layout_word(format, first) - (each - 8));
    const ssize_t got = pread(reflection, dense ? (void *)words : entries, n * each, at);
    if (got < 0)
        return -1;
    for (uint64_t i = 0; i < (uint64_t)got / each; i++) {
        if (!dense)
            words[i] = entries[i].bitmap;
        if (pages)
            pages[i] = dense ? first + i : entries[i].page;
    }
    return got / (int64_t)each;
}

int meta_by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int64_t meta_step(int reflection, uint32_t format, uint64_t end, struct meta_chunk *c)
{
    const off_t length = fsops_length(reflection);
    if (length < 0)
        return -1;
    const uint64_t has = layout_chunks(format, (uint64_t)length), chunks = has < end ? has : end,
                   chunk = meta_next(reflection, format, c->next, chunks),
                   each = layout_chunk(format);
    c->next = chunk + 1;
    c->first = chunk * each;
    return chunk < chunks ? meta_read(reflection, format, c->first, each, c->words, c->pages) : 0;
}

int meta_find(int reflection, uint32_t format, uint64_t page, uint64_t end, uint64_t *found,
              int most)
{
    struct meta_chunk *c HEAP = malloc(sizeof(*c));
    uint64_t *all HEAP = malloc((CHUNK_PAGES + META_FOUND) * sizeof(*all));
    const uint64_t each = layout_chunk(format);
    const bool dense = format == LAYOUT_DENSE;
    const uint64_t chunks = dense ? end / each + 1 : UINT64_MAX;
    int count = 0;
    int64_t n;
    if (!c || !all)
        return -1;
    c->next = dense ? page / each : 0;
    while ((n = meta_step(reflection, format, chunks, c)) > 0) {
        for (int64_t i = 0; i < n; i++)
            if (c->words[i] && c->pages[i] >= page && (c->pages[i] < end || end == UINT64_MAX))
                all[count++] = c->pages[i];
        if (!dense)
            qsort(all, (size_t)count, sizeof(*all), meta_by_number);
        if (count < most)
            continue;
        count = most;
        end = all[most - 1]; /* a sparse reflection may have earlier ones behind it */
        if (dense)
            break;
    }
    if (n < 0)
        return -1;
    memcpy(found, all, (size_t)count * sizeof(*all));
    return count;
}

int meta_find_beyond(int reflection, uint64_t size, uint64_t *page)
{
    uint64_t word = 0;
    *page = size / PAGE_BYTES;
    if (size % PAGE_BYTES && meta_read(reflection, LAYOUT_DENSE, *page, 1, &word, NULL) < 0)
        return -1;
    return word & ~bitmap_within(*page, size)
               ? 1
               : meta_find(reflection, LAYOUT_DENSE, layout_pages(size), UINT64_MAX, page, 1);
}

int meta_holds_slices(const struct folder *f, uint64_t number)
{
    const struct pairing_names n = pairing_names(number);
    const int fd CLOSING =
        openat(f->fd, n.reflection, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    uint64_t page;
    struct manifest_record r;
    const int found = fd < 0 ? -1 : area_read_at(f, n.manifest, &r);
    int result = fd < 0 || (found < 0 && errno != ENOENT) ? -1 : 0;
    if (result == 0 && found != MANIFEST_VALID) {
        /* A log is known by its header, which a birth that was cut may have left. All others are taken for dense; a sparse one that was
         * ever written to seems to hold slices then. */
        struct log_file log;
        result = log_is_possible() ? log_open(&log, fd) : 0;
        r.format = result > 0 ? LAYOUT_LOG : LAYOUT_DENSE;
    }
    /* The records of a log that is to be removed stay in it, and do not count (P2). */
    if (result >= 0)
        result = r.format != LAYOUT_LOG ? meta_find(fd, r.format, 0, UINT64_MAX, &page, 1)
                 : found == MANIFEST_VALID && r.state == MANIFEST_DEPLOYED ? 0
                                                                           : log_holds_records(fd);
    if (result < 0)
        folder_error(f, n.reflection, "cannot read the bitmaps of the reflection");
    return result;
}
