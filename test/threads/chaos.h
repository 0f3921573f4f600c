/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which interleavings does a test see? On a quiet machine few: the moments that matter last
 * nanoseconds. While a Chaos object lives, every thread that comes by one of the seam's points, or
 * stores, or fences, now and then gives its CPU away, spins, or sleeps for a moment.
 *
 * In builds without the seam it does nothing.
 */
#ifndef ATO_TEST_THREADS_CHAOS_H
#define ATO_TEST_THREADS_CHAOS_H

#ifdef ATO_SEAM

extern "C" {
#include "reflection/media/persist.h"
}

#include "../model/rig.h"
#include "stumble_kernel.h"

#include <sched.h>
#include <time.h>

namespace threads
{

/* Stumbling threads are slow and meet often; for the others to meet as often takes more work. */
inline unsigned many(unsigned n)
{
    return rig::rounds(n);
}

inline void stumble()
{
    static std::atomic<uint64_t> born{0};
    thread_local rig::Random random(rig::seed() + 0x51ed2701 * ++born);
    uint64_t dice = random.below(256);
    if (dice < 24) {
        sched_yield();
    } else if (dice < 40) {
        for (uint64_t n = random.below(3000); n; n--)
            __builtin_ia32_pause();
    } else if (dice == 40) {
        struct timespec moment = {0, 30000};
        nanosleep(&moment, nullptr);
    }
}

class Chaos
{
  public:
    Chaos()
    {
        static const struct persist_ops stumbling = [] {
            struct persist_ops ops = persist_real;
            ops.scatter = [](const struct persist *p, char *o, char *r, const char *src,
                             uint64_t bitmap, uint64_t mask, bool cold) {
                stumble();
                persist_real.scatter(p, o, r, src, bitmap, mask, cold);
            };
            ops.store_word = [](const struct persist *p, uint64_t *word, uint64_t value) {
                stumble();
                persist_real.store_word(p, word, value);
            };
            ops.fence = [](const struct persist *p) {
                stumble();
                persist_real.fence(p);
            };
            return ops;
        }();
        persist_ops = &stumbling;
        __atomic_store_n(
            &seam_hook, [](enum seam_point, const void *) { stumble(); }, __ATOMIC_RELEASE);
    }
    ~Chaos()
    {
        __atomic_store_n(&seam_hook, nullptr, __ATOMIC_RELEASE);
        persist_ops = &persist_real;
    }
    Chaos(const Chaos &) = delete;
    Chaos &operator=(const Chaos &) = delete;
    /* For each new mapping, before it is used. */
    static void within(const rig::Map &map)
    {
        if (map.base)
            stumble_in_kernel(map.base, stumble);
    }
};

} // namespace threads

#else

#include "../model/rig.h"

namespace threads
{

inline unsigned many(unsigned n)
{
    return rig::rounds(20 * n);
}

struct Chaos {
    Chaos()
    {
    }
    static void within(const rig::Map &)
    {
    }
};

} // namespace threads

#endif
#endif
