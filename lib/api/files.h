/* SPDX-License-Identifier: BSD-3-Clause */
/* The files that this process has mapped. A call that moves data does not need this list: table.h finds the mapping. */
#ifndef ATO_LIB_API_FILES_H
#define ATO_LIB_API_FILES_H

#include "lib/file/file.h"

/* The caller of these functions, except files_exit(), holds MUTEX_FILES. */

/* Returns the file with this inode, mapped for reading only or not; NULL if there is none. */
struct file *files_find(const struct identity *identity, bool reader);

/* Returns the file that is mapped for writing and has this id; NULL if there is none. */
const struct file *files_with_id(const uint8_t id[16]);

void files_add(struct file *f);
void files_remove(struct file *f);

/* Frees a file that is not in the list (any more). Closing its descriptors drops its
 * locks. Keeps errno. `remove_shared`: no other process uses the shared memory. */
void files_destroy(struct file *f, bool remove_shared);

/* At exit with files still mapped: removes the shared-memory objects that no other process uses. The
 * files stay `in use`, as after a kill, and no data is lost. */
void files_exit(void);

/* In a forked child: closes descriptors and forgets all files. */
void files_forget(void);

#endif
