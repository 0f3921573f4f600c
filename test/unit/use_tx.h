/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of transactions for tests in C++, which cannot include their headers. */
#ifndef ATO_TEST_UNIT_USE_TX_H
#define ATO_TEST_UNIT_USE_TX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

unsigned use_tx_places(void); /* open, or kept for later ones */

/* page_state.flags: which homes of a page of the file mapped at `base` are known to have space. */
uint8_t use_tx_flags(const void *base, uint64_t page);

/* Pages of memory in which writes to the logged file mapped at `base` are put together: that are taken; that the kernel has given. */
unsigned use_tx_scratch(const void *base);
unsigned use_tx_scratch_resident(const void *base);

/* Gives an open transaction other memory for its mappings, as at a moment when its thread changes it. Returns what it had. */
void *use_tx_mappings(const void *tx, void *mappings);

#ifdef __cplusplus
}
#endif

#endif
