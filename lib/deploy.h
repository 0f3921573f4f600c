/* SPDX-License-Identifier: BSD-3-Clause */
/* Deploying: bring slices home, so that O holds the valid bytes. */
#ifndef ATO_LIB_DEPLOY_H
#define ATO_LIB_DEPLOY_H

#include "hold.h"

/* All slices of the pages held, of m's file. No page has a pending mask. */
int deploy_held(struct mapping *m, struct hold *h);

/* The same, right after a commit of those pages. */
int deploy_committed(struct mapping *m, struct hold *h);

/* All slices of pages first..last; waits for pages that others hold. */
int deploy_range(struct mapping *m, uint64_t first, uint64_t last);

/* What a reader does before it reads: those of pages first..last that have slices in R among the
 * ones asked for, and that nobody holds. Failing is no error for a reader, who can gather. */
void deploy_for_reader(struct mapping *m, uint64_t offset, uint64_t n);

/* A deployment of everything, which may take more than one attempt. */
struct deploying {
    const struct ato_unmap_options *options;
    uint64_t told;       /* bytes, to options->progress */
    uint64_t given_back; /* chunks before this had their turn in scarce.c */
};

/* Everything in the file, by several threads if it is large. Nobody else in this process uses the file. ENOSPC,
 * also where there is little left: scarce.h. */
int deploy_file(struct file *f, struct deploying *d);

/* ---- its parts ---- */

/* A mapping of its own: whoever unmaps may have mapped only a part, and for reading. Its counters are to be
 * freed. ENOMEM. */
int deploy_map(struct mapping *whole, struct file *f);

/* The first chunk from `chunk` on, of `chunks`, that has a meta page; where none can be looked for, `chunk`. */
uint64_t deploy_chunk_from(const struct file *f, uint64_t chunk, uint64_t chunks);

/* How many of a file's pages are in a chunk. */
static inline uint64_t deploy_pages_of(uint64_t chunk, uint64_t pages)
{
    const uint64_t rest = pages - chunk * CHUNK_PAGES;
    return rest < CHUNK_PAGES ? rest : CHUNK_PAGES;
}

/* The words of n pages of one chunk, as the media have them: a page that nobody touched since the file was mapped
 * has no state. */
int deploy_words(const struct file *f, uint64_t first, uint64_t n, uint64_t *words);

/* Do these say that nothing is in R? */
static inline bool deploy_is_home(const uint64_t *words, uint64_t n)
{
    while (n && !words[n - 1])
        n--;
    return n == 0;
}

/* All slices of those pages, by the runs of them that have some in R. */
int deploy_runs(struct mapping *m, uint64_t first, const uint64_t *words, uint64_t n);

/* The chunk's pages, n of them, are all home. */
void deploy_expect_nothing(const struct file *f, uint64_t chunk, uint64_t n);

/* So much of the file was looked at, at least; told when it is more than before. */
void deploy_tell(const struct file *f, struct deploying *d, uint64_t bytes);

#endif
