/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Detects a mapping that is unmapped while a thread is in a call on it. That is an error of the caller, with
 * undefined results. Builds with assertions stop there; other builds contain none of this.
 */
#ifndef ATO_LIB_FILE_CALLS_H
#define ATO_LIB_FILE_CALLS_H

#include "lib/file/file.h"

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

/* The calling function counts as a call on m (NULL: on no mapping) until it returns. */
#define CALL_ON(name, m)                                                                           \
    struct mapping *name __attribute__((cleanup(calls_leave), unused)) = calls_enter(m)

#endif

#define CALLS_NONE(m)                                                                              \
    assert(__atomic_load_n(&(m)->calls, __ATOMIC_RELAXED) == 0 &&                                  \
           "unmapped while a thread is in a call on the mapping")

#endif
