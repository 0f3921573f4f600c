/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This process's journals: one for each reflection folder, durability domain, and owner, group and mode of
 * files that needed one; more if a commit has more words than one holds. All commits of a journal become
 * durable in the same way.
 *
 * A journal is made at the first commit of several words that no hardware transaction did, and removed when
 * the last file that used it is unmapped, at the latest at exit.
 *
 * All files of a commit have their reflections in one folder: recovery of any of them finds the journal there. Every file
 * that a journal ever served is its user, and one file may use several journals.
 *
 * A lane whose commit is in doubt (its medium failed) stays as it is and is never given out again. When one
 * of its files is unmapped, the whole journal is let go without being removed: then it looks like one of a
 * dead process, and the next map of any of its files recovers it.
 */
#ifndef ATO_LIB_COMMIT_JOURNALS_H
#define ATO_LIB_COMMIT_JOURNALS_H

#include "lib/file/file.h"
#include "lib/page/lane.h"
#include "reflection/format/journal.h"

/* Checks whether both files may be in one commit. Returns 0; -1 with EXDEV and a sentence if their domains or reflection
 * folders differ, or their owner, group or mode: not every process that may recover the one could recover the other. */
int journals_alike(const struct file *a, const struct file *b);

/* Takes a lane for a commit of `words` words to `n` files, which are alike, in a journal in the folder of
 * files[0]. Waits while all lanes are busy. Returns 0; -1 with E2BIG, ENOSPC, ... and no lane. */
int journals_take_lane(struct file *const *files, unsigned n, uint64_t words,
                       struct journal_lane *lane);

/* Runs journal_finish(), journal_commit() or journal_retire(), as file_msync() does flushes: in domain msync
 * one at a time, and none succeeds after one has failed. Returns 0; -1 with errno. */
int journals_step(const struct journal_lane *lane, int (*step)(struct journal_writer *w),
                  struct journal_writer *w);

/* Gives a lane back: its commit is retired, or was never made. */
void journals_give_lane(const struct journal_lane *lane);

/* Keeps a lane as it is: its commit to these files is in doubt. */
void journals_leave_lane(struct file *const *files, unsigned n, const struct journal_lane *lane);

/* Ends the file's use of its journals: it is being unmapped. */
void journals_detach(struct file *f);

void journals_close_all(void);  /* at exit */
void journals_forget_all(void); /* in a forked child */
void journals_forget(struct file *f);
void journals_lock(void); /* around fork() */
void journals_unlock(void);

#endif
