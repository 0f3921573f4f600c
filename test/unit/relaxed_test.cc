// SPDX-License-Identifier: BSD-3-Clause
//
// Relaxed commits (ATO_RELAXED): who sees them when, and what makes them durable.
#include "relaxed_lab.h"
#include "support/faults.h"
#include "unit/watched.h"

#define _Thread_local __thread // C++ has no _Thread_local
extern "C" {
#include "reflection/media/seam.h"
}

#include <random>

using namespace relaxed_lab;

namespace
{

// ---- who sees them ----

TEST_F(RelaxedFile, AreSeenByAllAtOnceAndAreInTheFileWhenTheyAreDurable)
{
    const auto in_tx = [](unsigned flags, const std::function<bool(ato_tx *)> &calls) {
        ato_tx *tx = ato_tx_begin(flags);
        return tx && calls(tx);
    };
    const size_t at = 2 * PAGE - 30;
    Bytes bytes;
    const auto stage = [&](ato_tx *tx, const Mapped &m) {
        return ato_tx_memcpy(tx, m.base + at, bytes.data(), bytes.size(), 0);
    };
    const struct {
        const char *name;
        unsigned mapping; // its flags
        std::function<bool(Mapped &)> act;
    } ways[] = {
        {"a mapping", ATO_RELAXED, [&](Mapped &m) { return m.write(at, bytes); }},
        {"a mapping, one page", ATO_RELAXED,
         [&](Mapped &m) {
             bytes.resize(20);
             return m.write(at, bytes);
         }},
        {"a mapping, memset", ATO_RELAXED,
         [&](Mapped &m) {
             bytes = Bytes(PAGE, 7);
             return ato_memset(m.base + at, 7, PAGE);
         }},
        {"a mapping, a transaction", ATO_RELAXED,
         [&](Mapped &m) {
             return in_tx(0, [&](ato_tx *tx) { return stage(tx, m) && ato_tx_commit(tx) == 0; });
         }},
        {"a call", 0, [&](Mapped &m) { return m.write(at, bytes, ATO_RELAXED); }},
        {"a call, one page", 0,
         [&](Mapped &m) {
             bytes.resize(20);
             return m.write(at, bytes, ATO_RELAXED);
         }},
        {"ato_writev()", 0,
         [&](Mapped &m) {
             const ato_iovec parts[] = {{m.base + at, bytes.data(), 100},
                                        {m.base + at + 100, &bytes[100], bytes.size() - 100}};
             return ato_writev(parts, 2, ATO_RELAXED) == 0;
         }},
        {"a transaction", 0,
         [&](Mapped &m) {
             return in_tx(ATO_RELAXED,
                          [&](ato_tx *tx) { return stage(tx, m) && ato_tx_commit(tx) == 0; });
         }},
        {"a commit", 0,
         [&](Mapped &m) {
             return in_tx(EARLY, [&](ato_tx *tx) {
                 return stage(tx, m) && ato_tx_commit_early(tx, nullptr) == 0;
             });
         }},
    };
    unsigned seed = 1;
    for (const auto &way : ways) {
        SCOPED_TRACE(way.name);
        Mapped m(file, opt(HOUR, way.mapping));
        ASSERT_TRUE(m) << m.sentence;
        const Bytes before = read_file(file);
        bytes = pattern(PAGE + 50, ++seed);
        syncs.take();
        ASSERT_TRUE(way.act(m)) << ato_errormsg();
        put(content, {{at, bytes}});
        EXPECT_TRUE(m.read() == content);
        EXPECT_TRUE(Snap(m.base).copy() == content);
        EXPECT_EQ(in_child([&] {
                      Mapped other(file, opt());
                      return other && other.read() == content && Snap(other.base).copy() == content
                                 ? 0
                                 : 1;
                  }),
                  0);
        EXPECT_EQ(in_child([&] {
                      watched::Watched reader(file, SIZE);
                      return reader.base && reader.read(0, SIZE) == content &&
                                     Snap(reader.base).copy() == content
                                 ? 0
                                 : 1;
                  }),
                  0);
        EXPECT_TRUE(read_file(file) == before) << "what is not durable is in the file";
        EXPECT_EQ(syncs.take(), 0);
        EXPECT_EQ(ato_msync(m.base, SIZE, MS_SYNC), 0) << ato_errormsg();
        EXPECT_EQ(syncs.take(), 1);
        EXPECT_EQ(ato_msync(m.base, SIZE, MS_ASYNC), 0) << ato_errormsg();
        EXPECT_EQ(syncs.take(), 0) << "it was durable";
        ASSERT_EQ(ato_deploy(m.base, SIZE), 0) << ato_errormsg();
        EXPECT_TRUE(read_file(file) == content);
        EXPECT_TRUE(m.read() == content);
    }
}

// Another process reads at each of its steps.
TEST_F(RelaxedFile, AreWholeAndStaySoAtEachOfTheirSteps)
{
    static int left;
    static Peer *reader;
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    for (int n = 0;; n++) {
        if (n % 2) { // its pages are in the file
            ASSERT_EQ(ato_deploy(m.base, SIZE), 0) << ato_errormsg();
        }
        const Piece piece = {2 * PAGE - 60, pattern(PAGE + 200, 7u + unsigned(n))};
        const Bytes before = content;
        put(content, {piece});
        Peer peer([&](const std::function<void()> &pause) {
            alarm(20);
            Mapped own(file, opt());
            pause();
            Snap snap(own.base);
            const Bytes seen = snap.copy(), read = own.read(), then = Snap(own.base).copy();
            pause(); // until it is committed
            // Each sees no less than the one before it.
            const bool is_whole = (seen == before || seen == content) &&
                                  (read == seen || read == content) &&
                                  (then == read || then == content);
            return is_whole && snap.copy() == seen && own.read() == content ? 0 : 1;
        });
        ASSERT_TRUE(peer.is_ready());
        left = n;
        reader = &peer;
        seam_hook = [](enum seam_point here, const void *) {
            if (here != SEAM_WAIT && left-- == 0) {
                reader->go_on();
                std::this_thread::sleep_for(std::chrono::milliseconds(5)); // unless it has to wait
            }
        };
        EXPECT_TRUE(m.write(piece.at, piece.bytes)) << m.sentence;
        seam_hook = nullptr;
        if (left >= 0) { // it has fewer steps
            EXPECT_GT(n, 10);
            break;
        }
        ASSERT_TRUE(peer.is_ready());
        ASSERT_EQ(peer.end(), 0) << "step " << n;
    }
}

// ---- what makes them durable ----

TEST_F(RelaxedFile, AreDurableWithAllCommitsThatAreNotRelaxed)
{
    Mapped m(file, opt()), plain(file, opt(HOUR, 0)),
        epoch(file, opt(HOUR, ATO_EPOCHS | ATO_RELAXED));
    ASSERT_TRUE(m && plain && epoch) << m.sentence << plain.sentence << epoch.sentence;
    const auto in_tx = [](const std::function<bool(ato_tx *)> &calls) {
        ato_tx *tx = ato_tx_begin(ATO_RELAXED);
        return tx && calls(tx) && ato_tx_commit(tx) == 0;
    };
    const Bytes word(8, 8), some = pattern(300, 9);
    const struct {
        const char *name;
        std::function<bool()> act;
        bool syncs = true;
    } deeds[] = {
        {"ordinary",
         [&] {
             return write(plain, {5 * PAGE, some});
         }},
        {"ordinary, the same page",
         [&] {
             return write(plain, {2 * PAGE + 100, some});
         }},
        {"ordinary, what is there",
         [&] {
             return write(plain, {2 * PAGE, Bytes(1, content[2 * PAGE]), ATO_SKIP_EQUAL});
         }},
        {"relaxed, what is there",
         [&] {
             return write(m, {2 * PAGE, Bytes(1, content[2 * PAGE]), ATO_SKIP_EQUAL});
         },
         false},
        {"eager",
         [&] {
             return write(m, {7 * PAGE - 9, some, ATO_EAGER});
         }},
        {"eager, a word",
         [&] {
             return write(m, {7 * PAGE, word, ATO_EAGER});
         }},
        {"eager, in a transaction",
         [&] {
             put(content, {{9 * PAGE, some}});
             return in_tx([&](ato_tx *tx) {
                 return ato_tx_memcpy(tx, m.base + 9 * PAGE, some.data(), some.size(), ATO_EAGER);
             });
         }},
        {"eager by the policy",
         [&] {
             const bool done =
                 ato_set_read_policy(m.base, ATO_READ_EAGER) == 0 && write(m, {11 * PAGE, some});
             return done && ato_set_read_policy(m.base, ATO_READ_GATHER) == 0;
         }},
        {"an epoch",
         [&] {
             return write(epoch, {13 * PAGE, some, ATO_RELAXED}) &&
                    ato_msync(epoch.base, 1, MS_SYNC) == 0;
         }},
        {"an epoch without a write", [&] { return ato_msync(epoch.base, 1, MS_SYNC) == 0; }},
        {"longer",
         [&] {
             content.resize(SIZE + PAGE);
             return ato_ftruncate(m.base, SIZE + PAGE) == 0;
         },
         false},
        {"longer, and bytes there",
         [&] {
             content.resize(SIZE + 2 * PAGE);
             put(content, {{SIZE + PAGE, some}});
             return in_tx([&](ato_tx *tx) {
                 return ato_tx_ftruncate(tx, m.base, SIZE + 2 * PAGE) == 0 &&
                        ato_tx_memcpy(tx, m.base + SIZE + PAGE, some.data(), some.size(), 0);
             });
         },
         false},
        {"shorter",
         [&] {
             content.resize(SIZE);
             return ato_ftruncate(m.base, SIZE) == 0;
         }},
        {"brought home", [&] { return ato_deploy(m.base, SIZE) == 0; }},
        {"of another process",
         [&] {
             put(content, {{5 * PAGE + 7, some}});
             return in_child([&] {
                        Mapped other(file, opt());
                        return other && other.write(5 * PAGE + 7, some, ATO_EAGER) ? 0 : 1;
                    }) == 0;
         }},
    };
    uint8_t fill = 1;
    for (const auto &deed : deeds) {
        SCOPED_TRACE(deed.name);
        ASSERT_TRUE(write(m, {2 * PAGE, Bytes(500, ++fill)})) << m.sentence;
        ASSERT_EQ(syncs.take(), 0);
        ASSERT_TRUE(deed.act()) << ato_errormsg();
        EXPECT_EQ(syncs.n() > 0, deed.syncs);
        if (deed.syncs)
            expect_durable(m, deed.name);
        EXPECT_TRUE(m.read(0, content.size()) == content);
        EXPECT_TRUE(Snap(plain.base).copy() == content);
    }
    ASSERT_EQ(plain.unmap(ATO_UNMAP_FAST), 0) << plain.sentence;
    ASSERT_EQ(epoch.unmap(ATO_UNMAP_FAST), 0) << epoch.sentence;
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_TRUE(read_file(file) == content);
}

// Readers did not see the first one before.
TEST_F(RelaxedFile, ShowWhatIsEarlyBeforeThem)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    const Bytes before = content;
    syncs.take();
    early(m, {{2 * PAGE, pattern(PAGE + 9, 2)}, {9 * PAGE, Bytes(9, 2)}});
    EXPECT_TRUE(Snap(m.base).copy() == before);
    ASSERT_TRUE(write(m, {2 * PAGE + 90, pattern(PAGE, 3)})) << m.sentence;
    EXPECT_TRUE(m.read() == content);
    EXPECT_TRUE(Snap(m.base).copy() == content);
    EXPECT_TRUE(newest(m) == content);
    EXPECT_EQ(syncs.take(), 0);
    EXPECT_EQ(ato_await(m.base, &promise), 0) << ato_errormsg();
    EXPECT_EQ(syncs.take(), 1);
    expect_durable(m, "after the promise is kept");
    early(m, {{2 * PAGE, Bytes(9, 5)}});
    const ato_promise shown = {promise.number, 0}; // of a relaxed writer that has read it
    EXPECT_EQ(ato_await(m.base, &shown), 0) << ato_errormsg();
    EXPECT_EQ(syncs.take(), 0);
    EXPECT_TRUE(m.read() == content);
}

TEST_F(RelaxedFile, AreSyncedInTimeAndThenNoMore)
{
    const Environment e("ATO_RELAXED_MS", "20");
    Mapped m(file, opt(0)), later(file, opt(HOUR)); // the first one decides
    ASSERT_TRUE(m && later) << m.sentence;
    syncs.take();
    for (uint8_t i = 0; i < 3; i++) {
        SCOPED_TRACE(int(i));
        ASSERT_TRUE(write(m, {PAGE, Bytes(200, i)})) << m.sentence;
        ASSERT_TRUE(write(later, {PAGE + 100, Bytes(200, i)})) << m.sentence;
        ASSERT_TRUE(soon([&] { return syncs.n() > 0; }));
        std::this_thread::sleep_for(std::chrono::milliseconds(70));
        EXPECT_LE(syncs.take(), 2); // one, but on a machine that stops for a while
        expect_durable(m, "by the thread");
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        EXPECT_EQ(syncs.take(), 0) << "nothing was written";
    }
    EXPECT_TRUE(m.read() == content);
}

// A caller of an older version has no such option.
TEST_F(RelaxedFile, AreSyncedAsTheEnvironmentSaysAndElseSoon)
{
    for (const bool soon_enough : {false, true}) {
        const Environment e("ATO_RELAXED_MS", soon_enough ? "" : "3600000");
        ato_options o = opt(0xffffffff);
        o.struct_size = offsetof(ato_options, relaxed_ms);
        Mapped m(file, o);
        ASSERT_TRUE(m) << m.sentence;
        syncs.take();
        ASSERT_TRUE(write(m, {PAGE, Bytes(200, soon_enough)})) << m.sentence;
        if (soon_enough) {
            EXPECT_TRUE(soon([&] { return syncs.n() > 0; }));
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(150));
            EXPECT_EQ(syncs.n(), 0);
        }
    }
}

// ---- little room ----

TEST_F(RelaxedFile, OfManyPagesAreRightWithLittleMemoryAndTakeFewSyncs)
{
    constexpr int N = 400;
    std::mt19937 random(7);
    for (const bool short_log : {false, true}) {
        ato_options o = opt();
        o.snapshot_bytes = 64 << 10; // 15 copies of pages
        o.log_bytes = short_log ? 64 << 10 : 0;
        Mapped m(file, o);
        ASSERT_TRUE(m) << m.sentence;
        syncs.take();
        for (int i = 0; i < N; i++) {
            const size_t n = 1 + random() % (i % 50 ? 6000 : 40000);
            ASSERT_TRUE(write(m, {random() % (SIZE - n), pattern(n, random())})) << m.sentence;
            if (i % 16 == 0) {
                ASSERT_TRUE(m.read() == content) << i;
            }
            if (i % 16 == 8) {
                ASSERT_TRUE(Snap(m.base).copy() == content) << i;
            }
        }
        EXPECT_GT(syncs.n(), 10) << "there was room enough";
        EXPECT_LT(syncs.take(), N / 2) << "as often as for ordinary commits";
        EXPECT_TRUE(newest(m) == content);
        ASSERT_EQ(m.unmap(short_log ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST), 0) << m.sentence;
    }
    EXPECT_TRUE(read_file(file) == content);
}

TEST_F(RelaxedFile, AreKeptWhenTheLogBeginsAnew)
{
    constexpr int N = 200;
    ato_options o = opt();
    o.log_bytes = 64 << 10;
    Mapped m(file, o);
    ASSERT_TRUE(m) << m.sentence;
    syncs.take();
    for (int i = 0; i < N; i++) // of about 2 KiB
        ASSERT_TRUE(write(m, {static_cast<size_t>(i) * 900, pattern(1900, 40u + unsigned(i))}))
            << m.sentence;
    EXPECT_GT(syncs.n(), 4 * 4) << "it has not begun anew so often";
    EXPECT_LT(syncs.take(), N / 2);
    EXPECT_TRUE(m.read() == content);
    EXPECT_TRUE(Snap(m.base).copy() == content);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_TRUE(read_file(file) == content);
}

TEST_F(RelaxedFile, AreOrdinaryWithoutRoomForNumbers)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && m.write(PAGE, Bytes(9, 1), ATO_EAGER)) << m.sentence;
    put(content, {{PAGE, Bytes(9, 1)}});
    FsFaults full;
    full.fail_op("fallocate", ENOSPC);
    for (uint8_t i = 2; i < 5; i++) {
        ASSERT_TRUE(write(m, {PAGE + 4, Bytes(20, i)})) << m.sentence;
        EXPECT_EQ(full.count("fdatasync"), i - 1);
        EXPECT_EQ(full.count("fallocate"), 1) << "it is asked for once";
        EXPECT_TRUE(m.read(PAGE, 30) == Bytes(&content[PAGE], &content[PAGE + 30]));
    }
    full.before = nullptr; // there is room, and others ask for numbers
    ASSERT_TRUE(Snap(m.base)) << ato_errormsg();
    ASSERT_TRUE(write(m, {PAGE + 4, Bytes(20, 9)})) << m.sentence;
    EXPECT_EQ(full.count("fdatasync"), 3);
    EXPECT_TRUE(m.read() == content);
}

// ---- elsewhere ----

TEST_F(RelaxedFile, ChangeNothingInOtherDomains)
{
    const long before = threads();
    for (const int domain : {ATO_DOMAIN_PMEM, ATO_DOMAIN_PROCESS}) {
        SCOPED_TRACE(domain);
        const std::string other = dir / std::to_string(domain);
        write_file(other, content);
        PersistCounts counts[2];
        for (const bool relaxed : {false, true}) {
            Mapped m(other, opt(HOUR, relaxed ? ATO_RELAXED : 0, domain));
            ASSERT_TRUE(m) << m.sentence;
            const unsigned flag = relaxed ? ATO_RELAXED : 0;
            PersistFaults stores;
            for (int i = 0; i < 2; i++) { // the second time without first touches
                counts[relaxed] = (stores.take(), PersistCounts());
                ASSERT_TRUE(m.write(PAGE - 50, pattern(100, 3), flag)) << m.sentence;
                ASSERT_TRUE(m.write(PAGE, pattern(100, 4), flag)) << m.sentence;
                ato_tx *tx = ato_tx_begin(flag);
                ASSERT_TRUE(ato_tx_memcpy(tx, m.base + PAGE, "abc", 3, 0)) << ato_errormsg();
                ASSERT_EQ(ato_tx_commit(tx), 0) << ato_errormsg();
                counts[relaxed] = stores.take();
            }
            EXPECT_TRUE(m.read(PAGE, 3) == Bytes({'a', 'b', 'c'}));
            EXPECT_EQ(ato_msync(m.base, 1, MS_SYNC), 0) << ato_errormsg();
            EXPECT_EQ(threads(), before);
        }
        EXPECT_EQ(counts[0], counts[1]);
        EXPECT_GT(counts[0].fence, 0);
    }
}

// Its commits are durable at once, without a sync.
TEST_F(RelaxedFile, ChangeNothingWithALogOnPersistentMemory)
{
    if (disk_folder().empty())
        GTEST_SKIP() << "no disk";
    const TempDir disk(disk_folder());
    const std::string other = disk / "file";
    write_file(other, content);
    ato_options o = opt();
    o.log_dir = dir.path().c_str();
    const long before = threads();
    Mapped m(other, o);
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    ASSERT_TRUE(write(m, {PAGE - 50, pattern(100, 3)})) << m.sentence;
    EXPECT_EQ(threads(), before);
    EXPECT_TRUE(read_at(other, 0, SIZE) == content) << "it is durable, and in the file";
    expect_durable(m, "on persistent memory");
}

} // namespace
