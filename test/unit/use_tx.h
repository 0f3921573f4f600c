/* SPDX-License-Identifier: BSD-3-Clause */
/* What C++ cannot be told of transactions. */
#ifndef ATO_TEST_UNIT_USE_TX_H
#define ATO_TEST_UNIT_USE_TX_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

unsigned use_tx_places(void); /* in use, ever */

/* page_state.flags: which homes of a page of the file mapped at `base` are known to have space. */
uint8_t use_tx_flags(const void *base, uint64_t page);

/* Would the calling thread be told of a circle, if it waited for the page? waits_begin(). */
int use_tx_wait(const void *base, uint64_t page, bool not_for_tx);

#ifdef __cplusplus
}
#endif

#endif
