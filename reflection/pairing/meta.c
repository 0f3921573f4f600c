/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/meta.h"

#include "reflection/format/layout.h"

#include <errno.h>
#include <unistd.h>

uint64_t meta_next(int reflection, uint64_t chunk, uint64_t chunks)
{
    while (chunk < chunks) {
        uint64_t at = layout_meta_page(chunk);
        off_t data = lseek(reflection, (off_t)at, SEEK_DATA);
        if (data < 0) /* ENXIO: holes to the end; otherwise the file system does not tell */
            return errno == ENXIO ? chunks : chunk;
        if ((uint64_t)data < at + PAGE_BYTES)
            return chunk;
        /* Holes up to `data`: go on with the first meta page that does not end before it. */
        chunk = ((uint64_t)data + CHUNK_BYTES - PAGE_BYTES) / CHUNK_BYTES;
    }
    return chunks;
}

int meta_find(int reflection, uint64_t page, uint64_t end, uint64_t *found)
{
    uint64_t words[CHUNK_PAGES];
    const uint64_t first = page / CHUNK_PAGES, chunks = (end + CHUNK_PAGES - 1) / CHUNK_PAGES;
    FOR_EACH_META(chunk, reflection, first, chunks)
    {
        const uint64_t from = chunk == first ? page % CHUNK_PAGES : 0;
        *found = chunk * CHUNK_PAGES + from;
        ssize_t got =
            pread(reflection, words, (CHUNK_PAGES - from) * 8, (off_t)layout_word(*found));
        if (got <= 0) /* 0: the end of the file */
            return (int)got;
        for (ssize_t i = 0; i < got / 8; i++, ++*found)
            if (words[i])
                return 1;
    }
    return 0;
}
