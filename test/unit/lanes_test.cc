// SPDX-License-Identifier: BSD-3-Clause
//
// Which lane does a commit get? A small one of the process, if it fits there; else the long one, which all
// processes share, which grows before the commit, and whose space is given back at the last unmap. Any number of
// threads share them.
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#define _Thread_local __thread // C++ has no _Thread_local
extern "C" {
#include "lib/commit/lanes.h"
#include "lib/file/table.h"
#include "reflection/format/layout.h"
#include "reflection/format/manifest.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include <sys/stat.h>
#include <unistd.h>

using namespace support;

namespace
{

class Lanes : public testing::Test
{
  protected:
    // Of more pages than a small lane has words.
    static constexpr size_t LARGE = (LANE_SMALL_WORDS + 10) * 4096;

    std::string file(const std::string &name) const
    {
        write_file(dir / name, Bytes(LARGE));
        return dir / name;
    }
    static struct file *file_of(const Mapped &m)
    {
        return table_find(m.base)->file;
    }
    // 0: it has none.
    static uint64_t long_lane_of(const std::string &path)
    {
        const uint64_t size = size_of(manifest_of(path)), at = manifest_area(MANIFEST_SLOTS);
        return size > at ? size - at : 0;
    }

    TempDir dir;
};

TEST_F(Lanes, SmallOnesHoldACommitOf248Pages)
{
    std::string path = file("file");
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM));
    ASSERT_TRUE(m) << m.sentence;
    const Bytes bytes = pattern(LANE_SMALL_WORDS * 4096, 2);
    ASSERT_TRUE(m.write(0, bytes)) << m.sentence;
    EXPECT_EQ(m.read(0, bytes.size()), bytes);
    EXPECT_EQ(m.stat().commits_journal, 1u);
    EXPECT_EQ(size_of(manifest_of(path)), MANIFEST_BORN_BYTES);
    ASSERT_TRUE(m.write(0, pattern(LARGE, 3))) << m.sentence;
    EXPECT_EQ(long_lane_of(path), lane_bytes(LARGE / 4096));
    EXPECT_EQ(m.read(0, LARGE), pattern(LARGE, 3));
}

// A lane is taken when the number of pages is known; a new size is one word more. The lane behind it stays as it is.
TEST_F(Lanes, SmallOnesHoldASizeBesideThePagesOrTheLongOneDoes)
{
    for (size_t pages : {LANE_SMALL_WORDS - 1, LANE_SMALL_WORDS, LANE_SMALL_WORDS + 1}) {
        const std::string path = dir / std::to_string(pages);
        write_file(path, Bytes(LARGE));
        ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM);
        o.max_size = 2 * LARGE;
        Mapped m(path, o);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(m.write(0, pattern(8192, 1))) << m.sentence; // lanes are there
        const Bytes before = read_at(manifest_of(path), manifest_area(0) + LANE_SMALL_BYTES, 4096);
        ato_tx *t = ato_tx_begin(0);
        ASSERT_EQ(ato_tx_ftruncate(t, m.base, LARGE + 4096), 0) << ato_errormsg();
        for (size_t page = 0; page < pages; page++)
            ASSERT_NE(ato_tx_memcpy(t, m.base + page * 4096 + 64, "12345678", 8, 0), nullptr)
                << ato_errormsg();
        ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        EXPECT_EQ(m.stat().size, LARGE + 4096);
        EXPECT_EQ(m.read((pages - 1) * 4096 + 64, 8),
                  Bytes({'1', '2', '3', '4', '5', '6', '7', '8'}));
        EXPECT_EQ(read_at(manifest_of(path), manifest_area(0) + LANE_SMALL_BYTES, 4096), before);
        EXPECT_EQ(long_lane_of(path) > 0, pages >= LANE_SMALL_WORDS);
    }
}

TEST_F(Lanes, SpaceOfTheLongOneIsGivenBackAtTheLastUnmap)
{
    std::string path = file("file");
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m.write(0, pattern(LARGE, 2))) << m.sentence;
    EXPECT_EQ(in_child([&] {
                  Mapped other(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
                  return other.write(0, pattern(LARGE, 3)) && other.unmap(ATO_UNMAP_FAST) == 0 ? 0
                                                                                               : 1;
              }),
              0);
    EXPECT_GT(long_lane_of(path), 0u) << "this process may use it";
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    EXPECT_EQ(size_of(manifest_of(path)), MANIFEST_BORN_BYTES);
    Mapped again(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    EXPECT_EQ(again.read(), pattern(LARGE, 3));
}

TEST_F(Lanes, MoreThreadsThanLanesAllCommit)
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

// The test asks for a lane directly, to avoid a copy of a GiB.
TEST_F(Lanes, MoreWordsThanTheLongOneHoldsAreE2big)
{
    Mapped m(file("file"), options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    taken_lane lane;
    EXPECT_EQ(lanes_take(file_of(m), (1ull << 18) + 1, &lane), 0) << ato_errormsg(); // an odd GiB
    EXPECT_EQ(lane.number, LANE_SMALL);
    lanes_give(&lane, false);
    EXPECT_EQ(lanes_take(file_of(m), (1ull << 28) + 1, &lane), -1);
    EXPECT_EQ(errno, E2BIG);
    EXPECT_NE(std::string(ato_errormsg()).find("268435457"), std::string::npos) << ato_errormsg();
}

TEST_F(Lanes, LongOneGrowsForALargerCommitAndIsReplayed)
{
    DENSE_ONLY("stores words of a dense reflection");
    constexpr uint64_t WORDS = 1 << 18;
    std::string path = dir / "file";
    write_file(path, {});
    ASSERT_EQ(truncate(path.c_str(), 1ll << 31), 0); // 2^19 pages
    {
        Mapped m(path, options(ATO_DOMAIN_PMEM));
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(m.write(0, pattern(LARGE, 2)));
        EXPECT_EQ(long_lane_of(path), lane_bytes(LARGE / 4096));
        struct file *f = file_of(m);
        taken_lane lane;
        ASSERT_EQ(lanes_take(f, WORDS, &lane), 0) << ato_errormsg();
        EXPECT_EQ(long_lane_of(path), lane_bytes(WORDS));
        lane_writer w;
        lane_begin(&w, &f->persist, &lane.lane, lane.retired, WORDS);
        for (uint64_t i = 0; i < WORDS; i++)
            lane_add(&w, layout_word(LAYOUT_DENSE, i), i << 8);
        ASSERT_EQ(lane_commit(&w), 0);
        file_poison(f); // as if the medium had failed
        lanes_give(&lane, true);
    }
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    for (uint64_t i : {uint64_t{1}, WORDS / 2, WORDS - 1}) {
        uint64_t word;
        memcpy(&word, read_at(reflection_of(path), layout_word(LAYOUT_DENSE, i), 8).data(), 8);
        EXPECT_EQ(word, i << 8);
    }
}

TEST_F(Lanes, NoSpaceForALongerOneIsAnErrorAndOtherCommitsGoOn)
{
    const std::string path = file("file");
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    struct file *f = file_of(m);
    taken_lane lane;
    ASSERT_TRUE(m.write(0, pattern(LARGE, 2))) << m.sentence;
    for (long call = 0; call < 2; call++) {
        FsFaults faults;
        faults.fail_at(call, ENOSPC);
        const int r = lanes_take(f, 1 << 18, &lane);
        if (call == 0) {
            EXPECT_EQ(r, -1);
            EXPECT_EQ(errno, ENOSPC);
            EXPECT_NE(std::string(ato_errormsg()).find(path), std::string::npos) << ato_errormsg();
        }
        if (r == 0)
            lanes_give(&lane, false);
        faults.before = nullptr;
        EXPECT_TRUE(m.write(0, pattern(LARGE, 3))) << m.sentence;
        EXPECT_TRUE(m.write(0, pattern(8192, 4))) << m.sentence;
    }
    ASSERT_EQ(lanes_take(f, 1 << 18, &lane), 0) << ato_errormsg();
    lanes_give(&lane, false);
}

TEST_F(Lanes, ThreadsThatWaitForTheLongOneAllGetIt)
{
    Mapped m(file("file"), options(ATO_DOMAIN_PMEM));
    struct file *f = file_of(m);
    for (int round = 0; round < 5; round++) {
        const uint64_t words = 1 << (17 + round);
        taken_lane under_way;
        ASSERT_EQ(lanes_take(f, 10000, &under_way), 0) << ato_errormsg();
        std::vector<std::thread> threads;
        std::atomic<int> failed{0};
        for (int t = 0; t < 3; t++)
            threads.emplace_back([&] {
                taken_lane lane;
                if (lanes_take(f, words, &lane) < 0)
                    failed++;
                else
                    lanes_give(&lane, false);
            });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        lanes_give(&under_way, false);
        for (std::thread &t : threads)
            t.join();
        EXPECT_EQ(failed, 0) << ato_errormsg();
    }
}

// The process that has it dies before, or in, its commit; another one that waits for it finishes what was committed.
TEST_F(Lanes, LongOneOfADeadProcessIsTakenOver)
{
    DENSE_ONLY("counts stores of words");
    for (const char *op : {"copy", "flip"}) {
        const std::string path = file(op);
        Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(in_child([&] {
                      Mapped other(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
                      PersistFaults faults;
                      taken_lane lane;
                      if (*op == 'c') {
                          if (lanes_take(file_of(other), 1000, &lane) < 0)
                              return 1;
                          _exit(CUT);
                      }
                      faults.die_at_flip(5);
                      other.write(0, pattern(LARGE, 2));
                      return 2;
                  }),
                  CUT);
        EXPECT_NE(file_of(m)->shared.header->long_lane, 0u);
        if (*op == 'f') { // a write to a page that it held
            Bytes expected = pattern(LARGE, 2);
            expected[4096] = 'x';
            EXPECT_TRUE(m.write(4096, Bytes(1, 'x'))) << m.sentence;
            EXPECT_TRUE(m.read() == expected);
        }
        EXPECT_TRUE(m.write(0, pattern(LARGE, 3))) << m.sentence;
        EXPECT_EQ(m.read(), pattern(LARGE, 3));
        EXPECT_EQ(file_of(m)->shared.header->long_lane, 0u);
    }
}

} // namespace
