/* SPDX-License-Identifier: BSD-3-Clause */
/* Removes the journals of dead processes that no manifest of the folder names (any more): they hold no commit that
 * counts. Unfinished ones too. */
#ifndef ATO_REFLECTION_RECOVERY_SWEEP_H
#define ATO_REFLECTION_RECOVERY_SWEEP_H

#include "reflection/pairing/folder.h"

/* What cannot be looked at, or removed, stays. */
void sweep_journals(const struct folder *f);

#endif
