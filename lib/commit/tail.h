/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes of a file's last page beyond its end. */
#ifndef ATO_LIB_COMMIT_TAIL_H
#define ATO_LIB_COMMIT_TAIL_H

#include "lib/page/page_set.h"

/* Clears the last page of the file, which is held, beyond the end of the file. Leaves out the last slice if the
 * page has pending slices. Returns 0; -1: ENOSPC, EUCLEAN, EIO. */
int tail_clear(struct mapping *m, struct held_page *last);

#endif
