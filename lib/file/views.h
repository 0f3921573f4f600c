/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's own views of a file and its reflection. */
#ifndef ATO_LIB_FILE_VIEWS_H
#define ATO_LIB_FILE_VIEWS_H

#include "lib/file/file.h"

/* Maps views of both files up to max_size, a reader's for reading, so that growing needs no new view. An access beyond the end of a
 * file would be SIGBUS; the size check of each call prevents it. `s`: the shared memory of other processes; or, with a capacity of
 * 0, it is yet to be made. Returns 0; -1 with errno: EFBIG if it has no room for the states of all pages. */
int views_map(struct file *f, const struct shared *s);

/* Does nothing if there are no views. */
void views_unmap(struct file *f);

/* Makes the views longer if other processes have made the file longer than they are. No thread is in a call
 * on the file. Returns 0; -1 with errno: then there are no views, and the file can only be closed. */
int views_lengthen(struct file *f, uint64_t size);

#endif
