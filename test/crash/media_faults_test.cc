// SPDX-License-Identifier: BSD-3-Clause
//
// Does each fault of the rules have its documented effect, and no other? Mutants depend on it.
#include "rules_lab.h"

#include <gtest/gtest.h>

using namespace crash;

namespace
{

TEST(RulesOfFaults, DropTakesAFlushAway)
{
    Past past(Loss::Power, true, fault(Fault::Drop));
    past << cached({{0, 1}}) << at_site(flush(0)) << fence();
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
    past << flush(0) << fence(); // another site
    EXPECT_EQ(past.images(), Images({"0=1"}));
}

TEST(RulesOfFaults, DropTakesAFenceAway)
{
    Past past(Loss::Power, true, fault(Fault::Drop));
    past << cached({{0, 1}}) << flush(0) << at_site(fence());
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
    past << at_site(fence(), "x.c:2");
    EXPECT_EQ(past.images(), Images({"0=1"}));
}

TEST(RulesOfFaults, DropTakesAnMsyncAway)
{
    Past past(Loss::Power, false, fault(Fault::Drop));
    past << cached({{0, 1}}) << at_site(msync_of(0, 8));
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
    past << msync_of(0, 8);
    EXPECT_EQ(past.images(), Images({"0=1"}));
}

TEST(RulesOfFaults, DropTakesAnFsyncAway)
{
    Past past(Loss::Power, true, fault(Fault::Drop));
    past << make("a", NEW) << at_site(fsync_of(Disk::ROOT));
    EXPECT_EQ(past.images(), Images({"", "a>4"}));
    past << fsync_of(Disk::ROOT);
    EXPECT_EQ(past.images(), Images({"a>4"}));
}

TEST(RulesOfFaults, DropTakesNoStoreAway)
{
    Past past(Loss::Power, true, fault(Fault::Drop));
    past << at_site(cached({{0, 1}})) << flush(0) << fence();
    EXPECT_EQ(past.images(), Images({"0=1"}));
}

TEST(RulesOfFaults, DelayPutsAFenceBehindTheNextStoreOfItsThread)
{
    Past past(Loss::Power, true, fault(Fault::Delay));
    past << cached({{0, 1}}) << flush(0) << at_site(fence());
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
    past << cached({{64, 2}}, 2);
    EXPECT_EQ(past.images(), Images({"", "0=1", "64=2", "0=1 64=2"}));
    EXPECT_FALSE(past.media.tender());
    past << cached({{128, 3}});
    EXPECT_TRUE(past.media.tender()) << "the moment between that store and the fence has to be cut";
    EXPECT_EQ(past.images().size(), 8u);
    past << allow();
    EXPECT_EQ(past.images(), Images({"0=1", "0=1 64=2", "0=1 128=3", "0=1 64=2 128=3"}));
}

TEST(RulesOfFaults, ADelayedFenceCoversThatStoreToo)
{
    Past past(Loss::Power, true, fault(Fault::Delay));
    past << at_site(fence()) << streamed({{0, 1}});
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
    past << streamed({{8, 2}}); // once
    EXPECT_EQ(past.images(), Images({"0=1", "0=1 8=2"}));
    past << at_site(fence()) << allow(); // and so is the next one
    EXPECT_EQ(past.images(), Images({"0=1", "0=1 8=2"}));
    past << streamed({{64, 3}}) << allow();
    EXPECT_EQ(past.images(), Images({"0=1 8=2 64=3"}));
}

TEST(RulesOfFaults, LateDelaysAStoreUntilTheNextOperationHasReturned)
{
    for (Loss loss : {Loss::Power, Loss::Cache, Loss::Process}) {
        Past past(loss, true, fault(Fault::Late));
        past << allow() << at_site(cached({{0, 1}})) << flush(0) << fence();
        EXPECT_EQ(past.images(), Images({""}));
        past << allow() << allow() << cached({{64, 2}}) << flush(64) << fence();
        EXPECT_EQ(past.images(), Images({"64=2"}));
        past << allow(); // the next one returned
        EXPECT_TRUE(past.media.tender());
        past << allow();
        EXPECT_EQ(tell(past.media.visible()), "0=1 64=2");
        EXPECT_EQ(past.images(),
                  loss == Loss::Power ? Images({"64=2", "0=1 64=2"}) : Images({"0=1 64=2"}));
    }
}

constexpr uint64_t LOW = 1, HIGH = 1ull << 32;

std::string word0(uint64_t value)
{
    return "0=" + std::to_string(value);
}

TEST(RulesOfFaults, TearSplitsAWordIntoTwoHalves)
{
    Past torn(Loss::Power, true, fault(Fault::Tear)), sound(Loss::Power, true, fault(Fault::Tear));
    torn << at_site(cached({{0, HIGH + LOW}}));
    EXPECT_EQ(torn.images(), Images({"", word0(LOW), word0(HIGH), word0(HIGH + LOW)}));
    torn << cached({{8, 2}});
    EXPECT_EQ(torn.images(),
              Images({"", word0(LOW), word0(HIGH), word0(HIGH + LOW), word0(HIGH + LOW) + " 8=2"}));
    torn << flush(0) << fence();
    EXPECT_EQ(torn.images(), Images({word0(HIGH + LOW) + " 8=2"}));
    sound << at_site(cached({{0, HIGH + LOW}}), "x.c:2") << at_site(streamed({{64, HIGH + LOW}}));
    EXPECT_EQ(sound.images().size(), 4u);
}

TEST(RulesOfFaults, TearKeepsTheOtherHalfOfTheOldWord)
{
    Past past(Loss::Power, true, fault(Fault::Tear));
    past << cached({{0, 2 * HIGH + 2 * LOW}}) << flush(0) << fence()
         << at_site(cached({{0, HIGH + LOW}}));
    EXPECT_EQ(past.images(), Images({word0(2 * HIGH + 2 * LOW), word0(2 * HIGH + LOW),
                                     word0(HIGH + 2 * LOW), word0(HIGH + LOW)}));
}

TEST(RulesOfFaults, TearTearsAWordUnderWay)
{
    for (Loss loss : {Loss::Cache, Loss::Process}) {
        Past past(loss, true, fault(Fault::Tear));
        Event e = at_site(cached({{0, HIGH + LOW}}));
        EXPECT_EQ(past.during(e), Images({"", word0(LOW), word0(HIGH), word0(HIGH + LOW)}));
        past << e;
        EXPECT_EQ(past.images(), Images({word0(HIGH + LOW)}));
    }
}

TEST(RulesOfFaults, TearTearsAHardwareTransaction)
{
    Images any;
    for (uint64_t a : {0ull, 1ull, 1ull << 32, (1ull << 32) + 1})
        for (uint64_t b : {0ull, 1ull, 1ull << 32, (1ull << 32) + 1})
            any.insert((a ? word0(a) : "") + (a && b ? " " : "") +
                       (b ? "64=" + std::to_string(b) : ""));
    Event e = whole(cached({{0, HIGH + LOW}, {64, HIGH + LOW}}));
    for (Loss loss : {Loss::Cache, Loss::Process}) {
        Past past(loss, true, fault(Fault::Tear));
        EXPECT_EQ(past.during(at_site(e)), any);
        EXPECT_EQ(past.during(at_site(e, "x.c:2")), Images({""}));
    }
}

} // namespace
