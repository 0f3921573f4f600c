/* SPDX-License-Identifier: BSD-3-Clause */
/* What --recursive and `ato gc` go through: the folders below a folder, and the files in them. */
#ifndef ATO_TOOLS_TREE_H
#define ATO_TOOLS_TREE_H

#include <stdbool.h>

enum tree_kind { TREE_FOLDER, TREE_FILE, TREE_UNREADABLE };

/* Called for each folder (with that itself) before what is in it, and for each regular file. TREE_UNREADABLE: with the errno for
 * which this could not be looked at. */
typedef void tree_visit(void *arg, const char *path, enum tree_kind kind, int error);

/* Symbolic links are not followed, except for `folder` itself. all: with reflection folders `.ato`. */
void tree_walk(const char *folder, bool all, tree_visit *visit, void *arg);

#endif
