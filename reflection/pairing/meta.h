/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the meta pages of a reflection that may hold words other than 0: those that are not holes. */
#ifndef ATO_REFLECTION_PAIRING_META_H
#define ATO_REFLECTION_PAIRING_META_H

#include <stdint.h>

/* Returns the first chunk in [chunk, chunks) that may have data in its meta page; `chunks` if there is none. Changes nothing. */
uint64_t meta_next(int reflection, uint64_t chunk, uint64_t chunks);

/* Finds the first page, from `page` on, whose word is not 0, in the meta pages of the pages before `end`. Returns 1, with
 * *found; 0 if there is none; -1 with errno. */
int meta_find(int reflection, uint64_t page, uint64_t end, uint64_t *found);

/* Iterates over these chunks, from `from` on. */
#define FOR_EACH_META(chunk, reflection, from, chunks)                                             \
    for (uint64_t chunk = meta_next(reflection, from, chunks); chunk < (chunks);                   \
         chunk = meta_next(reflection, chunk + 1, chunks))

#endif
