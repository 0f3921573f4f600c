/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes that have one file mapped: which of them are alive, and what the dead ones have left.
 *
 * Each process has a slot: an entry in the shared memory, and a byte of the manifest that it keeps locked. The
 * kernel drops the lock when the process dies, in every pid namespace. The slot stays given out until all that its
 * process held is free. A process that finds that a page's holder is dead frees it in this order (takeover.pml):
 *
 *   1. It replays the dead process's journals, in all files that they name (recover.h). If a commit names several
 *      files, its pages in each of them are hidden before and become visible after, under the attach locks of all
 *      (visible.h, finish.h): otherwise readers would see one file after the commit and another one before it.
 *   2. It takes over the dead process's pages of this file (takeover.h), and frees its slot.
 *
 * Step 2 takes the attach lock, and the caller may hold pages. So a thread that has an attach lock, or a journal's
 * lock, must not wait for a page.
 */
#ifndef ATO_LIB_PEERS_H
#define ATO_LIB_PEERS_H

#include "file.h"

/* Gives this process a slot, and sets f->holder. The caller holds the attach lock. Returns 0; -1: EAGAIN if all
 * slots are given out, ENOSPC, or no randomness. */
int peers_enter(struct file *f);

/* Frees this process's slot: it holds nothing of the file any more. The caller holds the attach lock. */
void peers_leave(struct file *f);

/* Returns true if the process that `holder` (a page_state.holder, not 0) names is dead; false also if that cannot
 * be told. */
bool peers_is_dead(const struct file *f, uint32_t holder);

/* If that process is dead, frees what it held. Returns 0; -1 with a sentence (EUCLEAN, EACCES, EIO, ...), and it
 * stays held. The caller may hold pages. */
int peers_recover(struct file *f, uint32_t holder);

/* The same for all dead processes. */
int peers_recover_all(struct file *f);

/* Returns true if a slot is given out to a process that is dead. The calling thread holds the attach lock. */
bool peers_any_dead(const struct file *f);

/* The attach lock excludes other processes, and other threads of this one. Returns 0; -1: as pairing_lock_attach(). */
int peers_lock(struct file *f);
int peers_unlock(struct file *f);

#endif
