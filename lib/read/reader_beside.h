/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a file beside the processes that write to it, also where a dead process has left pages marked. */
#ifndef ATO_LIB_READ_READER_BESIDE_H
#define ATO_LIB_READ_READER_BESIDE_H

#include "lib/file/file.h"

/* Tries to read a range of a file that the reader watches. Returns 1; 0: try again; -1 with errno; EAGAIN: recovery is
 * necessary. */
int reader_beside_try(struct file *f, uint64_t offset, char *dst, uint64_t n);

/* Sets *size to the size that is visible, or that a dead process's commit has made current. Returns false if it is not
 * known or has changed meanwhile: try again. */
bool reader_beside_size(const struct file *f, uint64_t *size);

#endif
