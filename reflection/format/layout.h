/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layout of the reflection file: arithmetic only.
 *
 *   reflection file = chunk 0, chunk 1, ...
 *   chunk           = 1 meta page, then a RefPage for each entry of the meta page
 *
 * The entries are numbered through: the number of an entry, and of its RefPage, is a place.
 *
 *            entries of a meta page            a place is used by
 *   dense    512: bitmap word (8 bytes)        the page with the same number
 *   sparse   256: page number, bitmap word     the page that its entry names (place.h)
 *
 * FORMAT.md describes the format for authors of other readers.
 */
#ifndef ATO_REFLECTION_FORMAT_LAYOUT_H
#define ATO_REFLECTION_FORMAT_LAYOUT_H

#include "reflection/media/bitmap.h"

#include <stdbool.h>
#include <stddef.h>

/* The `format` of a manifest. */
enum layout_format { LAYOUT_DENSE = 0, LAYOUT_SPARSE = 1, LAYOUT_LOG = 3 };

/* The least bytes of a log (log.h), which has neither chunks nor places. */
#define LAYOUT_LOG_BYTES (2 * PAGE_BYTES)

#define CHUNK_PAGES  512ull /* of a dense reflection; and the most that a chunk has */
#define CHUNK_SPARSE 256ull
#define CHUNK_BYTES  ((CHUNK_PAGES + 1) * PAGE_BYTES) /* in a dense reflection file */

/* An entry of a sparse meta page. With bitmap 0 the page number says nothing (place.h). */
struct layout_entry {
    uint64_t page, bitmap;
};

/* The manifest keeps sizes in 48 bits (manifest.h). The largest file is 256 TiB less a page. */
#define LAYOUT_MAX_BYTES ((1ull << 48) - PAGE_BYTES)

/* The most places of a sparse reflection: 256 GiB of RefPages. */
#define LAYOUT_PLACES (1ull << 26)

/* Returns how many places a chunk has. */
static inline uint64_t layout_chunk(uint32_t format)
{
    return format == LAYOUT_SPARSE ? CHUNK_SPARSE : CHUNK_PAGES;
}

/* Offset of the RefPage of a place in the reflection file. */
static inline uint64_t layout_refpage(uint32_t format, uint64_t place)
{
    return (place + place / layout_chunk(format) + 1) * PAGE_BYTES;
}

static inline uint64_t layout_meta_page(uint32_t format, uint64_t chunk)
{
    return chunk * (layout_chunk(format) + 1) * PAGE_BYTES;
}

/* Offset of the bitmap word of a place. In a sparse reflection the page number is in the 8 bytes before. */
static inline uint64_t layout_word(uint32_t format, uint64_t place)
{
    const uint64_t chunk = layout_chunk(format), in_chunk = place % chunk;
    return layout_meta_page(format, place / chunk) +
           (format == LAYOUT_SPARSE
                ? in_chunk * sizeof(struct layout_entry) + offsetof(struct layout_entry, bitmap)
                : in_chunk * 8);
}

static inline uint64_t layout_pages(uint64_t original_bytes)
{
    return (original_bytes + PAGE_BYTES - 1) / PAGE_BYTES;
}

/* The least size of the reflection of an original of `original_bytes` bytes. Dense: up to the end of the last RefPage. Sparse: with
 * a place for each page, and one chunk more for places that killed processes left unused. */
static inline uint64_t layout_reflection_bytes(uint32_t format, uint64_t original_bytes)
{
    if (format == LAYOUT_LOG)
        return LAYOUT_LOG_BYTES;
    const uint64_t pages = layout_pages(original_bytes), chunk = layout_chunk(format),
                   chunks = (pages + chunk - 1) / chunk;
    return format == LAYOUT_DENSE ? (pages + chunks) * PAGE_BYTES
                                  : layout_meta_page(format, chunks + (pages != 0));
}

/* Returns true if the reflection of an original of `original_bytes` bytes may have `bytes` bytes. Sparse: entries in a part of a chunk
 * would be overlooked. */
static inline bool layout_fits(uint32_t format, uint64_t original_bytes, uint64_t bytes)
{
    return bytes >= layout_reflection_bytes(format, original_bytes) &&
           (format != LAYOUT_SPARSE || bytes % layout_meta_page(format, 1) == 0);
}

/* Returns how many chunks a reflection of `reflection_bytes` bytes has, or begins. */
static inline uint64_t layout_chunks(uint32_t format, uint64_t reflection_bytes)
{
    const uint64_t chunk_bytes = layout_meta_page(format, 1);
    if (format == LAYOUT_LOG)
        return 0;
    return reflection_bytes / chunk_bytes + (reflection_bytes % chunk_bytes != 0);
}

/* Returns true if `offset` is that of a bitmap word in a reflection of `reflection_bytes` bytes and the
 * RefPage of its place lies in it too. For offsets that were read from the media. */
static inline bool layout_is_word(uint32_t format, uint64_t offset, uint64_t reflection_bytes)
{
    const uint64_t chunk_bytes = layout_meta_page(format, 1), in_chunk = offset % chunk_bytes,
                   entry = format == LAYOUT_DENSE ? 8 : sizeof(struct layout_entry);
    if (in_chunk % entry != entry - 8 || in_chunk >= PAGE_BYTES)
        return false;
    const uint64_t refpage =
        offset / chunk_bytes * chunk_bytes + (in_chunk / entry + 1) * PAGE_BYTES;
    return refpage < reflection_bytes && reflection_bytes - refpage >= PAGE_BYTES;
}

#endif
