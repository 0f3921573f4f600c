/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Early commits of a file with a log: one that is in the log, and not yet durable, is visible to the next writer, which goes on from it
 * and shares its sync. Its caller is told that it is done when it is durable. A relaxed one is visible to readers, too, as soon as to
 * writers, and its caller does not wait (later.h).
 *
 * The file itself must not have what is not durable: the kernel may write it back at any time. So the newest content of the pages lies in
 * *early copies* in shared memory (undo.h), and their bitmaps are ~0; those of other pages of a logged file are 0. What the pages had
 * before is saved for readers in any case: they begin at `moment`, and do not see an early commit before it is durable, or one that is
 * relaxed follows.
 *
 * A relaxed one may make the file longer. Its size is in the log, and in memory, by which all processes go; the manifest gets it when it is
 * durable (log_settle_size()). So a power cut leaves the size of the last record that it leaves, or, without one, that of the log's start.
 *
 * The numbers of early commits are in the order of the log: they become visible while `appending` is held. An ordinary commit is shown when it
 * is durable, and all early ones that are visible by then, too. A power cut takes the commits whose records are the last ones in the log:
 * of two that were under way together it may keep the one that became visible later.
 *
 * When they are durable the pages come home to the file: with the next ordinary commit that changes them, or before the log's start
 * moves, while `appending` is held (early_bring_home()). A process that is killed holds pages only until its commit is visible: takeover brings those home from
 * the log. The model early.pml has these steps, and those of undo.h.
 */
#ifndef ATO_LIB_COMMIT_EARLY_H
#define ATO_LIB_COMMIT_EARLY_H

#include "lib/commit/show.h"

/* Makes a commit visible whose record ends at `end`. The caller holds `appending`. Returns its number; 0: it cannot be made visible
 * early, and nothing has changed. */
uint64_t early_show(const struct commit *c, uint64_t end);

/* Brings all pages home that are in early copies. Their content is durable, as all that is visible: the caller has `appending`. Durable in
 * the file with its next sync. Returns 0; -1 with errno. */
int early_bring_home(struct file *f);

#endif
