/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This process's journals: one for each reflection folder and durability domain that needed one.
 *
 * Made at the first commit of several pages that no hardware transaction did, removed when the last
 * file that used it is unmapped, at the latest at exit. A journal in the folder of its files is
 * found by whoever recovers one of them; and one of one domain has one way of being durable.
 *
 * A lane whose commit is in doubt (its medium failed) stays as it is and is never given out again.
 * When its file is unmapped the whole journal is let go without being removed: by then it looks
 * like that of a dead process, and is recovered like one at the next map.
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

/* A lane for a commit of `words` words of one file; waits while all are busy. E2BIG, ENOSPC, ... :
 * nothing happened. */
int journals_take_lane(struct file *f, uint64_t words, struct journal_lane *lane);

/* One of journal_finish(), journal_commit(), journal_retire(), with what file_msync() does for files:
 * in domain msync one at a time, and no success after somebody else was told of a failure. */
int journals_step(const struct journal_lane *lane, int (*step)(struct journal_writer *w),
                  struct journal_writer *w);

/* The commit is retired, or never was. */
void journals_give_lane(const struct journal_lane *lane);

/* The commit is in doubt: the lane stays. */
void journals_leave_lane(struct file *f, const struct journal_lane *lane);

/* The file is being unmapped. */
void journals_detach(struct file *f);

void journals_close_all(void);  /* at exit */
void journals_forget_all(void); /* in a forked child */
void journals_lock(void);       /* around fork() */
void journals_unlock(void);

#endif
