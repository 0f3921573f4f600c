/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A number for each thread that uses an engine, from 0 on: what an engine keeps by thread on its media stands at that index. The
 * number of a thread that has ended goes to the next new one, together with what stands there.
 */
#ifndef ATO_BENCHMARKS_ENGINES_SLOTS_H
#define ATO_BENCHMARKS_ENGINES_SLOTS_H

#include "../bench.h"
#include "per_thread.h"

#include <mutex>

namespace engine
{

class Slots
{
  public:
    static constexpr unsigned MAX = 64;

    /* The caller's. */
    unsigned mine()
    {
        Taken &taken = taken_.mine();
        if (__builtin_expect(taken.from == nullptr, 0))
            take(taken);
        return taken.slot;
    }

  private:
    struct Free {
        std::mutex lock;
        std::vector<unsigned> slots;
        Free()
        {
            for (unsigned slot = MAX; slot-- > 0;)
                slots.push_back(slot);
        }
    };

    struct Taken { /* gives it back when its thread ends, perhaps after the engine */
        std::shared_ptr<Free> from;
        unsigned slot = 0;
        ~Taken()
        {
            if (from == nullptr)
                return;
            const std::lock_guard<std::mutex> hold(from->lock);
            from->slots.push_back(slot);
        }
    };

    void take(Taken &taken)
    {
        const std::lock_guard<std::mutex> hold(free_->lock);
        if (free_->slots.empty())
            bench::fail("more than %u threads use an engine at once", MAX);
        taken.slot = free_->slots.back();
        free_->slots.pop_back();
        taken.from = free_;
    }

    const std::shared_ptr<Free> free_ = std::make_shared<Free>();
    PerThread<Taken> taken_;
};

} // namespace engine

#endif
