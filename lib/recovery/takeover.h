/* SPDX-License-Identifier: BSD-3-Clause */
/* Frees the pages, and the size, that a killed process held. */
#ifndef ATO_LIB_RECOVERY_TAKEOVER_H
#define ATO_LIB_RECOVERY_TAKEOVER_H

#include "lib/file/file.h"

/* Frees the pages, and the size, that `gone` (page_state.holder) holds. `gone` is dead, and its journals are
 * replayed. Of its last operation, what is on the media becomes visible. The caller holds the attach lock. Returns
 * 0; -1 with ENOMEM: nothing is freed. If the medium fails, the file is poisoned and everything is freed. May be
 * killed anywhere, and done again. */
int takeover(struct file *f, uint32_t gone);

/* Marks a page that a dead process holds, if it is loaded: its readers wait until it is freed, whichever
 * state the dead process was making visible. The calling process need not have mapped the file. May be done
 * again. */
void takeover_hide(struct page_state *s);

/* The same for all pages that `gone` holds, and the size. */
void takeover_hide_all(struct shared *s, uint32_t gone);

#endif
