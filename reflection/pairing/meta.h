/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the meta pages of a reflection that may hold words other than 0: those that are not holes. */
#ifndef ATO_REFLECTION_PAIRING_META_H
#define ATO_REFLECTION_PAIRING_META_H

#include "reflection/format/layout.h"
#include "reflection/pairing/folder.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns the first chunk in [chunk, chunks) that may have data in its meta page; `chunks` if there is none. Changes nothing. */
uint64_t meta_next(int reflection, uint32_t format, uint64_t chunk, uint64_t chunks);

/* Iterates over these chunks, from `from` on. */
#define FOR_EACH_META(chunk, reflection, format, from, chunks)                                     \
    for (uint64_t chunk = meta_next(reflection, format, from, chunks); chunk < (chunks);           \
         chunk = meta_next(reflection, format, chunk + 1, chunks))

/* Returns true if the meta page of that place has space: loads and flushes of it are possible. */
static inline bool meta_has_space(int reflection, uint32_t format, uint64_t place)
{
    const uint64_t chunk = place / layout_chunk(format);
    return meta_next(reflection, format, chunk, chunk + 1) == chunk;
}

/* Reads the entries of n places of one chunk, from `first` on: which page each is of, and its bitmap word. (Of a sparse reflection: a
 * page number with word 0 says nothing.) By pread(), which reads a meta page that is a hole as zeros, where a load could be SIGBUS.
 * `pages` may be NULL. Returns how many places there are before the end of the file; -1 with errno. */
int64_t meta_read(int reflection, uint32_t format, uint64_t first, uint64_t n, uint64_t *words,
                  uint64_t *pages);

/* The entries of one chunk. */
struct meta_chunk {
    uint64_t next;  /* the chunk from which on the next step looks; 0 at first */
    uint64_t first; /* the place of the first entry */
    uint64_t words[CHUNK_PAGES], pages[CHUNK_PAGES];
};

/* Reads the next chunk before chunk `end` that may have words other than 0, by meta_read(). Returns how many entries it has; 0: there is none; -1
 * with errno. */
int64_t meta_step(int reflection, uint32_t format, uint64_t end, struct meta_chunk *c);

/* Orders the numbers of pages, for qsort(). */
int meta_by_number(const void *a, const void *b);

/* Finds the first `most` pages in [page, end) whose words are not 0; `most` is META_FOUND or less. Dense: reads only the meta pages of
 * these pages; sparse: all. Returns how many there are, in `found`, in ascending order; -1 with errno. */
enum { META_FOUND = 512 };
int meta_find(int reflection, uint32_t format, uint64_t page, uint64_t end, uint64_t *found,
              int most);

/* Finds a page of which a dense reflection has a slice beyond the first `size` bytes of the file. Returns 1; 0: there is none; -1 with
 * errno. */
int meta_find_beyond(int reflection, uint64_t size, uint64_t *page);

/* Returns 1 if the reflection of that number in a folder holds any slice, else 0 (also if there is none); -1 with
 * a sentence. */
int meta_holds_slices(const struct folder *f, uint64_t number);

#endif
