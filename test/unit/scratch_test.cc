// SPDX-License-Identifier: BSD-3-Clause
//
// The memory in which writes to a logged file are put together: each call and transaction gives all of it back, however it ends; and it
// is used again, wherever in the file the next write is.
#include "use_tx.h"

#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, PAGES = 6000;

class Scratch : public testing::Test
{
  protected:
    void SetUp() override
    {
        write_file(dir / "file", Bytes(PAGES * PAGE, 1));
        m = std::make_unique<Mapped>(dir / "file", options(ATO_DOMAIN_DISK));
        ASSERT_TRUE(*m) << m->sentence;
    }
    // Of each of the pages 256 bytes.
    bool put(ato_tx *tx, size_t from, size_t n, uint8_t fill, unsigned flags = 0)
    {
        const Bytes bytes(256, fill);
        for (size_t page = from; page < from + n; page++)
            if (!ato_tx_memcpy(tx, m->base + page * PAGE, bytes.data(), bytes.size(), flags))
                return false;
        return true;
    }
    TempDir dir{"/dev/shm"};
    std::unique_ptr<Mapped> m;
};

TEST_F(Scratch, WritesAllOverAFileUseTheSameMemory)
{
    for (size_t page = 0; page < PAGES; page++)
        ASSERT_TRUE(m->write(page * PAGE, Bytes(100, 2)));
    ASSERT_TRUE(m->write(0, Bytes(10 * PAGE, 3)));
    EXPECT_EQ(use_tx_scratch(m->base), 0u);
    EXPECT_LE(use_tx_scratch_resident(m->base), 10u);
}

TEST_F(Scratch, AFailedWriteGivesItBack)
{
    FsFaults fs;
    fs.fail_op("pwrite", EIO);
    EXPECT_FALSE(m->write(100, Bytes(10, 2)));
    EXPECT_FALSE(m->write(100, Bytes(3 * PAGE, 2)));
    EXPECT_EQ(use_tx_scratch(m->base), 0u);
}

TEST_F(Scratch, AWriteThatChangesNothingGivesItBack)
{
    ASSERT_TRUE(m->write(100, Bytes(10, 1), ATO_SKIP_EQUAL));
    ASSERT_TRUE(m->write(0, Bytes(3 * PAGE, 1), ATO_SKIP_EQUAL));
    EXPECT_EQ(use_tx_scratch(m->base), 0u);
}

TEST_F(Scratch, TransactionsGiveItBack)
{
    for (const bool commits : {true, false}) {
        ato_tx *tx = ato_tx_begin(0);
        ASSERT_TRUE(tx && put(tx, 0, 100, 2) && put(tx, 0, 50, 1, ATO_SKIP_EQUAL));
        Bytes read(PAGE * 100); // so that nothing is queued
        ASSERT_TRUE(ato_tx_memcpy(tx, read.data(), m->base, read.size(), 0));
        EXPECT_EQ(use_tx_scratch(m->base), 100u);
        ASSERT_EQ(ato_tx_ftruncate(tx, m->base, 20 * PAGE),
                  0); // cuts pages off that it has written
        ASSERT_EQ(commits ? ato_tx_commit(tx) : ato_tx_abort(tx), 0) << ato_errormsg();
        EXPECT_EQ(use_tx_scratch(m->base), 0u);
        if (commits) {
            ASSERT_EQ(ato_ftruncate(m->base, PAGES * PAGE), 0) << ato_errormsg();
            EXPECT_EQ(use_tx_scratch(m->base), 0u);
        }
    }
}

// Of many pages most give their memory back to the kernel.
TEST_F(Scratch, ALargeTransactionKeepsLittle)
{
    ato_tx *tx = ato_tx_begin(0);
    ASSERT_TRUE(tx && put(tx, 0, PAGES, 2) && put(tx, 0, PAGES, 3));
    EXPECT_GT(use_tx_scratch_resident(m->base), 5000u);
    ASSERT_EQ(ato_tx_commit(tx), 0) << ato_errormsg();
    EXPECT_LE(use_tx_scratch_resident(m->base), 4096u);
    Bytes all = m->read();
    for (size_t page = 0; page < PAGES; page++)
        ASSERT_EQ(all[page * PAGE + 255] * 256 + all[page * PAGE + 256], 3 * 256 + 1) << page;
}

} // namespace
