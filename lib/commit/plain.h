/* SPDX-License-Identifier: BSD-3-Clause */
/* Deploying a whole file, so that it can become plain. */
#ifndef ATO_LIB_COMMIT_PLAIN_H
#define ATO_LIB_COMMIT_PLAIN_H

#include "lib/file/file.h"

/* The deployment of a whole file, in turns. */
struct plain_job {
    const struct ato_unmap_options *options;
    uint64_t told; /* bytes last reported to options->progress */
    uint64_t next; /* chunks below this are deployed; 0 after other processes had the file mapped */
    bool gives_back; /* space is short: chunks give that of deployed pages back */
};

/* Deploys the whole file, with several threads if it is large, and with little more space than the file takes. The
 * caller is the only process that has the file mapped, holds the attach lock, and has made all words durable; no other
 * thread of it uses the file. Returns 0; 1: not done yet, but other processes may be waiting for the lock: call again;
 * -1 with ENOSPC, EDQUOT or EIO: what was deployed stays deployed. */
int plain_make(struct file *f, struct plain_job *job);

#endif
