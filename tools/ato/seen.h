/* SPDX-License-Identifier: BSD-3-Clause */
/* Sets of files, by device and inode: those that were checked, and the like. */
#ifndef ATO_TOOLS_SEEN_H
#define ATO_TOOLS_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seen {
    void *tree; /* of tsearch(3); NULL: empty */
};

bool seen_has(const struct seen *s, uint64_t device, uint64_t inode);

/* Adds the file. Returns true if it was in the set already. */
bool seen_before(struct seen *s, uint64_t device, uint64_t inode);

void seen_free(struct seen *s);

/* Returns memory of zeros; ends the process if there is none. */
void *seen_memory(size_t n);

#endif
