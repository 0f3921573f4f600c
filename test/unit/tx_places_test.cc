// SPDX-License-Identifier: BSD-3-Clause
//
// Does a transaction that ends, or a call that is refused, keep a place, a claim or a flag of a
// page that the next transaction needs?
#include "use_tx.h"

#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 20 * PAGE;

class TxPlaces : public testing::Test
{
  protected:
    TxPlaces() : path(dir / "file")
    {
        write_file(path, pattern(SIZE, 1));
    }

    TempDir dir;
    std::string path;
};

// Else the last place of each thread would stay with a thread that has ended.
TEST_F(TxPlaces, ThreadsThatOnlyEndTransactionsKeepNoPlace)
{
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    const unsigned before = use_tx_places();
    for (int i = 0; i < 50; i++) {
        ato_tx *t = ato_tx_begin(0);
        ASSERT_NE(ato_tx_memcpy(t, m.base, "x", 1, 0), nullptr);
        std::thread([&] {
            EXPECT_EQ(i % 2 ? ato_tx_commit(t) : ato_tx_abort(t), 0) << ato_errormsg();
        }).join();
    }
    for (int i = 0; i < 50; i++) {
        auto *own = new Mapped(path, options(ATO_DOMAIN_PMEM, ATO_READ_LAZY, ATO_EPOCHS));
        ASSERT_TRUE(*own) << own->sentence;
        std::thread([&] { EXPECT_EQ(own->unmap(ATO_UNMAP_FAST), 0) << own->sentence; }).join();
        delete own;
    }
    EXPECT_LE(use_tx_places(), before + 3);
}

TEST_F(TxPlaces, PageOfAnAbortedGrowthHasNoKnownSpaceInTheNextOne)
{
    Mapped m(path, options(ATO_DOMAIN_PMEM), 0);
    ASSERT_TRUE(m) << m.sentence;
    ato_tx *t = ato_tx_begin(0);
    ASSERT_EQ(ato_tx_ftruncate(t, m.base, SIZE + 5 * PAGE), 0) << ato_errormsg();
    ASSERT_NE(ato_tx_memcpy(t, m.base + SIZE + PAGE, "x", 1, 0), nullptr) << ato_errormsg();
    EXPECT_NE(use_tx_flags(m.base, SIZE / PAGE + 1), 0);
    ASSERT_EQ(ato_tx_abort(t), 0);
    t = ato_tx_begin(0);
    ASSERT_EQ(ato_tx_ftruncate(t, m.base, SIZE + 5 * PAGE), 0) << ato_errormsg();
    EXPECT_EQ(use_tx_flags(m.base, SIZE / PAGE + 1), 0);
    ASSERT_EQ(ato_tx_abort(t), 0);
}

// Its thread may be about to note where its memory is by now.
TEST_F(TxPlaces, ChildDoesNotFreeTheMemoryOfAnotherThreadsTransaction)
{
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    std::thread([&] {
        char moved[1] = {};
        ato_tx *t = ato_tx_begin(0);
        ASSERT_NE(ato_tx_memcpy(t, m.base, "x", 1, 0), nullptr) << ato_errormsg();
        void *had = use_tx_mappings(t, moved);
        std::thread([] { EXPECT_EQ(in_child([] { return 0; }), 0); }).join();
        use_tx_mappings(t, had);
        EXPECT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    }).join();
}

} // namespace
