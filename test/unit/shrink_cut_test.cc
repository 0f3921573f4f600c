// SPDX-License-Identifier: BSD-3-Clause
//
// What is left of a shrink that was cut, of one before a growth, or of one that failed? The file is as
// long as before or as long as it was to be, whole, and zeros are behind it when it gets longer.
#include "growth_lab.h"

#include <cerrno>
#include <set>

#include <unistd.h>

using namespace growth_lab;

namespace
{

class ShrinkCut : public Growth
{
};

INSTANTIATE_TEST_SUITE_P(Domains, ShrinkCut,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR, ATO_DOMAIN_MSYNC,
                                         ATO_DOMAIN_PROCESS));

// Sizes one after the other, of one process that dies before each of its calls; then the next one does
// something else, and dies, too; then the third one finds it in order.
template <class Faults>
void cut_everywhere(const std::string &path, const ato_options &wish, const Bytes &content,
                    const std::vector<uint64_t> &sizes)
{
    bool done = false;
    for (long k = 0; !done; k += NEXT_CUT) {
        SCOPED_TRACE("cut before call " + std::to_string(k) + ", sizes " +
                     testing::PrintToString(sizes));
        write_file(path, content);
        // What it was last made shorter to, and longer: the rest are zeros.
        int status = in_child([&] {
            Mapped m(path, wish);
            if (!m || !m.write(0, Bytes(content.begin(), content.end())))
                return 1;
            Faults faults;
            faults.cut_at(k);
            for (uint64_t size : sizes)
                if (ato_ftruncate(m.base, static_cast<off_t>(size)) < 0)
                    return 2;
            return m.unmap(ATO_UNMAP_FAST) < 0 ? 3 : 0;
        });
        ASSERT_TRUE(status == 0 || status == CUT) << status;
        done = status == 0;
        if (k % 3 == 0) {
            long second = k / 3 % 11;
            status = in_child([&] {
                Faults faults;
                faults.cut_at(second);
                Mapped m(path, wish, 1);
                if (!m)
                    return 1;
                if (ato_ftruncate(m.base, static_cast<off_t>(m.stat().size)) < 0)
                    return 2;
                return 0;
            });
            ASSERT_TRUE(status == 0 || status == CUT) << status;
        }
        Mapped m(path, wish, 1);
        ASSERT_TRUE(m) << m.sentence;
        uint64_t size = m.stat().size, least = content.size();
        bool one_of_them = size == content.size();
        std::set<Bytes> may;
        Bytes now = content;
        if (!done)
            may.insert(now);
        for (uint64_t s : sizes) {
            now.resize(s);
            one_of_them |= s == size;
            least = std::min(least, s);
            if (!done || &s == &sizes.back())
                may.insert(now);
        }
        may.insert(now);
        ASSERT_TRUE(one_of_them) << size;
        Bytes is = size ? m.read(0, size) : Bytes();
        ASSERT_TRUE(may.count(is)) << size;
        // All that was behind the end is zeros.
        ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(LONGER + 5000)), 0) << ato_errormsg();
        is.resize(LONGER + 5000);
        ASSERT_EQ(m.read(0, is.size()), is);
        ASSERT_TRUE(m.write(LONGER, pattern(3000, 9))) << m.sentence;
        std::copy_n(pattern(3000, 9).begin(), 3000, is.begin() + LONGER);
        ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(LONGER + 1000)), 0) << ato_errormsg();
        is.resize(LONGER + 1000);
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        ASSERT_EQ(read_file(path), is);
        ASSERT_EQ(names_in(folder_of(path)), std::vector<std::string>());
    }
}

const std::vector<std::vector<uint64_t>> SCENES = {
    {100},                          // within the first page
    {2 * 4096},                     // at a page's end
    {0},                            // to nothing
    {5000, 300},                    // twice
    {5000, 3 * 4096 + 10},          // and longer, within what it was
    {5000, SIZE},                   // to just that
    {5000, LONGER},                 // beyond
    {5000, 3 * 4096, LONGER, 7000}, // all of that
};

TEST_P(ShrinkCut, CutBeforeAnyCallOfTheFileSystem)
{
    for (const auto &sizes : SCENES)
        ASSERT_NO_FATAL_FAILURE(cut_everywhere<FsFaults>(path, wish_to_grow(), content, sizes));
}

TEST_P(ShrinkCut, CutBeforeAnyStoreOrFlush)
{
    for (const auto &sizes : SCENES)
        if (sizes.size() != 1 || sizes[0] == 100) {
            ASSERT_NO_FATAL_FAILURE(
                cut_everywhere<PersistFaults>(path, wish_to_grow(), content, sizes));
        }
}

// Nobody is told of the new end before it is durable, nor is anything thrown away.
// Who died had cleared the words, and perhaps his msync failed: then they are zeros for everybody but the
// medium, and a sync has nothing to write unless their page is made dirty again.
TEST_P(ShrinkCut, WordsThatTheDeadClearedAreWrittenAgain)
{
    int status = in_child([&]() -> int {
        auto *m = new Mapped(path, wish_to_grow());
        bool good = *m && m->write(0, pattern(SIZE, 3)) && ato_ftruncate(m->base, 5000) == 0;
        _exit(good ? CUT : 1);
    });
    ASSERT_EQ(status, CUT);
    const Bytes words = read_at(reflection_of(path), 8, 511 * 8);
    ASSERT_EQ(Bytes(words.begin() + 8, words.end()), Bytes(510 * 8)) << "all of them";
    PersistFaults stores;
    bool stored = false; // to the page's last word
    stores.before = [&](const PersistCall &c) {
        stored |= std::string(c.op) == "store_word" &&
                  reinterpret_cast<uintptr_t>(c.address) % 4096 == 511 * 8;
        return GO_ON;
    };
    Mapped m(path, wish_to_grow());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_TRUE(stored);
}

TEST_P(ShrinkCut, NewSizeIsNotSeenBeforeItIsDurable)
{
    Mapped m(path, wish());
    ASSERT_TRUE(m.write(0, content));
    std::vector<uint64_t> words;
    {
        PersistFaults faults;
        faults.before = [&](const PersistCall &c) {
            if (std::string(c.op) == "store_word")
                words.push_back(m.stat().size);
            return GO_ON;
        };
        ASSERT_EQ(ato_ftruncate(m.base, 100), 0) << ato_errormsg();
    }
    ASSERT_EQ(words.size(), 8u); // shrink word, size word, the bitmaps of six pages
    EXPECT_EQ(std::vector<uint64_t>(words.begin(), words.begin() + 2),
              (std::vector<uint64_t>{SIZE, SIZE}));
    EXPECT_EQ(std::vector<uint64_t>(words.begin() + 2, words.end()), std::vector<uint64_t>(6, 100));
}

// What others do to the file after a cut is theirs, as far as it can be told.
TEST_P(ShrinkCut, FileThatOthersMadeLongerAfterACutIsEstale)
{
    int status = in_child([&] {
        Mapped m(path, wish());
        _exit(ato_ftruncate(m.base, 100) < 0 ? 1 : CUT);
        return 0;
    });
    ASSERT_EQ(status, CUT);
    for (uint64_t size : {SIZE + 1, size_t(99)}) {
        ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
        Mapped m(path, wish());
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, ESTALE);
        EXPECT_EQ(size_of(path), size);
    }
    ASSERT_EQ(truncate(path.c_str(), 100), 0);
    Bytes now = read_file(path);
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.stat().size, 100u);
    EXPECT_EQ(read_at(manifest_of(path), 8208, 8), Bytes(8));
}

// Whatever fails behind the commit: the file is shorter, and what is left is cleared later.
TEST_P(ShrinkCut, EachCallThatFailsLeavesItWhole)
{
    for (long k = 0;; k++) {
        SCOPED_TRACE("call " + std::to_string(k));
        write_file(path, content);
        Mapped m(path, wish_to_grow());
        ASSERT_TRUE(m.write(0, content)) << m.sentence;
        int r, unmapped;
        size_t calls;
        {
            FsFaults faults;
            faults.fail_at(k, EIO);
            r = ato_ftruncate(m.base, 100);
            unmapped = r == 0 ? m.unmap(ATO_UNMAP_FAST) : 0;
            calls = faults.calls.size();
        }
        ASSERT_EQ(r, 0) << ato_errormsg();
        if (unmapped < 0) {
            EXPECT_EQ(m.error, EIO) << m.sentence;
            m.base = nullptr;
        }
        Mapped next(path, wish_to_grow());
        ASSERT_TRUE(next) << next.sentence;
        Bytes expected(content.begin(), content.begin() + 100);
        ASSERT_EQ(next.read(0, 100), expected);
        ASSERT_EQ(ato_ftruncate(next.base, LONGER), 0) << ato_errormsg();
        ASSERT_EQ(next.read(0, LONGER), grown(expected, LONGER));
        ASSERT_EQ(next.unmap(ATO_UNMAP_SPATIAL), 0) << next.sentence;
        if (static_cast<size_t>(k) >= calls)
            break;
    }
}

class ShrinkOnMsync : public Growth
{
};

INSTANTIATE_TEST_SUITE_P(Msync, ShrinkOnMsync, testing::Values(ATO_DOMAIN_MSYNC));

TEST_P(ShrinkOnMsync, MediumThatFailsPoisons)
{
    for (long k = 1;; k++) {
        SCOPED_TRACE("flush " + std::to_string(k));
        write_file(path, content);
        Mapped m(path, wish());
        ASSERT_TRUE(m.write(0, content)) << m.sentence;
        long left = k;
        int r;
        {
            PersistFaults faults;
            faults.before = [&](const PersistCall &c) {
                return std::string(c.op).rfind("flush", 0) == 0 && --left == 0 ? EIO : GO_ON;
            };
            r = ato_ftruncate(m.base, 100);
        }
        if (left > 0) {
            EXPECT_GE(k, 3);
            break;
        }
        EXPECT_EQ(r, k < 3 ? -1 : 0) << "what comes behind the size word does not undo it";
        EXPECT_EQ(m.read(0, 10), Bytes());
        EXPECT_EQ(m.error, EIO);
        EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        Mapped again(path, wish_to_grow(), 1);
        ASSERT_TRUE(again) << again.sentence;
        uint64_t size = again.stat().size;
        EXPECT_TRUE(size == 100 || (size == SIZE && r < 0)) << size;
        Bytes expected = content;
        expected.resize(size);
        EXPECT_EQ(again.read(0, size), expected);
        ASSERT_EQ(ato_ftruncate(again.base, LONGER), 0) << ato_errormsg();
        EXPECT_EQ(again.read(0, LONGER), grown(expected, LONGER));
        EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0);
    }
}

} // namespace
