/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/media/fault.h"

#include "reflection/media/bitmap.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the views ---- */

struct range {
    uint32_t changes;   /* odd: it is being changed */
    uint64_t base, end; /* 0, 0: none */
    struct fault_target *target;
};

/* Those of some thousands of files. The pages behind `used` were never touched, and take no memory. */
enum { RANGES = 1 << 15 };
static struct range ranges[RANGES];
static unsigned used;

struct fault_target fault_stores;
static uint32_t stopped; /* ranges of its views where stores wait; a futex */
static uint64_t stops;   /* so many since the program began */

pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;

/* With the lock. A handler that reads a mixture of old and new sees that `changes` is odd, or has changed. */
static void set(struct range *r, uint64_t base, uint64_t end, struct fault_target *target)
{
    const uint32_t changes = __atomic_load_n(&r->changes, __ATOMIC_RELAXED);
    __atomic_store_n(&r->changes, changes + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&r->base, base, __ATOMIC_RELAXED);
    __atomic_store_n(&r->end, end, __ATOMIC_RELAXED);
    __atomic_store_n(&r->target, target, __ATOMIC_RELAXED);
    __atomic_store_n(&r->changes, changes + 2, __ATOMIC_RELEASE);
}

/* With the lock. Returns the range that begins at `base`; 0: an unused one. ranges + used: there is none. */
static struct range *range_at(uint64_t base)
{
    struct range *r = ranges;
    while (r < ranges + used && r->base != base)
        r++;
    return r;
}

void fault_watch(const void *at, size_t n, struct fault_target *target)
{
    const uint64_t base = (uint64_t)(uintptr_t)at;
    pthread_mutex_lock(&fault_lock);
    struct range *r = range_at(0);
    if (r < ranges + RANGES)
        set(r, base, base + n, target);
    if (r == ranges + used && used < RANGES)
        __atomic_store_n(&used, used + 1, __ATOMIC_RELEASE); /* pairs with find() */
    pthread_mutex_unlock(&fault_lock);
}

void fault_lengthen(const void *at, size_t n)
{
    pthread_mutex_lock(&fault_lock);
    struct range *r = range_at((uint64_t)(uintptr_t)at);
    if (r < ranges + used) /* one store: a handler may see either end */
        __atomic_store_n(&r->end, r->base + n, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&fault_lock);
}

void fault_unmap(void *at, size_t n)
{
    if (!at)
        return;
    pthread_mutex_lock(&fault_lock);
    struct range *r = range_at((uint64_t)(uintptr_t)at);
    if (r < ranges + used) /* before another thread gets the addresses */
        set(r, 0, 0, NULL);
    pthread_mutex_unlock(&fault_lock);
    munmap(at, n);
}

void fault_forget_all(void)
{
    for (unsigned i = 0; i < used; i++)
        set(&ranges[i], 0, 0, NULL);
    stopped = 0;
}

/* Returns the target of the view in which the address lies; NULL: none. A view does not go away while a thread is in a call that uses it:
 * so a range that is being changed is another one. */
static struct fault_target *find(uint64_t at)
{
    const struct range *end = ranges + __atomic_load_n(&used, __ATOMIC_ACQUIRE);
    for (const struct range *r = ranges; r < end; r++) {
        const uint32_t changes = __atomic_load_n(&r->changes, __ATOMIC_ACQUIRE);
        const uint64_t from = __atomic_load_n(&r->base, __ATOMIC_RELAXED),
                       to = __atomic_load_n(&r->end, __ATOMIC_RELAXED);
        struct fault_target *target = __atomic_load_n(&r->target, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (at >= from && at < to && !(changes & 1) &&
            __atomic_load_n(&r->changes, __ATOMIC_RELAXED) == changes)
            return target;
    }
    return NULL;
}

/* ---- poison ---- */

static char *page_of(const void *at)
{
    return (char *)((uintptr_t)at & ~(uintptr_t)(PAGE_BYTES - 1));
}

/* Puts a page of this process in the place of the one that `poisoned` lies in, with `poisoned` set, and the same bytes elsewhere;
 * zeros, if these are lost. At once: other threads see the one page or the other. */
static bool replace_header(uint32_t *poisoned, bool is_lost)
{
    char *page = page_of(poisoned);
    char *fresh =
        mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        return false;
    if (!is_lost)
        memcpy(fresh, page, PAGE_BYTES); /* a fault here: the handler puts zeros there first */
    *(uint32_t *)(fresh + ((char *)poisoned - page)) = 1;
    madvise(fresh, PAGE_BYTES, MADV_DONTFORK);
    return mremap(fresh, PAGE_BYTES, PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page;
}

void fault_poison_here(struct fault_target *t)
{
    if (t->poisoned && !__atomic_load_n(t->poisoned, __ATOMIC_RELAXED))
        (void)replace_header(t->poisoned, false);
}

/* For all processes, if this one may tell them. A fault here: the handler has replaced the page, with `poisoned` set. */
static void poison(struct fault_target *t)
{
    if (t->read_only)
        fault_poison_here(t);
    else if (t->poisoned)
        __atomic_store_n(t->poisoned, 1, __ATOMIC_RELEASE);
}

void fault_poisons(struct fault_target *t, uint32_t *poisoned, bool read_only)
{
    t->read_only = read_only;
    t->poisoned = poisoned;
    if (t->met)
        poison(t);
}

/* ---- the handler ---- */

/* Of SIGBUS and SIGSEGV: what the program has. That is actions[changes % 2]: the handler may run while the other one is changed. */
static struct handler {
    struct sigaction actions[2];
    unsigned changes;
    bool is_installed;
} on_bus, on_segv;

_Thread_local sigjmp_buf *fault_exit;

static struct handler *handler_of(int signal)
{
    return signal == SIGBUS ? &on_bus : &on_segv;
}

/* With the lock. */
static void set_action(struct handler *h, const struct sigaction *action)
{
    const unsigned n = h->changes + 1;
    __atomic_thread_fence(__ATOMIC_RELEASE); /* after the last change: action_of() */
    h->actions[n % 2] = *action;
    __atomic_store_n(&h->changes, n, __ATOMIC_RELEASE);
}

/* Returns the action, which becomes SIG_DFL if it is for one time. */
static struct sigaction action_of(struct handler *h)
{
    struct sigaction action;
    unsigned n;
    do {
        n = __atomic_load_n(&h->changes, __ATOMIC_ACQUIRE);
        action = h->actions[n % 2];
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while (__atomic_load_n(&h->changes, __ATOMIC_RELAXED) != n);
    if (action.sa_flags & SA_RESETHAND)
        __atomic_store_n(&h->actions[n % 2].sa_handler, SIG_DFL, __ATOMIC_RELAXED);
    return action;
}

/* The file is poisoned first: a thread that reads zeros from the new page sees `poisoned` after that. One page at a time, also where
 * a larger one of persistent memory is lost: the next access beside it faults again. */
static bool handle(void *address)
{
    struct fault_target *t = find((uint64_t)(uintptr_t)address);
    char *page = page_of(address);
    if (!t || t == &fault_stores)
        return false;
    __atomic_store_n(&t->met, true, __ATOMIC_RELAXED);
    if (t->poisoned && page_of(t->poisoned) == page)
        return replace_header(t->poisoned, true);
    poison(t);
    if (mmap(page, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) != page)
        return false;
    madvise(page, PAGE_BYTES, MADV_DONTFORK);
    return true;
}

/* Does what the kernel would do without the handler. `repeats`: the access is made again when the handler returns. */
static void pass_on(int signal, siginfo_t *info, void *context, bool repeats)
{
    const struct sigaction action = action_of(handler_of(signal));
    if (action.sa_handler == SIG_IGN && !repeats)
        return;
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
        const struct sigaction dies = {.sa_handler = SIG_DFL};
        sigaction(signal, &dies, NULL);
        if (!repeats)
            raise(signal);
        return;
    }
    sigset_t mask = action.sa_mask;
    if (!(action.sa_flags & SA_NODEFER))
        sigaddset(&mask, signal);
    pthread_sigmask(SIG_BLOCK, &mask, NULL); /* until the handler returns */
    if (action.sa_flags & SA_SIGINFO)
        action.sa_sigaction(signal, info, context);
    else
        action.sa_handler(signal);
}

/* Waits while stores to the view of plain stores must not be made. It may be over already: but if nothing was stopped since the thread's last
 * fault at the address, the program has made the page read-only. */
static bool waits(const siginfo_t *info)
{
    static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
        const void *at;
        uint64_t stops;
    } last;
    if (info->si_code != SEGV_ACCERR || find((uint64_t)(uintptr_t)info->si_addr) != &fault_stores)
        return false;
    const uint64_t n = __atomic_load_n(&stops, __ATOMIC_ACQUIRE);
    const uint32_t now = __atomic_load_n(&stopped, __ATOMIC_ACQUIRE);
    if (now)
        (void)syscall(SYS_futex, &stopped, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
    else if (last.at == info->si_addr && last.stops == n)
        return false;
    last.at = info->si_addr;
    last.stops = n;
    return true;
}

int fault_stop_stores(void *at, size_t n)
{
    __atomic_fetch_add(&stops, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&stopped, 1, __ATOMIC_SEQ_CST);
    if (mprotect(at, n, PROT_READ) == 0)
        return 0;
    KEEP_ERRNO();
    fault_go_on(at, n);
    return -1;
}

void fault_go_on(void *at, size_t n)
{
    (void)mprotect(at, n, PROT_READ | PROT_WRITE); /* a part of it may be */
    __atomic_fetch_sub(&stopped, 1, __ATOMIC_SEQ_CST);
    (void)syscall(SYS_futex, &stopped, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    KEEP_ERRNO();
    /* Codes below 1 are of signals that a process sent. BUS_MCEERR_AO tells of lost memory that nobody has accessed. */
    const bool repeats = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
    const bool done =
        repeats &&
        (signal == SIGSEGV ? waits(info) : info->si_code != BUS_ADRALN && handle(info->si_addr));
    if (!done && repeats && fault_exit)
        siglongjmp(*fault_exit, 1);
    if (!done)
        pass_on(signal, info, context, repeats);
}

void fault_install(int signal)
{
    struct handler *h = handler_of(signal);
    struct sigaction own = {.sa_sigaction = on_fault}, before;
    pthread_mutex_lock(&fault_lock);
    if (!h->is_installed && sigaction(signal, NULL, &before) == 0) {
        set_action(h, &before); /* before a fault can ask for it */
        /* SA_NODEFER: poison() may fault. SA_ONSTACK: a thread with an alternate stack may have no room on the other one. */
        sigemptyset(&own.sa_mask);
        own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | (before.sa_flags & SA_RESTART);
        h->is_installed = sigaction(signal, &own, &before) == 0;
        if (h->is_installed)
            set_action(h, &before);
    }
    pthread_mutex_unlock(&fault_lock);
}

int fault_sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
    struct handler *h = handler_of(signal);
    sigset_t all, masked;
    int r = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &masked); /* handlers may ask for the lock, too */
    pthread_mutex_lock(&fault_lock);
    const struct sigaction was = h->actions[h->changes % 2];
    if (!h->is_installed)
        r = sigaction(signal, action, old);
    else {
        if (action)
            set_action(h, action);
        if (old)
            *old = was;
    }
    pthread_mutex_unlock(&fault_lock);
    pthread_sigmask(SIG_SETMASK, &masked, NULL);
    return r;
}
