/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements visible_memory (visible.h): the page states of all files of a dead process's commit, for
 * the process that finishes that commit. The process need not have these files mapped. */
#ifndef ATO_LIB_RECOVERY_FINISH_H
#define ATO_LIB_RECOVERY_FINISH_H

#include "reflection/recovery/visible.h"

/* join() fails with EBUSY if others have the file mapped with another /dev/shm. */
extern const struct visible_memory finish_memory;

#endif
