/* SPDX-License-Identifier: BSD-3-Clause */
/* Deploying where the disk is full. */
#ifndef ATO_LIB_SCARCE_H
#define ATO_LIB_SCARCE_H

#include "deploy.h"

/* Does this error say so? */
bool scarce_is(int error);

/* As deploy_file(), slower and with far less space; for who is the only one that has the file mapped, and holds the
 * attach lock, so that nobody else comes. 1: it is not done, but others may be waiting; once more, then. ENOSPC,
 * EDQUOT, ENOMEM, EIO: what came home is home. */
int scarce_deploy(struct file *f, struct deploying *d);

#endif
