// SPDX-License-Identifier: BSD-3-Clause
//
// Does ato_reclaim() give back the space of RefPages in which nothing is valid, and of no others? The
// content stays, and later writes find space, also of other processes, and after a kill at any step. Does
// max_reflection_bytes keep the reflection small?
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include <sys/mman.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, PAGES = 600, SIZE = PAGES * PAGE;

// The domain, and where the file lies.
struct Place {
    int domain;
    bool disk;
};

std::string name_of(const testing::TestParamInfo<Place> &info)
{
    static const char *const names[] = {"Auto", "Pmem", "Eadr", "Msync", "Process"};
    return std::string(names[info.param.domain]) + (info.param.disk ? "OnDisk" : "InMemory");
}

class Reclaim : public testing::TestWithParam<Place>
{
  protected:
    void SetUp() override
    {
        write_file(file, content);
        if (GetParam().disk)
            DENSE_ONLY("there the space is given back when the last process unmaps the file");
    }
    // Bytes that the reflection takes.
    uint64_t space() const
    {
        return static_cast<uint64_t>(stat_of(reflection_of(file)).st_blocks) * 512;
    }
    bool put(Mapped &m, size_t page, size_t pages, unsigned seed)
    {
        const Bytes news = pattern(pages * PAGE, seed);
        std::copy(news.begin(), news.end(), content.begin() + static_cast<long>(page * PAGE));
        return m.write(page * PAGE, news);
    }
    TempDir dir{GetParam().disk ? disk_folder() : "/dev/shm"};
    const std::string file = dir / "file";
    const ato_options gather = options(GetParam().domain, ATO_READ_GATHER);
    Bytes content = pattern(SIZE, 1);
};

INSTANTIATE_TEST_SUITE_P(, Reclaim,
                         testing::Values(Place{ATO_DOMAIN_PROCESS, false},
                                         Place{ATO_DOMAIN_PMEM, false},
                                         Place{ATO_DOMAIN_MSYNC, true},
                                         Place{ATO_DOMAIN_PROCESS, true}),
                         name_of);

TEST_P(Reclaim, UnusedRefPagesGiveTheirSpaceBackAndTheContentStays)
{
    Mapped m(file, gather);
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(put(m, 0, PAGES, 2)) << m.sentence;
    const uint64_t full = space();
    ASSERT_EQ(ato_reclaim(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_EQ(space(), full) << "all slices are valid in the reflection";

    // Pages 100 to 549 are deployed; the range is from within page 150 to within page 560.
    ASSERT_EQ(ato_deploy(m.base + 100 * PAGE, 450 * PAGE), 0);
    ASSERT_EQ(ato_reclaim(m.base + 150 * PAGE + 5, 410 * PAGE), 0) << ato_errormsg();
    EXPECT_LE(space(), full - 399 * PAGE);
    EXPECT_GE(space(), full - 401 * PAGE);
    EXPECT_EQ(m.read(), content);
    for (size_t page : {99, 100, 149, 150, 151, 511, 512, 549, 550})
        ASSERT_TRUE(put(m, page, 1, static_cast<unsigned>(page))) << m.sentence;
    EXPECT_EQ(m.read(), content);

    ASSERT_EQ(ato_deploy(m.base, SIZE), 0);
    ASSERT_EQ(ato_reclaim(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_LE(space(), 8 * PAGE) << "meta pages, and what the file system needs for its lists";
    EXPECT_EQ(m.read(), content);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(file), content);
}

// The pages beside a hole in a page cache, which may lose their space, are in a sparse reflection any pages of the file.
TEST(SparseReclaim, OnADiskGivesTheSpaceBackWhenTheLastProcessUnmapsTheFile)
{
    TempDir dir(disk_folder());
    const std::string file = dir / "file";
    const Bytes news = pattern(PAGES * PAGE, 2);
    ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
    o.format = ATO_FORMAT_SPARSE;
    write_file(file, pattern(SIZE, 1));
    {
        Mapped m(file, o);
        ASSERT_TRUE(m && m.write(0, news)) << m.sentence;
        ASSERT_EQ(ato_deploy(m.base, 590 * PAGE), 0);
        ASSERT_EQ(ato_reclaim(m.base, SIZE), 0) << ato_errormsg();
        EXPECT_GE(stat_of(reflection_of(file)).st_blocks * 512, 600 * 4096);
    }
    EXPECT_LE(stat_of(reflection_of(file)).st_blocks * 512, 20 * 4096);
    Mapped m(file, o);
    EXPECT_EQ(m.stat().slices_in_reflection, 10u * 64);
    EXPECT_EQ(m.read(), news);
    ASSERT_TRUE(m.write(0, Bytes(SIZE, 7))) << m.sentence;
    EXPECT_EQ(m.read(), Bytes(SIZE, 7));
}

// These have no page state yet.
TEST_P(Reclaim, WhatAnEarlierMappingLeftIsGivenBackToo)
{
    {
        Mapped before(file, gather);
        ASSERT_TRUE(before && put(before, 0, PAGES, 2)) << before.sentence;
        ASSERT_EQ(ato_deploy(before.base, 300 * PAGE), 0);
    }
    const uint64_t full = space();
    Mapped m(file, gather);
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_EQ(ato_reclaim(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_LE(space(), full - 299 * PAGE);
    EXPECT_GE(space(), full - 301 * PAGE);
    EXPECT_EQ(m.read(), content);
}

TEST_P(Reclaim, AFileWithoutSpaceInItsReflectionIsNothingToDo)
{
    Mapped m(file, gather);
    ASSERT_TRUE(m) << m.sentence;
    const uint64_t before = space();
    EXPECT_EQ(ato_reclaim(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_EQ(ato_reclaim(m.base + 5, 0), 0);
    EXPECT_EQ(space(), before);
}

TEST_P(Reclaim, PagesOfAnOpenTransactionAreLeftAlone)
{
    Mapped m(file, gather);
    ASSERT_TRUE(m && put(m, 0, PAGES, 2)) << m.sentence;
    ASSERT_EQ(ato_deploy(m.base, SIZE), 0);
    ato_tx *t = ato_tx_begin(0);
    const Bytes news = pattern(PAGE, 3);
    ASSERT_TRUE(ato_tx_memcpy(t, m.base + 7 * PAGE, news.data(), PAGE, 0)) << ato_errormsg();
    EXPECT_EQ(ato_reclaim(m.base, SIZE), 0) << ato_errormsg();
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    std::copy(news.begin(), news.end(), content.begin() + 7 * PAGE);
    EXPECT_EQ(m.read(), content);
    ASSERT_EQ(ato_deploy(m.base, SIZE), 0);
    EXPECT_EQ(ato_reclaim(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_LE(space(), 8 * PAGE) << "nobody holds the pages any more";
}

// The next writer, in any process, allocates space before it stores. In a page cache the pages beside a hole may have
// lost theirs.
TEST_P(Reclaim, TheNextWriteAllocatesSpaceAlsoIfTheProcessIsKilledAtItsFirstPunch)
{
    for (bool killed : {false, true}) {
        Mapped m(file, gather);
        ASSERT_TRUE(m && put(m, 0, 16, 2)) << m.sentence;
        ASSERT_EQ(ato_deploy(m.base, 8 * PAGE), 0);
        ASSERT_EQ(in_child([&] {
                      Mapped other(file, gather);
                      FsFaults faults;
                      if (killed)
                          faults.before = [](const FsCall &c) {
                              if (std::string(c.op) == "fallocate")
                                  _exit(CUT);
                              return GO_ON;
                          };
                      return other && ato_reclaim(other.base, SIZE) == 0 ? 0 : 1;
                  }),
                  killed ? CUT : 0);
        FsFaults faults;
        ASSERT_TRUE(put(m, 5, 1, 4)) << m.sentence;
        EXPECT_GT(faults.count("fallocate"), 0) << "killed " << killed;
        const long after = faults.count("fallocate");
        ASSERT_TRUE(put(m, 5, 1, 5) && put(m, 5, 1, 6)) << m.sentence;
        EXPECT_EQ(faults.count("fallocate"), after);
        ASSERT_TRUE(put(m, 12, 1, 7) && put(m, 12, 1, 8)) << m.sentence;
        const bool joint = GetParam().disk;
        EXPECT_EQ(faults.count("fallocate") > after, joint) << "page 12 kept its slices in R";
        EXPECT_EQ(m.read(), content);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
}

TEST_P(Reclaim, AnErrorOfTheFileSystemIsReportedAndChangesNothing)
{
    Mapped m(file, gather);
    ASSERT_TRUE(m && put(m, 0, 16, 2)) << m.sentence;
    ASSERT_EQ(ato_deploy(m.base, 16 * PAGE), 0);
    FsFaults faults;
    faults.fail_op("fallocate", EOPNOTSUPP);
    EXPECT_EQ(ato_reclaim(m.base, SIZE), -1);
    EXPECT_EQ(errno, EOPNOTSUPP) << ato_errormsg();
    faults.before = nullptr;
    EXPECT_EQ(m.read(), content);
    EXPECT_EQ(ato_reclaim(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_LE(space(), 4 * PAGE);
    EXPECT_TRUE(put(m, 3, 2, 6)) << m.sentence;
    EXPECT_EQ(m.read(), content);
}

TEST_P(Reclaim, WhatIsNoWritableFilesRangeIsRefused)
{
    Mapped m(file, gather);
    ASSERT_TRUE(m) << m.sentence;
    char plain[64];
    EXPECT_EQ(ato_reclaim(plain, sizeof(plain)), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ato_reclaim(m.base, SIZE + 1), -1);
    EXPECT_EQ(errno, EFAULT);
    const Fd fd(file, O_RDONLY);
    void *reader = ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(reader, MAP_FAILED) << ato_errormsg();
    EXPECT_EQ(ato_reclaim(reader, SIZE), -1);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(ato_munmap(reader, SIZE, ATO_UNMAP_FAST), 0);
}

// ---- the budget ----------------------------------------------------------------------------------

// A file of 16 MiB; its reflection may take 512 KiB.
struct Budget : Reclaim {
    static constexpr size_t MANY = 4096;
    static constexpr uint64_t MOST = 1 << 19, SLACK = 32 * PAGE;
    Budget()
    {
        content = pattern(MANY * PAGE, 1);
        small.max_reflection_bytes = MOST;
    }
    void SetUp() override
    {
        write_file(file, content);
        if (GetParam().disk && !sparse())
            GTEST_SKIP() << "refused: ADenseReflectionInAPageCacheIsRefused";
    }
    ato_options small = gather;
};

INSTANTIATE_TEST_SUITE_P(, Budget,
                         testing::Values(Place{ATO_DOMAIN_PROCESS, false},
                                         Place{ATO_DOMAIN_PMEM, false},
                                         Place{ATO_DOMAIN_PROCESS, true}),
                         name_of);

struct BudgetOfAllPlaces : Budget {
};

INSTANTIATE_TEST_SUITE_P(, BudgetOfAllPlaces,
                         testing::Values(Place{ATO_DOMAIN_PROCESS, false},
                                         Place{ATO_DOMAIN_PMEM, false},
                                         Place{ATO_DOMAIN_MSYNC, true},
                                         Place{ATO_DOMAIN_PROCESS, true}),
                         name_of);

TEST_P(BudgetOfAllPlaces, ScatteredWritesKeepTheReflectionWithinIt)
{
    Mapped m(file, small);
    ASSERT_TRUE(m) << m.sentence;
    unsigned page = 1;
    uint64_t most = 0;
    const unsigned writes = GetParam().disk ? 200 : 1500;
    for (unsigned i = 0; i < writes; i++) {
        page = (page * 1103515245 + 12345) % MANY;
        ASSERT_TRUE(put(m, page, 1, i)) << m.sentence;
        most = std::max(most, space());
    }
    EXPECT_LE(most, MOST + SLACK);
    EXPECT_GE(most, MOST / 2) << "it is used";
    EXPECT_EQ(m.read(), content);
    const ato_status st = m.stat();
    EXPECT_GE(st.deployed_slices, (writes - MOST / PAGE) * 64);
    EXPECT_GE(st.bytes_to_media, st.bytes_written + st.deployed_slices * 64);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(file), content);
}

// A write takes its space in steps, and after each of them others are brought home.
TEST_P(Budget, WritesOfManyPagesStayWithinIt)
{
    constexpr unsigned EACH = 300;
    small.max_reflection_bytes = 4 * MOST;
    Mapped m(file, small);
    ASSERT_TRUE(m) << m.sentence;
    uint64_t most = 0;
    unsigned page = 1;
    for (unsigned i = 0; i < (GetParam().disk ? 15u : 40u); i++) {
        page = (page * 1103515245 + 12345) % (MANY - EACH);
        ASSERT_TRUE(put(m, page, EACH, i)) << m.sentence;
        most = std::max(most, space());
    }
    // In a page cache, space that was taken while all pages were held is kept.
    EXPECT_LE(most, 4 * MOST + (GetParam().disk ? 3 : 1) * SLACK);
    EXPECT_EQ(m.read(), content);
}

// What an earlier mapping without a budget left is brought home, too.
TEST_P(Budget, AReflectionThatTakesMoreShrinksByAndBy)
{
    if (GetParam().disk)
        GTEST_SKIP() << "there the space is given back when the last process unmaps the file";
    {
        Mapped m(file, gather);
        ASSERT_TRUE(m && put(m, 0, 512, 2)) << m.sentence;
    }
    ASSERT_GE(space(), 4 * MOST);
    Mapped m(file, small);
    ASSERT_TRUE(m) << m.sentence;
    for (unsigned i = 0; i < 64; i++)
        ASSERT_TRUE(put(m, 3500 + i, 1, i)) << m.sentence;
    EXPECT_LE(space(), MOST + SLACK);
    EXPECT_EQ(m.read(), content);
}

// Otherwise the reflection would have a place without space for nearly each page in the end, and a writer that looks for space would
// meet few others.
TEST(SparseBudget, PlacesWithoutSpaceAreUsedAgain)
{
    constexpr unsigned MANY = 8192, MOST = 128, CHUNK = 257, WRITES = 40000;
    TempDir dir;
    const std::string file = dir / "file";
    write_file(file, Bytes(MANY * PAGE));
    ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
    o.format = ATO_FORMAT_SPARSE;
    o.max_reflection_bytes = MOST * PAGE;
    {
        Mapped m(file, o);
        ASSERT_TRUE(m) << m.sentence;
        unsigned page = 1;
        for (unsigned i = 0; i < WRITES; i++) {
            page = page * 1103515245 + 12345;
            ASSERT_TRUE(m.write((page >> 16) % MANY * PAGE, Bytes(64, 1))) << m.sentence;
        }
        unsigned used = 0;
        for (unsigned chunk = 0; chunk < MANY / (CHUNK - 1); chunk++) {
            const Bytes entries =
                read_at(reflection_of(file), uint64_t(chunk) * CHUNK * PAGE, PAGE);
            for (size_t i = 0; i < PAGE; i += 16)
                used += std::any_of(&entries[i], &entries[i] + 16, [](int byte) { return byte; });
        }
        EXPECT_LE(used, 4 * MOST);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
}

// Pages that were to give their places away, with space, have written since, and keep them: the writer allocates its own place again.
TEST(SparseBudget, AWriterThatGetsNoOthersPlaceAllocatesItsOwn)
{
    constexpr size_t MANY = 320, FULL = 257, GIVEN_BACK = 128;
    TempDir dir;
    const std::string file = dir / "file";
    write_file(file, Bytes(MANY * PAGE));
    ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
    o.format = ATO_FORMAT_SPARSE;
    o.max_reflection_bytes = (FULL + 1) * PAGE;
    Mapped m(file, o);
    const auto put = [&](size_t page) { return m.write(page * PAGE, Bytes(64, 1)); };
    for (size_t page = 0; page < FULL; page++)
        ASSERT_TRUE(put(page)) << m.sentence;
    ASSERT_TRUE(put(300)) << m.sentence; // brings a batch home; the first page's space is too much
    for (size_t page = GIVEN_BACK + 2; page < GIVEN_BACK + 32; page++)
        ASSERT_TRUE(put(page)) << m.sentence;
    FsFaults faults;
    faults.before = [](const FsCall &c) {
        return std::string(c.op) == "fallocate" ? ENOSPC : GO_ON;
    };
    EXPECT_FALSE(put(GIVEN_BACK)) << "a store into a hole";
    EXPECT_EQ(m.error, ENOSPC) << m.sentence;
}

// The file is mapped here too. A page whose place a killed writer was about to take is without place and space for all.
TEST(SparseBudget, APageThatAKilledWriterTookThePlaceOfGetsAnotherOne)
{
    constexpr size_t MANY = 320, FULL = 257, GIVEN_BACK = 128;
    TempDir dir;
    const std::string file = dir / "file";
    Bytes content(MANY * PAGE);
    write_file(file, content);
    ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
    o.format = ATO_FORMAT_SPARSE;
    o.max_reflection_bytes = (FULL + 1) * PAGE;
    Mapped m(file, o);
    ASSERT_TRUE(m) << m.sentence;
    const auto put = [&](Mapped &by, size_t page, char byte) {
        std::fill_n(content.begin() + static_cast<long>(page * PAGE), 64, byte);
        return by.write(page * PAGE, Bytes(64, byte));
    };
    ASSERT_EQ(in_child([&] {
                  Mapped other(file, o);
                  bool good = bool(other);
                  for (size_t page = 0; page < FULL; page++)
                      good = good && put(other, page, 1);
                  good = good && put(other, 300, 1); // one page has a place without space now
                  PersistFaults faults;
                  faults.before = [](const PersistCall &c) {
                      const std::string op = c.op, site = c.site;
                      const bool hands_over =
                          op == "store_word" && site.find("place.c") != site.npos;
                      return hands_over ? DIE : GO_ON;
                  };
                  return good && put(other, GIVEN_BACK, 2) ? 0 : 1;
              }),
              CUT);
    for (size_t page = 0; page < FULL; page++)
        put(m, page, 3);
    EXPECT_EQ(m.error, 0) << m.sentence;
    std::fill_n(content.begin() + 300 * PAGE, 64, 1);
    EXPECT_EQ(m.read(), content);
}

// Otherwise each write would cost a call to the kernel, from the first burst on.
TEST(SparseBudget, PlacesWithoutSpaceLeaveRoomForThoseWithIt)
{
    constexpr unsigned MANY = 4096, MOST = 1024, WRITES = 4000;
    TempDir dir;
    const std::string file = dir / "file";
    write_file(file, Bytes(MANY * PAGE));
    ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
    o.format = ATO_FORMAT_SPARSE;
    {
        Mapped m(file, o);
        for (size_t page = 0; page < MANY; page++)
            ASSERT_TRUE(m && m.write(page * PAGE, Bytes(64, 1))) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    }
    o.max_reflection_bytes = MOST * PAGE;
    Mapped m(file, o);
    ASSERT_TRUE(m) << m.sentence;
    FsFaults faults;
    unsigned page = 1;
    for (unsigned i = 0; i < 2 * WRITES; i++) {
        if (i == WRITES) // it has gone down to the budget
            faults.calls.clear();
        page = page * 1103515245 + 12345;
        ASSERT_TRUE(m.write((page >> 16) % MANY * PAGE, Bytes(64, 1))) << m.sentence;
    }
    EXPECT_LE(faults.count("fallocate"), WRITES / 4);
}

TEST(BudgetAlone, MakesANewReflectionSparseAlsoWhereTheOptionsSayAuto)
{
    TempDir dir("/dev/shm");
    ato_options o = options(ATO_DOMAIN_PROCESS, ATO_READ_LAZY);
    for (auto [format, variable, expected] : {std::tuple{ATO_FORMAT_DENSE, "", ATO_FORMAT_SPARSE},
                                              {ATO_FORMAT_DENSE, "dense", ATO_FORMAT_DENSE},
                                              {ATO_FORMAT_DENSE, "auto", ATO_FORMAT_SPARSE},
                                              {ATO_FORMAT_AUTO, "", ATO_FORMAT_SPARSE},
                                              {ATO_FORMAT_SPARSE, "dense", ATO_FORMAT_SPARSE}}) {
        const std::string file = dir / "file";
        write_file(file, Bytes(PAGE, 1));
        const Environment set("ATO_FORMAT", variable);
        o.format = format;
        o.max_reflection_bytes = 1 << 20;
        Mapped m(file, o);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.stat().format, expected) << format << " " << variable;
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
}

TEST(BudgetAlone, ADenseReflectionInAPageCacheIsRefused)
{
    TempDir dir(disk_folder());
    const std::string file = dir / "file";
    const Environment dense("ATO_FORMAT", "dense");
    ato_options o = options(ATO_DOMAIN_PROCESS, ATO_READ_LAZY);
    write_file(file, Bytes(PAGE, 1));
    o.max_reflection_bytes = 1 << 20;
    const Mapped newborn(file, o);
    EXPECT_EQ(newborn.error, EOPNOTSUPP);
    EXPECT_NE(newborn.sentence.find("ATO_FORMAT"), std::string::npos) << newborn.sentence;
    o.max_reflection_bytes = 0;
    Mapped first(file, o);
    ASSERT_TRUE(first && first.write(0, Bytes(64, 2))) << first.sentence;
    o.max_reflection_bytes = 1 << 20;
    for (const bool mapped : {true, false}) {
        if (!mapped)
            first.unmap(ATO_UNMAP_FAST);
        Mapped m(file, o);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EOPNOTSUPP);
        EXPECT_NE(m.sentence.find("ato convert --to sparse"), std::string::npos) << m.sentence;
    }
    o.max_reflection_bytes = 0;
    EXPECT_EQ(Mapped(file, o).read(0, 64), Bytes(64, 2));
}

TEST_P(Budget, WritesThatNeedMoreThanAllOfItSucceed)
{
    small.max_reflection_bytes = 1;
    Mapped m(file, small);
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(put(m, 100, 2000, 3)) << m.sentence;
    ASSERT_TRUE(put(m, 3000, 1, 4) && put(m, 3001, 30, 5)) << m.sentence;
    ato_tx *t = ato_tx_begin(0);
    for (size_t page : {7, 1030, 1031, 2500, 4000}) {
        const Bytes news = pattern(PAGE, static_cast<unsigned>(page));
        ASSERT_TRUE(ato_tx_memcpy(t, m.base + page * PAGE, news.data(), PAGE, 0));
        std::copy(news.begin(), news.end(), content.begin() + static_cast<long>(page * PAGE));
    }
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    EXPECT_EQ(m.read(), content);
}

// The pages that are written again and again fit; others, all over the file, pass by.
TEST_P(Budget, PagesThatAreWrittenOftenKeepTheirSpace)
{
    Mapped m(file, small);
    ASSERT_TRUE(m) << m.sentence;
    constexpr unsigned HOT = 10, ROUNDS = 80;
    long again = 0;
    unsigned other = 1;
    FsFaults faults;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const long before = faults.count("fallocate");
        for (size_t i = 0; i < HOT; i++)
            ASSERT_TRUE(put(m, 2048 + i, 1, round)) << m.sentence;
        if (round)
            again += faults.count("fallocate") - before;
        for (unsigned i = 0; i < 8; i++) {
            other = (other * 1103515245 + 12345) % MANY;
            ASSERT_TRUE(put(m, other, 1, round)) << m.sentence;
        }
    }
    EXPECT_LE(again, HOT) << "brought home again and again: " << again;
    EXPECT_LE(space(), MOST + SLACK);
    EXPECT_EQ(m.read(), content);
}

TEST_P(Budget, AFastUnmapGivesBackWhatIsUnused)
{
    for (bool budget : {false, true}) {
        Mapped m(file, budget ? small : gather);
        ASSERT_TRUE(m && put(m, 20, 60, 1 + budget)) << m.sentence;
        ASSERT_EQ(ato_deploy(m.base + 20 * PAGE, 60 * PAGE), 0);
        ASSERT_TRUE(put(m, 590, 1, 3));
        ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        EXPECT_EQ(space() < 20 * PAGE, budget) << space();
    }
    Mapped m(file, small);
    EXPECT_EQ(m.read(), content);
}

} // namespace
