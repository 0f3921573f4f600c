/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of as many processes, each with a page, whose waiting goes on by steps that a test orders. */
#ifndef ATO_TEST_UNIT_USE_LABELS_H
#define ATO_TEST_UNIT_USE_LABELS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { USE_LABELS_MOST = 16 };

int use_labels_set_up(void);
void use_labels_tear_down(void);

/* Thread `who` begins to wait for the page of `whom`; if it waited before, it has got that page. */
void use_labels_wait(int who, int whom);

/* It looks. Is it told that it stands in a circle? */
bool use_labels_step(int who);

/* Its transaction is another thread's from now on. */
void use_labels_drop(int who);

/* How many labels are shown. */
unsigned use_labels_shown(void);

#ifdef __cplusplus
}
#endif

#endif
