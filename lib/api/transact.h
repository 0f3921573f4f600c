/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning of a transaction, for ato_tx_run() (run.c). */
#ifndef ATO_LIB_API_TRANSACT_H
#define ATO_LIB_API_TRANSACT_H

#include "ato.h"

/* ato_tx_begin_opt() with options from options_take(). */
ato_tx *transact_begin(const struct ato_tx_options *o);

#endif
