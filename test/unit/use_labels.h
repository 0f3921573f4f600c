/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of different processes, each with a page, that wait for each other in steps that a test
 * orders. */
#ifndef ATO_TEST_UNIT_USE_LABELS_H
#define ATO_TEST_UNIT_USE_LABELS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { USE_LABELS_MOST = 16 };

int use_labels_set_up(void);
void use_labels_tear_down(void);

/* Thread `waiter` begins to wait for the page of thread `holder`; if it waited before, it has got
 * that page. */
void use_labels_wait(int waiter, int holder);

/* The thread looks once. Returns true if it finds that it is in a cycle. */
bool use_labels_step(int waiter);

/* Another thread adopts its transaction. */
void use_labels_drop(int waiter);

/* Returns how many labels are shown. */
unsigned use_labels_shown(void);

#ifdef __cplusplus
}
#endif

#endif
