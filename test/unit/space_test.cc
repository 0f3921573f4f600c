// SPDX-License-Identifier: BSD-3-Clause
//
// How does the library allocate space? In few calls, without making a file longer, and it reports
// the error of the system. (A full disk: hazards/space_test.cc.)
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>

#include <sys/stat.h>
#include <unistd.h>

using namespace support;

namespace
{

TEST(Space, AllocatingKeepsTheFilesSize)
{
    TempDir dir;
    const std::string odd = dir / "odd";
    write_file(odd, Bytes());
    ASSERT_EQ(truncate(odd.c_str(), 4096 + 100), 0);
    Mapped m(odd);
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(4096, Bytes(100, 5)));
    ASSERT_EQ(ato_deploy(m.base, 4196), 0);
    EXPECT_EQ(size_of(odd), 4196u);
}

// Blocks are free, but the quota of the user is used up.
TEST(Space, LargeWriteAllocatesInFewCallsAndReportsTheQuota)
{
    TempDir dir;
    const std::string large = dir / "large";
    write_file(large, Bytes(512 * 4096));
    Mapped m(large, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    FsFaults faults;
    faults.fail_op("fallocate", EDQUOT);
    EXPECT_FALSE(m.write(0, Bytes(4096, 1)));
    EXPECT_EQ(m.error, EDQUOT) << m.sentence;
    EXPECT_NE(m.sentence.find("/dev/shm"), std::string::npos) << m.sentence;
    faults.before = nullptr;
    EXPECT_EQ(m.read(0, 4096), Bytes(4096));
    ASSERT_TRUE(m.write(0, Bytes(64, 1)));
    long before = faults.count("fallocate");
    ASSERT_TRUE(m.write(64, Bytes(64, 2)));
    EXPECT_EQ(faults.count("fallocate"), before) << "a page that has space is not allocated again";
    ASSERT_TRUE(m.write(0, Bytes(512 * 4096, 1)));
    EXPECT_LE(faults.count("fallocate"), before + 6) << "in batches, not one a page";
    before = faults.count("fallocate");
    ASSERT_TRUE(m.write(0, Bytes(512 * 4096, 2))); // to O, which has space
    ASSERT_TRUE(m.write(0, Bytes(512 * 4096, 3)));
    EXPECT_EQ(faults.count("fallocate"), before) << "homes that have space are not allocated again";
}

// Otherwise plain loads would see old bytes, and nobody would be told.
TEST(Space, AnEagerWriteIsInTheFileItselfOrChangesNothing)
{
    for (bool tx : {false, true})
        for (size_t n : {64, 4096, 3 * 4096}) {
            TempDir dir(disk_folder());
            const std::string holes = dir / "holes";
            write_file(holes, Bytes());
            ASSERT_EQ(truncate(holes.c_str(), 64 * 4096), 0);
            Mapped m(holes, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
            ASSERT_TRUE(m) << m.sentence;
            const Bytes news(n, 7);
            bool written = false;
            for (int good = 0; !written && good < 20; good++) {
                FsFaults faults;
                int left = good;
                faults.before = [&](const FsCall &c) {
                    return std::string(c.op) == "fallocate" && left-- <= 0 ? ENOSPC : GO_ON;
                };
                ato_tx *t = tx ? ato_tx_begin(0) : nullptr;
                written = tx ? ato_tx_memcpy(t, m.base + 4096, news.data(), n, ATO_EAGER) != nullptr
                             : m.write(4096, news, ATO_EAGER);
                if (written && tx)
                    written = ato_tx_commit(t) == 0;
                else if (tx)
                    ato_tx_abort(t);
                faults.before = nullptr;
                EXPECT_EQ(Bytes(m.base + 4096, m.base + 4096 + n), written ? news : Bytes(n)) << n;
                EXPECT_EQ(m.read(4096, n), written ? news : Bytes(n)) << n;
            }
            EXPECT_TRUE(written);
        }
}

// The first page is not written eagerly, and has no space in the file when the transaction is committed.
TEST(Space, AnEagerWriteComesHomeThoughAnotherOneOfItsTransactionCannot)
{
    TempDir dir(disk_folder());
    const std::string holes = dir / "holes";
    write_file(holes, Bytes());
    ASSERT_EQ(truncate(holes.c_str(), 64 * 4096), 0);
    Mapped m(holes, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
    const Bytes news(4096, 7);
    ASSERT_TRUE(m.write(40 * 4096, Bytes(2 * 4096, 1))) << m.sentence; // makes the journal
    ato_tx *t = ato_tx_begin(0);
    ASSERT_TRUE(ato_tx_memcpy(t, m.base, news.data(), 64, 0)) << ato_errormsg();
    ASSERT_TRUE(ato_tx_memcpy(t, m.base + 4096, news.data(), 4096, ATO_EAGER)) << ato_errormsg();
    FsFaults faults;
    faults.fail_op("fallocate", ENOSPC);
    EXPECT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    EXPECT_GT(faults.count("fallocate"), 0);
    faults.before = nullptr;
    EXPECT_EQ(Bytes(m.base + 4096, m.base + 2 * 4096), news);
    EXPECT_EQ(m.read(0, 64), Bytes(64, 7));
}

// The range behind the end of a reflection is no hole: its words must not be read as zeros.
// Sparse: places that were taken when the error came are used later.
TEST(Space, WriteThatFailsLosesNoPlaces)
{
    TempDir dir;
    const std::string large = dir / "large";
    constexpr size_t PAGES = 256;
    write_file(large, Bytes(2 * PAGES * 4096));
    ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
    o.format = ATO_FORMAT_SPARSE;
    Mapped m(large, o);
    ASSERT_TRUE(m.write(0, Bytes(2 * 4096, 1))) << m.sentence; // the next ones lie in two chunks
    for (int good = 0; good < 8; good++) {
        FsFaults faults;
        int left = good;
        faults.before = [&](const FsCall &c) {
            return std::string(c.op) == "fallocate" && left-- <= 0 ? ENOSPC : GO_ON;
        };
        (void)m.write(PAGES * 4096, Bytes(PAGES * 4096, 2));
    }
    ASSERT_TRUE(m.write(PAGES * 4096, Bytes(PAGES * 4096, 2))) << m.sentence;
    struct stat st;
    ASSERT_EQ(stat(reflection_of(large).c_str(), &st), 0);
    EXPECT_LE(st.st_blocks * 512, static_cast<blkcnt_t>((PAGES + 2 + 2) * 4096)); // two meta pages
    EXPECT_EQ(m.read(PAGES * 4096, 4096), Bytes(4096, 2));
}

TEST(Space, ReflectionThatIsTruncatedWhileItIsMappedIsEstale)
{
    for (off_t cut : {off_t(0), off_t(513 * 4096)}) {
        if (cut && sparse()) // there the page is in the first chunk
            continue;
        TempDir own;
        const std::string large = own / "file";
        const ato_options gather = options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER);
        const Bytes news = pattern(4096, 2);
        write_file(large, Bytes(600 * 4096, 'o'));
        ASSERT_TRUE(Mapped(large, gather).write(550 * 4096, news));
        Mapped m(large, gather);
        ASSERT_TRUE(m) << m.sentence;
        const Bytes kept = read_file(reflection_of(large));
        ASSERT_EQ(truncate(reflection_of(large).c_str(), cut), 0);
        EXPECT_EQ(m.read(550 * 4096, 4096), Bytes());
        EXPECT_EQ(m.error, ESTALE) << m.sentence;
        EXPECT_FALSE(m.write(550 * 4096, Bytes(64, 3)));
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), -1);
        EXPECT_EQ(m.error, ESTALE) << m.sentence;
        write_file(reflection_of(large), kept);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_at(large, 550 * 4096, 4096), news);
    }
}

} // namespace
