/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes of a file's last page beyond its end. */
#ifndef ATO_LIB_COMMIT_TAIL_H
#define ATO_LIB_COMMIT_TAIL_H

#include "lib/page/page_set.h"

/* Clears the last page of the file, which is held, after the slice in which the file ends: the transaction writes zeros
 * to the rest of that (resize.c). Returns 0; -1: ENOSPC, EUCLEAN, EIO. */
int tail_clear(struct file *f, struct held_page *last);

#endif
