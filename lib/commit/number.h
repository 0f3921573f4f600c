/* SPDX-License-Identifier: BSD-3-Clause */
/* From when on the commits of a file have numbers (undo.h): snapshots need that, and commits that are visible before they are durable. */
#ifndef ATO_LIB_COMMIT_NUMBER_H
#define ATO_LIB_COMMIT_NUMBER_H

#include "lib/file/undo.h"

static inline bool number_is_ready(const struct file *f)
{
    return __atomic_load_n(&f->shared.header->numbered, __ATOMIC_ACQUIRE) == UNDO_READY;
}

/* Gives the commits of a file numbers, for ever, and waits for those that are under way and have none. The caller is in no commit, but
 * may hold pages. Returns 0; -1 with ENOSPC, ENOMEM, ENOSYS, ETIMEDOUT, or errors of attach_lock(). */
int number_commits(struct file *f);

#endif
