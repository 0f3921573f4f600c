// SPDX-License-Identifier: BSD-3-Clause
//
// Does ato_stat() count operations and their cost? Each number is checked after operations of known
// cost.
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

using namespace support;

namespace
{

constexpr size_t SIZE = 600 * 4096; // two chunks

class Stat : public testing::Test
{
  protected:
    Stat() : path(dir / "file")
    {
        write_file(path, pattern(SIZE, 1));
    }

    TempDir dir;
    std::string path;
};

TEST_F(Stat, NewMappingHasCountersOfZero)
{
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m);
    const struct ato_stat st = m.stat();
    EXPECT_EQ(st.struct_size, sizeof(st));
    EXPECT_EQ(st.domain, ATO_DOMAIN_PMEM);
    EXPECT_EQ(st.format, sparse() ? ATO_FORMAT_SPARSE : ATO_FORMAT_DENSE);
    EXPECT_EQ(st.read_policy, ATO_READ_GATHER);
    /* From `size` on there are numbers only, and no bytes between them. */
    constexpr size_t numbers = (sizeof(st) - offsetof(struct ato_stat, size)) / sizeof(uint64_t);
    uint64_t counted[numbers], expected[numbers] = {SIZE};
    memcpy(counted, &st.size, sizeof(counted));
    EXPECT_EQ(memcmp(counted, expected, sizeof(expected)), 0);
}

TEST_F(Stat, AlignedKibibyteCostsItsBytesAndOneWord)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(4096, pattern(1024, 2)));
    struct ato_stat st = m.stat();
    EXPECT_EQ(st.writes, 1u);
    EXPECT_EQ(st.bytes_written, 1024u);
    EXPECT_EQ(st.bytes_to_media, 1024u + 8);
    EXPECT_EQ(st.flips, 1u);
    EXPECT_EQ(st.commits_single, 1u);
    EXPECT_EQ(st.commits_rtm + st.commits_journal, 0u);
    EXPECT_EQ(st.slices_in_reflection, 16u);
    EXPECT_GE(st.reflection_bytes, 2u * 4096); // a meta page, a RefPage
    EXPECT_LE(st.reflection_bytes, 64u * 4096);
}

TEST_F(Stat, OneByteCostsASliceAndAWord)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(4096 + 70, pattern(1, 2)));
    EXPECT_EQ(m.stat().bytes_to_media, 64u + 8);
}

TEST_F(Stat, JournaledCommitCostsItsRecordToo)
{
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(0, pattern(3 * 4096, 2)));
    struct ato_stat st = m.stat();
    EXPECT_EQ(st.commits_journal, 1u);
    EXPECT_EQ(st.commits_single, 0u);
    EXPECT_EQ(st.flips, 3u);
    // slices, words; commit line, words of the list, retired
    EXPECT_EQ(st.bytes_to_media, 3u * 4096 + 3 * 8 + 64 + 3 * 16 + 8);
}

TEST_F(Stat, ReadsAndDeploysAreCounted)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(0, pattern(1024, 2)));
    EXPECT_EQ(m.read(0, 100).size(), 100u);
    EXPECT_EQ(m.read(8000, 9000).size(), 9000u);
    struct ato_stat st = m.stat();
    EXPECT_EQ(st.reads, 2u);
    EXPECT_EQ(st.bytes_read, 9100u);
    EXPECT_EQ(st.deployed_slices, 16u);
    EXPECT_EQ(st.flips, 2u);
    EXPECT_EQ(st.bytes_to_media, 2u * (1024 + 8));
    EXPECT_EQ(st.slices_in_reflection, 0u);
    EXPECT_EQ(st.read_retries, 0u);
}

TEST_F(Stat, CopyWithinAMappingIsAWriteAndARead)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    ASSERT_NE(ato_memcpy(m.base, m.base + 8192, 64), nullptr);
    struct ato_stat st = m.stat();
    EXPECT_EQ(st.writes, 1u);
    EXPECT_EQ(st.reads, 1u);
    EXPECT_EQ(st.bytes_written, 64u);
    EXPECT_EQ(st.bytes_read, 64u);
    EXPECT_EQ(st.bytes_to_media, 72u);
}

TEST_F(Stat, FailedCallsCountNothing)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    EXPECT_FALSE(m.write(SIZE - 1, Bytes(2)));
    EXPECT_EQ(m.stat().writes, 0u);
    EXPECT_EQ(m.stat().bytes_to_media, 0u);
}

TEST_F(Stat, SkippedSlicesCostNothing)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(0, pattern(SIZE, 1), ATO_SKIP_EQUAL));
    struct ato_stat st = m.stat();
    EXPECT_EQ(st.bytes_written, SIZE);
    EXPECT_EQ(st.bytes_to_media, 0u);
    EXPECT_EQ(st.flips, 0u);
}

TEST_F(Stat, TellsOfAllMappingsOfTheFile)
{
    Mapped a(path, options(0, ATO_READ_GATHER)), b(path, options(), 4096, 4096);
    ASSERT_TRUE(a && b);
    ASSERT_TRUE(a.write(599 * 4096, pattern(128, 2))); // in the second chunk
    EXPECT_EQ(a.stat().writes, 1u);
    EXPECT_EQ(b.stat().writes, 1u);
    EXPECT_EQ(b.stat().slices_in_reflection, 2u);
    EXPECT_EQ(b.stat().size, SIZE);
    ASSERT_TRUE(a.write(0, pattern(64, 2))); // in the first too
    EXPECT_EQ(b.stat().slices_in_reflection, 3u);
    EXPECT_EQ(a.unmap(ATO_UNMAP_FAST), 0) << a.sentence;
    EXPECT_EQ(b.stat().writes, 2u);
    EXPECT_EQ(b.unmap(ATO_UNMAP_FAST), 0) << b.sentence;
    Mapped anew(path);
    ASSERT_TRUE(anew);
    EXPECT_EQ(anew.stat().writes, 0u);
}

TEST_F(Stat, AllThreadsAreCounted)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 100; t++) // more threads than have counters of their own
        threads.emplace_back([&m, t] {
            for (int i = 0; i < 20; i++)
                ato_memcpy(m.base + t * 4096, "12345678", 8);
        });
    for (std::thread &t : threads)
        t.join();
    EXPECT_EQ(m.stat().writes, 2000u);
    EXPECT_EQ(m.stat().bytes_to_media, 2000u * 72);
}

TEST_F(Stat, FollowsTheCallersStructSize)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(0, pattern(64, 2)));
    struct {
        struct ato_stat st;
        uint64_t news[3];
    } newer;
    memset(&newer, 0xff, sizeof(newer));
    newer.st.struct_size = sizeof(newer);
    ASSERT_EQ(ato_stat(m.base + 5000, &newer.st), 0); // any address within
    EXPECT_EQ(newer.st.writes, 1u);
    EXPECT_EQ(newer.st.struct_size, sizeof(newer));
    EXPECT_EQ(newer.news[0], 0u) << "fields that the library does not know are zero";
    struct ato_stat older;
    memset(&older, 0xff, sizeof(older));
    older.struct_size = offsetof(struct ato_stat, writes);
    ASSERT_EQ(ato_stat(m.base, &older), 0);
    EXPECT_EQ(older.size, SIZE);
    EXPECT_EQ(older.writes, UINT64_MAX) << "behind the struct of the caller";
}

// Through each mapping, after a change through any of them.
TEST_F(Stat, SizeIsTheCommittedSizeOfTheFile)
{
    Mapped whole(path), part(path, options(), 4096, 4096);
    ASSERT_TRUE(whole && part);
    auto expect = [&](off_t size) {
        for (const char *addr : {whole.base, whole.base + SIZE, part.base + 100})
            EXPECT_EQ(ato_size(addr), size);
        EXPECT_EQ(whole.stat().size, static_cast<uint64_t>(size));
    };
    expect(SIZE);
    ASSERT_EQ(ato_ftruncate(whole.base, SIZE + 5000), 0) << ato_errormsg();
    expect(SIZE + 5000);
    ato_tx *t = ato_tx_begin(0);
    ASSERT_EQ(ato_tx_ftruncate(t, whole.base, 3), 0) << ato_errormsg();
    expect(SIZE + 5000);
    ASSERT_EQ(ato_tx_abort(t), 0);
    expect(SIZE + 5000);
    t = ato_tx_begin(0);
    ASSERT_EQ(ato_tx_ftruncate(t, whole.base, 0), 0) << ato_errormsg();
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    EXPECT_EQ(ato_size(whole.base), 0);
    EXPECT_EQ(ato_size(part.base), 0);
    EXPECT_EQ(ato_size(&t), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_NE(std::string(ato_errormsg()).find("mapping"), std::string::npos);
}

TEST_F(Stat, RefusesAnAddressOutsideMappingsAndAnInvalidStruct)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    struct ato_stat st = {};
    st.struct_size = sizeof(st);
    EXPECT_EQ(ato_stat(&st, &st), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_NE(std::string(ato_errormsg()).find("mapping"), std::string::npos);
    st.struct_size = 0;
    EXPECT_EQ(ato_stat(m.base, &st), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_NE(std::string(ato_errormsg()).find("struct_size"), std::string::npos);
}

} // namespace
