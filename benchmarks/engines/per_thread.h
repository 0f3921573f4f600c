/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A value for each thread of each engine: what a thread has begun in it. A thread finds its own without a lock, zero at first.
 * What is left when an engine or a thread ends is not looked at again.
 */
#ifndef ATO_BENCHMARKS_ENGINES_PER_THREAD_H
#define ATO_BENCHMARKS_ENGINES_PER_THREAD_H

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace engine
{

template <class T> class PerThread
{
  public:
    PerThread() : number_(next++)
    {
    }

    T &mine() const
    {
        if (__builtin_expect(last.number != number_, 0))
            find();
        return *last.value;
    }

  private:
    struct Entry {
        uint64_t number;
        T *value;
    };
    struct Owned {
        uint64_t number;
        std::unique_ptr<T> value;
    };

    void find() const
    {
        for (const Owned &one : all)
            if (one.number == number_) {
                last = {number_, one.value.get()};
                return;
            }
        all.push_back({number_, std::make_unique<T>()});
        last = {number_, all.back().value.get()};
    }

    inline static std::atomic<uint64_t> next{1};
    inline static thread_local Entry last{0, nullptr};
    inline static thread_local std::vector<Owned> all;

    uint64_t number_;
};

} // namespace engine

#endif
