// SPDX-License-Identifier: BSD-3-Clause
//
// The uncommitted changes of an actor: a transaction, or the epoch of a mapping. A Draft knows the
// content that is seen within it; the actor, the content that all others see. A crash may leave
// nothing of a draft until it is committed.
#ifndef ATO_TEST_CRASH_DRAFT_H
#define ATO_TEST_CRASH_DRAFT_H

#include "actor.h"

#include <functional>

namespace crash
{

class Draft
{
  public:
    explicit Draft(Actor &a, unsigned flags = 0); // begins a transaction
    Draft(Actor &a, Mapping *m);                  // the epoch of a mapping

    // Like the actor's functions.
    void write(Mapping *m, uint64_t at, uint64_t n, unsigned flags = 0);
    void write_like(Mapping *m, uint64_t at, uint64_t n, unsigned flags = 0);
    // Writes ranges of so many bytes each, in one step. For an epoch.
    void write_ranges(Mapping *m, const std::vector<uint64_t> &at, uint64_t n);
    void copy(Mapping *to, uint64_t at, const Mapping *from, uint64_t from_at, uint64_t n);
    void resize(Mapping *m, uint64_t to); // for a transaction
    uint64_t size(const Mapping *m) const
    {
        return seen[static_cast<size_t>(m->file)].size();
    }
    // Checks that a read within the draft returns its own writes.
    void check(const Mapping *m, uint64_t at, uint64_t n);

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
    void commit_as(const std::function<int()> &call);
    void *move(void *dst, const void *src, uint64_t n, unsigned flags);
};

// Writes several ranges in one step, by ato_writev(): random bytes, or bytes of a mapping.
struct Put {
    Mapping *to;
    uint64_t at, n;
    const Mapping *from = nullptr;
    uint64_t from_at = 0;
};
void write_ranges(Actor &a, const std::vector<Put> &puts, unsigned flags = 0);

// The n-th other thread (from 1) runs this and ends; the caller waits for it.
void in_thread(int n, const std::function<void()> &what);

} // namespace crash

#endif
