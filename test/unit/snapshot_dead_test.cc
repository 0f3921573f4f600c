// SPDX-License-Identifier: BSD-3-Clause
//
// A writer is killed at each step in which its commit becomes visible, and the process that takes over its pages too. Are the
// snapshots that were open then right, and those that begin afterwards?
#include "snapshot_lab.h"
#include "unit/reader_of_dead_lab.h"

#include "ato_engine.h"

#include <functional>
#include <vector>

using namespace snapshot_lab;
using reader_of_dead::die_at;
using reader_of_dead::Moment;

namespace
{

constexpr enum seam_point POINTS[] = {SEAM_DURABLE, SEAM_FLIP,    SEAM_FLIPPING,
                                      SEAM_FLIPPED, SEAM_RELEASE, SEAM_SAVING};

struct Deed {
    const char *name;
    std::function<void(Mapped &)> act;
    std::function<void(Bytes &)> to;
};

class SnapshotOfTheDead : public OnAFile
{
  protected:
    // Each of them changes the content differently each time.
    std::vector<Deed> deeds(unsigned seed)
    {
        const Bytes one = pattern(300, seed), several = pattern(2 * PAGE + 50, seed);
        return {{"one page", [=](Mapped &m) { m.write(PAGE + 10, one); },
                 [=](Bytes &to) { std::copy(one.begin(), one.end(), &to[PAGE + 10]); }},
                {"several pages", [=](Mapped &m) { m.write(2 * PAGE - 99, several); },
                 [=](Bytes &to) { std::copy(several.begin(), several.end(), &to[2 * PAGE - 99]); }},
                {"shorter", [=](Mapped &m) { ato_ftruncate(m.base, 3 * PAGE + seed); },
                 [=](Bytes &to) { to.resize(3 * PAGE + seed); }}};
    }
    static ato_options by_lanes()
    {
        return opt(ATO_READ_GATHER, ATO_NO_RTM);
    }
    void commit(const Deed &deed) const
    {
        Mapped own(file, by_lanes());
        deed.act(own);
    }

    // A process died in the deed. What others see is all of it or nothing.
    void check(Mapped &m, Snap &before, const Deed &deed, unsigned order)
    {
        Bytes after = content;
        deed.to(after);
        // Who comes first takes over what the dead process held.
        if (order % 3 == 0) {
            EXPECT_TRUE(before.copy() == content) << before.sentence;
        } else if (order % 3 == 1) {
            Bytes now;
            EXPECT_GE(copy_now(m.base, now), 0) << ato_errormsg();
            EXPECT_TRUE(now == content || now == after) << "a part of the commit";
        } else {
            EXPECT_TRUE(m.write(PAGE + 10, Bytes(1, content[PAGE + 10]), ATO_SKIP_EQUAL))
                << m.sentence;
        }
        Snap now(m.base);
        const Bytes seen = now.copy();
        Bytes read(static_cast<size_t>(ato_size(m.base)));
        EXPECT_TRUE(ato_memcpy(read.data(), m.base, read.size())) << ato_errormsg();
        EXPECT_TRUE(seen == read) << now.sentence;
        if (order % 3 != 2) { // else it may have changed a byte of it
            EXPECT_TRUE(seen == content || seen == after) << "a part of the commit";
        }
        EXPECT_TRUE(before.copy() == content) << before.sentence;
        EXPECT_TRUE(m.write(PAGE, pattern(2 * PAGE, 99 + order))) << m.sentence;
        EXPECT_TRUE(before.copy() == content) << before.sentence;
        EXPECT_TRUE(now.copy() == seen) << now.sentence;
    }
    // Makes it as long as it was.
    void restore(Mapped &m)
    {
        ASSERT_EQ(ato_ftruncate(m.base, SIZE), 0) << ato_errormsg();
        content.resize(SIZE);
        ASSERT_TRUE(ato_memcpy(content.data(), m.base, SIZE)) << ato_errormsg();
    }
    // At each step of `act` a process is killed, each time after `before_it`. Returns how often one was.
    unsigned kill_at_each_step(Mapped &m, size_t which,
                               const std::function<void(const Deed &)> &before_it,
                               const std::function<void(const Deed &)> &act)
    {
        unsigned deaths = 0;
        for (const enum seam_point where : POINTS)
            for (int n = 0;; n++) {
                const Deed deed = deeds(++seed)[which];
                SCOPED_TRACE(testing::Message() << deed.name << ", " << where << "/" << n);
                Snap before(m.base);
                EXPECT_TRUE(before.copy() == content) << before.sentence;
                before_it(deed);
                const bool died = die_at({where, n, ""}, [&] { act(deed); }) == CUT;
                deaths += died;
                check(m, before, deed, seed);
                restore(m);
                if (!died || HasFailure())
                    break;
            }
        return deaths;
    }

    unsigned seed = 1;
};
INSTANTIATE_TEST_SUITE_P(, SnapshotOfTheDead,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS),
                         [](const auto &info) { return name_of(info.param); });

TEST_P(SnapshotOfTheDead, IsRightAtEachStepOfACommit)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m) << m.sentence;
    unsigned deaths = 0;
    for (size_t which = 0; which < 3; which++)
        deaths += kill_at_each_step(
            m, which, [](const Deed &) {}, [&](const Deed &deed) { commit(deed); });
    EXPECT_GE(deaths, 30u);
}

// What the first process has saved and shown stays, and becomes part of one commit.
TEST_P(SnapshotOfTheDead, IsRightIfTheProcessThatTakesOverIsKilledToo)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m) << m.sentence;
    unsigned deaths = 0;
    for (const Moment &first :
         {Moment{SEAM_DURABLE, 0, ""}, Moment{SEAM_FLIPPING, 1, ""}, Moment{SEAM_FLIPPED, 1, ""}}) {
        SCOPED_TRACE(first.where);
        deaths += kill_at_each_step(
            m, 1, [&](const Deed &deed) { ASSERT_EQ(die_at(first, [&] { commit(deed); }), CUT); },
            [&](const Deed &) {
                Mapped own(file, by_lanes());
                own.read(PAGE, 4 * PAGE);
            });
    }
    EXPECT_GT(deaths, 10u);
}

// Another one may not become visible then, and nothing of it is to be waited for.
TEST_P(SnapshotOfTheDead, BeginsAfterATakeoverThatFailed)
{
    if (GetParam() == ATO_DOMAIN_DISK)
        GTEST_SKIP() << "a sync that fails puts the file out of use";
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    const Deed deed = deeds(++seed)[1];
    ASSERT_EQ(die_at({SEAM_DURABLE, 0, ""}, [&] { commit(deed); }), CUT);
    {
        PersistFaults medium;
        medium.before = [](const PersistCall &c) { // the commit's lane cannot be made durable
            return std::string(c.op).find("flush") == 0 &&
                           std::string(c.site).find("lane.c") != std::string::npos
                       ? EIO
                       : GO_ON;
        };
        EXPECT_FALSE(m.write(2 * PAGE, Bytes(5)));
    }
    alarm(20);          // a hang is an error
    Snap early(m.base); // takes over again
    alarm(0);
    deed.to(content);
    EXPECT_TRUE(early.copy() == content) << early.sentence;
    EXPECT_EQ(ato_snapshot_is_newest(early.s), 1) << ato_errormsg();
    check(m, early, deed, 1);
}

} // namespace
