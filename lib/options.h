/* SPDX-License-Identifier: BSD-3-Clause */
/* What callers wish, checked, and completed by the environment and by defaults. */
#ifndef ATO_LIB_OPTIONS_H
#define ATO_LIB_OPTIONS_H

#include "ato.h"

/* Structs grow at their end: a smaller one is an older caller's, a larger one a newer caller's, who
 * must not have set what is not known here. `to` is zeros, and `known` bytes long. EINVAL. */
int options_take(void *to, size_t known, const void *from, const char *name);

/* -1 with EINVAL: no read policy that is known. */
int options_check_policy(int policy);

/* given: NULL for all defaults. EINVAL, ENOTSUP, EFBIG. */
int options_complete(struct ato_options *o, const struct ato_options *given);

#endif
