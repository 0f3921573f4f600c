/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies from mapping to mapping. */
#ifndef ATO_LIB_API_WRITEV_H
#define ATO_LIB_API_WRITEV_H

#include "lib/read/range.h"

/* Copies n bytes, in one step: the bytes that `from` has when `to` changes. Neither mapping has an epoch, and this process may
 * write to both files. The ranges may overlap, as with memmove(). flags: ATO_EAGER, ATO_SKIP_EQUAL. Returns 0: durable; -1:
 * errors of ato_memcpy(), nothing changed. */
int writev_across(const struct range *to, const struct range *from, uint64_t n, unsigned flags);

#endif
