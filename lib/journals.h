/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This process's journals: one for each reflection folder, durability domain and owner that needed one;
 * more where a commit has more words than one holds.
 *
 * Made at the first commit of several words that no hardware transaction did, removed when the last file
 * that used it is unmapped, at the latest at exit. One of one domain has one way of being durable.
 *
 * A commit may be of files in several folders. It goes through a journal in the folder of the first; the
 * others get a pointer to it (pointer.h), so that whoever recovers any of the files finds it. Every file
 * that a journal ever served is its user, and one file may use several journals.
 *
 * A lane whose commit is in doubt (its medium failed) stays as it is and is never given out again.
 * When one of its files is unmapped the whole journal is let go without being removed: by then it looks
 * like that of a dead process, and is recovered like one at the next map of any of its files.
 */
#ifndef ATO_LIB_JOURNALS_H
#define ATO_LIB_JOURNALS_H

#include "../reflection/journal.h"
#include "file.h"

struct journal_lane {
    struct journals *in;
    const struct journal *journal;
    unsigned lane;
};

/* May both files be in one commit? 0; -1 with EXDEV and a sentence: their domains differ, or owner, group
 * or mode such that not everybody who may recover the one may recover the other. */
int journals_alike(const struct file *a, const struct file *b);

/* A lane for a commit of `words` words of `n` files, which are alike; waits while all are busy. The
 * journal is in the folder of files[0]. E2BIG, ENOSPC, ... : nothing happened. */
int journals_take_lane(struct file *const *files, unsigned n, uint64_t words,
                       struct journal_lane *lane);

/* What journal_file.folder is for one of the files of the lane; for the first it is 0. */
unsigned journals_folder_of(const struct journal_lane *lane, const struct file *f);

/* One of journal_finish(), journal_commit(), journal_retire(), with what file_msync() does for files:
 * in domain msync one at a time, and no success after somebody else was told of a failure. */
int journals_step(const struct journal_lane *lane, int (*step)(struct journal_writer *w),
                  struct journal_writer *w);

/* The commit is retired, or never was. */
void journals_give_lane(const struct journal_lane *lane);

/* The commit, of these files, is in doubt: the lane stays. */
void journals_leave_lane(struct file *const *files, unsigned n, const struct journal_lane *lane);

/* The file is being unmapped. */
void journals_detach(struct file *f);

void journals_close_all(void);  /* at exit */
void journals_forget_all(void); /* in a forked child */
void journals_forget(struct file *f);
void journals_lock(void); /* around fork() */
void journals_unlock(void);

#endif
