/* SPDX-License-Identifier: BSD-3-Clause */
/* Consistent reads that wait for nobody. */
#ifndef ATO_LIB_READ_H
#define ATO_LIB_READ_H

#include "file.h"

/* Copies n bytes at `offset` of m's file, which the caller has checked to lie within it, to dst: as
 * they were at one moment. -1: ENOSPC, ENOMEM, EIO; dst may hold anything then. */
int read_bytes(struct mapping *m, uint64_t offset, char *dst, uint64_t n);

#endif
