// SPDX-License-Identifier: BSD-3-Clause
//
// A transaction that has read many pages looks at them again only if somebody has committed since. Is
// a change found, whoever made it, and when?
#include "peers_lab.h"

extern "C" {
#include "reflection/media/seam.h"

#include "ato_engine.h"
}

#include <cerrno>
#include <thread>

using namespace peers_lab;

namespace
{

constexpr size_t PAGE = 4096;

class Notes : public PeersOfAFile
{
  protected:
    Notes()
    {
        write_file(large, pattern(64 * PAGE, 1));
    }
    static ato_options opt()
    {
        return options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM);
    }
    static bool look(ato_tx *t, const Mapped &m, size_t page)
    {
        char byte;
        return ato_tx_memcpy(t, &byte, m.base + page * PAGE, 1, 0);
    }
    static ato_tx *begin(const Mapped &m)
    {
        ato_tx *t = ato_tx_begin(0);
        for (size_t page = 0; page < 50; page++)
            EXPECT_TRUE(look(t, m, page)) << ato_errormsg();
        return t;
    }
    static void expect_refused(ato_tx *t, const Mapped &m)
    {
        EXPECT_FALSE(look(t, m, 51));
        EXPECT_EQ(errno, EAGAIN) << ato_errormsg();
        EXPECT_EQ(ato_tx_abort(t), 0);
    }

    const std::string large = dir / "large";
};

TEST_F(Notes, ChangeByAnotherProcessIsFound)
{
    Peer writer([&](const auto &wait) {
        Mapped own(large, opt());
        wait();
        const bool good = own && own.write(60 * PAGE, Bytes(9, 'a'));
        wait();
        const bool both = good && own.write(5 * PAGE, Bytes(9, 'b'));
        wait();
        return both ? 0 : 1;
    });
    ASSERT_TRUE(writer.is_ready());
    Mapped m(large, opt());
    ASSERT_TRUE(m) << m.sentence;
    ato_tx *t = begin(m);
    writer.go_on();
    ASSERT_TRUE(writer.is_ready());
    EXPECT_TRUE(look(t, m, 50)) << ato_errormsg();
    writer.go_on();
    ASSERT_TRUE(writer.is_ready());
    expect_refused(t, m);
    EXPECT_EQ(writer.end(), 0);
}

// Its write takes effect when another process needs the page.
TEST_F(Notes, ChangeByAKilledProcessIsFound)
{
    Mapped m(large, opt());
    ASSERT_TRUE(m) << m.sentence;
    ato_tx *t = begin(m);
    EXPECT_EQ(in_child([&] {
                  Mapped own(large, opt());
                  seam_hook = [](enum seam_point point, const void *) {
                      if (point == SEAM_DURABLE)
                          _exit(CUT);
                  };
                  return own.write(5 * PAGE, Bytes(9, 'a')) ? 1 : 2;
              }),
              CUT);
    EXPECT_TRUE(look(t, m, 50)) << ato_errormsg();
    EXPECT_EQ(ato_settle(m.base), 0) << ato_errormsg();
    expect_refused(t, m);
    EXPECT_EQ(m.read(5 * PAGE, 9), Bytes(9, 'a'));
}

// The commit has begun at the first of two reads, and shows one of its pages before the second one.
TEST_F(Notes, ChangeByACommitThatIsUnderWayIsFound)
{
    static ato_tx *t;
    static Mapped *m;
    static unsigned shown, reads;
    Mapped own(large, opt());
    ASSERT_TRUE(own) << own.sentence;
    m = &own;
    t = begin(own);
    shown = reads = 0;
    seam_hook = [](enum seam_point point, const void *) {
        if (point == SEAM_DURABLE && !reads++) {
            EXPECT_TRUE(look(t, *m, 50)) << ato_errormsg();
        }
        if (point == SEAM_FLIPPED && ++shown == 2)
            expect_refused(t, *m);
    };
    EXPECT_NE(ato_memset(own.base + 5 * PAGE - 9, 'a', 20), nullptr) << ato_errormsg();
    seam_hook = nullptr;
    EXPECT_EQ(shown, 2u);
    EXPECT_GE(reads, 1u);
}

TEST_F(Notes, ARefusedReadIsMadeOnce)
{
    static unsigned copies;
    Mapped m(large, opt());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_EQ(m.read().size(), 64 * PAGE); // so that each page is loaded
    ato_tx *t = begin(m);
    ASSERT_TRUE(m.write(5 * PAGE, Bytes(9, 'a'))) << m.sentence;
    copies = 0;
    seam_hook = [](enum seam_point point, const void *) { copies += point == SEAM_VERSION; };
    expect_refused(t, m);
    seam_hook = nullptr;
    EXPECT_EQ(copies, 1u);
}

// t has read x and writes y, or cuts it off; it has checked its notes. Then another thread writes x. A transaction that sees
// that x, and not yet what t does with y, comes after the write and before t; but t comes before the write.
TEST_F(Notes, ReadersSeeNoTransactionThatComesBeforeAnotherOneTooLate)
{
    static Mapped *m;
    static char x, y;
    static int result;
    for (bool cuts : {false, true}) {
        Mapped own(large, opt());
        ASSERT_TRUE(own) << own.sentence;
        ASSERT_NE(ato_memset(own.base + 7 * PAGE, 0, 1), nullptr) << ato_errormsg();
        m = &own;
        x = y = 0;
        result = -1;
        ato_tx *t = ato_tx_begin(0);
        ASSERT_TRUE(look(t, own, 3));
        if (cuts) {
            ASSERT_EQ(ato_tx_ftruncate(t, own.base, 7 * PAGE), 0) << ato_errormsg();
        } else {
            ASSERT_NE(ato_tx_memcpy(t, own.base + 7 * PAGE, "Y", 1, 0), nullptr);
        }
        seam_hook = [](enum seam_point point, const void *) {
            if (point != SEAM_DURABLE)
                return;
            seam_hook = nullptr;
            std::thread([] {
                EXPECT_NE(ato_memcpy(m->base + 3 * PAGE, "X", 1), nullptr);
                ato_tx *u = ato_tx_begin(0);
                const bool read = ato_tx_memcpy(u, &y, m->base + 7 * PAGE, 1, 0) &&
                                  ato_tx_memcpy(u, &x, m->base + 3 * PAGE, 1, 0);
                result = read ? ato_tx_commit(u) : -1;
                if (result < 0) {
                    EXPECT_EQ(errno, EAGAIN) << ato_errormsg();
                    ato_tx_abort(u);
                }
            }).join();
        };
        EXPECT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        seam_hook = nullptr;
        EXPECT_FALSE(result == 0 && x == 'X' && y != 'Y') << "not serializable, cuts " << cuts;
    }
}

} // namespace
