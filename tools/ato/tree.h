/* SPDX-License-Identifier: BSD-3-Clause */
/* What --recursive goes through: the folders below a folder and the files in them, but no reflection folders `.ato`. */
#ifndef ATO_TOOLS_TREE_H
#define ATO_TOOLS_TREE_H

enum tree_kind { TREE_FOLDER, TREE_FILE, TREE_UNREADABLE };

/* Called for each folder (with that itself) before what is in it, and for each regular file. TREE_UNREADABLE: with the errno for
 * which this could not be looked at. */
typedef void tree_visit(void *arg, const char *path, enum tree_kind kind, int error);

/* Symbolic links are not followed, except for `folder` itself. */
void tree_walk(const char *folder, tree_visit *visit, void *arg);

#endif
