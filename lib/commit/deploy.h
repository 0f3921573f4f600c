/* SPDX-License-Identifier: BSD-3-Clause */
/* Deploying: copying slices from the reflection (R) to the original (O) and flipping their bits, so that O
 * holds the valid bytes. */
#ifndef ATO_LIB_COMMIT_DEPLOY_H
#define ATO_LIB_COMMIT_DEPLOY_H

#include "lib/page/page_set.h"

/* Deploys all slices of the held pages of m's file, right after their commit (W3). No held page has a pending mask. Returns 0;
 * -1 with errno. */
int deploy_committed(struct mapping *m, struct page_set *h);

/* Deploys all slices of pages first..last; waits for pages that others hold. Returns 0; -1 with errno. */
int deploy_range(struct mapping *m, uint64_t first, uint64_t last);

/* For a reader of n bytes at `offset`, before or after its copy: deploys the free pages of the range that
 * have slices in R among these bytes; with the adaptive policy, at their 4th read. Does not report failures,
 * since a reader can gather. */
void deploy_for_reader(struct mapping *m, uint64_t offset, uint64_t n);

#endif
