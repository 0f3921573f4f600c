/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of callers: checked, and completed by the environment and by defaults. */
#ifndef ATO_LIB_API_OPTIONS_H
#define ATO_LIB_API_OPTIONS_H

#include "ato.h"

/* Copies a caller's struct `from`, called `name`, to `to`, which is `known` bytes long; NULL: all 0. Structs
 * grow at their end: an older caller passes a smaller one; a newer caller passes a larger one, and must
 * not have set fields that this version does not know. Returns 0; -1 with EINVAL. */
int options_take(void *to, size_t known, const void *from, const char *name);

/* Returns the read policy, for ATO_READ_DEFAULT the environment's; -1 with EINVAL if it is not known. */
int options_choose_policy(int policy);

/* Returns the domain that is asked for, if by none of the options then by the environment; ATO_DOMAIN_AUTO; -1 with EINVAL. */
int options_domain(const struct ato_options *o);

/* Checks `given` (NULL: all defaults) and completes it in *o, for the file `fd`: if that would get a log in log_dir, this is also
 * reflection_dir; else it is NULL. Returns 0; -1 with EINVAL, ENOTSUP, EFBIG. */
int options_complete(struct ato_options *o, const struct ato_options *given, int fd);

#endif
