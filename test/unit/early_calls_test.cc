// SPDX-License-Identifier: BSD-3-Clause
//
// Early commits beside other calls: what calls in any order leave, what becomes of snapshots and of what is cut off, and what happens
// without room, or when a sync fails.
#include "early_lab.h"
#include "support/faults.h"

#include <list>
#include <random>

using namespace early_lab;

namespace
{

// Its content is four times what snapshots may take.
class LargeEarlyFile : public EarlyFile
{
  protected:
    ato_options opt_of_large()
    {
        content = pattern(1024 * PAGE, 1);
        write_file(file, content);
        ato_options o = opt();
        o.snapshot_bytes = 1 << 20;
        o.max_size = content.size();
        return o;
    }
};

// Any calls, in any order; and the file is what the last of them have made of it, for each way to end.
TEST_F(EarlyFile, KeepsAllInAnyOrderOfCalls)
{
    std::mt19937 random(7);
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    struct Seen {
        explicit Seen(const Mapped &m) : snap(m.base), content(snap.copy())
        {
        }
        Snap snap;
        const Bytes content;
    };
    for (unsigned round = 0; round < 24; round++) {
        ato_options o = opt();
        o.log_bytes = round % 2 ? 64 << 10 : 0;
        promise = {};
        Mapped m(file, o);
        ASSERT_TRUE(m) << m.sentence;
        std::list<Seen> seen;
        seen.emplace_back(m);
        std::vector<Bytes> may_be = {content}; // the last ones, from the last durable one on
        for (unsigned step = 0; step < 40 && !HasFailure(); step++) {
            SCOPED_TRACE(testing::Message() << round << "/" << step);
            const size_t size = content.size(), at = below(size - 9000), n = 1 + below(9000);
            const Bytes bytes = pattern(n, random());
            const size_t what = below(15);
            bool shown = what > 6 && what != 11; // to readers, too, and all before it
            switch (what) {
            case 0:
            case 1:
            case 2:
            case 3: {
                const std::vector<Piece> pieces = {{at, bytes}, {below(size - 50), pattern(50, n)}};
                ASSERT_TRUE(commit_early(m, pieces, promise)) << ato_errormsg();
                shown = !promise.number;
                put(content, pieces);
                break;
            }
            case 4:
                ASSERT_TRUE(newest(m) == content);
                break;
            case 5:
                if (seen.size() < 8)
                    seen.emplace_back(m);
                EXPECT_TRUE(std::count(may_be.begin(), may_be.end(), seen.back().content) ||
                            seen.size() == 8);
                break;
            case 6: {
                auto any = std::next(seen.begin(), static_cast<long>(below(seen.size())));
                EXPECT_TRUE(any->snap.copy() == any->content) << any->snap.sentence;
                if (seen.size() > 1)
                    seen.erase(any);
                break;
            }
            case 7:
                ASSERT_EQ(promise.number ? ato_await(m.base, &promise) : await_all(m), 0);
                break;
            case 8:
                ASSERT_TRUE(m.write(at, bytes)) << m.sentence;
                put(content, {{at, bytes}});
                break;
            case 9:
                ASSERT_TRUE(m.write(at & ~7ul, Bytes(8, 9), ATO_EAGER)) << m.sentence;
                put(content, {{at & ~7ul, Bytes(8, 9)}});
                break;
            case 10:
                ASSERT_EQ(ato_deploy(m.base, size), 0) << ato_errormsg();
                EXPECT_TRUE(read_at(file, 0, size) == content);
                break;
            case 11:
                ASSERT_EQ(ato_msync(m.base, size, MS_SYNC), 0) << ato_errormsg();
                break;
            case 12: {
                const size_t to = 3 * PAGE + below(2 * SIZE - 3 * PAGE);
                ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(to)), 0) << ato_errormsg();
                shown = to != size;
                content.resize(to);
                break;
            }
            case 13:
                ASSERT_TRUE(m.write(at, bytes, ATO_RELAXED)) << m.sentence;
                put(content, {{at, bytes}});
                break;
            default:
                ASSERT_TRUE(m.read(0, content.size()) == content) << m.sentence;
                break;
            }
            if (shown)
                may_be.clear();
            may_be.push_back(content);
            EXPECT_EQ(ato_size(m.base), static_cast<off_t>(content.size()));
            if (HasFailure())
                return;
        }
        for (Seen &each : seen)
            EXPECT_TRUE(each.snap.copy() == each.content) << each.snap.sentence;
        EXPECT_TRUE(newest(m) == content);
        seen.clear();
        if (round % 3) {
            const bool spatial = round % 3 == 1;
            ASSERT_EQ(m.unmap(spatial ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST), 0) << m.sentence;
            if (spatial) {
                EXPECT_TRUE(read_file(file) == content) << "round " << round;
            }
        }
        if (HasFailure())
            return;
    }
    expect_after_all("at the end");
}

// A page that is cut off is zeros when the file is long enough again.
TEST_F(EarlyFile, WhatIsCutOffIsGone)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    for (const bool homes : {false, true}) {
        early(m, {{20 * PAGE, Bytes(3 * PAGE, 5)}});
        Snap before(m.base);
        const Bytes seen = before.copy();
        ASSERT_EQ(ato_ftruncate(m.base, 21 * PAGE + 10), 0) << ato_errormsg();
        content.resize(21 * PAGE + 10);
        if (homes) {
            ASSERT_EQ(ato_deploy(m.base, content.size()), 0) << ato_errormsg();
        }
        ASSERT_EQ(ato_ftruncate(m.base, SIZE), 0) << ato_errormsg();
        content.resize(SIZE);
        EXPECT_TRUE(newest(m) == content);
        EXPECT_TRUE(m.read() == content);
        EXPECT_TRUE(before.copy() == seen) << before.sentence;
        early(m, {{22 * PAGE + 7, Bytes(1, 6)}});
        EXPECT_TRUE(newest(m) == content);
        ASSERT_EQ(ato_deploy(m.base, SIZE), 0) << ato_errormsg();
        EXPECT_TRUE(read_at(file, 0, SIZE) == content);
    }
}

// Though it is in no file then.
TEST_F(EarlyFile, ASnapshotKeepsWhatIsCutOff)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    early(m, {{20 * PAGE, Bytes(3 * PAGE, 5)}});
    ASSERT_EQ(ato_await(m.base, &promise), 0) << ato_errormsg();
    Snap before(m.base);
    ASSERT_EQ(ato_ftruncate(m.base, 21 * PAGE + 10), 0) << ato_errormsg();
    EXPECT_TRUE(before.copy() == content) << before.sentence;
    ASSERT_EQ(ato_deploy(m.base, 21 * PAGE), 0) << ato_errormsg();
    EXPECT_TRUE(before.copy() == content) << before.sentence;
    ASSERT_EQ(ato_ftruncate(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_TRUE(before.copy() == content) << before.sentence;
}

// What the file itself does not have yet.
TEST_F(EarlyFile, ASnapshotFindsItsDataInHoles)
{
    content = Bytes(SIZE);
    write_file(file, {});
    ASSERT_EQ(truncate(file.c_str(), SIZE), 0);
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    const Bytes before = content;
    Snap first(m.base);
    early(m, {{20 * PAGE + 50, Bytes(3 * PAGE, 5)}, {40 * PAGE, Bytes(9, 7)}});
    ato_snapshot *now = ato_snapshot_newest(m.base);
    Bytes seen;
    EXPECT_TRUE(now && copy_snapshot(now, seen) >= 0 && seen == content) << ato_errormsg();
    EXPECT_EQ(ato_snapshot_end(now), 0) << ato_errormsg();
    ASSERT_EQ(ato_await(m.base, &promise), 0) << ato_errormsg();
    Snap durable(m.base);
    for (int i = 0; i < 3; i++) {
        EXPECT_TRUE(durable.copy() == content) << durable.sentence;
        EXPECT_TRUE(first.copy() == before) << first.sentence;
        ASSERT_TRUE(i > 0 ? ato_deploy(m.base, 9) == 0
                          : commit_early(m, {{21 * PAGE, pattern(9, 3)}, {50 * PAGE, Bytes(9, 9)}},
                                         promise));
    }
}

// Then commits are ordinary ones.
TEST_F(LargeEarlyFile, GoesOnWithoutRoomForCopies)
{
    Mapped m(file, opt_of_large());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    unsigned ordinary = 0;
    for (unsigned round = 0; round < 12; round++) {
        const std::vector<Piece> pieces = {
            {round * 67 % 50 * 16 * PAGE, pattern(60 * PAGE, round)}};
        ASSERT_TRUE(commit_early(m, pieces, promise)) << ato_errormsg();
        ordinary += !promise.number;
        put(content, pieces);
        ASSERT_TRUE(newest(m) == content) << round;
    }
    EXPECT_GT(ordinary, 0u);
    EXPECT_LT(ordinary, 12u);
    ASSERT_EQ(await_all(m), 0) << ato_errormsg();
    EXPECT_TRUE(m.read() == content);
    EXPECT_TRUE(Snap(m.base).copy() == content);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_TRUE(read_file(file) == content);
}

// A commit that can be an ordinary one takes no snapshot away to be early.
TEST_F(LargeEarlyFile, GivesUpNoSnapshotToBeEarly)
{
    Mapped m(file, opt_of_large());
    ASSERT_TRUE(m) << m.sentence;
    Snap first(m.base);
    const Bytes seen = first.copy();
    for (unsigned round = 0; round < 12; round++)
        ASSERT_TRUE(commit_early(m, {{10 * PAGE, pattern(60 * PAGE, round)}}, promise))
            << ato_errormsg();
    EXPECT_TRUE(first.copy() == seen) << first.sentence;
}

TEST_F(EarlyFile, AFailedSyncIsTheErrorOfAllWhoWait)
{
    {
        Mapped m(file, opt());
        ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
        const Bytes before = content;
        ato_promise first;
        early(m, {{0, Bytes(10, 7)}});
        first = promise;
        early(m, {{5, Bytes(10, 8)}});
        {
            FsFaults fs;
            fs.fail_op("fdatasync", EIO);
            EXPECT_EQ(ato_await(m.base, &promise), -1);
            EXPECT_EQ(errno, EIO) << ato_errormsg();
        }
        EXPECT_EQ(ato_await(m.base, &first), -1);
        EXPECT_EQ(errno, EIO) << ato_errormsg();
        EXPECT_EQ(await_all(m), -1);
        EXPECT_EQ(errno, EIO) << ato_errormsg();
        EXPECT_FALSE(commit_early(m, {{90, Bytes(1)}}, promise));
        EXPECT_EQ(errno, EIO) << ato_errormsg();
        EXPECT_TRUE(m.read(0, 20).empty());
        EXPECT_EQ(m.error, EIO) << m.sentence;
        EXPECT_TRUE(read_file(file) == before);
    }
    Mapped m(file, opt());
    ASSERT_TRUE(m) << m.sentence;
}

TEST_F(EarlyFile, TellsWhatItDoesNotKnow)
{
    for (const unsigned flags : {ATO_TX_EARLY, EARLY | 2u, ATO_TX_EARLY | 0x200u, EARLY | 0x200u}) {
        EXPECT_FALSE(ato_tx_begin(flags)) << flags;
        EXPECT_EQ(errno, EINVAL) << ato_errormsg();
    }
    EXPECT_EQ(ato_await(&promise, &promise), -1);
    EXPECT_EQ(errno, EINVAL) << ato_errormsg();
    EXPECT_EQ(ato_visible(&promise, &promise), -1);
    EXPECT_EQ(errno, EINVAL) << ato_errormsg();
    EXPECT_FALSE(ato_snapshot_newest(&promise));
    EXPECT_EQ(errno, EINVAL) << ato_errormsg();
    Bytes to(9);
    EXPECT_FALSE(ato_read_newest(to.data(), content.data(), 9));
    EXPECT_EQ(errno, EINVAL) << ato_errormsg();
    Mapped m(file, opt());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_FALSE(ato_read_newest(to.data(), m.base + SIZE - 8, 9));
    EXPECT_EQ(errno, EFAULT) << ato_errormsg();
}

// It would tell of commits that are not there.
TEST_F(EarlyFile, AwaitsNoPromiseOfAnother)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    early(m, {{0, Bytes(7, 7)}});
    alarm(20); // a hang is an error
    for (const ato_promise &wrong :
         {ato_promise{promise.number + 1, promise.end},
          ato_promise{promise.number, promise.end + 64}, ato_promise{~0ull, ~0ull}}) {
        EXPECT_EQ(ato_await(m.base, &wrong), -1);
        EXPECT_EQ(errno, EINVAL) << ato_errormsg();
    }
    alarm(0);
    EXPECT_EQ(ato_await(m.base, &promise), 0) << ato_errormsg();
}

// In other domains, and before there are numbers, it is durable at once.
TEST_F(EarlyFile, IsAnOrdinaryCommitElsewhere)
{
    for (const int domain : {ATO_DOMAIN_DISK, ATO_DOMAIN_PMEM, ATO_DOMAIN_PROCESS}) {
        const std::string other = dir / std::to_string(domain);
        write_file(other, content);
        Mapped m(other, opt(domain));
        ASSERT_TRUE(m) << m.sentence;
        for (const bool numbered : {false, true}) {
            if (numbered && domain == ATO_DOMAIN_DISK)
                break;
            if (numbered) {
                ASSERT_TRUE(Snap(m.base));
            }
            promise = {7, 7};
            ASSERT_TRUE(commit_early(m, {{5, Bytes(9, 5)}}, promise)) << ato_errormsg();
            EXPECT_EQ(promise.number, 0u);
            EXPECT_EQ(ato_await(m.base, &promise), 0) << ato_errormsg();
            EXPECT_EQ(newest(m, 5, 9), Bytes(9, 5));
            EXPECT_EQ(m.read(5, 9), Bytes(9, 5));
        }
    }
}

// Also a commit that resizes.
TEST_F(EarlyFile, ACommitThatResizesIsDurableAtOnce)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    early(m, {{0, Bytes(7, 7)}});
    ato_tx *tx = ato_tx_begin(EARLY);
    ASSERT_TRUE(tx) << ato_errormsg();
    ASSERT_EQ(ato_tx_ftruncate(tx, m.base, SIZE + PAGE), 0) << ato_errormsg();
    ASSERT_TRUE(ato_tx_memcpy(tx, m.base + SIZE, "abc", 3, 0)) << ato_errormsg();
    ASSERT_EQ(ato_tx_commit_early(tx, &promise), 0) << ato_errormsg();
    EXPECT_EQ(promise.number, 0u);
    content.resize(SIZE + PAGE);
    std::copy_n("abc", 3, content.begin() + SIZE);
    EXPECT_TRUE(Snap(m.base).copy() == content);
}

} // namespace
