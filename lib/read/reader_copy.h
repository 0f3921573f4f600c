/* SPDX-License-Identifier: BSD-3-Clause */
/* One try of a read by a process that may only read the file, while no process writes to it (reader_state.h). Changes
 * nothing. */
#ifndef ATO_LIB_READ_READER_COPY_H
#define ATO_LIB_READ_READER_COPY_H

#include "lib/file/file.h"

/* With the reader's lock: copies the range by the words on the media. Returns 1; 0: a process has begun
 * to write, or may just have done so; -1 with errno. */
int reader_copy_quiet(struct file *f, uint64_t offset, char *dst, uint64_t n);

/* Returns true if still no process writes to the file, in any way. With the reader's lock, after a copy. */
bool reader_copy_is_quiet(const struct file *f);

/* READER_PLAIN: notes the ctime and the size, before the copy. Mapping a file sets an attribute, and making it
 * plain again removes that: both change the ctime. Returns false if the ctime is too recent to tell: try again a
 * moment later. */
bool reader_copy_note(struct file *f);

#endif
