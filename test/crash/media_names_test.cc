// SPDX-License-Identifier: BSD-3-Clause
//
// What may a crash leave of names, sizes, attributes and times? Which of them do msync, fsync and
// stores make certain, which depend on each other, and what happens to bytes behind an end that
// moved?
#include "rules_lab.h"

#include <gtest/gtest.h>

using namespace crash;

namespace
{

// ---- msync and fsync ----------------------------------------------------------------------------

TEST(RulesOfSyncs, MsyncMakesWholePagesCertainForStoresOfAllThreads)
{
    Past past(Loss::Power, false);
    past << cached({{0, 1}}) << cached({{4088, 2}}, 2) << cached({{4096, 3}})
         << cached({{0, 4}}, 1, G) << msync_of(100, 8);
    EXPECT_EQ(past.images(), Images({"0=1 4088=2", "0=1 4088=2 4096=3", "0=1 4088=2 2:0=4",
                                     "0=1 4088=2 4096=3 2:0=4"}));
}

TEST(RulesOfSyncs, MsyncMakesEachPageOfItsRangeCertain)
{
    Past past(Loss::Power, false);
    past << cached({{0, 1}}) << cached({{8184, 2}}) << cached({{8192, 3}}) << msync_of(4095, 2);
    EXPECT_EQ(past.images(), Images({"0=1 8184=2", "0=1 8184=2 8192=3"}));
}

TEST(RulesOfSyncs, MsyncOfAnyPageMakesTheSizeCertainAndNoOtherMetadata)
{
    Past past(Loss::Power, false);
    past << attribute("x") << resize(5 * PAGE) << times(7) << resize(5 * PAGE, G)
         << msync_of(3 * PAGE, 8);
    EXPECT_EQ(past.images(), Images({"size=20480", "size=20480 attr=x", "size=20480 attr=x mtime=7",
                                     "size=20480 2:size=20480", "size=20480 attr=x 2:size=20480",
                                     "size=20480 attr=x mtime=7 2:size=20480"}));
}

TEST(RulesOfSyncs, FsyncMakesAllOfTheFileCertain)
{
    Past past(Loss::Power, false);
    past << cached({{0, 1}}) << cached({{8192, 2}}, 2) << attribute("x") << cached({{0, 3}}, 1, G)
         << fsync_of(F);
    EXPECT_EQ(past.images(), Images({"0=1 8192=2 attr=x", "0=1 8192=2 attr=x 2:0=3"}));
}

// ---- names --------------------------------------------------------------------------------------

TEST(RulesOfNames, ChangesWithACommonNamePersistAsAPrefix)
{
    Past past(Loss::Power);
    past << make("a", NEW) << rename_of("a", "b") << rename_of("b", "c");
    EXPECT_EQ(past.images(), Images({"", "a>4", "b>4", "c>4"}));
}

TEST(RulesOfNames, OtherChangesAreIndependent)
{
    Past past(Loss::Power);
    past << make("a", NEW) << make("b", NEW + 1) << removal("g");
    EXPECT_EQ(past.images(), Images({"", "a>4", "b>5", "a>4 b>5", "-g", "a>4 -g", "b>5 -g", //
                                     "a>4 b>5 -g"}));
}

TEST(RulesOfNames, ARenameOverANameTiesBoth)
{
    Past past(Loss::Power);
    past << make("a", NEW) << make("b", NEW + 1) << rename_of("a", "b") << make("c", NEW + 2);
    EXPECT_EQ(past.images(), Images({"", "a>4", "a>4 b>5", "b>4", //
                                     "c>6", "a>4 c>6", "a>4 b>5 c>6", "b>4 c>6"}));
}

TEST(RulesOfNames, AChangeOfARenamedNameDependsOnTheRename)
{
    Past past(Loss::Power);
    past << rename_of("g", "h") << removal("h") << make("h", NEW);
    EXPECT_EQ(past.images(), Images({"", "h>2 -g", "-g", "h>4 -g"})) << "never h>4 alone";
}

TEST(RulesOfNames, ARemovalAndANewFileOfThatNameKeepTheirOrder)
{
    Past past(Loss::Power);
    past << removal("f") << make("f", NEW);
    EXPECT_EQ(past.images(), Images({"", "-f", "f>4"}));
}

TEST(RulesOfNames, OnlyFsyncOfTheirFolderMakesThemCertain)
{
    Past past(Loss::Power);
    past << make("a", NEW) << make("x", NEW + 1, D);
    Images any = {"", "a>4", "3:x>5", "a>4 3:x>5"};
    EXPECT_EQ(past.images(), any);
    past << fsync_of(NEW) << fsync_of(NEW + 1) << cached({{0, 1}}, 1, NEW) << flush(0, 8, 1, NEW)
         << fence();
    EXPECT_EQ(past.images(), Images({"4:0=1", "a>4 4:0=1", "3:x>5 4:0=1", "a>4 3:x>5 4:0=1"}));
    past << fsync_of(D);
    EXPECT_EQ(past.images(), Images({"3:x>5 4:0=1", "a>4 3:x>5 4:0=1"}));
    past << fsync_of(Disk::ROOT);
    EXPECT_EQ(past.images(), Images({"a>4 3:x>5 4:0=1"}));
}

TEST(RulesOfNames, ACertainChangeTiesNoOthers)
{
    Past past(Loss::Power);
    past << make("a", NEW) << fsync_of(Disk::ROOT) << rename_of("a", "b");
    EXPECT_EQ(past.images(), Images({"a>4", "b>4"}));
}

// ---- metadata -----------------------------------------------------------------------------------

TEST(RulesOfMetadata, OfOneFilePersistsAsAPrefix)
{
    Past past(Loss::Power);
    past << resize(5 * PAGE) << attribute("x") << times(7) << attribute("");
    EXPECT_EQ(past.images(), Images({"", "size=20480", "size=20480 attr=x",
                                     "size=20480 attr=x mtime=7", "size=20480 mtime=7"}));
}

TEST(RulesOfMetadata, OfTwoFilesIsIndependent)
{
    Past past(Loss::Power);
    past << attribute("x") << attribute("y", G);
    EXPECT_EQ(past.images(), Images({"", "attr=x", "2:attr=y", "attr=x 2:attr=y"}));
}

TEST(RulesOfMetadata, FsyncOfTheFileMakesItCertain)
{
    Past past(Loss::Power);
    past << attribute("x") << times(7) << attribute("y", G) << fsync_of(F) << fsync_of(Disk::ROOT);
    EXPECT_EQ(past.images(), Images({"attr=x mtime=7", "attr=x mtime=7 2:attr=y"}));
}

TEST(RulesOfMetadata, IfFaultsSyncAStoreMakesTheSizeCertainAndNoOtherMetadata)
{
    for (Loss loss : {Loss::Power, Loss::Cache}) {
        Past past(loss, true);
        past << resize(5 * PAGE) << attribute("x") << streamed({{0, 1}});
        EXPECT_EQ(past.images(), Images({"size=20480", "0=1 size=20480", "size=20480 attr=x",
                                         "0=1 size=20480 attr=x"}));
    }
}

TEST(RulesOfMetadata, ElsewhereAStoreBeyondTheOldEndNeedsTheGrowth)
{
    Past past(Loss::Power, false);
    past << resize(5 * PAGE) << cached({{4 * PAGE, 1}});
    EXPECT_EQ(past.images(), Images({"", "size=20480", "16384=1 size=20480"}));
}

TEST(RulesOfMetadata, AStoreBeforeAGrowthDoesNotNeedIt)
{
    Past past(Loss::Power, false);
    past << cached({{0, 1}}) << resize(5 * PAGE);
    EXPECT_EQ(past.images(), Images({"", "0=1", "size=20480", "0=1 size=20480"}));
}

TEST(RulesOfMetadata, AStoreBetweenTwoGrowthsNeedsTheFirstAlone)
{
    Past past(Loss::Power, false);
    past << resize(5 * PAGE) << cached({{4 * PAGE, 1}}) << resize(6 * PAGE);
    EXPECT_EQ(past.images(),
              Images({"", "size=20480", "16384=1 size=20480", "size=24576", "16384=1 size=24576"}));
}

TEST(RulesOfMetadata, AttributeAndTimesHoldNoStoreBack)
{
    Past past(Loss::Power, false);
    past << attribute("x") << times(7) << cached({{0, 1}});
    EXPECT_EQ(past.images(),
              Images({"", "attr=x", "attr=x mtime=7", "0=1", "0=1 attr=x", "0=1 attr=x mtime=7"}));
}

TEST(RulesOfMetadata, BytesWithinTheOldSizeDoNotNeedTheGrowth)
{
    Past past(Loss::Power, false);
    past << resize(5 * PAGE) << cached({{0, 1}}) << cached({{4 * PAGE, 2}});
    EXPECT_EQ(past.images(), Images({"", "0=1", "size=20480", "0=1 size=20480",
                                     "16384=2 size=20480", "0=1 16384=2 size=20480"}));
}

TEST(RulesOfMetadata, BytesThatAShrinkCutOffAreThereIfTheShrinkIsLost)
{
    Past past(Loss::Power, false);
    past << cached({{PAGE, 1}}) << resize(PAGE);
    EXPECT_EQ(past.images(), Images({"", "4096=1", "size=4096"}));
    past << fsync_of(F);
    EXPECT_EQ(past.images(), Images({"size=4096"}));
}

TEST(RulesOfMetadata, AfterAShrinkAndAGrowthTheOldBytesAreGone)
{
    Past past(Loss::Power, false);
    past << cached({{0, 5}}) << fsync_of(F) << resize(0) << resize(SIZE) << cached({{0, 5}});
    Images images = past.images();
    EXPECT_EQ(images.count("0=5"), 1u);
    EXPECT_EQ(images.count(""), 1u) << "shrunk, grown, and not stored again";
}

TEST(RulesOfTruncation, BytesBehindTheNewEndAreGone)
{
    Past past(Loss::Power);
    past << cached({{4096, 1}}) << fsync_of(F) << resize(PAGE) << resize(SIZE);
    EXPECT_EQ(past.images(), Images({"4096=1", "size=4096", ""}));
}

TEST(RulesOfTruncation, PendingStoresBehindTheNewEndAreGone)
{
    Past past(Loss::Power);
    past << cached({{4088, 1}}) << cached({{4096, 2}}) << cached({{12288, 3}})
         << cached({{8192, 4}}, 1, G) << flush(0, SIZE) << resize(PAGE) << resize(SIZE)
         << fsync_of(F) << fence();
    EXPECT_EQ(past.images(), Images({"4088=1", "4088=1 2:8192=4"}));
}

} // namespace
