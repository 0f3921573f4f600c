// SPDX-License-Identifier: BSD-3-Clause
//
// What may a crash leave of stores? Do the rules allow the documented images, and no others: for
// cached and non-temporal stores, flushes and fences, in each kind of loss, and for stores of dead
// processes? And when is there something new to decide (Media::version())?
#include "rules_lab.h"

#include <gtest/gtest.h>

#include <utility>

using namespace crash;

namespace
{

// ---- Loss::Power: cached stores -----------------------------------------------------------------

TEST(RulesOfCachedStores, AStoreIsLostOrKept)
{
    Past past(Loss::Power);
    EXPECT_EQ(past.images(), Images({""}));
    past << cached({{0, 1}});
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
    EXPECT_EQ(tell(past.media.visible()), "0=1");
}

TEST(RulesOfCachedStores, InOneLineTheSecondNeedsTheFirst)
{
    Past past(Loss::Power);
    past << cached({{8, 1}}) << cached({{0, 2}});
    EXPECT_EQ(past.images(), Images({"", "8=1", "0=2 8=1"}));
}

TEST(RulesOfCachedStores, InOneLineStoresOfTwoThreadsKeepTheirOrder)
{
    Past past(Loss::Power);
    past << cached({{8, 1}}, 2) << cached({{0, 2}}, 1) << cached({{16, 3}}, 2);
    EXPECT_EQ(past.images(), Images({"", "8=1", "0=2 8=1", "0=2 8=1 16=3"}));
}

TEST(RulesOfCachedStores, OfOneWordAnyVersionMayPersist)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << cached({{0, 2}}) << cached({{0, 3}});
    EXPECT_EQ(past.images(), Images({"", "0=1", "0=2", "0=3"}));
}

TEST(RulesOfCachedStores, TwoLinesAreIndependent)
{
    Past past(Loss::Power);
    past << cached({{56, 1}}) << cached({{64, 2}});
    EXPECT_EQ(past.images(), Images({"", "56=1", "64=2", "56=1 64=2"}));
}

TEST(RulesOfCachedStores, LinesOfTwoFilesAreIndependent)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << cached({{0, 2}}, 1, G);
    EXPECT_EQ(past.images(), Images({"", "0=1", "2:0=2", "0=1 2:0=2"}));
}

TEST(RulesOfCachedStores, AnySubsetOfTheWordsOfAMemcpyMayPersist)
{
    Past past(Loss::Power);
    past << cached({{0, 1}, {8, 2}, {16, 3}});
    EXPECT_EQ(past.images(), Images({"", "0=1", "8=2", "16=3", "0=1 8=2", "0=1 16=3", "8=2 16=3",
                                     "0=1 8=2 16=3"}));
}

TEST(RulesOfCachedStores, AStoreAfterAMemcpyInItsLineNeedsAllOfTheMemcpy)
{
    Past past(Loss::Power);
    past << cached({{0, 1}, {8, 2}}) << cached({{16, 3}});
    EXPECT_EQ(past.images(), Images({"", "0=1", "8=2", "0=1 8=2", "0=1 8=2 16=3"}));
}

TEST(RulesOfCachedStores, AMemcpyAfterAnotherStoreMayPersistInPart)
{
    Past past(Loss::Power);
    past << cached({{16, 3}}) << cached({{0, 1}, {8, 2}});
    EXPECT_EQ(past.images(), Images({"", "16=3", "0=1 16=3", "8=2 16=3", "0=1 8=2 16=3"}));
}

TEST(RulesOfCachedStores, AMemcpyOverTwoLinesIsCompleteForEachLine)
{
    Past past(Loss::Power);
    past << cached({{56, 1}, {64, 2}}) << cached({{72, 3}});
    EXPECT_EQ(past.images(), Images({"", "56=1", "64=2", "64=2 72=3", "56=1 64=2", //
                                     "56=1 64=2 72=3"}));
}

// ---- Loss::Power: flush and fence ---------------------------------------------------------------

TEST(RulesOfFlushes, WithoutAFenceTheyDecideNothing)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << flush(0);
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
}

TEST(RulesOfFlushes, WithAFenceByTheSameThreadTheyMakeCertain)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << flush(0) << fence();
    EXPECT_EQ(past.images(), Images({"0=1"}));
}

TEST(RulesOfFlushes, WithAFenceByAnotherThreadTheyDoNot)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << flush(0) << fence(2);
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
    past << fence(1);
    EXPECT_EQ(past.images(), Images({"0=1"}));
    past << cached({{0, 2}}, 1) << flush(0, 8, 2) << fence(1);
    EXPECT_EQ(past.images(), Images({"0=1", "0=2"}));
    past << fence(2);
    EXPECT_EQ(past.images(), Images({"0=2"}));
}

TEST(RulesOfFlushes, AFenceWithoutAFlushOrBeforeItDecidesNothing)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << fence() << flush(0);
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
}

TEST(RulesOfFlushes, AFlushCapturesOnlyEarlierStores)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << flush(0) << cached({{8, 2}}) << fence();
    EXPECT_EQ(past.images(), Images({"0=1", "0=1 8=2"}));
    past << fence(); // the captured store is used up
    EXPECT_EQ(past.images(), Images({"0=1", "0=1 8=2"}));
}

TEST(RulesOfFlushes, AFlushCapturesStoresOfOtherThreads)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}, 2) << flush(0) << fence();
    EXPECT_EQ(past.images(), Images({"0=1"}));
}

TEST(RulesOfFlushes, AFlushCoversItsWholeLinesAndNoOthers)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << cached({{56, 2}}) << cached({{64, 3}}) << cached({{128, 4}})
         << cached({{0, 5}}, 1, G) << flush(63, 2) << fence();
    EXPECT_EQ(past.images(), Images({"0=1 56=2 64=3", "0=1 56=2 64=3 128=4", "0=1 56=2 64=3 2:0=5",
                                     "0=1 56=2 64=3 128=4 2:0=5"}));
    past << flush(64, 64) << flush(192, 64) << fence(); // not the line between them
    EXPECT_EQ(past.images().size(), 4u);
}

// ---- Loss::Power: streamed stores ---------------------------------------------------------------

TEST(RulesOfStreamedStores, AnySubsetMayPersistUntilTheFenceOfTheirThread)
{
    Past past(Loss::Power);
    past << streamed({{0, 1}, {8, 2}}) << streamed({{16, 3}});
    Images any = {"", "0=1", "8=2", "16=3", "0=1 8=2", "0=1 16=3", "8=2 16=3", "0=1 8=2 16=3"};
    EXPECT_EQ(past.images(), any);
    past << fence(2);
    EXPECT_EQ(past.images(), any);
    past << fence(1);
    EXPECT_EQ(past.images(), Images({"0=1 8=2 16=3"}));
}

TEST(RulesOfStreamedStores, OfOneWordNoneOrAnyVersionPersists)
{
    Past past(Loss::Power);
    past << streamed({{0, 1}, {8, 1}}) << streamed({{0, 2}});
    EXPECT_EQ(past.images(), Images({"", "0=1", "0=2", "8=1", "0=1 8=1", "0=2 8=1"}));
}

TEST(RulesOfStreamedStores, AFenceCoversTheStoresBeforeIt)
{
    Past past(Loss::Power);
    past << streamed({{0, 1}}) << fence() << streamed({{8, 2}});
    EXPECT_EQ(past.images(), Images({"0=1", "0=1 8=2"}));
}

TEST(RulesOfStreamedStores, AnOlderStoreDoesNotReplaceACertainOne)
{
    Past past(Loss::Power);
    past << streamed({{0, 1}, {8, 1}}, 1) << streamed({{0, 2}}, 2) << fence(2);
    EXPECT_EQ(past.images(), Images({"0=2", "0=2 8=1"}));
    past << fence(1);
    EXPECT_EQ(past.images(), Images({"0=2 8=1"}));
}

TEST(RulesOfStreamedStores, ANewerStoreStaysPendingOverACertainOne)
{
    Past past(Loss::Power);
    past << streamed({{0, 1}}, 1) << streamed({{0, 2}}, 2) << fence(1);
    EXPECT_EQ(past.images(), Images({"0=1", "0=2"}));
}

TEST(RulesOfStreamedStores, TheDeathOfTheirProcessDoesNotMakeThemDurable)
{
    Past past(Loss::Power);
    past << streamed({{0, 1}});
    past.media.process_died();
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
}

// ---- both kinds in one line ---------------------------------------------------------------------

TEST(RulesOfMixedLines, BothKindsInFlightAreReported)
{
    Past a(Loss::Power), b(Loss::Power), c(Loss::Power);
    a << cached({{0, 1}});
    EXPECT_EQ(a.media.mixed(), "");
    a << at_site(streamed({{8, 2}}), "y.c:2");
    EXPECT_NE(a.media.mixed().find("y.c:2"), std::string::npos);
    b << streamed({{8, 2}}) << cached({{0, 1}}, 2);
    EXPECT_NE(b.media.mixed(), "");
    c << cached({{0, 1}}) << flush(0) << streamed({{0, 2}}); // no fence
    EXPECT_NE(c.media.mixed(), "");
}

TEST(RulesOfMixedLines, CertainStoresAndOtherLinesAreNotReported)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << flush(0) << fence() << streamed({{8, 2}}) << fence()
         << cached({{16, 3}}) << streamed({{64, 4}}) << streamed({{16, 5}}, 1, G);
    EXPECT_EQ(past.media.mixed(), "");
}

// ---- Loss::Cache and Loss::Process --------------------------------------------------------------

TEST(RulesOfDurableCaches, ACachedStoreIsCertainAtOnce)
{
    Past past(Loss::Cache);
    past << cached({{0, 1}, {64, 2}});
    EXPECT_EQ(past.images(), Images({"0=1 64=2"}));
}

TEST(RulesOfDurableCaches, AStreamedStoreIsPendingUntilItsThreadsFence)
{
    Past past(Loss::Cache);
    past << streamed({{0, 1}, {8, 2}}) << fence(2);
    EXPECT_EQ(past.images(), Images({"", "0=1", "8=2", "0=1 8=2"}));
    past << fence(1);
    EXPECT_EQ(past.images(), Images({"0=1 8=2"}));
}

TEST(RulesOfDurableCaches, AStreamedStoreIsCertainWhenItsProcessIsDead)
{
    Past past(Loss::Cache);
    past << streamed({{0, 1}, {8, 2}});
    past.media.process_died();
    EXPECT_EQ(past.images(), Images({"0=1 8=2"}));
}

TEST(RulesOfDurableCaches, AnySubsetOfACachedStoreUnderWayMayPersist)
{
    Past past(Loss::Cache);
    Event e = cached({{0, 1}, {64, 2}});
    EXPECT_EQ(past.during(e), Images({"", "0=1", "64=2", "0=1 64=2"}));
    EXPECT_EQ(past.during(whole(e)), Images({""}));
    EXPECT_EQ(past.during(streamed({{0, 1}})), Images({""})); // soon pending
    past << e;
    EXPECT_EQ(past.images(), Images({"0=1 64=2"}));
}

TEST(RulesOfDurableCaches, NamesAndMetadataArePendingAsWithPowerCuts)
{
    Past past(Loss::Cache);
    past << make("a", NEW) << attribute("x");
    EXPECT_EQ(past.images(), Images({"", "a>4", "attr=x", "a>4 attr=x"}));
}

TEST(RulesOfKilledProcesses, FinishedStoresPersist)
{
    Past past(Loss::Process);
    past << cached({{0, 1}}) << streamed({{64, 2}}) << attribute("x") << resize(PAGE) << times(7)
         << make("a", NEW) << rename_of("a", "b");
    EXPECT_EQ(past.images(), Images({"b>4 0=1 64=2 size=4096 attr=x mtime=7"}));
    EXPECT_EQ(past.media.mixed(), "");
}

TEST(RulesOfKilledProcesses, AnySubsetOfTheStoreUnderWayMayPersist)
{
    Past past(Loss::Process);
    Images any = {"", "0=1", "64=2", "0=1 64=2"};
    EXPECT_EQ(past.during(cached({{0, 1}, {64, 2}})), any);
    EXPECT_EQ(past.during(streamed({{0, 1}, {64, 2}})), any);
    EXPECT_EQ(past.during(whole(cached({{0, 1}, {64, 2}}))), Images({""}));
    EXPECT_EQ(past.during(resize(PAGE)), Images({""}));
}

TEST(RulesOfPowerCuts, AStoreUnderWayIsPendingSoonAndCutThen)
{
    Past past(Loss::Power);
    EXPECT_EQ(past.during(cached({{0, 1}})), Images({""}));
}

// ---- dead processes
// ------------------------------------------------------------------------------

TEST(RulesOfDeath, AFlushCapturesStreamedStoresOfDeadProcessesOnly)
{
    Past living(Loss::Power, true), dead(Loss::Power, true);
    living << streamed({{0, 1}}, 1) << flush(0, 8, 2) << fence(2);
    EXPECT_EQ(living.images(), Images({"", "0=1"}));
    dead << streamed({{0, 1}}, 1);
    dead.media.process_died();
    EXPECT_EQ(dead.images(), Images({"", "0=1"}));
    dead << fence(2);
    EXPECT_EQ(dead.images(), Images({"", "0=1"})) << "visible is not durable";
    dead << flush(0, 8, 2) << fence(2);
    EXPECT_EQ(dead.images(), Images({"0=1"}));
}

TEST(RulesOfDeath, EventsHeldBackForADeadProcessNeverCome)
{
    Past past(Loss::Power, true, fault(Fault::Delay));
    past << cached({{0, 1}}) << flush(0) << at_site(fence());
    past.media.process_died();
    past << cached({{64, 2}}) << allow();
    EXPECT_EQ(past.images().size(), 4u);
}

// ---- version ------------------------------------------------------------------------------------

TEST(RulesOfVersions, TheVersionChangesWithTheChoicesOfACrash)
{
    Past past(Loss::Power);
    uint64_t before = past.media.version();
    auto moved = [&] {
        uint64_t now = past.media.version();
        return std::exchange(before, now) != now;
    };
    past << allow();
    EXPECT_FALSE(moved());
    past << cached({{0, 1}});
    EXPECT_TRUE(moved());
    past << flush(0);
    EXPECT_FALSE(moved()); // nothing is certain yet
    for (const Event &e : {fence(), streamed({{64, 2}}), fence(), attribute("x"), fsync_of(F),
                           make("a", NEW), fsync_of(Disk::ROOT)}) {
        past << e;
        EXPECT_TRUE(moved()) << name_of(e.kind);
    }
    past << fence() << flush(0) << fence();
    EXPECT_FALSE(moved()); // there was nothing to make certain
    past << cached({{0, 3}});
    EXPECT_TRUE(moved());
    past << fence();
    EXPECT_FALSE(moved()); // not flushed
    past.media.process_died();
    EXPECT_TRUE(moved());
}

} // namespace
