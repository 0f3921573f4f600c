/* SPDX-License-Identifier: BSD-3-Clause */
/* What a name in a reflection folder is of. */
#ifndef ATO_TOOLS_ENTRY_H
#define ATO_TOOLS_ENTRY_H

#include <limits.h>
#include <stdint.h>

enum { ENTRY_PATH = PATH_MAX + NAME_MAX + 2 };

enum entry {
    ENTRY_OTHER,  /* no name that libato uses */
    ENTRY_COMMON, /* `.`, `..`, and the note for users */
    ENTRY_REFLECTION,
    ENTRY_MANIFEST,
    ENTRY_SET_ASIDE,  /* a reflection or manifest of another file */
    ENTRY_UNFINISHED, /* a manifest that is being made, or was */
};

/* *number: the inode number in its name. */
enum entry entry_of(const char *name, uint64_t *number);

#endif
