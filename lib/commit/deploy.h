/* SPDX-License-Identifier: BSD-3-Clause */
/* Deploying: copying slices from the reflection (R) to the original (O) and flipping their bits, so that O
 * holds the valid bytes. */
#ifndef ATO_LIB_COMMIT_DEPLOY_H
#define ATO_LIB_COMMIT_DEPLOY_H

#include "lib/page/page_set.h"

/* Deploys all slices of the held pages of m's file. No held page has a pending mask. Returns 0; -1 with
 * errno. */
int deploy_held(struct mapping *m, struct page_set *h);

/* The same right after a commit of those pages (W3). */
int deploy_committed(struct mapping *m, struct page_set *h);

/* Deploys all slices of pages first..last; waits for pages that others hold. Returns 0; -1 with errno. */
int deploy_range(struct mapping *m, uint64_t first, uint64_t last);

/* For a reader of n bytes at `offset`, before or after its copy: deploys the free pages of the range that
 * have slices in R among these bytes; with the adaptive policy, at their 4th read. Does not report failures,
 * since a reader can gather. */
void deploy_for_reader(struct mapping *m, uint64_t offset, uint64_t n);

/* The deployment of a whole file, which may take several attempts. */
struct deploying {
    const struct ato_unmap_options *options;
    uint64_t told;       /* bytes last reported to options->progress */
    uint64_t given_back; /* chunks below this have given their space back (scarce.c) */
};

/* Deploys the whole file, with several threads if it is large. No other thread of this process uses the file.
 * Returns 0; -1 with errno: ENOSPC also if only little space is left (scarce.h), EIO, ENOMEM, ... */
int deploy_file(struct file *f, struct deploying *d);

/* ---- parts of it, for scarce.c too ---- */

/* Makes *whole a mapping of the whole file: the one being unmapped may cover a part of it, or be read-only.
 * The caller frees whole->counters. Returns 0; -1 with ENOMEM. */
int deploy_map(struct mapping *whole, struct file *f);

/* Returns the first chunk from `chunk` on, below `chunks`, whose meta page has data; `chunks` if there is
 * none; `chunk` if the file system cannot tell. */
uint64_t deploy_chunk_from(const struct file *f, uint64_t chunk, uint64_t chunks);

/* Returns how many of the file's pages lie in a chunk. */
static inline uint64_t deploy_pages_of(uint64_t chunk, uint64_t pages)
{
    const uint64_t rest = pages - chunk * CHUNK_PAGES;
    return rest < CHUNK_PAGES ? rest : CHUNK_PAGES;
}

/* Reads the bitmap words of n pages of one chunk from the media: pages that were not touched since the file
 * was mapped have no state in memory. Returns 0; -1 with EIO. */
int deploy_words(const struct file *f, uint64_t first, uint64_t n, uint64_t *words);

/* Returns true if no word has a slice in R. */
static inline bool deploy_is_home(const uint64_t *words, uint64_t n)
{
    while (n && !words[n - 1])
        n--;
    return n == 0;
}

/* Deploys n pages of one chunk, from page `first` on, in runs of pages whose words have slices in R. Returns
 * 0; -1 with errno. */
int deploy_runs(struct mapping *m, uint64_t first, const uint64_t *words, uint64_t n);

/* Drops the page tables of a chunk whose n pages are all deployed. */
void deploy_expect_nothing(const struct file *f, uint64_t chunk, uint64_t n);

/* Reports to options->progress that `bytes` of the file are done, if that is more than it was told before. */
void deploy_tell(const struct file *f, struct deploying *d, uint64_t bytes);

#endif
