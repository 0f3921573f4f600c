/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hardware transactions: many words change at once, or none does.
 *
 * Usable only where what is visible is durable. On persistent memory without eADR the lines that a
 * transaction wrote reach the media one by one after XEND, so a power cut could keep half of the flips. (The
 * paper on Acumen does not mention this.)
 *
 * Compiled with -mrtm; nothing in here runs before CPUID was checked. On some Intel CPUs CPUID has RTM but
 * microcode aborts every transaction, hence the trial.
 */
#include "reflection/media/persist.h"

#include <cpuid.h>
#include <immintrin.h>

enum { TRIALS = 64 };

static bool cpu_has_rtm(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    bool rtm = b & (1u << 11), always_aborts = d & (1u << 11);
    return rtm && !always_aborts;
}

static bool trial_commits(void)
{
    uint64_t word = 0;
    const struct persist_flip flip = {&word, 1};
    for (int i = 0; i < TRIALS; i++)
        if (persist_real_flip_rtm(NULL, &flip, 1))
            return word == 1;
    return false;
}

bool persist_rtm_works(void)
{
    static int answer; /* 0 unknown, 1 yes, 2 no; racing threads find the same */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (!known) {
        known = cpu_has_rtm() && trial_commits() ? 1 : 2;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == 1;
}

bool persist_rtm_allowed(const struct persist *p)
{
    return (p->domain == PERSIST_EADR || p->domain == PERSIST_PROCESS) && persist_rtm_works();
}

int persist_real_flip_rtm(const struct persist *p, const struct persist_flip *flips, size_t n)
{
    (void)p;
    /* Storing the present values takes the write faults here. The caller has reserved the pages of all words,
     * so no other thread stores to them meanwhile. */
    for (size_t i = 0; i < n; i++)
        __atomic_store_n(flips[i].word, __atomic_load_n(flips[i].word, __ATOMIC_RELAXED),
                         __ATOMIC_RELAXED);
    if (_xbegin() != _XBEGIN_STARTED)
        return 0;
    for (size_t i = 0; i < n; i++)
        *(volatile uint64_t *)flips[i].word = flips[i].value;
    _xend();
    return 1;
}
