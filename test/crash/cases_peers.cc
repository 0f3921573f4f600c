// SPDX-License-Identifier: BSD-3-Clause
#include "draft.h"
#include "scenes.h"

#include <algorithm>

namespace crash
{

namespace
{

constexpr uint64_t SHORTER = 2 * PAGE + 300, LONGER = 8 * PAGE + 100;

int any_policy(Actor &a)
{
    const int policies[] = {ATO_READ_GATHER, ATO_READ_LAZY, ATO_READ_EAGER};
    return policies[a.random.below(3)];
}

// Another process maps the file, runs this, and dies.
template <typename F> void short_life(Actor &a, int file, F what)
{
    const uint64_t most[] = {12, 40, 150};
    const uint64_t moments = a.random.one_in(12) ? ~0ull : a.random.below(most[a.random.below(3)]);
    const bool attaches = !a.random.one_in(4); // before the events are counted
    const int policy = any_policy(a);
    a.beside([&] {
        if (!attaches)
            Peer::die_within(moments);
        Mapping *m = a.map(file, policy, ATO_NO_RTM);
        if (attaches)
            Peer::die_within(moments);
        what(m);
    });
}

// ---- operations of the other process ----

void change_page(Actor &a, Mapping *m)
{
    uint64_t at = a_page(a) + a.random.below(700);
    a.write(m, at, 1 + a.random.below(300), a.random.one_in(4) ? ATO_EAGER : 0);
}

void change_pages(Actor &a, Mapping *m)
{
    uint64_t at = PAGE - 1 - a.random.below(200), n = 200 + a.random.below(3 * PAGE);
    if (a.random.one_in(3))
        a.write_like(m, at, n);
    else
        a.write(m, at, n, a.random.one_in(4) ? ATO_EAGER : 0);
}

// A record that is written to a log in pieces, its header last.
void change_many_pages(Actor &a, Mapping *m)
{
    const uint64_t n = 17 * PAGE + a.random.below(10 * PAGE);
    a.write(m, a.random.below(m->bytes - n), n);
}

void change_in_steps(Actor &a, Mapping *m)
{
    Draft t(a);
    uint64_t at = (1 + a.random.below(3)) * PAGE - 1 - a.random.below(90);
    t.write(m, at, 150);
    t.write(m, at + 20, 90);
    t.write(m, a_page(a), 70);
    t.commit();
}

void unmap_either(Actor &a, Mapping *m)
{
    a.unmap(m, a.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
}

void change_no_byte(Actor &a, Mapping *m)
{
    switch (a.random.below(4)) {
    case 0:
        a.deploy_all(m);
        break;
    case 1:
    case 2:
        unmap_either(a, m);
        break;
    default:
        a.read_all(m); // and may deploy it
        break;
    }
}

void grow(Actor &a, Mapping *m)
{
    if (a.random.one_in(3)) {
        a.resize(m, LONGER);
        return;
    }
    Draft t(a);
    t.resize(m, LONGER);
    t.write(m, SIZE - 100, 700);
    t.commit();
}

void shrink(Actor &a, Mapping *m)
{
    if (a.random.one_in(3)) {
        a.resize(m, SHORTER);
        return;
    }
    Draft t(a);
    t.write(m, PAGE - 60, 100);
    t.resize(m, SHORTER);
    t.commit();
}

// ---- operations after its death ----

// Without reading first: both outcomes are still right.
void go_on_blindly(Actor &a, Mapping *m)
{
    switch (a.random.below(5)) {
    case 0:
        a.deploy(m, 0, SHORTER);
        break;
    case 1:
    case 2:
        unmap_either(a, m);
        break;
    default:
        a.write_blindly(m, a.random.below(SHORTER - 200), 1 + a.random.below(200));
        break;
    }
}

void go_on(Actor &a, Mapping *m)
{
    if (a.random.one_in(2))
        go_on_blindly(a, m);
    a.look();
    a.write(the(a), a.random.below(SHORTER - 200), 1 + a.random.below(200));
    a.write(the(a), PAGE - 50, 100);
    if (a.random.one_in(2))
        return;
    uint64_t to = std::max(the(a)->bytes, LONGER) + 60;
    a.resize(the(a), to);
    a.write(the(a), to - 200, 200);
    a.check(the(a));
}

// In one case of two a snapshot from before the others live: it sees nothing of what they do, and of what is finished for them.
class Before
{
  public:
    explicit Before(Actor &a) : content_(a.contents[static_cast<size_t>(the(a)->file)])
    {
        if (!a.random.one_in(2))
            return;
        snapshot_ = ato_snapshot_begin(the(a)->base);
        if (!snapshot_)
            throw Violation(std::string("ato_snapshot_begin: ") + ato_errormsg());
    }
    ~Before()
    {
        if (snapshot_)
            (void)ato_snapshot_end(snapshot_);
    }
    Before(const Before &) = delete;
    Before &operator=(const Before &) = delete;

    void check() const
    {
        Bytes seen(content_.size() + 1);
        if (!snapshot_)
            return;
        const ssize_t n = ato_snapshot_read(snapshot_, seen.data(), 0, seen.size());
        if (n < 0)
            throw Violation(std::string("ato_snapshot_read: ") + ato_errormsg());
        seen.resize(static_cast<size_t>(n));
        if (seen != content_)
            throw Violation("a snapshot is not what the file was");
    }

  private:
    Bytes content_;
    ato_snapshot *snapshot_ = nullptr;
};

template <void (*change)(Actor &, Mapping *)> void dies(Actor &a)
{
    int file = static_cast<int>(a.random.below(a.contents.size()));
    {
        const Before before(a);
        short_life(a, file, [&](Mapping *m) { change(a, m); });
        if (a.random.one_in(2))
            before.check();
        if (a.random.one_in(4)) // and another process
            short_life(a, file, [&](Mapping *m) { change_no_byte(a, m); });
        before.check();
    }
    go_on(a, the(a, a.random.below(a.world.mapped())));
}

// A process dies in a transaction, and another one while it takes over, at once when it maps the file.
void dies_taking_over(Actor &a)
{
    {
        const Before before(a);
        short_life(a, 0, [&](Mapping *m) { change_in_steps(a, m); });
        const uint64_t most[] = {30, 90, 200};
        const uint64_t moments = a.random.below(most[a.random.below(3)]);
        a.beside([&] {
            Peer::die_within(moments);
            a.read_all(a.map(0, any_policy(a), ATO_NO_RTM));
        });
        before.check();
    }
    go_on(a, the(a));
}

// ---- the long lane ----

// The process that has it dies: before its commit, among the flips, or after them.
void die_with_the_long_lane(Actor &a)
{
    const uint64_t moments = a.random.below(a.random.one_in(2) ? 1000 : 4000);
    a.beside([&] {
        a.map(0, any_policy(a), ATO_NO_RTM);
        Peer::die_within(moments);
        a.write_sparsely(the(a), 5 * PAGE, 270 * PAGE);
    });
}

// A commit that needs the lane, at once or after a read: the process takes it over.
void go_on_with_the_long_lane(Actor &a)
{
    if (a.random.one_in(2))
        a.write_slices_blindly(the(a), 2 * PAGE + a.random.below(60) * LINE, 260);
    a.look();
    write_long(a);
    a.write(the(a), 9 * PAGE, PAGE + 10);
}

void dies_with_the_long_lane(Actor &a)
{
    die_with_the_long_lane(a);
    go_on_with_the_long_lane(a);
}

// And another process dies while it takes the lane over.
void dies_taking_the_long_lane_over(Actor &a)
{
    die_with_the_long_lane(a);
    const uint64_t moments = a.random.below(a.random.one_in(2) ? 300 : 3000);
    a.beside([&] {
        Peer::die_within(moments);
        a.read_all(a.map(0, any_policy(a), ATO_NO_RTM));
    });
    go_on_with_the_long_lane(a);
}

// A deploy that is visible and perhaps not durable frees the other home for the next writer.
void dies_in_deploy(Actor &a)
{
    short_life(a, 0, [&](Mapping *m) { a.deploy_all(m); });
    const uint64_t at = a.random.below(3 * PAGE);
    a.write_blindly(the(a), at, 1 + a.random.below(2 * PAGE));
    if (a.random.one_in(3))
        a.look();
}

// Dies close to the store of a word, of a bitmap or in place (before that a log has a checkpoint): what another process has read
// stays.
void dies_in_a_word(Actor &a)
{
    const uint64_t moments = a.random.below(10) + (a.domain == ATO_DOMAIN_DISK ? 9 : 0);
    a.beside([&] {
        Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
        Peer::die_within(moments);
        if (a.random.one_in(2))
            change_page(a, m);
        else
            a.write(m, a_page(a) + 8 * a.random.below(100), 8, ATO_EAGER);
    });
    a.look();
}

// The surviving process maps the file now. Another one has it mapped, and is idle.
void before_attaching(Actor &a)
{
    mapped(a, ATO_NO_RTM);
    a.world.die();
    a.world.beside_for_good([&] { a.map(0, ATO_READ_GATHER, ATO_NO_RTM); });
}

template <void (*change)(Actor &, Mapping *)> void attaching(Actor &a)
{
    short_life(a, 0, [&](Mapping *m) { change(a, m); });
    go_on(a, a.map(0, any_policy(a), ATO_NO_RTM));
}

// ---- read-only processes ----

void before_reading(Actor &a)
{
    mapped(a, ATO_NO_RTM);
    a.world.die();
}

// One process dies, another maps the file and recovers; the content that is read then stays.
void reading(Actor &a)
{
    short_life(a, 0, [&](Mapping *m) {
        if (a.random.one_in(2))
            change_page(a, m);
        else
            change_pages(a, m);
    });
    a.world.beside_for_good([&] { a.map(0, ATO_READ_GATHER, ATO_NO_RTM); });
    a.world.map_to_read(0, a.domain);
    a.look_once();
}

} // namespace

const std::vector<Case> &peer_cases()
{
    constexpr uint64_t DEATHS = 16, FEW = 4;
    static const std::vector<Case> cases = {
        {"peers, in a page", ALL, {SIZE}, before_plain, dies<change_page>, DEATHS},
        {"peers, in several pages", COSTLY, {SIZE}, before_plain, dies<change_pages>, DEATHS},
        {"peers, in many pages", DISK, {48 * PAGE}, before_plain, dies<change_many_pages>, FEW},
        {"peers, in a transaction", COSTLY, {SIZE}, before_plain, dies<change_in_steps>, DEATHS},
        {"peers, in other calls", COSTLY, {SIZE}, before_plain, dies<change_no_byte>, DEATHS},
        {"peers, in a deploy", COSTLY, {SIZE}, before_plain, dies_in_deploy, DEATHS},
        {"peers, growing", COSTLY, {SIZE}, before_plain, dies<grow>, DEATHS},
        {"peers, shrinking", COSTLY, {SIZE}, before_plain, dies<shrink>, DEATHS},
        {"peers, takeover cut", COSTLY, {SIZE}, before_plain, dies_taking_over, DEATHS},
        {"peers, long lane", PMEM, {LARGE}, before_plain, dies_with_the_long_lane, FEW},
        {"peers, long lane, takeover cut",
         PMEM,
         {LARGE},
         before_long,
         dies_taking_the_long_lane_over,
         FEW},
        {"peers, attaching", COSTLY, {SIZE}, before_attaching, attaching<change_pages>, DEATHS},
        {"peers, attaching to a change of size",
         COSTLY,
         {SIZE},
         before_attaching,
         attaching<shrink>,
         DEATHS},
        {"peers, reading", DURABLE, {SIZE}, before_reading, reading, DEATHS},
        {"peers, in a word", COSTLY, {SIZE}, before_plain, dies_in_a_word, DEATHS},
    };
    return cases;
}

} // namespace crash
