/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The syncs of relaxed commits: a thread of the process begins one at the latest when a commit is so old as ato_options.relaxed_ms says.
 * There is a thread for each file that had such a commit. It ends when the process leaves the file, and the commits are durable then.
 * If the process is killed, the kernel writes them back when it likes, or another process syncs the log.
 */
#ifndef ATO_LIB_COMMIT_LATER_H
#define ATO_LIB_COMMIT_LATER_H

#include "lib/file/file.h"

/* file.later */
enum later {
    LATER_NONE,  /* no thread */
    LATER_BEGUN, /* one is being started */
    LATER_RESTS,
    LATER_DUE, /* it will sync what is in the log now */
    LATER_ENDS,
};

/* Sees to it that what is in the log will be durable. Returns false: there can be no thread. */
bool later_start(struct file *f);

static inline bool later_sync(struct file *f)
{
    /* Between the record and this look: pairs with the one in sync_due(). */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return __builtin_expect(__atomic_load_n(&f->later, __ATOMIC_RELAXED) == LATER_DUE, 1) ||
           later_start(f);
}

/* Ends the thread. No commit is under way in this process. */
void later_end(struct file *f);

#endif
