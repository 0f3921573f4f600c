/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes that have one file mapped: which of them are alive, and what the dead ones held.
 *
 * Each process has a slot: an entry in the shared memory, and a byte of the manifest that it keeps locked. The
 * kernel drops the lock when the process dies, in every pid namespace. The slot stays given out until all that its
 * process held is free. A process that finds that a page's holder is dead recovers what that one held (takeover.h).
 */
#ifndef ATO_LIB_RECOVERY_PEERS_H
#define ATO_LIB_RECOVERY_PEERS_H

#include "lib/file/file.h"

/* If that process is dead, frees what it held. Returns 0; -1 with a sentence (EUCLEAN, EACCES, EIO, ...), and it
 * stays held. The caller may hold pages. */
int peers_recover(struct file *f, uint32_t holder);

/* The same for all dead processes. */
int peers_recover_all(struct file *f);

/* Implements pairing_wish.recover. */
int peers_recover_lanes(const struct pairing *pr, uint64_t journal);

/* Returns true if a slot is given out to a process that is dead. The calling thread holds the attach lock. */
bool peers_any_dead(const struct file *f);

#endif
