/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes that have one file mapped: which of them live, and what the dead have left.
 *
 * Each has a slot, in the shared memory and as a byte of the manifest that it keeps locked. The kernel drops
 * the lock at its death, in every pid namespace. The slot stays given out until what its process held is free:
 * whoever finds that a page's holder is dead does that, in this order (takeover.pml):
 *
 *   1. the dead one's journals are replayed, in all files that they name (recover.h). Where a commit names several,
 *      its pages in each of them are hidden before, and shown after, under the attach locks of all (visible.h,
 *      finish.h): or others would see one file as it is, and another as it was
 *   2. its pages of this file are taken over (takeover.h), and its slot is free
 *
 * 2 under the attach lock. One waits for that while holding pages: so who has an attach lock, or a journal's,
 * waits for no page.
 */
#ifndef ATO_LIB_PEERS_H
#define ATO_LIB_PEERS_H

#include "file.h"

/* This process gets a slot, and f->holder. With the attach lock. -1: all are given out (EAGAIN), no
 * randomness. */
int peers_enter(struct file *f);

/* It has nothing of the file any more. With the attach lock. */
void peers_leave(struct file *f);

/* Is the process dead that a page_state.holder, not 0, names? False where that cannot be told. */
bool peers_is_dead(const struct file *f, uint32_t holder);

/* If it is: frees what it held, for others. 0; -1 with a sentence: EUCLEAN, EACCES, EIO, ..., and it stays
 * held. The caller may hold pages. */
int peers_recover(struct file *f, uint32_t holder);

/* The same for all that are dead. */
int peers_recover_all(struct file *f);

/* With the attach lock, which nobody but the caller's thread has: is there a slot given out whose process is
 * dead? */
bool peers_any_dead(const struct file *f);

/* The attach lock: between processes, and between the threads of this one. -1: pairing_lock_attach()'s. */
int peers_lock(struct file *f);
int peers_unlock(struct file *f);

#endif
