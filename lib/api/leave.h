/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends the use of a file in this process, with its last mapping: the file becomes plain or
 * clean, or stays in use by other processes. */
#ifndef ATO_LIB_API_LEAVE_H
#define ATO_LIB_API_LEAVE_H

#include "lib/file/file.h"

/* Subtracts 1 from `mappings`; with the last mapping, leaves the file as `options` require. Returns 0; -1
 * with errno. The caller unmaps its view after that, unless *kept is set: then the call failed, and the
 * mapping still counts. With MUTEX_FILES. */
int leave_file(struct file *f, const struct ato_unmap_options *options, bool *kept);

#endif
