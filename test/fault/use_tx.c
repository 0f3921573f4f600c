/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_tx.h"

#include "lib/transaction/tx.h"

unsigned use_tx_kept(uint64_t *bytes)
{
    return tx_kept(bytes);
}
