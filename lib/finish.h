/* SPDX-License-Identifier: BSD-3-Clause */
/* Page states of files, perhaps of others than this process has mapped, while a dead process's commit to several of them is
 * finished (visible.h). */
#ifndef ATO_LIB_FINISH_H
#define ATO_LIB_FINISH_H

#include "../reflection/visible.h"

/* join(): EBUSY where others have the file mapped in another /dev/shm. */
extern const struct visible_memory finish_memory;

#endif
