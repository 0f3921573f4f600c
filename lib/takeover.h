/* SPDX-License-Identifier: BSD-3-Clause */
/* What a killed process held of a file becomes anybody's. */
#ifndef ATO_LIB_TAKEOVER_H
#define ATO_LIB_TAKEOVER_H

#include "file.h"

/* Frees the pages, and the size, that `gone` (page_state.holder) holds: a process that is dead, whose journals
 * are replayed. Shows of its last operation what is on the media. With the attach lock. -1: ENOMEM, nothing is
 * freed; with a medium that fails the file is poisoned, and all is. May be killed anywhere, and done again. */
int takeover(struct file *f, uint32_t gone);

/* Marks a page that a dead process holds, if it is loaded, for a process that may not have mapped the file: who reads it waits for who
 * frees it, whatever its holder was showing. May be done again. */
void takeover_hide(struct page_state *s);

/* All that `gone` holds. */
void takeover_hide_all(struct shared *s, uint32_t gone);

#endif
