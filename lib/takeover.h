/* SPDX-License-Identifier: BSD-3-Clause */
/* What a killed process held of a file becomes anybody's. */
#ifndef ATO_LIB_TAKEOVER_H
#define ATO_LIB_TAKEOVER_H

#include "file.h"

/* Frees the pages, and the size, that `gone` (page_state.holder) holds: a process that is dead, whose journals
 * are replayed. Shows of its last operation what is on the media. With the attach lock. -1: ENOMEM, nothing is
 * freed; with a medium that fails the file is poisoned, and all is. May be killed anywhere, and done again. */
int takeover(struct file *f, uint32_t gone);

/* The first step alone, for a process that has not mapped the file: readers of what `gone` holds wait for who
 * frees it. May be done again. */
void takeover_mark(struct shared *s, uint32_t gone);

#endif
