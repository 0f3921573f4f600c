/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files that this process has mapped: opens one to be mapped (its pairing, its views, and the memory that it shares with
 * other processes), and leaves it. A call that moves data does not need the list of them: table.h finds the mapping.
 */
#ifndef ATO_LIB_API_FILES_H
#define ATO_LIB_API_FILES_H

#include "lib/file/file.h"

/* Returns the file of `fd`, which is one that this process has mapped or a new one, and adds 1 to its
 * `mappings`. NULL with errno of ato_mmap(). With MUTEX_FILES. */
struct file *files_open(int fd, const struct file_wish *wish);

/* Undoes files_open(): subtracts 1 from `mappings`. With the last one closes the file, which this process has not written to.
 * Keeps errno. With MUTEX_FILES. */
void files_undo(struct file *f);

/* Subtracts 1 from `mappings`; with the last mapping, leaves the file as `options` require: it becomes plain or clean, or stays
 * in use by other processes. Returns 0; -1 with errno. The caller unmaps its view after that, unless *kept is set: then the call
 * failed, and the mapping still counts. With MUTEX_FILES. */
int files_leave(struct file *f, const struct ato_unmap_options *options, bool *kept);

/* At exit with files still mapped: removes the shared-memory objects that no other process uses. The
 * files stay `in use`, as after a kill, and no data is lost. */
void files_exit(void);

/* In a forked child: closes descriptors and forgets all files. */
void files_forget(void);

/* False if the handlers of fork() could not be registered, which only a lack of memory prevents (process.c). */
extern bool process_is_set_up;

#endif
