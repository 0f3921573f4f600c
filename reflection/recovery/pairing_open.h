/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a process begins to use the pairing of a file, and how the last one ends it.
 *
 * Under the attach lock, a process that is the only one finishes what dead ones committed: the lanes in the manifest are
 * replayed (replay.h). Then the pairing is checked and adopted (adoption.h), made (birth.h), removed or set aside (removal.h).
 *
 * The orders of birth and death, and the locks, are at the head of pairing.h.
 */
#ifndef ATO_REFLECTION_RECOVERY_PAIRING_OPEN_H
#define ATO_REFLECTION_RECOVERY_PAIRING_OPEN_H

#include "reflection/pairing/pairing.h"

/* Finds or makes the pairing of `fd`. Returns 0 with the attach lock and slot `slot` held. Then either
 * the caller is the file's only user, the file is recovered, and the state in the manifest is still
 * the old one; or pr->joined is true and wish->join() returned 0. Returns -1 with the errors of ato_mmap() in
 * ato.h. Then no lock is held; an incomplete birth stays, which the next call continues.
 *
 * With wish->only_looks nothing is changed: returns 0 with the attach lock held for reading, no slot, and pr->joined true, as
 * above. Or there is no pairing, and no lock: pr->manifest is NULL. EAGAIN: no process has the file mapped, and it is not plain. Waits for nothing: returns PAIRING_BUSY, or PAIRING_NOT_YET as
 * wish->join() does, with a sentence and no lock, if pairing_find() is to be called again, for half a minute or for a second. */
int pairing_open(struct pairing *pr, int fd, const struct identity *identity,
                 const struct pairing_wish *wish);

/* Lets go of what pairing_open() has found, and does the same again for the file. If it fails, original and folder stay open. */
int pairing_find(struct pairing *pr, const struct pairing_wish *wish);

/* Sets state `in use`, with the generation of the shared-memory object. The caller has set the
 * domain, device and boot id of pr->record. Durable when it returns 0; -1 with a
 * sentence. */
int pairing_use(struct pairing *pr, uint64_t shm_generation);

/* Gives the original the present time as its mtime. To be called when no mapping of the original is left, as the kernel moves it for
 * stores through one; but not on tmpfs, and not for each store. If it fails, that is logged. */
void pairing_stamp(struct pairing *pr);

/* Sets state `clean`, after pairing_stamp() if the file was `written`. To be called when no mapping of the original is left, since its mtime must not change
 * any more. Durable when it returns 0; -1 with a sentence. */
int pairing_clean(struct pairing *pr, bool written);

#endif
