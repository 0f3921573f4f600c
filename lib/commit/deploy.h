/* SPDX-License-Identifier: BSD-3-Clause */
/* Deploying: copying slices from the reflection (R) to the original (O) and flipping their bits, so that O
 * holds the valid bytes. */
#ifndef ATO_LIB_COMMIT_DEPLOY_H
#define ATO_LIB_COMMIT_DEPLOY_H

#include "lib/page/page_set.h"

/* Deploys all slices of the held pages of the file, right after their commit (W3). No held page has a pending mask. Returns 0;
 * -1 with errno. */
int deploy_committed(struct file *f, struct page_set *h);

/* Deploys all slices of n pages, in ascending order; waits for pages that others hold. Returns 0; -1 with errno. */
int deploy_pages(struct file *f, const uint64_t *pages, uint64_t n);

/* Deploys all slices of pages first..last; waits for pages that others hold. Returns 0; -1 with errno: ESTALE if another program
 * changed the file's length, and there is something to deploy. */
int deploy_range(struct file *f, uint64_t first, uint64_t last);

/* For a reader of n bytes at `offset`, before or after its copy: deploys the free pages of the range that
 * have slices in R among these bytes. Does not report failures, since a reader can gather. */
void deploy_for_reader(struct file *f, uint64_t offset, uint64_t n);

/* ---- a whole file, so that it can become plain (plain.c) ---- */

/* The deployment of a whole file, in turns. */
struct plain_job {
    const struct ato_unmap_options *options;
    uint64_t told; /* bytes last reported to options->progress */
    uint64_t next; /* chunks below this are deployed; 0 after other processes had the file mapped */
    bool gives_back; /* space is short: chunks give that of deployed pages back */
};

/* Deploys the whole file, with several threads if it is large, and with little more space than the file takes. The
 * caller is the only process that has the file mapped, holds the attach lock, and has made all words durable; no other
 * thread of it uses the file. Returns 0; 1: not done yet, but other processes may be waiting for the lock: call again;
 * -1 with ENOSPC, EDQUOT or EIO: what was deployed stays deployed. */
int plain_make(struct file *f, struct plain_job *job);

#endif
