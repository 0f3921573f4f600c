/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens a file to be mapped: its pairing, its views, and the memory that it shares with other processes. */
#ifndef ATO_LIB_API_OPEN_H
#define ATO_LIB_API_OPEN_H

#include "lib/file/file.h"

/* Returns the file of `fd`, which is one that this process has mapped or a new one, and adds 1 to its
 * `mappings`. NULL with errno of ato_mmap(). With MUTEX_FILES. */
struct file *open_file(int fd, const struct file_wish *wish);

/* Undoes open_file(): subtracts 1 from `mappings`. With the last one closes the file, which this process has not written to.
 * Keeps errno. With MUTEX_FILES. */
void open_undo(struct file *f);

/* Makes all words durable as they are visible (R4, for the whole file), if they may not be. Meta pages that are holes
 * have none. Returns 0; -1 with errno. */
int open_flush_words(struct file *f);

#endif
