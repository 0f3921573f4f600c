/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory in which the slices of a logged file's pages are put together: a page for each held page that is stored to, from the first store
 * to the release.
 *
 * It lies in file.r, which has as many pages as the file: so one is always free. The first free one is taken: so it is nearly always
 * memory that was used just before, and the kernel need not clear any, however large the file is.
 */
#ifndef ATO_LIB_PAGE_SCRATCH_H
#define ATO_LIB_PAGE_SCRATCH_H

#include "lib/file/file.h"

/* Takes a page of memory. */
char *scratch_take(struct file *f);

/* Gives it back. */
void scratch_give(struct file *f, char *page);

#endif
