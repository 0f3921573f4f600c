// SPDX-License-Identifier: BSD-3-Clause
//
// Do the rules of the crash explorer allow what they say, and nothing else? Traces made by hand; of
// each, all the images that a crash at its end allows against a set written by hand. Also the values
// that the rules work on (disk.h), which crashes are looked at (choices.h), and the reader (reader.h).
#include "choices.h"
#include "reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <sstream>
#include <utility>

using namespace crash;

namespace
{

// ---- traces and images --------------------------------------------------------------------------

constexpr int F = 1, G = 2, D = 3; // two files, a folder
constexpr int NEW = 4;             // the first inode that a run makes
constexpr uint64_t SIZE = 4 * PAGE;

Disk start_disk()
{
    Disk disk;
    Inode file, folder;
    file.size = SIZE;
    folder.folder = true;
    EXPECT_EQ(disk.add(file), F);
    EXPECT_EQ(disk.add(file), G);
    EXPECT_EQ(disk.add(folder), D);
    disk.edit(Disk::ROOT).names = {{"f", F}, {"g", G}, {"d", D}};
    return disk;
}

struct Word {
    uint64_t at, value;
};
using Words = std::vector<Word>;

Event event(Kind kind, int thread = 1, int inode = -1)
{
    Event e;
    e.kind = kind;
    e.thread = thread;
    e.inode = inode;
    return e;
}

Event store(Kind kind, const Words &words, int thread, int inode)
{
    Event e = event(kind, thread);
    for (const Word &w : words)
        e.chunks.push_back({inode, w.at, w.value});
    return e;
}

Event cached(const Words &words, int thread = 1, int inode = F)
{
    return store(Kind::Store, words, thread, inode);
}

Event streamed(const Words &words, int thread = 1, int inode = F)
{
    return store(Kind::Stream, words, thread, inode);
}

Event whole(Event e)
{
    e.whole = true;
    return e;
}

Event range(Kind kind, uint64_t at, uint64_t bytes, int thread, int inode)
{
    Event e = event(kind, thread, inode);
    e.at = at;
    e.bytes = bytes;
    return e;
}

Event flush(uint64_t at, uint64_t bytes = 8, int thread = 1, int inode = F)
{
    return range(Kind::Flush, at, bytes, thread, inode);
}

Event fence(int thread = 1)
{
    return event(Kind::Fence, thread);
}

Event msync_of(uint64_t at, uint64_t bytes, int inode = F)
{
    return range(Kind::Sync, at, bytes, 1, inode);
}

Event fsync_of(int inode)
{
    return event(Kind::SyncFile, 1, inode);
}

Event make(const std::string &name, int child, int folder = Disk::ROOT)
{
    Event e = event(Kind::Make, 1, folder);
    e.name = name;
    e.child = child;
    return e;
}

Event rename_of(const std::string &name, const std::string &to, int folder = Disk::ROOT)
{
    Event e = event(Kind::Rename, 1, folder);
    e.name = name;
    e.to = to;
    return e;
}

Event removal(const std::string &name, int folder = Disk::ROOT)
{
    Event e = event(Kind::Remove, 1, folder);
    e.name = name;
    return e;
}

Event resize(uint64_t bytes, int inode = F)
{
    Event e = event(Kind::Resize, 1, inode);
    e.bytes = bytes;
    return e;
}

Event attribute(const std::string &value, int inode = F)
{
    Event e = event(Kind::Attribute, 1, inode);
    e.name = value;
    return e;
}

Event times(int64_t sec, int inode = F)
{
    Event e = event(Kind::Times, 1, inode);
    e.time = {sec, 0};
    return e;
}

Event allow()
{
    return event(Kind::Allow);
}

Event at_site(Event e, const char *site = "x.c:1")
{
    e.site = site;
    return e;
}

Mutation fault(Fault f, const char *site = "x.c:1")
{
    return {f, site};
}

// In what it differs from the start: "offset=value", "size=", "attr=", "mtime=", "name>inode",
// "-name"; with "inode:" before it, unless it is about F or the root.
std::string tell(const Disk &disk)
{
    static const Disk start = start_disk();
    std::ostringstream out;
    for (int id = 0; id < static_cast<int>(disk.count()); id++) {
        const Inode none, &i = disk.at(id),
                          &was = id < static_cast<int>(start.count()) ? start.at(id) : none;
        std::string of = id == F || id == Disk::ROOT ? "" : std::to_string(id) + ":";
        for (const auto &page : i.pages)
            for (uint64_t at = page.first * PAGE; at < (page.first + 1) * PAGE; at += 8)
                if (i.word(at))
                    out << " " << of << at << "=" << i.word(at);
        if (i.size != was.size)
            out << " " << of << "size=" << i.size;
        if (i.attribute != was.attribute)
            out << " " << of << "attr=" << i.attribute;
        if (!(i.mtime == was.mtime))
            out << " " << of << "mtime=" << i.mtime.sec;
        for (const auto &name : i.names) {
            auto before = was.names.find(name.first);
            if (before == was.names.end() || before->second != name.second)
                out << " " << of << name.first << ">" << name.second;
        }
        for (const auto &name : was.names)
            if (!i.names.count(name.first))
                out << " " << of << "-" << name.first;
    }
    return out.str().empty() ? "" : out.str().substr(1);
}

using Images = std::set<std::string>;

class Past
{
  public:
    explicit Past(Loss loss, bool faults_sync = true, const Mutation &mutation = {})
        : media(start_disk(), loss, faults_sync, mutation)
    {
    }

    Past &operator<<(const Event &e)
    {
        media.feed(e);
        return *this;
    }

    Images images()
    {
        Images all = look(nullptr);
        EXPECT_EQ(last, tell(media.visible())) << "everything kept, and not what was visible";
        return all;
    }

    // A crash while `next` is under way.
    Images during(const Event &next)
    {
        return look(&next);
    }

    Media media;

  private:
    std::string last;

    Images look(const Event *next)
    {
        Images all;
        Choices choices(media.units(next), 1);
        EXPECT_NE(choices.all(), 0u);
        for (uint64_t i = 0; i < choices.all(); i++)
            all.insert(last = tell(media.image(choices.pick(i))));
        return all;
    }
};

// ---- Loss::Power: cached stores -----------------------------------------------------------------

TEST(RulesOfCachedStores, OneIsLostOrKept)
{
    Past past(Loss::Power);
    EXPECT_EQ(past.images(), Images({""}));
    past << cached({{0, 1}});
    EXPECT_EQ(past.images(), Images({"", "0=1"}));
    EXPECT_EQ(tell(past.media.visible()), "0=1");
}

TEST(RulesOfCachedStores, OfALineTheSecondIsNotThereWithoutTheFirst)
{
    Past past(Loss::Power);
    past << cached({{8, 1}}) << cached({{0, 2}});
    EXPECT_EQ(past.images(), Images({"", "8=1", "0=2 8=1"}));
}

TEST(RulesOfCachedStores, OfALineThoseOfTwoThreadsKeepTheirOrderToo)
{
    Past past(Loss::Power);
    past << cached({{8, 1}}, 2) << cached({{0, 2}}, 1) << cached({{16, 3}}, 2);
    EXPECT_EQ(past.images(), Images({"", "8=1", "0=2 8=1", "0=2 8=1 16=3"}));
}

TEST(RulesOfCachedStores, OfOneWordAnyVersionMayBeThere)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << cached({{0, 2}}) << cached({{0, 3}});
    EXPECT_EQ(past.images(), Images({"", "0=1", "0=2", "0=3"}));
}

TEST(RulesOfCachedStores, OfTwoLinesEachMayBeThereWithoutTheOther)
{
    Past past(Loss::Power);
    past << cached({{56, 1}}) << cached({{64, 2}});
    EXPECT_EQ(past.images(), Images({"", "56=1", "64=2", "56=1 64=2"}));
}

TEST(RulesOfCachedStores, LinesOfTwoFilesAreTwoLines)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << cached({{0, 2}}, 1, G);
    EXPECT_EQ(past.images(), Images({"", "0=1", "2:0=2", "0=1 2:0=2"}));
}

TEST(RulesOfCachedStores, OfAMemcpyAnySubsetOfItsWords)
{
    Past past(Loss::Power);
    past << cached({{0, 1}, {8, 2}, {16, 3}});
    EXPECT_EQ(past.images(), Images({"", "0=1", "8=2", "16=3", "0=1 8=2", "0=1 16=3", "8=2 16=3",
                                     "0=1 8=2 16=3"}));
}

TEST(RulesOfCachedStores, WhatFollowsAMemcpyInItsLineNeedsItWhole)
{
    Past past(Loss::Power);
    past << cached({{0, 1}, {8, 2}}) << cached({{16, 3}});
    EXPECT_EQ(past.images(), Images({"", "0=1", "8=2", "0=1 8=2", "0=1 8=2 16=3"}));
}

TEST(RulesOfCachedStores, AMemcpyBehindAnotherStoreMayBeThereInPart)
{
    Past past(Loss::Power);
    past << cached({{16, 3}}) << cached({{0, 1}, {8, 2}});
    EXPECT_EQ(past.images(), Images({"", "16=3", "0=1 16=3", "8=2 16=3", "0=1 8=2 16=3"}));
}

TEST(RulesOfCachedStores, AMemcpyOverTwoLinesIsWholeLineByLine)
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

TEST(RulesOfFlushes, OneCapturesOnlyWhatWasStoredBeforeIt)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}) << flush(0) << cached({{8, 2}}) << fence();
    EXPECT_EQ(past.images(), Images({"0=1", "0=1 8=2"}));
    past << fence(); // what it captured is used up
    EXPECT_EQ(past.images(), Images({"0=1", "0=1 8=2"}));
}

TEST(RulesOfFlushes, OneCapturesWhatAnotherThreadStored)
{
    Past past(Loss::Power);
    past << cached({{0, 1}}, 2) << flush(0) << fence();
    EXPECT_EQ(past.images(), Images({"0=1"}));
}

TEST(RulesOfFlushes, OneIsAboutItsWholeLinesAndNoOthers)
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

TEST(RulesOfStreamedStores, AnySubsetOfTheirWordsUntilTheirThreadsFence)
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

TEST(RulesOfStreamedStores, OfOneWordNoneOrAnyVersion)
{
    Past past(Loss::Power);
    past << streamed({{0, 1}, {8, 1}}) << streamed({{0, 2}});
    EXPECT_EQ(past.images(), Images({"", "0=1", "0=2", "8=1", "0=1 8=1", "0=2 8=1"}));
}

TEST(RulesOfStreamedStores, AFenceIsAboutThoseBeforeIt)
{
    Past past(Loss::Power);
    past << streamed({{0, 1}}) << fence() << streamed({{8, 2}});
    EXPECT_EQ(past.images(), Images({"0=1", "0=1 8=2"}));
}

TEST(RulesOfStreamedStores, AnOlderOneOfTheWordDoesNotComeBackOverOneThatIsCertain)
{
    Past past(Loss::Power);
    past << streamed({{0, 1}, {8, 1}}, 1) << streamed({{0, 2}}, 2) << fence(2);
    EXPECT_EQ(past.images(), Images({"0=2", "0=2 8=1"}));
    past << fence(1);
    EXPECT_EQ(past.images(), Images({"0=2 8=1"}));
}

TEST(RulesOfStreamedStores, ANewerOneStaysPendingOverOneThatIsCertain)
{
    Past past(Loss::Power);
    past << streamed({{0, 1}}, 1) << streamed({{0, 2}}, 2) << fence(1);
    EXPECT_EQ(past.images(), Images({"0=1", "0=2"}));
}

TEST(RulesOfStreamedStores, TheDeathOfTheirProcessDoesNotSaveThemFromAPowerCut)
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

TEST(RulesOfMixedLines, NotWhenTheFirstKindIsCertainOrTheLinesAreOthers)
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

TEST(RulesOfDurableCaches, OrUntilItsProcessIsDead)
{
    Past past(Loss::Cache);
    past << streamed({{0, 1}, {8, 2}});
    past.media.process_died();
    EXPECT_EQ(past.images(), Images({"0=1 8=2"}));
}

TEST(RulesOfDurableCaches, OfACachedStoreUnderWayAnySubset)
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

TEST(RulesOfKilledProcesses, WhatWasDoneIsThere)
{
    Past past(Loss::Process);
    past << cached({{0, 1}}) << streamed({{64, 2}}) << attribute("x") << resize(PAGE) << times(7)
         << make("a", NEW) << rename_of("a", "b");
    EXPECT_EQ(past.images(), Images({"b>4 0=1 64=2 size=4096 attr=x mtime=7"}));
    EXPECT_EQ(past.media.mixed(), "");
}

TEST(RulesOfKilledProcesses, OfTheStoreUnderWayAnySubset)
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

// ---- msync and fsync ----------------------------------------------------------------------------

TEST(RulesOfSyncs, MsyncMakesWholePagesCertainWhoeverStored)
{
    Past past(Loss::Power, false);
    past << cached({{0, 1}}) << cached({{4088, 2}}, 2) << cached({{4096, 3}})
         << cached({{0, 4}}, 1, G) << msync_of(100, 8);
    EXPECT_EQ(past.images(), Images({"0=1 4088=2", "0=1 4088=2 4096=3", "0=1 4088=2 2:0=4",
                                     "0=1 4088=2 4096=3 2:0=4"}));
}

TEST(RulesOfSyncs, MsyncIsAboutEveryPageThatItTouches)
{
    Past past(Loss::Power, false);
    past << cached({{0, 1}}) << cached({{8184, 2}}) << cached({{8192, 3}}) << msync_of(4095, 2);
    EXPECT_EQ(past.images(), Images({"0=1 8184=2", "0=1 8184=2 8192=3"}));
}

TEST(RulesOfSyncs, MsyncOfAnyPageMakesTheSizeOfTheFileCertainAndNoMore)
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

TEST(RulesOfNames, ThoseWithANameInCommonAreAPrefixOfTheirOrder)
{
    Past past(Loss::Power);
    past << make("a", NEW) << rename_of("a", "b") << rename_of("b", "c");
    EXPECT_EQ(past.images(), Images({"", "a>4", "b>4", "c>4"}));
}

TEST(RulesOfNames, OthersAreIndependent)
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

TEST(RulesOfNames, WhatARenameGaveIsTiedToIt)
{
    Past past(Loss::Power);
    past << rename_of("g", "h") << removal("h") << make("h", NEW);
    EXPECT_EQ(past.images(), Images({"", "h>2 -g", "-g", "h>4 -g"})) << "never h>4 alone";
}

TEST(RulesOfNames, ARemovalAndTheSameNameAgainKeepTheirOrder)
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

TEST(RulesOfNames, WhatIsCertainTiesNothing)
{
    Past past(Loss::Power);
    past << make("a", NEW) << fsync_of(Disk::ROOT) << rename_of("a", "b");
    EXPECT_EQ(past.images(), Images({"a>4", "b>4"}));
}

// ---- metadata -----------------------------------------------------------------------------------

TEST(RulesOfMetadata, OfOneFileItIsAPrefixOfItsOrder)
{
    Past past(Loss::Power);
    past << resize(5 * PAGE) << attribute("x") << times(7) << attribute("");
    EXPECT_EQ(past.images(), Images({"", "size=20480", "size=20480 attr=x",
                                     "size=20480 attr=x mtime=7", "size=20480 mtime=7"}));
}

TEST(RulesOfMetadata, OfTwoFilesItIsIndependent)
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

TEST(RulesOfMetadata, WhereFaultsSyncAStoreToTheFileMakesItsSizeCertainAndNoMore)
{
    for (Loss loss : {Loss::Power, Loss::Cache}) {
        Past past(loss, true);
        past << resize(5 * PAGE) << attribute("x") << streamed({{0, 1}});
        EXPECT_EQ(past.images(), Images({"size=20480", "0=1 size=20480", "size=20480 attr=x",
                                         "0=1 size=20480 attr=x"}));
    }
}

TEST(RulesOfMetadata, ElsewhereWhatIsStoredBehindAGrowthIsNotThereWithoutIt)
{
    Past past(Loss::Power, false);
    past << resize(5 * PAGE) << cached({{4 * PAGE, 1}});
    EXPECT_EQ(past.images(), Images({"", "size=20480", "16384=1 size=20480"}));
}

TEST(RulesOfMetadata, AndWhatIsStoredBeforeItMayBe)
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

TEST(RulesOfTruncation, WhatLayBehindIsGone)
{
    Past past(Loss::Power);
    past << cached({{4096, 1}}) << fsync_of(F) << resize(PAGE) << resize(SIZE);
    EXPECT_EQ(past.images(), Images({"4096=1", "size=4096", ""}));
}

TEST(RulesOfTruncation, WhatWasPendingBehindIsGoneAndNothingElse)
{
    Past past(Loss::Power);
    past << cached({{4088, 1}}) << cached({{4096, 2}}) << cached({{12288, 3}})
         << cached({{8192, 4}}, 1, G) << flush(0, SIZE) << resize(PAGE) << resize(SIZE)
         << fsync_of(F) << fence();
    EXPECT_EQ(past.images(), Images({"4088=1", "4088=1 2:8192=4"}));
}

// ---- faults -------------------------------------------------------------------------------------

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

TEST(RulesOfMetadata, TheSameBytesBehindAShrinkAreNotTheOldOnes)
{
    Past past(Loss::Power, false);
    past << cached({{0, 5}}) << fsync_of(F) << resize(0) << resize(SIZE) << cached({{0, 5}});
    Images images = past.images();
    EXPECT_EQ(images.count("0=5"), 1u);
    EXPECT_EQ(images.count(""), 1u) << "shrunk, grown, and not stored again";
}

TEST(RulesOfDeath, AFlushCapturesStreamsOfTheDeadAndNotOfTheLiving)
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

TEST(RulesOfDeath, WhatWasWithheldFromTheDeadNeverComes)
{
    Past past(Loss::Power, true, fault(Fault::Delay));
    past << cached({{0, 1}}) << flush(0) << at_site(fence());
    past.media.process_died();
    past << cached({{64, 2}}) << allow();
    EXPECT_EQ(past.images().size(), 4u);
}

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
    EXPECT_TRUE(past.media.tender()) << "between that store and the fence: to be looked at";
    EXPECT_EQ(past.images().size(), 8u);
    past << allow();
    EXPECT_EQ(past.images(), Images({"0=1", "0=1 64=2", "0=1 128=3", "0=1 64=2 128=3"}));
}

TEST(RulesOfFaults, AFenceThatIsDelayedIsAboutThatStoreToo)
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

TEST(RulesOfFaults, LateBringsAStoreWhenTheNextOperationHasReturned)
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

TEST(RulesOfFaults, TearMakesAWordTwoHalves)
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

TEST(RulesOfFaults, TearKeepsTheOtherHalfOfWhatWasThere)
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

// ---- version ------------------------------------------------------------------------------------

TEST(RulesOfVersions, TheyMoveWithWhateverACrashMayDecideAbout)
{
    Past past(Loss::Power);
    uint64_t before = past.media.version();
    auto moved = [&] {
        uint64_t now = past.media.version();
        return std::exchange(before, now) != now;
    };
    past << allow();
    EXPECT_FALSE(moved());
    for (const Event &e : {cached({{0, 1}}), flush(0), fence(), attribute("x"), fsync_of(F),
                           make("a", NEW), fsync_of(Disk::ROOT)}) {
        past << e;
        EXPECT_TRUE(moved()) << name_of(e.kind);
    }
    past.media.process_died();
    EXPECT_TRUE(moved());
}

// ---- choices ------------------------------------------------------------------------------------

std::vector<Unit> units_of(size_t n, uint32_t choices, size_t to_a_group = 1)
{
    std::vector<Unit> units;
    for (size_t i = 0; i < n; i++)
        units.push_back({choices, 1000 + i / to_a_group});
    return units;
}

using Choice = std::vector<uint32_t>;

TEST(ChoicesOfFew, EveryCrashOnceFromNothingToEverything)
{
    std::vector<Unit> units = {{2, 1}, {3, 1}, {4, 2}};
    Choices choices(units, 5);
    ASSERT_EQ(choices.all(), 24u);
    std::set<Choice> all;
    for (uint64_t i = 0; i < 24; i++) {
        Choice c = choices.pick(i);
        for (size_t u = 0; u < units.size(); u++)
            EXPECT_LT(c[u], units[u].choices);
        all.insert(c);
    }
    EXPECT_EQ(all.size(), 24u);
    EXPECT_EQ(choices.pick(0), Choice({0, 0, 0}));
    EXPECT_EQ(choices.pick(23), Choice({1, 2, 3}));
}

TEST(ChoicesOfFew, NothingToDecideIsOneCrash)
{
    std::vector<Unit> units;
    Choices choices(units, 5);
    EXPECT_EQ(choices.all(), 1u);
    EXPECT_EQ(choices.pick(0), Choice());
    EXPECT_EQ(choices.numbers(100), std::vector<uint64_t>({0}));
}

TEST(ChoicesOfFew, AreExhaustiveUpToTheLimitAndNotBeyond)
{
    std::vector<Unit> twelve = units_of(12, 2), thirteen = units_of(13, 2),
                      many = units_of(200, 1000);
    EXPECT_EQ(Choices(twelve, 5).all(), Choices::EXHAUSTIVE);
    EXPECT_EQ(Choices(thirteen, 5).all(), 0u);
    EXPECT_EQ(Choices(many, 5).all(), 0u);
}

TEST(ChoicesOfMany, NothingEverythingEachGroupAloneAndItsInverseThenPairs)
{
    constexpr size_t GROUPS = 7;
    std::vector<Unit> units = units_of(2 * GROUPS, 3, 2);
    Choices choices(units, 5), otherwise(units, 6);
    ASSERT_EQ(choices.all(), 0u);
    auto only = [&](const std::set<size_t> &groups) {
        Choice c(units.size());
        for (size_t g : groups)
            c[2 * g] = c[2 * g + 1] = 2;
        return c;
    };
    std::set<Choice> singles = {only({}), Choice(units.size(), 2)}, pairs, found;
    for (size_t a = 0; a < GROUPS; a++) {
        Choice inverse(units.size(), 2);
        inverse[2 * a] = inverse[2 * a + 1] = 0;
        singles.insert(only({a}));
        singles.insert(inverse);
        for (size_t b = a + 1; b < GROUPS; b++)
            pairs.insert(only({a, b}));
    }
    EXPECT_EQ(choices.pick(0), only({}));
    EXPECT_EQ(choices.pick(1), Choice(units.size(), 2));
    constexpr uint64_t SINGLES = 2 + 2 * GROUPS, PAIRS = GROUPS * (GROUPS - 1) / 2;
    for (uint64_t i = 0; i < SINGLES; i++)
        found.insert(choices.pick(i));
    EXPECT_EQ(found, singles);
    found.clear();
    for (uint64_t i = SINGLES; i < SINGLES + PAIRS; i++)
        found.insert(choices.pick(i));
    EXPECT_EQ(found, pairs);
    // These do not depend on the seed; those behind them do.
    for (uint64_t i = 0; i < SINGLES + PAIRS; i++)
        EXPECT_EQ(choices.pick(i), otherwise.pick(i)) << i;
    int others = 0;
    for (uint64_t i = SINGLES + PAIRS; i < SINGLES + PAIRS + 10; i++)
        others += choices.pick(i) != otherwise.pick(i);
    EXPECT_GT(others, 5);
}

TEST(ChoicesOfMany, NoPairsOfMoreThanFortyGroups)
{
    for (size_t groups : {40, 41}) {
        std::vector<Unit> units = units_of(groups, 2);
        Choices choices(units, 5);
        auto kept = [&](uint64_t number) {
            Choice c = choices.pick(number);
            return std::count(c.begin(), c.end(), 1u);
        };
        uint64_t behind = 2 + 2 * groups;
        int pairs = 0;
        for (uint64_t i = behind; i < behind + 780; i++)
            pairs += kept(i) == 2;
        if (groups == 40)
            EXPECT_EQ(pairs, 780);
        else
            EXPECT_LT(pairs, 390);
    }
}

TEST(ChoicesOfMany, ANumberMeansTheSameHoweverManyAreLookedAt)
{
    std::vector<Unit> units = units_of(30, 3, 2);
    Choices a(units, 5), b(units, 5), other(units, 6);
    std::vector<uint64_t> few = a.numbers(20), more = b.numbers(2000);
    std::set<Choice> all;
    int differ = 0;
    for (uint64_t n : more) {
        Choice c = b.pick(n);
        all.insert(c);
        EXPECT_EQ(c, a.pick(n));
        differ += c != other.pick(n);
        for (size_t u = 0; u < units.size(); u++)
            ASSERT_LT(c[u], units[u].choices);
    }
    EXPECT_GT(differ, 1000);
    EXPECT_GT(all.size(), 1500u);
    EXPECT_EQ(few, b.numbers(20));
}

TEST(ChoicesOfMany, RandomOnesReachTheMiddleOfAUnit)
{
    std::vector<Unit> units = units_of(20, 3);
    Choices choices(units, 5);
    std::set<uint32_t> seen;
    for (uint64_t i = 1000; i < 1100; i++)
        for (uint32_t c : choices.pick(i))
            seen.insert(c);
    EXPECT_EQ(seen, std::set<uint32_t>({0, 1, 2}));
}

TEST(ChoicesToLookAt, AreAllDifferentWithBothExtremesAndNoMoreThanAsked)
{
    std::vector<Unit> few = units_of(10, 2), many = units_of(30, 3);
    for (uint64_t limit : {2, 3, 10, 500, 1023, 1024, 5000}) {
        SCOPED_TRACE(limit);
        for (const std::vector<Unit> *units : {&few, &many}) {
            Choices choices(*units, 5);
            std::vector<uint64_t> numbers = choices.numbers(limit);
            std::set<uint64_t> set(numbers.begin(), numbers.end());
            EXPECT_EQ(set.size(), numbers.size());
            EXPECT_EQ(numbers.size(), units == &few ? std::min<uint64_t>(limit, 1024) : limit);
            EXPECT_TRUE(set.count(0));
            EXPECT_TRUE(set.count(units == &few ? 1023 : 1));
            EXPECT_LT(units == &few ? *set.rbegin() : 0, 1024u);
        }
    }
}

TEST(ChoicesToLookAt, OfManyAreRegularAndRandomOnes)
{
    std::vector<Unit> many = units_of(30, 3);
    uint64_t regular = 2 + 2 * 30 + 30 * 29 / 2;
    Choices choices(many, 5);
    std::vector<uint64_t> numbers = choices.numbers(200);
    long n = std::count_if(numbers.begin(), numbers.end(), [&](uint64_t i) { return i < regular; });
    EXPECT_GT(n, 90);
    EXPECT_LT(n, 110);
    EXPECT_NE(numbers, Choices(many, 6).numbers(200));
    numbers = choices.numbers(regular + 10);
    for (uint64_t i = 0; i < regular + 10; i++)
        ASSERT_EQ(numbers[i], i);
}

// ---- disks --------------------------------------------------------------------------------------

TEST(DiskHash, IsTheSameForAHoleAndAPageOfZeros)
{
    Disk hole = start_disk(), zeros = start_disk(), was = start_disk();
    zeros.edit(F).set_word(PAGE, 0);
    was.edit(F).set_word(PAGE, 1);
    EXPECT_NE(was.hash(), hole.hash());
    was.edit(F).set_word(PAGE, 0);
    EXPECT_EQ(zeros.hash(), hole.hash());
    EXPECT_EQ(was.hash(), hole.hash());
}

TEST(DiskHash, IsTheSameForTheSameContentHoweverItCameAbout)
{
    Disk a = start_disk(), b = start_disk();
    a.edit(F).set_word(0, 1);
    a.edit(F).set_word(PAGE, 2);
    a.edit(F).attribute = "x";
    b.edit(F).attribute = "x";
    b.edit(F).set_word(PAGE, 2);
    b.edit(F).set_word(8, 3);
    (void)b.hash();
    b.edit(F).set_word(0, 1);
    b.edit(F).set_word(8, 0);
    EXPECT_EQ(a.hash(), b.hash());
}

TEST(DiskHash, DiffersByWhateverDiffers)
{
    std::vector<Disk> disks(14, start_disk());
    disks[1].edit(F).set_word(0, 1);
    disks[2].edit(F).set_word(0, 2);
    disks[3].edit(F).set_word(8, 1);
    disks[4].edit(F).set_word(PAGE, 1);
    disks[5].edit(G).set_word(0, 1);
    disks[6].edit(F).size--;
    disks[7].edit(F).attribute = "x";
    disks[8].edit(F).mtime = {1, 0};
    disks[9].edit(F).mtime = {0, 1};
    disks[10].edit(Disk::ROOT).names.erase("g");
    disks[11].edit(Disk::ROOT).names["h"] = G;
    disks[12].edit(D).names["h"] = F;
    disks[13].edit(D).folder = false;
    std::set<uint64_t> hashes;
    for (const Disk &disk : disks)
        hashes.insert(disk.hash());
    EXPECT_EQ(hashes.size(), disks.size());
}

TEST(DiskHash, IsOfWhatCanBeReached)
{
    Disk disk = start_disk(), other = start_disk();
    Inode orphan;
    orphan.attribute = "x";
    other.add(orphan);
    EXPECT_EQ(disk.hash(), other.hash());
}

TEST(DiskCopies, DoNotShareChanges)
{
    Disk first = start_disk();
    first.edit(F).set_word(0, 1);
    Disk second = first;
    uint64_t hash = first.hash();
    second.edit(F).set_word(0, 2);
    second.edit(F).attribute = "x";
    second.edit(Disk::ROOT).names.erase("g");
    second.add(Inode());
    EXPECT_EQ(tell(first), "0=1");
    EXPECT_EQ(first.hash(), hash);
    EXPECT_EQ(first.count(), 4u);
    Disk third = second;
    first.edit(F).set_word(8, 3);
    third.edit(F).resize(0);
    EXPECT_EQ(tell(second), "-g 0=2 attr=x");
    EXPECT_EQ(tell(first), "0=1 8=3");
}

TEST(DiskResize, WhatWasCutOffReadsAsZeros)
{
    constexpr unsigned char FULL = 0xff;
    for (uint64_t cut : {0, 1, 7, 8, 9, 4088, 4089, 4095, 4096, 4097, 5000, 8191, 8192, 12287}) {
        SCOPED_TRACE(cut);
        Inode file;
        file.size = 3 * PAGE;
        for (uint64_t at = 0; at < file.size; at += 8)
            file.set_word(at, ~0ull);
        const Inode before = file;
        file.resize(cut);
        EXPECT_EQ(file.size, cut);
        EXPECT_EQ(file.content(), Bytes(cut, FULL));
        file.resize(3 * PAGE);
        Bytes expected(3 * PAGE);
        std::fill_n(expected.begin(), cut, FULL);
        EXPECT_EQ(file.content(), expected);
        EXPECT_EQ(before.content(), Bytes(3 * PAGE, FULL));
    }
}

TEST(DiskRead, GoesOverPagesAndHoles)
{
    Inode file;
    file.size = 3 * PAGE;
    file.set_word(0, 0x0807060504030201ull);
    file.set_word(2 * PAGE, 0x1817161514131211ull);
    Bytes bytes(2 * PAGE);
    file.read(3, bytes.data(), bytes.size());
    Bytes expected(2 * PAGE);
    for (unsigned char i = 0; i < 5; i++)
        expected[i] = static_cast<unsigned char>(4 + i);
    for (unsigned char i = 0; i < 3; i++)
        expected[2 * PAGE - 3 + i] = static_cast<unsigned char>(0x11 + i);
    EXPECT_EQ(bytes, expected);
    EXPECT_EQ(file.word(PAGE), 0u);
}

// ---- the reader ---------------------------------------------------------------------------------

constexpr uint64_t ID[2] = {0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};
const char *const ATTRIBUTE = "ato1 000102030405060708090a0b0c0d0e0f 77 .ato";
enum State : uint64_t { BORN = 1, IN_USE, CLEAN, DEPLOYED };

uint64_t sum(const Inode &file, uint64_t at, uint64_t bytes, uint64_t h = 0x61746f2d73756d31ull)
{
    for (uint64_t i = at; i < at + bytes; i += 8) {
        h = (h ^ file.word(i)) * 0x9fb21c651e98df25ull;
        h ^= h >> 29;
    }
    return h;
}

// A file of 5 MiB, inode 77, with a pairing.
struct Paired {
    Disk disk;
    int original, folder, reflection, manifest, journal = -1;

    explicit Paired(uint64_t state)
    {
        constexpr uint64_t BYTES = 5 << 20;
        Inode o, r, m, f;
        f.folder = true;
        o.size = BYTES;
        o.attribute = ATTRIBUTE;
        r.size = BYTES + 3 * PAGE;
        m.size = 3 * PAGE;
        for (uint64_t at = 0; at < BYTES; at += PAGE)
            o.set_word(at, 1 + at);
        m.set_word(8192, BYTES); // the checksum above it: not this reader's business
        original = disk.add(o);
        folder = disk.add(f);
        reflection = disk.add(r);
        manifest = disk.add(m);
        disk.edit(Disk::ROOT).names = {{"file", original}, {".ato", folder}};
        disk.edit(folder).names = {{"77", reflection}, {"77.manifest", manifest}};
        record(0, BORN, 1);
        if (state != BORN)
            record(4096, state, 2);
    }

    void record(uint64_t copy, uint64_t state, uint64_t sequence)
    {
        Inode &m = disk.edit(manifest);
        m.set_word(copy, 0x545345464e414d41ull);
        m.set_word(copy + 8, 1);
        m.set_word(copy + 16, 1 | state << 32);
        m.set_word(copy + 24, sequence);
        m.set_word(copy + 32, ID[0]);
        m.set_word(copy + 40, ID[1]);
        m.set_word(copy + 504, sum(m, copy, 504));
    }

    // One lane that sets one word of the reflection.
    void lane(uint64_t sequence, uint64_t retired, uint64_t at, uint64_t value,
              const std::string &name = "journal-1", uint64_t id = ID[0])
    {
        Inode j;
        j.size = 6 * PAGE;
        j.set_word(PAGE, 0x4c414e52554f4a41ull);
        j.set_word(PAGE + 8, 1 | 2ull << 32); // two small lanes
        j.set_word(PAGE + 16, 1024);
        j.set_word(PAGE + 24, 4096);
        j.set_word(PAGE + 56, sum(j, PAGE, 56));
        uint64_t l = 2 * PAGE + 1024; // the second
        j.set_word(l, sequence);
        j.set_word(l + 8, 1 | 1ull << 32);
        j.set_word(l + 64, retired);
        j.set_word(l + 128, id);
        j.set_word(l + 136, ID[1]);
        j.set_word(l + 160, at);
        j.set_word(l + 168, value);
        j.set_word(l + 56, sum(j, l + 128, 48, sum(j, l, 56)));
        journal = disk.add(j);
        disk.edit(folder).names[name] = journal;
    }

    Found read() const
    {
        return read_file(disk, original, 77);
    }
    // The words of the file, as far as they differ from the original's.
    std::string text() const
    {
        Found found = read();
        if (!found.damage.empty())
            return "damage";
        std::ostringstream out;
        for (uint64_t at = 0; at < found.content.size(); at += 8) {
            uint64_t w;
            memcpy(&w, found.content.data() + at, 8);
            if (w != disk.at(original).word(at))
                out << at << "=" << w << " ";
        }
        return out.str();
    }
};

// The example of FORMAT.md.
constexpr uint64_t BIT_AT = 2103008, BIT = 1ull << 27, O = 3000000, R = 3008192;

TEST(Reader, TakesEachSliceFromItsValidHome)
{
    Paired p(IN_USE);
    p.disk.edit(p.reflection).set_word(R, 5);
    p.disk.edit(p.reflection).set_word(R + 64, 6); // the next slice is valid in the original
    EXPECT_EQ(p.text(), "");
    p.disk.edit(p.reflection).set_word(BIT_AT, BIT);
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
    p.record(0, CLEAN, 3);
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
}

TEST(Reader, ReadsALastSliceInPart)
{
    Paired p(IN_USE);
    p.disk.edit(p.original).size = O + 8;
    p.disk.edit(p.manifest).set_word(8192, O + 8);
    p.disk.edit(p.reflection).set_word(R, 5);
    p.disk.edit(p.reflection).set_word(BIT_AT, BIT);
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
    EXPECT_EQ(p.read().content.size(), O + 8);
}

TEST(Reader, TakesAFileForPlainThatHasNoPairingInUse)
{
    Paired born(BORN), deployed(DEPLOYED), another(IN_USE), fresh(IN_USE);
    another.disk.edit(another.original).attribute[6]++;
    fresh.disk.edit(fresh.manifest).resize(0);
    fresh.disk.edit(fresh.manifest).resize(3 * PAGE);
    for (Paired *p : {&born, &deployed, &another, &fresh}) {
        p->disk.edit(p->reflection).set_word(BIT_AT, BIT);
        p->disk.edit(p->reflection).set_word(R, 5);
        EXPECT_EQ(p->text(), "");
    }
    Disk plain = start_disk();
    plain.edit(F).set_word(0, 1);
    EXPECT_EQ(read_file(plain, F, 77).content, plain.at(F).content());
    EXPECT_EQ(read_file(plain, F, 77).damage, "");
}

TEST(Reader, BelievesTheValidCopyWithTheHigherSequence)
{
    Paired p(IN_USE);
    p.disk.edit(p.reflection).set_word(BIT_AT, BIT);
    p.disk.edit(p.reflection).set_word(R, 5);
    p.record(0, DEPLOYED, 3);
    EXPECT_EQ(p.text(), "");
    p.disk.edit(p.manifest).set_word(400, 1); // copy A is not valid
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
    p.disk.edit(p.manifest).set_word(4096 + 400, 1); // and neither is B
    EXPECT_EQ(p.text(), "damage");
}

TEST(Reader, CallsDamageWhatMissesAPart)
{
    Paired manifest(IN_USE), reflection(IN_USE), size(IN_USE), header(IN_USE);
    manifest.disk.edit(manifest.folder).names.erase("77.manifest");
    reflection.disk.edit(reflection.folder).names.erase("77");
    size.disk.edit(size.original).size--;
    header.lane(1, 0, BIT_AT, BIT);
    header.disk.edit(header.journal).set_word(PAGE + 16, 2048);
    for (Paired *p : {&manifest, &reflection, &size, &header})
        EXPECT_EQ(p->text(), "damage");
}

TEST(Reader, ReplaysWhatIsCommittedAndNothingElse)
{
    struct {
        uint64_t sequence, retired;
        const char *name;
        uint64_t id;
        bool replayed;
    } cases[] = {
        {8, 7, "journal-1", ID[0], true},      {7, 7, "journal-1", ID[0], false},
        {8, 7, "journal-1.tmp", ID[0], false}, {8, 7, "journal-1", ID[0] + 1, false},
        {8, 7, "other", ID[0], false},
    };
    for (const auto &c : cases) {
        Paired p(IN_USE);
        p.disk.edit(p.reflection).set_word(R, 5);
        p.lane(c.sequence, c.retired, BIT_AT, BIT, c.name, c.id);
        EXPECT_EQ(p.text(), c.replayed ? std::to_string(O) + "=5 " : "") << c.name << c.sequence;
        EXPECT_EQ(p.disk.at(p.reflection).word(BIT_AT), 0u);
    }
}

TEST(Reader, TellsACutLaneFromADamagedOne)
{
    Paired cut(IN_USE), gap(IN_USE), counts(IN_USE);
    for (Paired *p : {&cut, &gap, &counts}) {
        p->disk.edit(p->reflection).set_word(R, 5);
        p->lane(p == &gap ? 9 : 8, 7, BIT_AT, BIT);
    }
    uint64_t l = 2 * PAGE + 1024;
    cut.disk.edit(cut.journal).set_word(l + 168, BIT | 1);
    EXPECT_EQ(cut.text(), "");
    EXPECT_EQ(gap.text(), "damage");
    counts.disk.edit(counts.journal).set_word(l + 8, 1 | 100ull << 32);
    EXPECT_EQ(counts.text(), "damage");
}

} // namespace
