/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lanes in which this process journals its commits of several words.
 *
 * A commit to one file goes to one of the file's own lanes, if it fits: they lie in the manifest, in the
 * area of this process's slot, which is mapped at the first such commit. Larger commits, and those to
 * several files, go to a journal of the process, a file by itself: one for each reflection folder,
 * durability domain, and owner, group and mode of files. It is made when it is needed, grows if a commit
 * does not fit, and is removed when the last file that used it is unmapped. The manifest of
 * each file that uses it names it, from before the file's first commit there (persist-order N1) until all of
 * these are retired (N2): so recovery finds it.
 *
 * A lane whose commit is in doubt (its medium failed) stays as it is and is never given out again; its files
 * are poisoned. When one of them is unmapped, the process stops using that journal, and its manifest goes on
 * naming it: then it looks like one of a dead process, and the next map of the file recovers it.
 */
#ifndef ATO_LIB_COMMIT_JOURNALS_H
#define ATO_LIB_COMMIT_JOURNALS_H

#include "lib/file/file.h"
#include "lib/page/page_set.h"
#include "reflection/format/journal.h"

/* Checks whether both files may be in one commit. Returns 0; -1 with EXDEV and a sentence if their domains or reflection
 * folders differ, or their owner, group or mode: not every process that may recover the one could recover the other. */
int journals_alike(const struct file *a, const struct file *b);

/* Takes a lane for a commit of `words` words to the files of a list of parts, which are alike. Waits while all lanes are
 * busy. Returns 0; -1 with E2BIG, ENOSPC, EIO, ... and no lane. */
int journals_take_lane(const struct part *first, uint64_t words, struct journal_lane *lane);

/* Runs journal_commit() or journal_retire(), as file_msync() does flushes: in domain msync
 * one at a time, and none succeeds after one has failed. Returns 0; -1. */
int journals_step(const struct journal_lane *lane, int (*step)(struct journal_writer *w),
                  struct journal_writer *w);

/* Gives a lane back: its commit is retired, or was never made. `in_doubt`: it is kept as it is; its files are poisoned. */
void journals_give_lane(const struct journal_lane *lane, bool in_doubt);

/* Ends the file's use of its lanes: it is being unmapped. */
void journals_detach(struct file *f);

void journals_close_all(void);  /* at exit */
void journals_forget_all(void); /* in a forked child */

#endif
