/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Early commits of a file with a log: one that is in the log, and not yet durable, is visible to the next writer, which goes on from it
 * and shares its sync. Its caller is told that it is done when it is durable.
 *
 * The file itself must not have what is not durable: the kernel may write it back at any time. So the newest content of the pages lies in
 * *early copies* in shared memory (undo.h), and their bitmaps are ~0; those of other pages of a logged file are 0. What the pages had
 * before is saved for readers in any case: they begin at `moment`, the number up to which all is durable, and never see an early commit.
 *
 * The numbers of early commits are in the order of the log: they become visible while `appending` is held. An ordinary commit is shown when it
 * is durable, and all early ones that are visible by then, too.
 *
 * When they are durable the pages come home to the file: with the next ordinary commit that changes them, or before the log's start
 * moves (early_bring_home()). A process that is killed holds pages only until its commit is visible: takeover brings those home from
 * the log. The model early.pml has these steps, and those of undo.h.
 */
#ifndef ATO_LIB_COMMIT_EARLY_H
#define ATO_LIB_COMMIT_EARLY_H

#include "lib/commit/show.h"

/* Makes a commit visible whose record ends at `end`. The caller holds `appending`. Returns its number; 0: it cannot be made visible
 * early, and nothing has changed. */
uint64_t early_show(const struct commit *c, uint64_t end);

/* Brings pages home whose newest content is durable, and of others what is. All that is visible up to `number` is durable. Durable with the
 * next sync of the file. Returns 0; -1 with errno. */
int early_bring_home(struct file *f, uint64_t number);

#endif
