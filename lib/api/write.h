/* SPDX-License-Identifier: BSD-3-Clause */
/* Atomic writes of one range: from memory, and of a repeated byte. */
#ifndef ATO_LIB_API_WRITE_H
#define ATO_LIB_API_WRITE_H

#include "lib/file/file.h"

/* Writes n bytes at `offset` of m's file; the caller has checked that they lie within it. `repeats`: `bytes` are of a page of one
 * repeated byte. `flags`: ATO_EAGER, ATO_SKIP_EQUAL. Returns 0: durable; -1: errors of ato_memcpy(), nothing changed. */
int write_bytes(struct mapping *m, uint64_t offset, const char *bytes, uint64_t n, bool repeats,
                unsigned flags);

#endif
