/* SPDX-License-Identifier: BSD-3-Clause */
/* The guard of a mapped file. */
#ifndef ATO_LIB_READ_GUARD_H
#define ATO_LIB_READ_GUARD_H

#include "lib/file/file.h"

/* Returns the guard in the manifest; 0 bytes if the file has none. */
struct manifest_guard guard_of(struct file *f);

#endif
