/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes of several pages, and copies from mapping to mapping. */
#ifndef ATO_LIB_API_WRITEV_H
#define ATO_LIB_API_WRITEV_H

#include "lib/read/range.h"
#include "lib/transaction/staging.h"

/* Writes n bytes to one range, in one step. From a mapping: the bytes that it has when `to` changes; the ranges may
 * overlap, as with memmove(). Neither mapping has an epoch, and both may be written. flags: ATO_EAGER, ATO_SKIP_EQUAL.
 * Returns 0: durable; -1: errors of ato_memcpy(), nothing changed. */
int writev_one(const struct range *to, const struct staging_source *source, uint64_t n,
               unsigned flags);

#endif
