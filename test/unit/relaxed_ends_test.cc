// SPDX-License-Identifier: BSD-3-Clause
//
// Relaxed commits: what becomes of those that are not durable yet at an unmapping, fork(), exit(), a kill, and a sync that fails.
#include "relaxed_lab.h"

#include <csignal>

using namespace relaxed_lab;

namespace
{

TEST_F(RelaxedFile, AreDurableWhenTheLastMappingHasGoneAndSoHasTheThread)
{
    const long before = threads();
    for (const bool beside : {false, true})
        for (const int mode : {ATO_UNMAP_FAST, ATO_UNMAP_SPATIAL}) {
            SCOPED_TRACE(testing::Message() << beside << ", " << mode);
            Peer peer([&](const std::function<void()> &pause) {
                Mapped own(file, opt());
                pause();
                const bool good = own.read() == content; // of the fork
                pause();
                // All is durable, though the other one is gone.
                const long n = syncs.n();
                return own && !good && ato_msync(own.base, 1, MS_SYNC) == 0 && syncs.n() == n ? 0
                                                                                              : 1;
            });
            ASSERT_TRUE(peer.is_ready());
            if (!beside)
                peer.die();
            Mapped m(file, opt()), second(file, opt());
            ASSERT_TRUE(m && second) << m.sentence;
            EXPECT_EQ(threads(), before);
            ASSERT_TRUE(write(m, {PAGE, pattern(PAGE, unsigned(mode) + 2u * beside)}));
            EXPECT_EQ(threads(), before + 1);
            syncs.take();
            ASSERT_EQ(m.unmap(mode), 0) << m.sentence;
            EXPECT_EQ(threads(), before + 1) << "there is another mapping";
            EXPECT_EQ(syncs.take(), 0) << "there is another mapping";
            ASSERT_EQ(second.unmap(mode), 0) << second.sentence;
            EXPECT_GT(syncs.n(), 0);
            EXPECT_EQ(threads(), before);
            if (beside) {
                peer.go_on();
                ASSERT_TRUE(peer.is_ready());
                EXPECT_EQ(peer.end(), 0);
            }
        }
    expect_after_all("at the end");
}

TEST_F(RelaxedFile, GoOnAfterAnUnmappingThatFails)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && write(m, {PAGE, Bytes(500, 1)})) << m.sentence;
    const long with_thread = threads();
    for (const bool busy : {true, false}) {
        if (busy) { // nothing has been done
            ato_tx *tx = ato_tx_begin(0);
            ASSERT_TRUE(ato_tx_memcpy(tx, m.base, "x", 1, 0)) << ato_errormsg();
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), -1);
            EXPECT_EQ(m.error, EBUSY) << m.sentence;
            EXPECT_EQ(ato_tx_abort(tx), 0);
        } else { // another program has written to it
            ASSERT_EQ(ato_msync(m.base, 1, MS_SYNC), 0);
            EXPECT_EQ(truncate(file.c_str(), SIZE + 7), 0);
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), -1);
            EXPECT_EQ(m.error, ESTALE) << m.sentence;
            EXPECT_EQ(truncate(file.c_str(), SIZE), 0);
        }
        syncs.take();
        ASSERT_TRUE(write(m, {PAGE + 60, Bytes(500, 2)})) << m.sentence;
        EXPECT_EQ(syncs.n(), 0);
        EXPECT_EQ(threads(), with_thread);
        EXPECT_TRUE(m.read() == content);
    }
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_TRUE(read_file(file) == content);
}

TEST_F(RelaxedFile, ForkLeavesTheThreadWithTheParent)
{
    Mapped m(file, opt(20));
    ASSERT_TRUE(m && write(m, {PAGE, Bytes(500, 1)})) << m.sentence;
    for (const bool maps : {false, true}) {
        const Bytes own(500, 2);
        EXPECT_EQ(in_exiting_child([&] {
                      alarm(20);
                      m.base = nullptr;
                      if (!maps)
                          return 0;
                      Mapped mine(file, opt());
                      return mine && mine.read() == content && mine.write(9 * PAGE, own) &&
                                     threads() == 2
                                 ? 0
                                 : 1;
                  }),
                  0);
        if (maps)
            put(content, {{9 * PAGE, own}});
        EXPECT_TRUE(m.read() == content);
        syncs.take();
        ASSERT_TRUE(write(m, {PAGE + 60, Bytes(500, maps)})) << m.sentence;
        EXPECT_TRUE(soon([&] { return syncs.n() > 0; }));
    }
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_TRUE(read_file(file) == content);
}

TEST_F(RelaxedFile, ExitMakesThemDurable)
{
    syncs.take();
    EXPECT_EQ(in_exiting_child([&] {
                  Mapped m(file, opt());
                  const bool good = m && m.write(PAGE, Bytes(500, 1)) && (syncs.take(), true);
                  m.base = nullptr; // it stays mapped
                  return good ? 0 : 1;
              }),
              0);
    EXPECT_EQ(syncs.n(), 1);
    put(content, {{PAGE, Bytes(500, 1)}});
    expect_after_all("at the end");
}

TEST_F(RelaxedFile, AKillTakesNothing)
{
    for (const bool beside : {false, true}) {
        Mapped m(file, opt());
        ASSERT_TRUE(m) << m.sentence;
        if (!beside) {
            ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        }
        const std::vector<Piece> pieces = {{PAGE, pattern(2 * PAGE, 5u + beside)},
                                           {2 * PAGE, Bytes(700, 6)}};
        EXPECT_EQ(in_child([&] {
                      Mapped own(file, opt());
                      for (const Piece &piece : pieces)
                          if (!own || !own.write(piece.at, piece.bytes))
                              return 1;
                      raise(SIGKILL);
                      return 2;
                  }),
                  256 + SIGKILL);
        put(content, pieces);
        if (beside) {
            EXPECT_TRUE(m.read() == content);
            EXPECT_TRUE(Snap(m.base).copy() == content);
        }
    }
    expect_after_all("at the end");
}

TEST_F(RelaxedFile, ASyncThatFailsIsTheErrorOfTheNextCall)
{
    Mapped m(file, opt(20));
    ASSERT_TRUE(m && write(m, {PAGE, Bytes(500, 1)})) << m.sentence;
    ASSERT_TRUE(soon([&] { return syncs.n() > 0; }));
    syncs.fail(EIO);
    ASSERT_TRUE(write(m, {PAGE, Bytes(500, 2)})) << m.sentence;
    ASSERT_TRUE(soon([&] { return m.read(0, 1).empty(); }));
    EXPECT_EQ(m.error, EIO) << m.sentence;
    syncs.fail(0);
    EXPECT_FALSE(m.write(PAGE, Bytes(1)));
    EXPECT_EQ(m.error, EIO) << m.sentence;
    EXPECT_EQ(ato_msync(m.base, 1, MS_SYNC), -1);
    EXPECT_EQ(errno, EIO) << ato_errormsg();
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    expect_after_all("at the end");
}

} // namespace
