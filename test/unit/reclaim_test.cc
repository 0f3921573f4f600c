// SPDX-License-Identifier: BSD-3-Clause
//
// Does ato_reclaim() give back the space of RefPages in which nothing is valid, and of no others? The
// content stays, and later writes find space, also of other processes, and after a kill at any step.
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

std::string name_of(const testing::TestParamInfo<int> &info)
{
    static const char *const names[] = {"Auto", "Pmem", "Eadr", "Disk", "Process"};
    return names[info.param];
}

class Reclaim : public testing::TestWithParam<int>
{
  protected:
    void SetUp() override
    {
        write_file(file, content);
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
    TempDir dir{"/dev/shm"};
    const std::string file = dir / "file";
    const ato_options gather = options(GetParam(), ATO_READ_GATHER);
    Bytes content = pattern(SIZE, 1);
};

INSTANTIATE_TEST_SUITE_P(, Reclaim, testing::Values(ATO_DOMAIN_PROCESS, ATO_DOMAIN_PMEM), name_of);

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

// A page cache: the pages beside a hole may lose their space.
struct ReclaimOnADisk : testing::TestWithParam<int> {
    ReclaimOnADisk()
    {
        o.format = GetParam();
        write_file(file, pattern(SIZE, 1));
    }
    uint64_t space() const
    {
        return static_cast<uint64_t>(stat_of(reflection_of(file)).st_blocks) * 512;
    }
    TempDir dir{disk_folder()};
    const std::string file = dir / "file";
    const Bytes news = pattern(PAGES * PAGE, 2);
    ato_options o = options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER);
};

INSTANTIATE_TEST_SUITE_P(, ReclaimOnADisk, testing::Values(ATO_FORMAT_DENSE, ATO_FORMAT_SPARSE),
                         [](const auto &info) {
                             return info.param == ATO_FORMAT_SPARSE ? "Sparse" : "Dense";
                         });

TEST_P(ReclaimOnADisk, NothingIsGivenBackBeforeTheReflectionGoes)
{
    Mapped m(file, o);
    ASSERT_TRUE(m && m.write(0, news)) << m.sentence;
    ASSERT_EQ(ato_deploy(m.base, SIZE), 0);
    const uint64_t before = space();
    FsFaults faults;
    EXPECT_EQ(ato_reclaim(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_EQ(faults.calls.size(), 0u);
    EXPECT_EQ(space(), before);
    EXPECT_EQ(m.read(), news);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(file), news);
    EXPECT_FALSE(exists(reflection_of(file)));
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

// The next writer, in any process, allocates space before it stores.
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
        EXPECT_EQ(faults.count("fallocate"), after) << "page 12 kept its slices in R";
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

} // namespace
