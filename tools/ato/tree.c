/* SPDX-License-Identifier: BSD-3-Clause */
#include "tree.h"

#include "reflection/pairing/folder.h"

#include <errno.h>
#include <fts.h>
#include <stdint.h>
#include <string.h>

void tree_walk(const char *folder, bool all, tree_visit *visit, void *arg)
{
    char *const names[] = {(char *)(uintptr_t)folder, NULL};
    FTS *tree = fts_open(names, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    FTSENT *e;
    if (!tree) {
        visit(arg, folder, TREE_UNREADABLE, errno);
        return;
    }
    while (errno = 0, (e = fts_read(tree))) {
        const bool fails =
            e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS;
        if (!all && e->fts_info == FTS_D && e->fts_level && strcmp(e->fts_name, FOLDER_NAME) == 0)
            (void)fts_set(tree, e, FTS_SKIP);
        else if (e->fts_info == FTS_D || e->fts_info == FTS_F)
            visit(arg, e->fts_path, e->fts_info == FTS_D ? TREE_FOLDER : TREE_FILE, 0);
        else if (fails && e->fts_errno != ENOENT) /* that was removed meanwhile */
            visit(arg, e->fts_path, TREE_UNREADABLE, e->fts_errno);
    }
    if (errno)
        visit(arg, folder, TREE_UNREADABLE, errno);
    fts_close(tree);
}
