/* SPDX-License-Identifier: BSD-3-Clause */
/* Removes what dead processes left in a reflection folder: journals that no manifest names (any more), which hold no commit
 * that counts; unfinished journals and manifests. */
#ifndef ATO_REFLECTION_RECOVERY_SWEEP_H
#define ATO_REFLECTION_RECOVERY_SWEEP_H

#include "reflection/pairing/folder.h"

/* What cannot be looked at, or removed, stays. */
void sweep_folder(const struct folder *f);

#endif
