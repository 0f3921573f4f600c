/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a file while no process writes to it, and finds out whether that is so. The caller holds the reader's lock. */
#ifndef ATO_LIB_READ_READER_QUIET_H
#define ATO_LIB_READ_READER_QUIET_H

#include "lib/file/file.h"

/* Tries to read a range. Returns 1; 0: a process has begun to write, or may just have done so; -1. */
int reader_quiet_try(struct file *f, uint64_t offset, char *dst, uint64_t n);

/* Returns true if still no process writes to the file, in any way. Called after a copy. */
bool reader_quiet_is(const struct file *f);

/* Notes the ctime and the size of a plain file, before the copy. Mapping a file sets an attribute, and making it
 * plain again removes that: both change the ctime. Returns false if the ctime is too recent to tell: try again a
 * moment later. */
bool reader_quiet_note(struct file *f);

#endif
