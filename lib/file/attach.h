/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes that have one file mapped, and which of them are alive.
 *
 * Each process has a slot: an entry in the shared memory, and a byte of the manifest that it keeps locked. The
 * kernel drops the lock when the process dies, in every pid namespace. The slot stays given out until everything
 * that its process held is free (takeover.h).
 */
#ifndef ATO_LIB_FILE_ATTACH_H
#define ATO_LIB_FILE_ATTACH_H

#include "lib/file/file.h"

/* The attach lock excludes other processes, and other threads of this one. Return 0; -1 with a sentence. If unlocking
 * fails, no other process can attach as long as this one has the file mapped. */
int attach_lock(struct file *f);
int attach_unlock(struct file *f);

/* Gives this process a slot, and sets f->holder. The caller holds the attach lock. Returns 0; -1: EAGAIN if all
 * slots are given out, ENOSPC, EFBIG. */
int attach_enter(struct file *f);

/* Notes in a slot that the thread with this number was in a commit. */
void attach_raise_threads(uint16_t *threads, unsigned thread);

/* Frees this process's slot. The process holds no page of the file any more. The caller holds
 * the attach lock. */
void attach_leave(struct file *f);

/* Returns true if the process that `holder` (a page_state.holder; 0: none) names is dead; false also if that
 * cannot be found out. */
bool attach_is_dead(const struct file *f, uint32_t holder);

#endif
