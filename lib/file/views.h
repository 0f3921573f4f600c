/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's own views of a file and its reflection.
 *
 * They are as long as the file needs, and grow with it where they lie (window.h), up to max_size. An access beyond the end of a file would
 * be SIGBUS; the size check of each call prevents it: file_size() is never more than `viewed`. A call that fails this check
 * asks for more, and checks again. That of a sparse reflection is as long as it may become from the start.
 */
#ifndef ATO_LIB_FILE_VIEWS_H
#define ATO_LIB_FILE_VIEWS_H

#include "lib/file/file.h"

/* Maps the views, for a file of `size` bytes; a reader's for reading. `s`: the shared memory of other processes; or, with a capacity of
 * 0, it is yet to be made. Returns 0; -1 with errno: ENOMEM; EFBIG if `s` has no room for the states of all pages. */
int views_map(struct file *f, struct shared *s, uint64_t size);

/* Does nothing if there are no views. */
void views_unmap(struct file *f);

/* Makes the views at least so long; `size` is at most max_size. Other threads may use them meanwhile. Returns 0; -1 with ENOMEM. */
int views_reach(struct file *f, uint64_t size);

/* The same for the size that the file has now. Returns whether the views are longer now; false after an error, too. */
bool views_follow(struct file *f);

/* Makes the views longer, if other processes have made the file longer than max_size. No thread is in a call
 * on the file. Returns 0; -1 with errno: then there are no views, and the file can only be closed. */
int views_lengthen(struct file *f, uint64_t size);

#endif
