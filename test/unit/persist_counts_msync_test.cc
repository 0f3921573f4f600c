// SPDX-License-Identifier: BSD-3-Clause
//
// What does each operation cost in page cache on a disk, where a flush is a system call? As in
// persist_counts_test.cc, every number is the design's.
#include "persist_counts_lab.h"

using namespace persist_counts;

namespace
{

TEST_F(PersistCountsTest, MsyncWriteWithinAPage)
{
    map(ATO_DOMAIN_MSYNC);
    ASSERT_TRUE(m->write(4096, pattern(1024, 2)));
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 1;
                  c.flush_data = 1; // the page in R: no slice was stored in O
                  c.store_word = 1;
                  c.flush_any = 1; // the meta page, after the data
                  c.fence = 2;
              }));
}

TEST_F(PersistCountsTest, MsyncWriteOfSeveralPagesFlushesTheirMetaPageOnce)
{
    map(ATO_DOMAIN_MSYNC);
    ASSERT_TRUE(m->write(4096, pattern(20 * 4096, 2)));
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 21;   // the commit line, too
                  c.copy = 20;      // the list
                  c.flush_data = 2; // the range in R, the journal's list with its line
                  c.store_word = 21;
                  c.flush_any = 2; // one meta page, retired
                  c.fence = 4;
              }));
}

TEST_F(PersistCountsTest, MsyncDeployFlushesItsPagesTogether)
{
    map(ATO_DOMAIN_MSYNC);
    ASSERT_TRUE(m->write(0, pattern(SIZE, 2)));
    faults.take();
    ASSERT_EQ(ato_deploy(m->base, SIZE), 0);
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 64;
                  c.flush_data = 1;
                  c.store_word = 64;
                  c.flush_any = 1; // one meta page
                  c.fence = 2;
              }));
    for (size_t page : {3, 4, 6, 60}) { // also pages that are not neighbours
        ASSERT_TRUE(m->write(page * 4096 + 100, pattern(10, 3)));
    }
    faults.take();
    ASSERT_EQ(ato_deploy(m->base, SIZE), 0);
    PersistCounts c = faults.take();
    EXPECT_EQ(c.scatter, 4);
    EXPECT_EQ(c.flush_data + c.flush_any, 2);
}

TEST_F(PersistCountsTest, MsyncSpatialUnmapFlushesAChunkTogether)
{
    map(ATO_DOMAIN_MSYNC);
    for (size_t page = 0; page < SIZE / 4096; page += 2) {
        ASSERT_TRUE(m->write(page * 4096 + 100, pattern(10, 3)));
    }
    const Bytes content = m->read();
    faults.take();
    ASSERT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0);
    PersistCounts c = faults.take();
    EXPECT_EQ(c.scatter, 32);
    EXPECT_LT(c.flush_data, 10) << "and those of the manifest";
    EXPECT_EQ(c.flush_any, 0) << "words do not count in the state that follows";
    EXPECT_EQ(read_at(path, 0, SIZE), content);
}

// Another process may map the file after that.
TEST_F(PersistCountsTest, MsyncWordsOfASpatialUnmapThatFailsAreFlushed)
{
    const TempDir disk("/tmp"); // in memory all pages that are read get space
    path = disk / "file";
    write_file(path, pattern(SIZE, 1));
    ASSERT_EQ(truncate(path.c_str(), 3 << 20), 0); // the second chunk of pages is a hole
    m = std::make_unique<Mapped>(path, options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM));
    ASSERT_TRUE(*m) << m->sentence;
    ASSERT_TRUE(m->write(0, pattern(10, 3)));
    ASSERT_TRUE(m->write((2 << 20) + 4096, pattern(10, 3)));
    const char *word = nullptr;
    bool flushed = false;
    faults.before = [&](const PersistCall &c) {
        const char *at = static_cast<const char *>(c.address);
        const bool stores = std::string(c.op) == "store_word";
        word = stores ? at : word;
        flushed = !stores && (flushed || (c.n && at <= word && word < at + c.n));
        return GO_ON;
    };
    FsFaults fs;
    fs.fail_op("fallocate", EIO);
    EXPECT_EQ(m->unmap(ATO_UNMAP_SPATIAL), -1);
    EXPECT_TRUE(word && flushed);
    faults.before = nullptr;
    fs.before = nullptr;
    EXPECT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0) << m->sentence;
}

TEST_F(PersistCountsTest, MsyncSkippingEqualBytesFlushesNothing)
{
    map(ATO_DOMAIN_MSYNC);
    ASSERT_TRUE(m->write(4096, read_at(path, 4096, 9000), ATO_SKIP_EQUAL));
    PersistCounts c = faults.take();
    EXPECT_EQ(c.scatter + c.store_word + c.fence, 0);
    EXPECT_EQ(c.flush_data + c.flush_any, 0) << "nothing was stored: two system calls for nothing";
}

TEST_F(PersistCountsTest, MsyncDeployOfAPage)
{
    map(ATO_DOMAIN_MSYNC);
    ASSERT_TRUE(m->write(4096, pattern(1024, 2)));
    faults.take();
    ASSERT_EQ(ato_deploy(m->base + 4096, 1), 0);
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 1;
                  c.flush_data = 1;
                  c.store_word = 1;
                  c.flush_any = 1;
                  c.fence = 2;
              }));
}

TEST_F(PersistCountsTest, MsyncGatheringReadCostsNothing)
{
    map(ATO_DOMAIN_MSYNC);
    ASSERT_TRUE(m->write(4096, pattern(1024, 2)));
    faults.take();
    EXPECT_EQ(m->read(4096, 1024), pattern(1024, 2));
    EXPECT_EQ(faults.take(), PersistCounts());
}

TEST_F(PersistCountsTest, MsyncTransactionFlushesItsWritesIfItReadsAFileOfAnotherDomain)
{
    write_file(dir / "other", pattern(4096, 2));
    Mapped other(dir / "other", options(ATO_DOMAIN_PROCESS));
    ASSERT_TRUE(other) << other.sentence;
    map(ATO_DOMAIN_MSYNC);
    ato_tx *t = ato_tx_begin(0);
    char byte;
    ASSERT_NE(ato_tx_memcpy(t, &byte, other.base, 1, 0), nullptr);
    ASSERT_NE(ato_tx_memcpy(t, m->base, "x", 1, 0), nullptr) << ato_errormsg();
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_GE(faults.take().flush_data, 1);
    ato_iovec range = {m->base, other.base, 100};
    ASSERT_EQ(ato_writev(&range, 1, 0), 0);
    EXPECT_GE(faults.take().flush_data, 1);
}

// By a system call for each meta page that has words. (In the other domains: at first touch.)
TEST_F(PersistCountsTest, MsyncWordsOfAKilledFileAreSettledAtTheMap)
{
    long words = 0;
    faults.before = [&](const PersistCall &c) {
        bool file = std::string(c.site).find("api/files.c") != std::string::npos;
        words += file && std::string(c.op) == "flush_any";
        return GO_ON;
    };
    map(ATO_DOMAIN_MSYNC);
    ASSERT_TRUE(m->write(0, pattern(3 * 4096, 2)));
    m.reset();
    {
        Mapped clean(path, options(ATO_DOMAIN_MSYNC));
        EXPECT_TRUE(clean);
        EXPECT_EQ(words, 0);
    }
    ASSERT_NO_FATAL_FAILURE(die_mapped(ATO_DOMAIN_MSYNC));
    Mapped again(path, options(ATO_DOMAIN_MSYNC));
    EXPECT_TRUE(again);
    EXPECT_EQ(words, 1);
}

} // namespace
