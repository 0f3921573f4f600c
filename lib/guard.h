/* SPDX-License-Identifier: BSD-3-Clause */
/* The guard of a mapped file. */
#ifndef ATO_LIB_GUARD_H
#define ATO_LIB_GUARD_H

#include "file.h"

/* As the manifest has it. */
struct manifest_guard guard_of(struct file *f);

/* Around a fork: nobody is in the middle of the above. */
void guard_lock(void);
void guard_unlock(void);

#endif
