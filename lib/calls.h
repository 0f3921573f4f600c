/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is a mapping unmapped while a thread is in a call on it? That is the caller's error, and what comes
 * of it is anything. Builds with assertions stop there; in the others nothing of this exists.
 */
#ifndef ATO_LIB_CALLS_H
#define ATO_LIB_CALLS_H

#include "file.h"

#include <assert.h>

#ifdef NDEBUG

#define CALL_ON(name, m) ((void)0)

#else

static inline struct mapping *calls_enter(struct mapping *m)
{
    if (m)
        __atomic_fetch_add(&m->calls, 1, __ATOMIC_RELAXED);
    return m;
}

static inline void calls_leave(struct mapping **m)
{
    if (*m)
        __atomic_fetch_sub(&(*m)->calls, 1, __ATOMIC_RELAXED);
}

/* The calling function is in a call on m (NULL: on none) until it returns. */
#define CALL_ON(name, m)                                                                           \
    struct mapping *name __attribute__((cleanup(calls_leave), unused)) = calls_enter(m)

#endif

#define CALLS_NONE(m)                                                                              \
    assert(__atomic_load_n(&(m)->calls, __ATOMIC_RELAXED) == 0 &&                                  \
           "unmapped while a thread is in a call on the mapping")

#endif
