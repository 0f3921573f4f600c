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

/* Everything in the file, by several threads if it is large. Nobody else uses the file. */
int deploy_file(struct file *f, const struct ato_unmap_options *options);

#endif
