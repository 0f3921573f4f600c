/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guarded bytes: while a file is not plain it has other bytes in their place (a mask), for which programs
 * that do not know libato refuse the file. The manifest keeps the plain values.
 *
 * They are put back when all slices are deployed and the manifest durably says `deployed`, before the
 * attribute is removed; one sync of the file makes both durable. So a process that finishes a removal knows by the attribute
 * whether they were put back, unless the machine was restarted: then the removal of the attribute may be durable
 * alone. It puts them back only if each byte has either its masked or its plain value: other values were
 * written by another program, and stay.
 */
#ifndef ATO_REFLECTION_PAIRING_GUARD_H
#define ATO_REFLECTION_PAIRING_GUARD_H

#include "reflection/pairing/pairing.h"

/* Returns true if the file, open as `file`, has no mask on its guarded bytes: the first one is plain, or lies
 * behind the end of the file, or there is no guard. A file that cannot be read counts as masked. */
bool guard_is_off(int file, const struct manifest_guard *g);

/* Returns true if the file has neither the plain first byte of this guard nor a mask that ATO_MASK_FIRST allows, nor 0 as a new file:
 * then a guard that is set now cannot tell that another program overwrote the file. */
bool guard_is_foreign(const struct pairing *pr, const struct manifest_guard *g);

/* Returns 1 if another program overwrote the file while it had a mask: the first guarded byte is not the mask in the file, whose every
 * store by libato since had it, and the reflection holds other slices. (Slices of zeros do not count: they may be those of a
 * growth, which needs no mask; nor do those of the mask itself.) Else 0; -1 with a sentence. `size`: the logical one; `path`: for
 * the sentence. */
int guard_was_overwritten(int file, int reflection, const struct manifest_guard *g, uint32_t format,
                          uint64_t size, const char *path);

/* The same of a pairing whose guard that is, with ESTALE and a sentence: returns 0; -1. */
int guard_check(const struct pairing *pr, const struct manifest_guard *g, uint64_t size);

/* To be called when the reflection is preferred to a file that another program overwrote: puts the mask on again that is in the
 * reflection. If there is none, clears `first` in pr->record: a plain byte tells nothing any more. The caller writes the record. The mask
 * need not be durable: without it the next map refuses the file again. Returns 0; -1 with a sentence. */
int guard_renew(struct pairing *pr);

/* Notes their masked values in pr->record. Returns 0; -1 with a sentence (EIO). */
int guard_note(struct pairing *pr);

/* Puts the plain values back, unless there was no mask. The caller syncs the file. Returns 0; -1 with a sentence: ENOSPC, EIO, ... */
int guard_put(struct pairing *pr);

#endif
