/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages of the original change, and processes with plain stores may have copies of them (store_views.h). */
#ifndef ATO_LIB_COMMIT_STORES_H
#define ATO_LIB_COMMIT_STORES_H

#include "lib/file/store_views.h"
#include "lib/page/page_set.h"

struct stores_change {
    bool any;     /* else the rest is not set */
    bool took;    /* `showing` */
    bool is_safe; /* it is held */
    struct store_look look;
};

/* Around changes of held pages. `except`: views that they concern not, a mask. `showing`: the caller has it; else it is held in between. */
void stores_change_begin(struct stores_change *c, struct file *f, uint64_t except, bool showing);
void stores_change_end(struct stores_change *c);

/* Around the stores to each page: nothing is kept of pages that nobody has stored to when they have changed. */
enum stores_kept stores_page_begin(struct stores_change *c, uint64_t page);
void stores_page_end(struct stores_change *c, uint64_t page, enum stores_kept kept);

#endif
