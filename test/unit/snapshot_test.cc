// SPDX-License-Identifier: BSD-3-Clause
//
// Does a snapshot have the bytes of one moment, whatever is committed later, in whichever process? Do its reads repeat? What is
// not in it, and which calls are refused?
#include "snapshot_lab.h"

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace snapshot_lab;

namespace
{

class Snapshot : public OnAFile
{
};
IN_ALL_DOMAINS(Snapshot);

// What a process does to a file that it has mapped. The second one does the same to bytes.
struct Deed {
    const char *name;
    std::function<bool(Mapped &)> act;
    std::function<void(Bytes &)> to;
    int policy = ATO_READ_GATHER;
    unsigned flags = 0;
};

void put(Bytes &to, size_t at, const Bytes &news)
{
    std::copy(news.begin(), news.end(), to.begin() + static_cast<long>(at));
}

Deed write(const char *name, size_t at, const Bytes &news, unsigned how = 0,
           int policy = ATO_READ_GATHER, unsigned flags = 0)
{
    return {name, [=](Mapped &m) { return m.write(at, news, how); },
            [=](Bytes &to) { put(to, at, news); }, policy, flags};
}

Deed resize(const char *name, size_t size, int policy = ATO_READ_GATHER)
{
    return {name, [=](Mapped &m) { return ato_ftruncate(m.base, static_cast<off_t>(size)) == 0; },
            [=](Bytes &to) { to.resize(size); }, policy};
}

std::vector<Deed> deeds()
{
    const auto nothing = [](Bytes &) {};
    const auto read = [](Mapped &m) { return !m.read().empty(); };
    const Bytes a = pattern(100, 2), b = pattern(5000, 3);
    return {
        write("Write", 3 * PAGE + 100, a),
        write("WriteAgain", 3 * PAGE + 130, b),
        write("SeveralPages", 2 * PAGE + 10, pattern(9 * PAGE, 4)),
        write("SeveralPagesByALane", 5 * PAGE + 10, pattern(4 * PAGE, 5), 0, ATO_READ_GATHER,
              ATO_NO_RTM),
        write("EagerWord", 4 * PAGE + 64, pattern(8, 6), ATO_EAGER),
        write("EagerPages", 4 * PAGE + 100, pattern(2 * PAGE, 7), ATO_EAGER),
        write("AllEager", 7 * PAGE, pattern(3 * PAGE, 8), 0, ATO_READ_EAGER),
        {"Lazy",
         [=](Mapped &m) {
             return m.write(6 * PAGE, b) && !m.read().empty() && m.write(6 * PAGE, a);
         },
         [=](Bytes &to) { put(to, 6 * PAGE, b), put(to, 6 * PAGE, a); }, ATO_READ_LAZY},
        {"LazyReads", read, nothing, ATO_READ_LAZY},
        {"Deploy", [](Mapped &m) { return ato_deploy(m.base, m.length) == 0; }, nothing},
        write("AfterADeploy", 2 * PAGE, pattern(10 * PAGE, 9)),
        {"Reclaim",
         [](Mapped &m) {
             return ato_deploy(m.base, 6 * PAGE) == 0 && ato_reclaim(m.base, m.length) == 0;
         },
         nothing},
        write("AfterAReclaim", 3 * PAGE + 7, pattern(2 * PAGE, 10)),
        {"Memset", [](Mapped &m) { return ato_memset(m.base + 50, 'm', 3 * PAGE) != nullptr; },
         [](Bytes &to) { put(to, 50, Bytes(3 * PAGE, 'm')); }},
        {"Writev",
         [=](Mapped &m) {
             const ato_iovec ranges[] = {{m.base + 10, a.data(), a.size()},
                                         {m.base + 20 * PAGE, b.data(), b.size()},
                                         {m.base + 50, b.data(), 20}};
             return ato_writev(ranges, 3, 0) == 0;
         },
         [=](Bytes &to) {
             put(to, 10, a), put(to, 20 * PAGE, b), put(to, 50, Bytes(&b[0], &b[20]));
         }},
        {"Transaction",
         [=](Mapped &m) {
             ato_tx *t = ato_tx_begin(0);
             return ato_tx_memcpy(t, m.base + 30 * PAGE, b.data(), b.size(), 0) &&
                    ato_tx_memcpy(t, m.base + 2 * PAGE, a.data(), a.size(), 0) &&
                    ato_tx_memcpy(t, m.base + 30 * PAGE + 9, a.data(), a.size(), 0) &&
                    ato_tx_commit(t) == 0;
         },
         [=](Bytes &to) {
             put(to, 30 * PAGE, b), put(to, 2 * PAGE, a), put(to, 30 * PAGE + 9, a);
         }},
        {"Epoch",
         [=](Mapped &m) {
             return m.write(40 * PAGE - 50, b) && m.write(9 * PAGE, a) &&
                    ato_msync(m.base, m.length, MS_SYNC) == 0;
         },
         [=](Bytes &to) { put(to, 40 * PAGE - 50, b), put(to, 9 * PAGE, a); }, ATO_READ_GATHER,
         ATO_EPOCHS},
        resize("Growth", SIZE + 9 * PAGE),
        write("BehindTheOldEnd", SIZE - 100, pattern(8 * PAGE, 11)),
        resize("Shrink", 10 * PAGE + 77),
        resize("GrowthAgain", SIZE),
        write("WhatWasCutOff", 10 * PAGE, pattern(30 * PAGE, 12)),
        {"ResizesInATransaction",
         [=](Mapped &m) {
             ato_tx *t = ato_tx_begin(0);
             return ato_tx_ftruncate(t, m.base, 20 * PAGE + 5) == 0 &&
                    ato_tx_ftruncate(t, m.base, SIZE - 3) == 0 &&
                    ato_tx_memcpy(t, m.base + 25 * PAGE, b.data(), b.size(), 0) &&
                    ato_tx_commit(t) == 0;
         },
         [=](Bytes &to) {
             to.resize(20 * PAGE + 5), to.resize(SIZE - 3);
             put(to, 25 * PAGE, b);
         }},
        resize("ToNothing", 0),
        resize("FromNothing", SIZE),
    };
}

// The first part of the file is written before, the second one is not loaded in memory.
TEST_P(Snapshot, IsOfOneMomentWhateverThisOrAnotherProcessCommitsLater)
{
    for (const bool other : {false, true}) {
        write_file(file, content = pattern(SIZE, 1));
        {
            Mapped before(file, opt());
            ASSERT_TRUE(before && OnAFile::put(before, 3 * PAGE + 50, pattern(20 * PAGE, 20)));
        }
        auto m = std::make_unique<Mapped>(file, opt());
        ASSERT_TRUE(*m && OnAFile::put(*m, PAGE + 9, pattern(4 * PAGE, 21))) << m->sentence;
        std::vector<std::unique_ptr<Snap>> all;
        std::vector<Bytes> wanted;
        for (const Deed &deed : deeds()) {
            SCOPED_TRACE(testing::Message() << deed.name << (other ? ", another process" : ""));
            all.push_back(std::make_unique<Snap>(m->base));
            wanted.push_back(content);
            ASSERT_TRUE(*all.back()) << all.back()->sentence;
            const auto act = [&] {
                Mapped by(file, opt(deed.policy, deed.flags), SIZE);
                return by && deed.act(by) ? 0 : 1;
            };
            ASSERT_EQ(other ? in_child(act) : act(), 0) << ato_errormsg();
            deed.to(content);
            for (int times = 0; times < 2; times++)
                ASSERT_TRUE(all.back()->copy() == wanted.back()) << all.back()->sentence;
            Bytes now;
            ASSERT_EQ(copy_now(m->base, now), static_cast<off_t>(content.size())) << ato_errormsg();
            ASSERT_TRUE(now == content);
        }
        for (size_t i = 0; i < all.size(); i++) {
            EXPECT_TRUE(all[i]->copy() == wanted[i])
                << "before " << deeds()[i].name << ": " << all[i]->sentence;
            Bytes pieces;
            for (size_t at = 0; at < wanted[i].size() + 2000; at += 3000) {
                const Bytes piece = all[i]->read(at, 3000);
                pieces.insert(pieces.end(), piece.begin(), piece.end());
            }
            EXPECT_TRUE(pieces == wanted[i]) << "by pieces, before " << deeds()[i].name;
        }
        all.clear();
        EXPECT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0) << m->sentence;
        EXPECT_TRUE(read_file(file) == content);
    }
}

TEST_P(Snapshot, OfEachOfSeveralProcessesIsThatOfItsOwnMoment)
{
    std::vector<std::unique_ptr<Peer>> peers;
    Mapped m(file, opt());
    ASSERT_TRUE(m) << m.sentence;
    for (unsigned i = 0; i < 5; i++) {
        peers.push_back(std::make_unique<Peer>([&, i](const std::function<void()> &pause) {
            Mapped own(file, opt());
            Snap s(own ? own.base : nullptr);
            pause();
            const Bytes once = s.copy();
            // Its own commit comes after it.
            return once == content && own.write(i * 100, pattern(50, 90)) && s.copy() == content
                       ? 0
                       : 1;
        }));
        ASSERT_TRUE(peers.back()->is_ready());
        for (size_t at : {i * PAGE, 7 * PAGE + i, 30 * PAGE - 100})
            ASSERT_TRUE(put(m, at, pattern(300, 30 + i))) << m.sentence;
    }
    for (auto &peer : peers)
        EXPECT_EQ(peer->end(), 0);
}

// Each transaction writes the same number to pages far apart, and each write fills some pages with one byte.
TEST_P(Snapshot, TearsNoTransactionAndNoWriteAndItsReadsRepeat)
{
    static constexpr size_t AT[] = {0, 17, 18, 41, 59}, FILLED = 30, MANY = 5;
    write_file(file, Bytes(SIZE));
    const auto writes = [&](const std::function<void()> &pause) {
        Mapped m(file, opt());
        if (!m)
            return 1;
        for (uint64_t i = 1;; i++) {
            ato_tx *t = ato_tx_begin(0);
            for (size_t page : AT)
                if (!ato_tx_memcpy(t, m.base + page * PAGE + 40, &i, 8, 0))
                    break;
            (void)ato_tx_commit(t);
            if (!ato_memset(m.base + FILLED * PAGE + 50, static_cast<int>(i), MANY * PAGE))
                return 1;
            if (i == 1)
                pause();
        }
    };
    Peer one(writes), two(writes);
    ASSERT_TRUE(one.is_ready() && two.is_ready());
    one.go_on(), two.go_on();
    Mapped m(file, opt());
    ASSERT_TRUE(m) << m.sentence;
    for (int i = 0; i < 100; i++) {
        Snap s(m.base);
        ASSERT_TRUE(s) << s.sentence;
        const Bytes once = s.copy();
        ASSERT_EQ(once.size(), SIZE) << s.sentence;
        for (size_t page : AT)
            ASSERT_EQ(memcmp(&once[page * PAGE + 40], &once[40], 8), 0) << page << " of " << i;
        const auto filled = once.begin() + FILLED * PAGE + 50;
        ASSERT_EQ(std::count(filled, filled + MANY * PAGE, *filled),
                  static_cast<long>(MANY * PAGE));
        ASSERT_TRUE(s.copy() == once) << i;
    }
}

TEST_P(Snapshot, HasNothingOfAnOpenTransactionOrEpoch)
{
    Mapped m(file, opt()), epochs(file, opt(ATO_READ_GATHER, ATO_EPOCHS));
    ASSERT_TRUE(m && epochs) << m.sentence << epochs.sentence;
    ato_tx *t = ato_tx_begin(0);
    ASSERT_TRUE(ato_tx_memcpy(t, m.base + 100, "open", 4, 0) &&
                ato_tx_ftruncate(t, m.base, SIZE - 5 * PAGE) == 0 &&
                epochs.write(20 * PAGE, pattern(99, 3)))
        << ato_errormsg();
    Snap before(m.base);
    EXPECT_TRUE(before.copy() == content) << before.sentence;
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    ASSERT_EQ(ato_msync(epochs.base, SIZE, MS_SYNC), 0) << ato_errormsg();
    EXPECT_TRUE(before.copy() == content) << before.sentence;
    EXPECT_EQ(Snap(m.base).read(100, 4), Bytes({'o', 'p', 'e', 'n'}));
}

// Of a file with holes only some pages are read, also of what was cut off, or was written and is a hole again.
TEST_P(Snapshot, FindsTheDataOfALargeFileWithHoles)
{
    constexpr off_t LARGE = 1ll << 35;
    const auto page_at = [](off_t page) { return page * static_cast<off_t>(PAGE); };
    const auto data = [](ato_snapshot *s, off_t from) {
        std::vector<off_t> found;
        int reads = 0;
        for (off_t at = from; (at = ato_snapshot_seek(s, at, SEEK_DATA)) >= 0 && reads < 99;
             at += PAGE, reads++) {
            Bytes bytes(PAGE);
            EXPECT_GT(ato_snapshot_read(s, bytes.data(), at, PAGE), 0) << ato_errormsg();
            if (bytes != Bytes(PAGE))
                found.push_back(at / static_cast<off_t>(PAGE));
        }
        EXPECT_LT(reads, 99);
        EXPECT_EQ(errno, ENXIO) << ato_errormsg();
        return found;
    };
    using Found = std::vector<off_t>;
    write_file(file, {});
    ASSERT_EQ(truncate(file.c_str(), LARGE), 0);
    ato_options o = opt();
    o.max_size = static_cast<uint64_t>(LARGE);
    {
        Mapped before(file, o);
        ASSERT_TRUE(before && before.write(static_cast<uint64_t>(page_at(5000)), pattern(90, 3)))
            << before.sentence;
    }
    Mapped m(file, o);
    ASSERT_TRUE(m && m.write(static_cast<uint64_t>(page_at(77)), pattern(90, 4))) << m.sentence;
    Snap first(m.base);
    EXPECT_EQ(data(first.s, 0), (Found{77, 5000})) << first.sentence;
    EXPECT_EQ(data(first.s, page_at(78)), Found{5000});
    ASSERT_TRUE(m.write(static_cast<uint64_t>(page_at(1 << 20)), pattern(9, 5))) << m.sentence;
    Snap second(m.base);
    EXPECT_EQ(data(second.s, 0), (Found{77, 5000, 1 << 20}));
    EXPECT_EQ(data(first.s, 0), (Found{77, 5000}));
    ASSERT_EQ(ato_ftruncate(m.base, page_at(100)), 0) << ato_errormsg();
    Snap third(m.base);
    EXPECT_EQ(data(third.s, 0), Found{77});
    EXPECT_EQ(ato_snapshot_seek(third.s, 0, SEEK_END), page_at(100));
    ASSERT_TRUE(ato_ftruncate(m.base, LARGE - 5) == 0 &&
                m.write(static_cast<uint64_t>(page_at(6000)), pattern(9, 6)))
        << ato_errormsg();
    Snap fourth(m.base);
    EXPECT_EQ(data(fourth.s, 0), (Found{77, 6000}));
    EXPECT_EQ(data(third.s, 0), Found{77});
    EXPECT_EQ(data(second.s, 0), (Found{77, 5000, 1 << 20}));
    EXPECT_EQ(data(first.s, 0), (Found{77, 5000}));
    EXPECT_EQ(ato_snapshot_seek(fourth.s, 0, SEEK_END), LARGE - 5);
    EXPECT_EQ(ato_snapshot_seek(first.s, 0, SEEK_END), LARGE);
}

// ---- calls that are refused ---------------------------------------------------------------------

#define EXPECT_ERROR(call, error)                                                                  \
    do {                                                                                           \
        EXPECT_LT(call, 0);                                                                        \
        EXPECT_EQ(errno, error) << ato_errormsg();                                                 \
    } while (0)

TEST_P(Snapshot, RefusesWhatItCannotRead)
{
    ato_options small = opt();
    small.max_size = SIZE;
    Mapped m(file, small);
    ASSERT_TRUE(m) << m.sentence;
    char bytes[64];
    EXPECT_EQ(ato_snapshot_begin(bytes), nullptr);
    EXPECT_EQ(errno, EINVAL);
    Snap s(m.base + 5);
    ASSERT_TRUE(s) << s.sentence;
    EXPECT_ERROR(ato_snapshot_read(s.s, bytes, -1, 5), EINVAL);
    EXPECT_ERROR(ato_snapshot_read(s.s, nullptr, 0, 5), EINVAL);
    EXPECT_ERROR(ato_snapshot_read(s.s, m.base, 0, 5), EINVAL);
    EXPECT_ERROR(ato_snapshot_seek(s.s, 1, SEEK_END), EINVAL);
    EXPECT_ERROR(ato_snapshot_seek(s.s, 0, SEEK_SET), EINVAL);
    EXPECT_ERROR(ato_snapshot_seek(s.s, -1, SEEK_DATA), EINVAL);
    EXPECT_ERROR(ato_snapshot_seek(s.s, SIZE, SEEK_DATA), ENXIO);
    EXPECT_EQ(ato_snapshot_seek(s.s, SIZE - 1, SEEK_DATA), static_cast<off_t>(SIZE) - 1);
    EXPECT_EQ(s.read(SIZE - 9, 64), Bytes(content.end() - 9, content.end()));
    EXPECT_EQ(ato_snapshot_read(s.s, bytes, SIZE, 64), 0);
    EXPECT_EQ(ato_snapshot_read(s.s, bytes, 0, 0), 0);
    EXPECT_EQ(in_child([&] {
                  Mapped other(file, opt());
                  return other && ato_ftruncate(other.base, SIZE + 5 * PAGE) == 0 ? 0 : 1;
              }),
              0);
    EXPECT_TRUE(s.copy() == content) << s.sentence;
    Snap longer(m.base);
    EXPECT_FALSE(longer);
    EXPECT_EQ(longer.error, EFBIG) << longer.sentence;
}

TEST_P(Snapshot, ThatHasEndedIsNoSnapshotAnyMoreAlsoIfItsPlaceIsUsedAgain)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m) << m.sentence;
    char bytes[8];
    ato_snapshot *const ended = ato_snapshot_begin(m.base);
    ASSERT_NE(ended, nullptr) << ato_errormsg();
    ASSERT_EQ(ato_snapshot_end(ended), 0);
    Snap again(m.base);
    for (ato_snapshot *none :
         {ended, static_cast<ato_snapshot *>(nullptr), reinterpret_cast<ato_snapshot *>(bytes)}) {
        EXPECT_ERROR(ato_snapshot_read(none, bytes, 0, 8), EINVAL);
        EXPECT_ERROR(ato_snapshot_seek(none, 0, SEEK_END), EINVAL);
        EXPECT_ERROR(ato_snapshot_end(none), EINVAL);
    }
    EXPECT_TRUE(again.copy() == content) << again.sentence;
}

TEST_P(Snapshot, KeepsItsMappingUntilItEnds)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m) << m.sentence;
    {
        Snap s(m.base);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), -1);
        EXPECT_EQ(m.error, EBUSY) << m.sentence;
        EXPECT_TRUE(s.copy() == content) << s.sentence;
    }
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
}

TEST_P(Snapshot, OfTheParentIsNoneOfAForkedChildWhichMayTakeItsOwn)
{
    Mapped m(file, opt());
    Snap s(m.base);
    ASSERT_TRUE(m && s) << m.sentence << s.sentence;
    EXPECT_EQ(in_child([&] {
                  char bytes[8];
                  EXPECT_ERROR(ato_snapshot_read(s.s, bytes, 0, 8), EINVAL);
                  EXPECT_ERROR(ato_snapshot_end(s.s), EINVAL);
                  Mapped own(file, opt());
                  Snap before(own.base);
                  return own.write(9 * PAGE, pattern(5000, 9)) && before.copy() == content &&
                                 !testing::Test::HasFailure()
                             ? 0
                             : 1;
              }),
              0);
    EXPECT_TRUE(s.copy() == content) << s.sentence;
}

} // namespace
