/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lock for many readers or one writer, in four bytes: the engine hybrid-log has one for the file and one for each block.
 * It spins, and lets another thread run after a while. A writer that waits keeps new readers out.
 */
#ifndef ATO_BENCHMARKS_ENGINES_HYBRID_LOG_LOCK_H
#define ATO_BENCHMARKS_ENGINES_HYBRID_LOG_LOCK_H

#include <atomic>
#include <cstdint>
#include <sched.h>

namespace engine::hybrid
{

class Lock
{
  public:
    void lock_shared()
    {
        for (Pause pause; (state_.fetch_add(1, std::memory_order_acquire) & ~READERS) != 0;) {
            state_.fetch_sub(1, std::memory_order_relaxed);
            while ((state_.load(std::memory_order_relaxed) & ~READERS) != 0)
                pause();
        }
    }

    void unlock_shared()
    {
        state_.fetch_sub(1, std::memory_order_release);
    }

    bool try_lock()
    {
        uint32_t free = 0;
        return state_.load(std::memory_order_relaxed) == 0 &&
               state_.compare_exchange_strong(free, WRITER, std::memory_order_acquire);
    }

    void lock()
    {
        for (Pause pause;; pause()) {
            uint32_t now = state_.load(std::memory_order_relaxed);
            if ((now & ~WAITING) == 0) {
                /* Other writers that wait say so again. */
                if (state_.compare_exchange_weak(now, WRITER, std::memory_order_acquire))
                    return;
            } else if ((now & WAITING) == 0) {
                state_.fetch_or(WAITING, std::memory_order_relaxed);
            }
        }
    }

    void unlock()
    {
        state_.fetch_and(~WRITER, std::memory_order_release);
    }

    /* From the only reader to the writer; false if there are others, and then nothing has changed. */
    bool upgrade()
    {
        uint32_t alone = 1;
        return state_.compare_exchange_strong(alone, WRITER, std::memory_order_acquire);
    }

  private:
    static constexpr uint32_t WRITER = 1u << 31, WAITING = 1u << 30, READERS = WAITING - 1;

    struct Pause {
        unsigned turns = 0;
        void operator()()
        {
            if (++turns % 64 == 0)
                sched_yield();
            else
                __builtin_ia32_pause();
        }
    };

    std::atomic<uint32_t> state_{0};
};

} // namespace engine::hybrid

#endif
