/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How an original gets longer, so that an interruption leaves it with its old length or with the new one.
 *
 *   1. the growth word of the manifest says the new length           (persist-order G1)
 *   2. reflection and original get that length                       (persist-order G2)
 *   3. the size word says it: the step that counts
 *
 * Each is durable before the next. If an original is longer than in the size word, but not longer than in the growth
 * word, and has only zeros beyond the size word, then a growth was interrupted between 1 and 3: the excess is cut off.
 * When a growth ends without step 3, or the file has got shorter since, the growth word is withdrawn: 0 (persist-order
 * G5). (A transaction may take steps 1 and 2 several times, so the original may be shorter than the growth word says.)
 * Any other length was given by another program, except for files that were made shorter.
 *
 * How an original gets shorter, so that an interruption leaves it with its old length or with the new one.
 *
 *   1. the shrink word of the manifest says the old length           (persist-order S1)
 *   2. the size word says the new one: the step that counts          (persist-order S2)
 *   3. when no process has it mapped any more, words behind the end and the last page's bits become 0
 *   4. both files are cut                                             (persist-order S4)
 *   5. the shrink word is withdrawn: 0                               (persist-order S5)
 *
 * Each is durable before the next. Step 3 waits because a reader without a lock may still be in the pages
 * that are cut off, and a load behind the end of the file is SIGBUS. So while it
 * is mapped the original may be longer than its size word says, up to the shrink word. Within that it may get
 * longer again, by a commit that also makes zeros of what is there; beyond that, as above.
 *
 * What an interruption may leave, with size s, growth word g, shrink word k (counting: k > s) and length l:
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
 * A finished growth has s >= g; if it went beyond k, k no longer counts. Any other length was given by
 * another program. All steps on the right are idempotent.
 */
#ifndef ATO_REFLECTION_PAIRING_LENGTH_H
#define ATO_REFLECTION_PAIRING_LENGTH_H

#include "reflection/pairing/pairing.h"

/* Result of functions here, beside 0 and -1: a sync failed, with EIO. Any bytes of the file
 * that were not durable yet may be lost. */
#define GROWTH_LOST (-2)

/* The most bytes that a sound original may have: those of the size word, or of the shrink word while it
 * counts. */
static inline uint64_t growth_longest(uint64_t size, uint64_t shrunk)
{
    return shrunk > size ? shrunk : size;
}

/* Returns 1 if an interrupted growth gave the original its length `is`, 0 if not, -1 with errno. The
 * length before was at most `longest`; the growth word contains `growth` (0: none). Reads the new bytes,
 * except holes. */
int growth_was_cut(int original, uint64_t is, uint64_t longest, uint64_t growth);

/* Steps 1 and 2, from pr->size to `to`, which is more. growth_settle() has been called. What both files had before
 * stays: the caller stores zeros over it. On failure (-1, GROWTH_LOST) the original has its old length, or
 * growth_settle() restores it. EUCLEAN: the reflection has bitmaps of pages that were never in the file; ENOSPC, EFBIG,
 * EIO, ... */
int growth_prepare(struct pairing *pr, uint64_t to);

/* Returns the original's length, if the growth word says the same; else 0. */
uint64_t growth_reached(const struct pairing *pr);

/* growth_settle(). Then the growth word is withdrawn, if it says more than the size word: no growth is
 * under way. A file that another program gave the length `to`, with zeros, is left as it is: growth_prepare() may take it over.
 * 0: there is no such length. The caller holds `sizing`, or knows that no other process has the file mapped. */
int growth_end(struct pairing *pr, uint64_t to);

/* Cuts off what an unfinished growth left, by the words of the mapped manifest, durably when it returns 0. Keeps what was in
 * the file before it was made shorter. ESTALE: the original's length is neither pr->size, nor one up to the shrink word, nor
 * that of such a growth. */
int growth_settle(struct pairing *pr);

/* Returns 0 if libato gave the original its length, as far as the words of the mapped manifest tell while other threads and processes may
 * change the size; -1 with ESTALE. */
int growth_check(const struct pairing *pr);

/* The length up to which the original may be longer than pr->size, by the mapped manifest; 0: it may not. */
uint64_t shrink_from(const struct pairing *pr);

/* Step 1, if `to` is less than pr->size. The shrink word becomes durable before any size word that is stored afterwards (in domain pmem no
 * fence is needed for that). Then the caller stores manifest_encode_size(to) to
 * the size word as step 2, and sets pr->size when that is durable. Returns 0; GROWTH_LOST with EIO. */
int shrink_announce(struct pairing *pr, uint64_t to);

/* Steps 3 to 5. No process has either file mapped, and the manifest is durable as it is visible. Returns 0;
 * -1 or GROWTH_LOST with a sentence. */
int shrink_finish(struct pairing *pr);

#endif
