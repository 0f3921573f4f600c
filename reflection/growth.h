/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How an original gets longer, so that a cut leaves it as long as before or as long as it shall be.
 *
 *   1. the growth word of the manifest says how long it shall be      (persist-order G1)
 *   2. reflection and original become that long                       (persist-order G2)
 *   3. the size word says so: from here on it is
 *
 * Each durable before the next. A file that is longer than its size word says, no longer than the
 * growth word says, and zeros from the one to its end was cut between 1 and 3, and is cut off. (A transaction
 * may take steps 1 and 2 several times: so it may be shorter than the growth word says.)
 * Any other length is others' doing, but for those of a file that was made shorter (shrink.h).
 */
#ifndef ATO_REFLECTION_GROWTH_H
#define ATO_REFLECTION_GROWTH_H

#include "pairing.h"

/* Answer of those below, beside -1: a sync failed, with EIO. What was not durable yet may be lost, of
 * whatever part of the file. */
#define GROWTH_LOST (-2)

/* How long an original may be whose words say so, and nothing is wrong: as long as its size word says,
 * up to where it was made shorter from. */
static inline uint64_t growth_longest(uint64_t size, uint64_t shrunk)
{
    return shrunk > size ? shrunk : size;
}

/* Is the length `is` of an original, which was `longest` before and whose growth word says `growth`
 * (0: none), that of a growth that was cut? 1, 0, or -1 and errno. Reads what is new, holes are free. */
int growth_was_cut(int original, uint64_t is, uint64_t longest, uint64_t growth);

/* Steps 1 and 2, from pr->size, settled, to `to`, which is more. What both files have behind pr->size
 * already is zeros (S3), and durably so when it returns. -1: the original is as long as it was, or
 * growth_settle() makes it so. EUCLEAN: the reflection has bitmaps of pages that there are not;
 * ENOSPC, EFBIG, EIO, ... */
int growth_prepare(struct pairing *pr, uint64_t to);

/* Where step 3 stores manifest_encode_size(). */
uint64_t *growth_size_word(const struct pairing *pr);

/* What the last growth was to come to, as the mapped manifest has it; 0: there was none. */
uint64_t growth_last(const struct pairing *pr);

/* Cuts off what a growth to `growth` left that came to nothing: durably, when it returns. Not what was
 * within the file before it was made shorter from `shrunk` (0: it was not). ESTALE: the original's
 * length is neither pr->size, nor one up to `shrunk`, nor such a growth's. */
int growth_settle(struct pairing *pr, uint64_t growth, uint64_t shrunk);

#endif
