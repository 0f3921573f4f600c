/* SPDX-License-Identifier: BSD-3-Clause */
/* Leaves a file whose last mapping in this process goes: plain, clean, or to the processes that still have it mapped. */
#ifndef ATO_LIB_API_LEAVE_H
#define ATO_LIB_API_LEAVE_H

#include "lib/file/file.h"

/* Takes 1 from `mappings`; the last mapping leaves the file as `options` say. Returns 0; -1 with errno. The
 * caller unmaps its view after that, unless *kept is set: then the call failed, and the mapping still counts.
 * With files_lock(). */
int leave_file(struct file *f, const struct ato_unmap_options *options, bool *kept);

/* The same for a mapping that could not be made, whatever the state of the file: as if its process had died.
 * Keeps errno. With files_lock(). */
void leave_abandon(struct file *f);

#endif
