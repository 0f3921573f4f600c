/* SPDX-License-Identifier: BSD-3-Clause */
/* How a log on a disk becomes durable: one sync serves all commits that wait. */
#ifndef ATO_LIB_COMMIT_SYNC_H
#define ATO_LIB_COMMIT_SYNC_H

#include "lib/file/file.h"

static inline struct shared_log *sync_log(const struct file *f)
{
    return &f->shared.header->log;
}

static inline uint64_t sync_tail(const struct file *f)
{
    return __atomic_load_n(&sync_log(f)->tail, __ATOMIC_ACQUIRE);
}

/* Are the records before this position durable? */
static inline bool sync_reaches(const struct file *f, uint64_t end)
{
    return __atomic_load_n(&sync_log(f)->durable, __ATOMIC_ACQUIRE) >= end;
}

/* Another program may have cut the log, and with it the header or records. A length that cannot be found is no proof of that. Returns 0;
 * -1 with EIO and the file poisoned. */
int sync_check_length(struct file *f);

/* Makes the log durable up to `tail`, which it has, by a sync of this thread's own. Returns 0; -1 with errno. */
int sync_now(struct file *f, uint64_t tail);

/* Waits until all before `end` is durable. One of those who wait syncs for all. Returns 0; -1 with errno. */
int sync_wait(struct file *f, uint64_t end);

#endif
