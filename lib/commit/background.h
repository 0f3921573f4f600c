/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread of ATO_BACKGROUND: it keeps the reflections of files with a budget below three quarters of that
 * (reclaim_step()), so that a writer seldom has to bring pages home itself.
 *
 * The process has one, for all its files. It works on a file only with MUTEX_BACKGROUND, one batch at a time: so a fork, which takes
 * all mutexes, finds no batch half done; the child has no thread. It is not stopped at exit(): the pages that it holds then are
 * those of a dead process, as after a kill.
 *
 * Callers hold MUTEX_FILES, except of background_wake().
 */
#ifndef ATO_LIB_COMMIT_BACKGROUND_H
#define ATO_LIB_COMMIT_BACKGROUND_H

#include "lib/file/file.h"

/* Starts the thread if there is none. Returns 0; -1 with EAGAIN. background_rest() ends it if it has got no file. */
int background_start(void);

/* Adds one to the mappings for which the thread, which was started, keeps the file below its budget; or subtracts one. After that
 * the thread does not use a file without such a mapping any more. */
void background_serve(struct file *f);
void background_leave(struct file *f);

/* Ends the thread if it has no file. Returns when it is gone. */
void background_rest(void);

/* Wakes the thread if the file is one of its own, and takes more than three quarters of its budget with `more` RefPages. */
void background_wake(struct file *f, uint64_t more);

/* In a forked child, with all mutexes. */
void background_forget(void);

#endif
