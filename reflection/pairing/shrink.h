/* SPDX-License-Identifier: BSD-3-Clause */
/*
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
 * longer again, by a commit that also makes zeros of what is there; beyond that, as growth.h says.
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
#ifndef ATO_REFLECTION_PAIRING_SHRINK_H
#define ATO_REFLECTION_PAIRING_SHRINK_H

#include "reflection/pairing/growth.h"

/* The length up to which the original may be longer than pr->size, by the mapped manifest; 0: it may not. */
uint64_t shrink_from(const struct pairing *pr);

/* Step 1. The shrink word becomes durable before any size word that is stored afterwards (in domain pmem no
 * fence is needed for that: shrink.c). Then the caller stores manifest_encode_size() of less than pr->size to
 * growth_size_word() as step 2, and sets pr->size when that is durable. Returns 0; GROWTH_LOST with EIO. */
int shrink_announce(struct pairing *pr);

/* Steps 3 to 5. No process has either file mapped, and the manifest is durable as it is visible. Returns 0;
 * -1 or GROWTH_LOST with a sentence. */
int shrink_finish(struct pairing *pr);

/* Clears the part that was cut off from a file whose length another program changed: that length stays.
 * Returns 0; -1 with a sentence. */
int shrink_wipe(struct pairing *pr);

#endif
