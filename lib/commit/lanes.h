/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lanes for this process's commits of several words. They lie in the file's manifest.
 *
 * A commit goes to one of the process's small lanes, if it fits: the area of its slot, which is mapped at the first such commit.
 * A larger one takes the long lane, which all processes share: one at a time, noted in the shared memory. It grows when a
 * commit does not fit, before that commit, and is cut off when the last process unmaps the file.
 *
 * A lane whose commit is in doubt (its medium failed) stays as it is and is never given out again; the file is poisoned.
 */
#ifndef ATO_LIB_COMMIT_LANES_H
#define ATO_LIB_COMMIT_LANES_H

#include "lib/file/file.h"
#include "lib/page/page_set.h"
#include "reflection/format/lane.h"

/* Takes a lane for a commit of `words` words to the file. Waits while all such lanes are busy. Returns 0; -1 with E2BIG, ENOSPC, EIO, ...
 * and no lane. */
int lanes_take(struct file *f, uint64_t words, struct taken_lane *lane);

/* Gives a lane back: its commit is retired, as lane->retired says, or was never made. `in_doubt`: it is kept as it is; its file is poisoned. */
void lanes_give(const struct taken_lane *lane, bool in_doubt);

/* Ends the file's use of its lanes: it is being unmapped. */
void lanes_detach(struct file *f);

#endif
