// SPDX-License-Identifier: BSD-3-Clause
//
// Early and relaxed commits (commits.h), of one process or of several.
#include "commits.h"
#include "scenes.h"
#include "schedule.h"

#include <cstdlib>
#include <optional>

namespace crash
{

namespace
{

// The content before all, which a snapshot sees.
class First
{
  public:
    explicit First(Actor &a) : content_(a.contents[0]), snapshot_(ato_snapshot_begin(the(a)->base))
    {
        must(snapshot_, "ato_snapshot_begin");
    }
    ~First()
    {
        (void)ato_snapshot_end(snapshot_);
    }
    First(const First &) = delete;
    First &operator=(const First &) = delete;
    void check() const
    {
        Bytes seen(content_.size());
        must(ato_snapshot_read(snapshot_, seen.data(), 0, seen.size()) ==
                 static_cast<ssize_t>(seen.size()),
             "ato_snapshot_read");
        if (seen != content_)
            throw Violation("a snapshot is not what the file was");
    }

  private:
    const Bytes content_;
    ato_snapshot *snapshot_;
};

void alone(Actor &a)
{
    const First first(a);
    Commits c(a, the(a), nullptr);
    c.early();
    if (!c.early_)
        throw Violation("no commit is early");
    c.steps(6);
    first.check();
    c.finish();
}

// The log may not grow, and has little room.
void before_full(Actor &a)
{
    setenv("ATO_LOG_BYTES", "65536", 1);
    before_plain(a);
    unsetenv("ATO_LOG_BYTES");
    a.deploy_all(the(a));
    for (int i = 0; i < 15; i++)
        a.write(the(a), a_page(a), PAGE);
}

void relaxed(Actor &a)
{
    Commits c(a, the(a), map_relaxed(a));
    c.relaxed_at_once(); // which lets commits be early, as the first snapshot does
    a.contents[0] = c.newest();
    std::optional<First> first(std::in_place, a);
    c.steps(6);
    first->check();
    first.reset();
    c.finish();
}

void relaxed_stores(Actor &a)
{
    Commits c(a, the(a), map_relaxed(a), map_stores(a));
    c.by_stores(true);
    c.steps(6);
    c.finish();
}

// A thread commits, and another one brings home what is in the log.
void relaxed_threads(Actor &a)
{
    Commits c(a, the(a), map_relaxed(a));
    Mapping *other = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    auto commit = [&] {
        for (int i = 0; i < 8; i++)
            c.relaxed();
    };
    auto deploy = [&] {
        for (int i = 0; i < 8; i++)
            a.deploy_all(other);
    };
    run_scheduled(a.world, {commit, deploy}, a.random.next());
    a.world.unmap(other, ATO_UNMAP_FAST);
    c.finish();
}

template <bool is_relaxed, bool has_stores = false> void beside(Actor &a)
{
    std::optional<First> first(std::in_place, a);
    Commits c(a, the(a), is_relaxed ? map_relaxed(a) : nullptr,
              has_stores ? map_stores(a) : nullptr);
    const uint64_t most[] = {12, 40, 150};
    for (int i = 0; i < 2; i++) {
        c.steps(1 + static_cast<unsigned>(a.random.below(3)));
        c.beside(a.random.one_in(6) ? ~0ull : a.random.below(most[a.random.below(3)]),
                 1 + static_cast<unsigned>(a.random.below(2)));
        if (a.random.one_in(2))
            c.look();
        first->check();
    }
    c.steps(2);
    first.reset();
    c.finish();
}

} // namespace

const std::vector<Case> &early_cases()
{
    static const std::vector<Case> cases = {
        {"early", DISK, {SIZE}, before_plain, alone},
        {"early, peers", DISK, {SIZE}, before_plain, beside<false>, 8},
        {"relaxed", DISK, {SIZE}, before_full, relaxed, 2},
        {"relaxed, threads", DISK, {SIZE}, before_plain, relaxed_threads, 4},
        {"relaxed, peers", DISK, {SIZE}, before_plain, beside<true>, 6},
        {"relaxed, plain stores", DISK, {SIZE}, before_full, relaxed_stores, 2},
        {"relaxed, plain stores, peers", DISK, {SIZE}, before_plain, beside<true, true>, 6},
    };
    return cases;
}

} // namespace crash
