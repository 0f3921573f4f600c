/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens when a load or store of the library faults?
 *
 * Another program may make a file shorter while it is mapped: then an access beyond the new end raises SIGBUS. So does one that the
 * medium fails, and a store for which a file system finds no space although it was asked before (copy on write). The handler
 * that is installed here puts a page of zeros in the place of the one that cannot be reached, for this process alone, and
 * poisons the file (shared_header.poisoned). The access goes on with the zeros. So each call looks at `poisoned` after its
 * accesses, and before it tells of a success:
 *
 *   a read    after the copy
 *   a write   after its stores and before the flip: no flip names what was not stored. Once more after the flip
 *   a wait    each time around: page states may have become zeros
 *
 * Only faults in views that are noted here are handled: those of the library itself, in which a program has no address, and
 * those of ATO_PLAIN and ato_shared(), where a program's own load gets the zeros. All others, and a SIGBUS that a process sends, go to the action that the program had before. An action
 * that the program sets later replaces the handler, unless it is set by fault_sigaction(). A thread that blocks SIGBUS dies of a fault: so the kernel has it.
 *
 * The handler takes no lock; it reads the ranges while other threads change them.
 */
#ifndef ATO_REFLECTION_MEDIA_FAULT_H
#define ATO_REFLECTION_MEDIA_FAULT_H

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is told of faults in some views: their file is poisoned. */
struct fault_target {
    bool met;       /* there was one */
    bool read_only; /* this process may not store to `poisoned` */
    uint32_t *
        poisoned; /* becomes 1; alone in its page, or with what may become zeros then. NULL: none */
};

/* Installs the handler of SIGBUS, or of SIGSEGV (below), unless it is installed. */
void fault_install(int signal);

/* As sigaction(2) of SIGBUS or SIGSEGV, as if the library had no handler: if it has one, that stays, and passes on to this action. */
int fault_sigaction(int signal, const struct sigaction *action, struct sigaction *old);

/* Where this thread goes on, by siglongjmp(3), after a fault that the library would pass on; NULL: it is passed on. The mask of signals is
 * as at the fault. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) sigjmp_buf *fault_exit;

/* Notes a view, of whole pages. `target` stays where it is as long as the view is noted. If there are too many views, a fault in this
 * one is handled as any other one. */
void fault_watch(const void *at, size_t n, struct fault_target *target);

/* The view is longer now. */
void fault_lengthen(const void *at, size_t n);

/* From now on a fault makes *poisoned 1; so does one that there was before. `read_only`: this process may not store there. */
void fault_poisons(struct fault_target *target, uint32_t *poisoned, bool read_only);

/* munmap(); the view may be noted. NULL: does nothing. */
void fault_unmap(void *at, size_t n);

/*
 * ---- Plain stores ----
 *
 * While a commit of plain stores is under way other threads must not store there: its pages are read-only then, and a store faults. The
 * handler of SIGSEGV, which is installed for the first such view, waits until the commit is over; then the store is made again. A system call
 * that stores there fails with EFAULT instead.
 */
extern struct fault_target fault_stores; /* the target of such views */

/* Lets stores to whole pages of such a view wait, or go on. Returns 0; -1 with errno. */
int fault_stop_stores(void *at, size_t n);
void fault_go_on(void *at, size_t n);

/* In a forked child, which has none of the views. With fault_lock. */
void fault_forget_all(void);

/* Poisons the file for this process alone. */
void fault_poison_here(struct fault_target *target);

/* Guards the notes. For fork(): held around it. */
extern pthread_mutex_t fault_lock;

#endif
