/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layout of the dense reflection file: arithmetic only.
 *
 *   reflection file = chunk 0, chunk 1, ...
 *   chunk           = 1 meta page (512 bitmap words of 8 bytes), then 512 RefPages
 *
 *   r(o)    = o + (floor(floor(o / 4096) / 512) + 1) * 4096      byte o of the original    (1)
 *   word(p) = floor(p / 512) * 513 * 4096 + (p mod 512) * 8      bitmap word of page p
 *
 * FORMAT.md describes the format for authors of other readers.
 */
#ifndef ATO_REFLECTION_FORMAT_LAYOUT_H
#define ATO_REFLECTION_FORMAT_LAYOUT_H

#include "reflection/media/bitmap.h"

#include <stdbool.h>

#define CHUNK_PAGES 512ull
#define CHUNK_BYTES ((CHUNK_PAGES + 1) * PAGE_BYTES) /* in the reflection file */

/* The manifest keeps sizes in 48 bits (manifest.h). The largest file is 256 TiB less a page. */
#define LAYOUT_MAX_BYTES ((1ull << 48) - PAGE_BYTES)

/* Formula (1). */
static inline uint64_t layout_reflected(uint64_t o)
{
    return o + (o / PAGE_BYTES / CHUNK_PAGES + 1) * PAGE_BYTES;
}

static inline uint64_t layout_word(uint64_t page)
{
    return page / CHUNK_PAGES * CHUNK_BYTES + page % CHUNK_PAGES * 8;
}

static inline uint64_t layout_meta_page(uint64_t chunk)
{
    return chunk * CHUNK_BYTES;
}

static inline uint64_t layout_pages(uint64_t original_bytes)
{
    return (original_bytes + PAGE_BYTES - 1) / PAGE_BYTES;
}

/* The size of the reflection of an original of `original_bytes` bytes: up to the end of the last RefPage. */
static inline uint64_t layout_reflection_bytes(uint64_t original_bytes)
{
    uint64_t pages = layout_pages(original_bytes);
    return (pages + (pages + CHUNK_PAGES - 1) / CHUNK_PAGES) * PAGE_BYTES;
}

/* Returns true if `offset` is that of a bitmap word in a reflection of `reflection_bytes` bytes and the
 * page's RefPage lies in it too. For offsets that were read from the media. */
static inline bool layout_is_word(uint64_t offset, uint64_t reflection_bytes)
{
    if (offset % 8 != 0 || offset % CHUNK_BYTES >= PAGE_BYTES)
        return false;
    uint64_t page_in_chunk = offset % CHUNK_BYTES / 8;
    uint64_t refpage = offset / CHUNK_BYTES * CHUNK_BYTES + (page_in_chunk + 1) * PAGE_BYTES;
    return refpage < reflection_bytes && reflection_bytes - refpage >= PAGE_BYTES;
}

#endif
