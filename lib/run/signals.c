/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Masks and handlers of signals.
 *
 * A thread that stores while another one commits waits in the library's handler of SIGSEGV (reflection/media/fault.h). Where that is
 * blocked, the kernel ends the process: so no mask blocks it, nor does a handler of another signal. And a handler of SIGSEGV or SIGBUS that the
 * program sets does not replace the library's, which calls it for all other faults.
 */
#include "lib/run/calls.h"
#include "lib/run/served.h"

#include "reflection/media/fault.h"

/* Takes SIGSEGV out of the mask. Returns `set`, or `other`, which is the same without it. */
static const sigset_t *without_faults(const sigset_t *set, sigset_t *other)
{
    if (!set || !sigismember(set, SIGSEGV))
        return set;
    *other = *set;
    sigdelset(other, SIGSEGV);
    return other;
}

int call_sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    sigset_t other;
    return REAL(sigprocmask)(how, how == SIG_UNBLOCK ? set : without_faults(set, &other), old);
}

int call_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    sigset_t other;
    return REAL(pthread_sigmask)(how, how == SIG_UNBLOCK ? set : without_faults(set, &other), old);
}

/* Handlers run meanwhile. */
int call_sigsuspend(const sigset_t *set)
{
    sigset_t other;
    return REAL(sigsuspend)(without_faults(set, &other));
}

/* A child of vfork(2) has handlers of its own, and this memory. */
static bool is_of_faults(int signal)
{
    return (signal == SIGSEGV || signal == SIGBUS) && served_is_here();
}

int call_sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
    struct sigaction other;
    if (is_of_faults(signal))
        return fault_sigaction(signal, action, old);
    if (action && signal != SIGSEGV && sigismember(&action->sa_mask, SIGSEGV)) {
        other = *action;
        sigdelset(&other.sa_mask, SIGSEGV);
        action = &other;
    }
    return REAL(sigaction)(signal, action, old);
}
CALL_ALIAS(sigaction, __sigaction);

static sighandler_t set_handler(int signal, sighandler_t handler, int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, old;
    sigemptyset(&action.sa_mask);
    return fault_sigaction(signal, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

sighandler_t call_signal(int signal, sighandler_t handler)
{
    return is_of_faults(signal) ? set_handler(signal, handler, SA_RESTART)
                                : REAL(signal)(signal, handler);
}
CALL_ALIAS(signal, bsd_signal);
CALL_ALIAS(signal, ssignal);

sighandler_t call___sysv_signal(int signal, sighandler_t handler)
{
    return is_of_faults(signal) ? set_handler(signal, handler, (int)SA_RESETHAND | SA_NODEFER)
                                : REAL(__sysv_signal)(signal, handler);
}
CALL_ALIAS(__sysv_signal, sysv_signal);
