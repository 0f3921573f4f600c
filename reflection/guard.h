/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guarded bytes: while a file is not plain it has others in their place, for which programs that know
 * nothing of libato refuse it. The manifest keeps what they are when it is plain.
 *
 * They are put back when everything is home and `deployed` says so durably, and before the attribute
 * goes: so that whoever finishes a removal that was cut knows whether it was done. Byte by byte it
 * looks whether the file has what it had then, or the plain one already: what others wrote since is
 * theirs.
 */
#ifndef ATO_REFLECTION_GUARD_H
#define ATO_REFLECTION_GUARD_H

#include "pairing.h"

/* Does the file (a descriptor of it) show that its guarded bytes have no mask? The first one is plain, there; or not there at
 * all. Also true without a guard. A file that cannot be read counts as masked. */
bool guard_is_off(int file, const struct manifest_guard *g);

/* Notes in pr->record what the file has in their place. EIO. */
int guard_note(struct pairing *pr);

/* Puts them back, durably. ENOSPC, EIO, ... */
int guard_put_back(struct pairing *pr);

#endif
