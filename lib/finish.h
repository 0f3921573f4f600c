/* SPDX-License-Identifier: BSD-3-Clause */
/* Page states of files, perhaps of others than this process has mapped, while a dead process's commit to several of them is
 * finished (visible.h). */
#ifndef ATO_LIB_FINISH_H
#define ATO_LIB_FINISH_H

#include "../reflection/replay.h"

/* join(): EBUSY where others have the file mapped in another /dev/shm. */
extern const struct replay_memory finish_memory;

#endif
