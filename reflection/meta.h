/* SPDX-License-Identifier: BSD-3-Clause */
/* Which meta pages of a reflection can hold a word other than 0: those that are no holes. */
#ifndef ATO_REFLECTION_META_H
#define ATO_REFLECTION_META_H

#include <stdint.h>

/* The first chunk from `chunk` on, below `chunks`, whose meta page has data; `chunks` when there is
 * none. UINT64_MAX with errno when the file system does not say. Touches nothing. */
uint64_t meta_next(int reflection, uint64_t chunk, uint64_t chunks);

#endif
