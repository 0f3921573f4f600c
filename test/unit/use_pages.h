/* SPDX-License-Identifier: BSD-3-Clause */
/* lib/page/reservation.h for tests in C++, which cannot include it; for a file of which only
 * `holder` is set. */
#ifndef ATO_TEST_UNIT_USE_PAGES_H
#define ATO_TEST_UNIT_USE_PAGES_H

#include "lib/file/shared.h"

bool use_pages_try_reserve(uint32_t holder, struct page_state *s);
void use_pages_reserve(uint32_t holder, struct page_state *s);
void use_pages_release(struct page_state *s);

#endif
