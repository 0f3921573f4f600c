/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of transactions for tests in C++, which cannot include their headers. */
#ifndef ATO_TEST_UNIT_USE_TX_H
#define ATO_TEST_UNIT_USE_TX_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

unsigned use_tx_places(void); /* open, or kept for later ones */

/* page_state.flags: which homes of a page of the file mapped at `base` are known to have space. */
uint8_t use_tx_flags(const void *base, uint64_t page);

/* The result of waits_begin(): -1 and EDEADLK if the calling thread would wait in a cycle. */
int use_tx_wait(const void *base, uint64_t page, bool not_for_tx);

#ifdef __cplusplus
}
#endif

#endif
