/* SPDX-License-Identifier: BSD-3-Clause */
/* The places in the shared memory that processes take and give back: blocks of counters. */
#ifndef ATO_LIB_FILE_SHARED_PLACES_H
#define ATO_LIB_FILE_SHARED_PLACES_H

#include "lib/file/shared.h"

/* Takes a block of zeros for counters, for the process `holder`. Returns 1; 0: none is free, and the caller counts
 * elsewhere; -1 with ENOSPC. */
int shared_places_take_block(struct shared *s, uint32_t holder, void **block);
void shared_places_give_block(struct shared *s, const void *block);

/* Gives back a process's blocks. */
void shared_places_forget_holder(struct shared *s, uint32_t holder);

#endif
