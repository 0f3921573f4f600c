// SPDX-License-Identifier: BSD-3-Clause
//
// When does a process have a journal, and who gets which lane? Made at the first commit that needs
// one, one a folder and domain, removed with the last file that used it; lanes are shared by any
// number of threads.
#include "support/faults.h"
#include "support/mapped.h"

#define _Thread_local __thread // C++ has another word for it
extern "C" {
#include "lib/journals.h"
#include "lib/table.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include <sys/stat.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 40 * 4096;

class Journals : public testing::Test
{
  protected:
    std::string file(const std::string &name)
    {
        write_file(dir / name, pattern(SIZE, 1));
        return dir / name;
    }

    TempDir dir;
};

TEST_F(Journals, AreMadeByTheFirstCommitOfSeveralPagesAndRemovedWithTheLastFile)
{
    std::string path = file("file");
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(100, pattern(3000, 2))); // one page
    EXPECT_EQ(journals_of(path).size(), 0u);
    ASSERT_TRUE(m.write(100, pattern(9000, 2)));
    EXPECT_EQ(journals_of(path).size(), 1u);
    Mapped other(file("other"), options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(other.write(0, pattern(9000, 2))); // uses the same
    EXPECT_EQ(journals_of(path).size(), 1u);
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
    EXPECT_EQ(journals_of(path).size(), 1u);
    EXPECT_EQ(other.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(journals_of(path).size(), 0u);
}

TEST_F(Journals, AreOneForEachDomainAndFolder)
{
    Mapped a(file("a"), options(ATO_DOMAIN_PMEM)), b(file("b"), options(ATO_DOMAIN_MSYNC));
    ASSERT_EQ(mkdir((dir / "sub").c_str(), 0755), 0);
    Mapped c(file("sub/c"), options(ATO_DOMAIN_PMEM));
    for (Mapped *m : {&a, &b, &c}) {
        ASSERT_TRUE(*m) << m->sentence;
        ASSERT_TRUE(m->write(0, pattern(9000, 2))) << m->sentence;
    }
    EXPECT_EQ(journals_of(dir / "a").size(), 2u);
    EXPECT_EQ(journals_of(dir / "sub/c").size(), 1u);
}

TEST_F(Journals, HaveTheModeOfTheFileThatNeededThem)
{
    std::string path = file("file");
    ASSERT_EQ(chmod(path.c_str(), 0660), 0);
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m.write(0, pattern(9000, 2)));
    ASSERT_EQ(journals_of(path).size(), 1u);
    EXPECT_EQ(stat_of(journals_of(path)[0]).st_mode & 07777, 0660u);
}

TEST_F(Journals, MoreThreadsThanLanesAllCommit)
{
    std::string path = file("file");
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    std::vector<std::thread> threads;
    std::atomic<int> failed{0};
    for (size_t t = 0; t < 20; t++)
        threads.emplace_back([&m, &failed, t] {
            for (unsigned i = 0; i < 30; i++) {
                Bytes bytes = pattern(8192, static_cast<unsigned>(t * 100 + i));
                if (!ato_memcpy(m.base + t * 8192, bytes.data(), bytes.size()))
                    failed++;
            }
        });
    for (std::thread &t : threads)
        t.join();
    EXPECT_EQ(failed, 0);
    for (unsigned t = 0; t < 20; t++)
        EXPECT_EQ(m.read(t * 8192, 8192), pattern(8192, t * 100 + 29));
    EXPECT_EQ(m.stat().commits_journal, 600u);
}

TEST_F(Journals, WriteThatNoSmallLaneHoldsTakesTheLargeOne)
{
    constexpr size_t N = 5000 * 4096; // more than 4088 words
    std::string path = dir / "file";
    write_file(path, Bytes(N));
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, Bytes(N, 7))) << m.sentence;
    EXPECT_EQ(m.read(), Bytes(N, 7));
    EXPECT_EQ(m.stat().commits_journal, 1u);
    EXPECT_EQ(m.stat().flips, 5000u);
}

// Lanes are asked for right before the commit; asked directly, to spare a copy of a GiB.
TEST_F(Journals, MoreWordsThanAnyLaneHoldsAreE2big)
{
    Mapped m(file("file"), options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    struct file *f = table_find(m.base)->file;
    journal_lane lane;
    EXPECT_EQ(journals_take_lane(f, (1ull << 18) + 1, &lane), 0) << ato_errormsg(); // an odd GiB
    EXPECT_EQ(lane.lane, JOURNAL_LANES);
    journals_give_lane(&lane);
    EXPECT_EQ(journals_take_lane(f, 1ull << 20, &lane), -1);
    EXPECT_EQ(errno, E2BIG);
    EXPECT_NE(std::string(ato_errormsg()).find("1048576"), std::string::npos) << ato_errormsg();
}

} // namespace
