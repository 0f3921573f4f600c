/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library does at fork() and exit(). */
#ifndef ATO_LIB_API_PROCESS_H
#define ATO_LIB_API_PROCESS_H

#include <stdbool.h>

extern bool process_is_set_up;

int process_set_up_first(void);

/* Called before any lock of the library is taken: otherwise a child forked in between would inherit a taken lock. Does its
 * work once per process; after a failure the next call tries again. Returns 0; -1 with ENOMEM. */
static inline int process_set_up(void)
{
    return __atomic_load_n(&process_is_set_up, __ATOMIC_ACQUIRE) ? 0 : process_set_up_first();
}

#endif
