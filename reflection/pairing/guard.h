/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guarded bytes: while a file is not plain it has other bytes in their place (a mask), for which programs
 * that do not know libato refuse the file. The manifest keeps the plain values.
 *
 * They are put back when all slices are deployed and the manifest durably says `deployed`, before the
 * attribute is removed. So a process that finishes a removal knows from the attribute whether this was done.
 * It puts them back only if each byte is either what the file had then or the plain value: other bytes were
 * written by another program and stay.
 */
#ifndef ATO_REFLECTION_PAIRING_GUARD_H
#define ATO_REFLECTION_PAIRING_GUARD_H

#include "reflection/pairing/pairing.h"

/* Returns true if the file, open as `file`, has no mask on its guarded bytes: the first one is plain, or lies
 * behind the end of the file, or there is no guard. A file that cannot be read counts as masked. */
bool guard_is_off(int file, const struct manifest_guard *g);

/* Notes in pr->record what the file has in their place. Returns 0; -1 with a sentence (EIO). */
int guard_note(struct pairing *pr);

/* Puts them back, durably. Returns 0; -1 with a sentence: ENOSPC, EIO, ... */
int guard_put_back(struct pairing *pr);

#endif
