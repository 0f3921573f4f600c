/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of the library, for tests in C++, which cannot read their headers. */
#ifndef ATO_TEST_FAULT_USE_TX_H
#define ATO_TEST_FAULT_USE_TX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns how many blocks of memory ended transactions and snapshots keep for later ones. */
unsigned use_tx_kept(void);

#ifdef __cplusplus
}
#endif

#endif
