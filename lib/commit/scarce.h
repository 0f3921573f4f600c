/* SPDX-License-Identifier: BSD-3-Clause */
/* Deploying when the disk is full. */
#ifndef ATO_LIB_COMMIT_SCARCE_H
#define ATO_LIB_COMMIT_SCARCE_H

#include "lib/commit/deploy.h"

/* Returns true if the error says that the disk is full. */
bool scarce_is(int error);

/* As deploy_file(), but slower and with far less space. The caller is the only process that has the file mapped,
 * and holds the attach lock. Returns 0; 1: not done yet, but other processes may be waiting for the lock: call
 * again; -1 with ENOSPC, EDQUOT, ENOMEM or EIO: what was deployed stays deployed. */
int scarce_deploy(struct file *f, struct deploying *d);

#endif
