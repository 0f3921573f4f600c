// SPDX-License-Identifier: BSD-3-Clause
//
// What an actor does before it counts: a transaction, or the epoch of a mapping. It knows what is seen
// there; the actor, what all others see. A crash may leave nothing of it, until it is committed.
#ifndef ATO_TEST_CRASH_DRAFT_H
#define ATO_TEST_CRASH_DRAFT_H

#include "actor.h"

#include <functional>

namespace crash
{

class Draft
{
  public:
    explicit Draft(Actor &a, unsigned flags = 0); // a transaction, begun now
    Draft(Actor &a, Mapping *m);                  // what is in the epoch of a mapping

    // As the actor's.
    void write(Mapping *m, uint64_t at, uint64_t n, unsigned flags = 0);
    void write_like(Mapping *m, uint64_t at, uint64_t n, unsigned flags = 0);
    // Ranges of so many bytes each, in one step. An epoch's.
    void write_ranges(Mapping *m, const std::vector<uint64_t> &at, uint64_t n);
    void copy(Mapping *to, uint64_t at, const Mapping *from, uint64_t from_at, uint64_t n);
    void resize(Mapping *m, uint64_t to); // a transaction's
    uint64_t size(const Mapping *m) const
    {
        return seen[static_cast<size_t>(m->file)].size();
    }
    // It is read there as it was written there.
    void check(const Mapping *m, uint64_t at, uint64_t n);

    void adopt();           // by the calling thread
    void join(Draft &from); // which is over. Nothing was committed since either began
    void commit();
    void abort();

  private:
    Actor &actor;
    ato_tx *tx = nullptr;
    Mapping *epoch = nullptr;
    std::vector<Bytes> seen; // by original
    std::vector<Mapping *> resized;

    Bytes &seen_of(const Mapping *m)
    {
        return seen[static_cast<size_t>(m->file)];
    }
    void put(Mapping *m, uint64_t at, const Bytes &bytes, unsigned flags);
    void *move(void *dst, const void *src, uint64_t n, unsigned flags);
};

// Several ranges in one step, by ato_writev(): bytes at random, or from a mapping.
struct Put {
    Mapping *to;
    uint64_t at, n;
    const Mapping *from = nullptr;
    uint64_t from_at = 0;
};
void write_ranges(Actor &a, const std::vector<Put> &puts, unsigned flags = 0);

// Another thread, the n-th of them (from 1), does something and ends; this one waits for that.
void in_thread(int n, const std::function<void()> &what);

} // namespace crash

#endif
