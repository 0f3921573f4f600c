/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How an original gets shorter, so that a cut leaves it as long as before or as long as it shall be.
 *
 *   1. the shrink word of the manifest says how long it is            (persist-order S1)
 *   2. the size word says how long it shall be: from here on it is    (persist-order S2)
 *   3. what lies behind the end is thrown away: words and last page's bits become 0; space may be given
 *      back
 *   4. when nobody has it mapped any more, both files are cut         (persist-order S4)
 *   5. the shrink word is withdrawn: 0                                (persist-order S5)
 *
 * Each durable before the next. Step 4 waits because a reader without a lock may still be in the pages
 * cut off: there a hole reads as zeros, but behind the end of the file is SIGBUS. So as long as it is
 * mapped the original may be longer than its size word says, up to the shrink word; in there it may
 * get longer again, when all that is behind the end is durably zeros (persist-order S3), and beyond, as
 * growth.h says.
 *
 * What a cut may leave, with size s, growth word g, shrink word k (counting: k > s) and length l:
 *
 *   k        l            cut in                                      becomes
 *   <= s     s            nothing, or a shrink before its step 2      -
 *   <= s     s < l <= g   a growth before its step 3                  l := s
 *   > s      s < l <= k   a shrink before its step 4, or a growth     3, l := s, k := 0
 *                         to within k, or to beyond before its step 2
 *   > s      k < l <= g   a growth to beyond k before its step 3:     l := k, then as above
 *                         zeros from k on
 *   > s      s            a shrink before its step 5                  3, k := 0
 *
 * A growth that came to its end has s >= g, and k no longer counts if it went beyond. Any other length
 * is others' doing. All steps on the right are idempotent.
 */
#ifndef ATO_REFLECTION_SHRINK_H
#define ATO_REFLECTION_SHRINK_H

#include "growth.h"

/* Up to there the original may be longer than pr->size and it is no matter, as the mapped manifest has
 * it; 0: it may not. */
uint64_t shrink_from(const struct pairing *pr);

/* Step 1: durable when it returns. Then the caller stores manifest_encode_size() of less than pr->size
 * to growth_size_word() as step 2, and, when that is durable, pr->size. -1 with EIO. */
int shrink_announce(struct pairing *pr);

/* Steps 3 to 5. Nobody has either file mapped, and the manifest is durable as it is mapped. */
int shrink_finish(struct pairing *pr);

/* What others gave another length keeps it; there is nothing left of what was cut off, to find in it. */
int shrink_wipe(struct pairing *pr);

#endif
