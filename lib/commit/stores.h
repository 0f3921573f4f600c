/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages of the original change, and processes with plain stores may have copies of them (store_views.h). */
#ifndef ATO_LIB_COMMIT_STORES_H
#define ATO_LIB_COMMIT_STORES_H

#include "lib/file/store_views.h"
#include "lib/page/page_set.h"

struct stores_change {
    bool any; /* else the rest is not set */
    bool took;
    const struct held_page *pages;
    uint64_t n;
    enum stores_kept *kept;
    struct store_look look;
};

/* Around a change of those of n held pages that have pending slices, or slices in the reflection. `except`: views that it concerns not, a
 * mask. `showing`: the caller has it; else it is held in between. */
void stores_change_begin(struct stores_change *c, struct file *f, const struct held_page *pages,
                         uint64_t n, uint64_t except, bool showing);
void stores_change_end(struct stores_change *c);

#endif
