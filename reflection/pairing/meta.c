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
        if (data < 0)
            return errno == ENXIO ? chunks : UINT64_MAX; /* ENXIO: holes to the end */
        if ((uint64_t)data < at + PAGE_BYTES)
            return chunk;
        /* Holes up to `data`: go on with the first meta page that does not end before it. */
        chunk = ((uint64_t)data + CHUNK_BYTES - PAGE_BYTES) / CHUNK_BYTES;
    }
    return chunks;
}
