/* SPDX-License-Identifier: BSD-3-Clause */
/* The guard of a mapped file. */
#ifndef ATO_LIB_READ_GUARD_H
#define ATO_LIB_READ_GUARD_H

#include "lib/file/file.h"

/* Returns the guard in the manifest; 0 bytes if the file has none. */
struct manifest_guard guard_of(struct file *f);

/* Fills in *g as ato_set_guard() is asked to. Returns 0; -1 with EINVAL. */
int guard_make(struct manifest_guard *g, off_t offset, const void *plain, size_t n);

#endif
