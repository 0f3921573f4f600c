/* SPDX-License-Identifier: BSD-3-Clause */
/* The places in the shared memory that processes take and give back: blocks of counters, and labels. */
#ifndef ATO_LIB_FILE_SHARED_PLACES_H
#define ATO_LIB_FILE_SHARED_PLACES_H

#include "lib/file/shared.h"

/* Takes a block of zeros for counters, for the process `holder`. Returns 1; 0: none is free, and the caller counts
 * elsewhere; -1 with ENOSPC. */
int shared_places_take_block(struct shared *s, uint32_t holder, void **block);
void shared_places_give_block(struct shared *s, const void *block);

/* Takes a place for a label. NULL: none is free. */
struct shared_label *shared_places_take_label(struct shared *s, uint64_t key);
void shared_places_give_label(struct shared_label *label);

/* Returns the highest label stored with `key`; 0: there is none. Sets *back if `own` is among them. */
uint64_t shared_places_look_at_labels(const struct shared *s, uint64_t key, uint64_t own,
                                      bool *back);

/* Gives back a dead process's blocks and labels. */
void shared_places_forget_holder(struct shared *s, uint32_t holder);

#endif
