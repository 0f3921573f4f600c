// SPDX-License-Identifier: BSD-3-Clause
//
// What if the medium fails? A flush that says EIO before the commit point: an error, nothing
// changed. After it: the file is poisoned, every call on it is EIO until it is mapped anew, and
// then its content is whole, old or new.
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 6 * 4096;

// The n-th flush of a kind, from 1, fails; later ones too if `all`.
void fail_flush(PersistFaults &faults, long n, const std::string &op = "", bool all = false)
{
    auto left = std::make_shared<long>(n);
    faults.before = [left, op, all](const PersistCall &c) {
        std::string call = c.op;
        if (call.rfind("flush", 0) != 0 || (!op.empty() && call != op))
            return GO_ON;
        --*left;
        return *left == 0 || (all && *left < 0) ? EIO : GO_ON;
    };
}

class Poison : public testing::Test
{
  protected:
    Poison() : path(dir / "file"), old_(pattern(SIZE, 1)), new_(pattern(SIZE, 2))
    {
        write_file(path, old_);
    }

    static ato_options wish(unsigned flags = ATO_NO_RTM)
    {
        return options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, flags);
    }

    // Every call on the file says EIO, and why.
    void expect_poisoned(Mapped &m)
    {
        char buffer[64] = {0};
        auto says_why = [this] {
            EXPECT_EQ(errno, EIO);
            EXPECT_NE(std::string(ato_errormsg()).find(path), std::string::npos) << ato_errormsg();
        };
        EXPECT_EQ(ato_memcpy(buffer, m.base, 64), nullptr);
        says_why();
        EXPECT_EQ(ato_memcpy(m.base, buffer, 64), nullptr);
        says_why();
        EXPECT_EQ(ato_memcpy(m.base, m.base + 5000, 64), nullptr);
        says_why();
        EXPECT_EQ(ato_memset(m.base, 0, 64), nullptr);
        says_why();
        EXPECT_EQ(ato_deploy(m.base, SIZE), -1);
        says_why();
        EXPECT_EQ(ato_msync(m.base, SIZE, MS_SYNC), -1);
        says_why();
        Mapped second(path);
        EXPECT_FALSE(second);
        EXPECT_EQ(second.error, EIO);
    }

    // Unmapped and mapped anew it works again; its content is one of the two.
    void expect_cured(Mapped &m, int mode)
    {
        if (mode == ATO_UNMAP_FAST) {
            EXPECT_EQ(m.unmap(mode), 0) << m.sentence;
        } else { // it is not plain, and says so; the mapping is gone all the same
            EXPECT_EQ(m.unmap(mode), -1);
            EXPECT_EQ(m.error, EIO);
            EXPECT_NE(m.sentence.find("not plain"), std::string::npos) << m.sentence;
            EXPECT_EQ(ato_munmap(m.base, SIZE, mode), -1);
            EXPECT_EQ(errno, EINVAL);
            m.base = nullptr;
        }
        Mapped again(path, wish());
        ASSERT_TRUE(again) << again.sentence;
        Bytes found = again.read();
        EXPECT_TRUE(found == old_ || found == new_) << "torn";
        EXPECT_TRUE(again.write(0, old_)) << again.sentence;
        EXPECT_TRUE(again.write(100, pattern(9000, 5))) << again.sentence;
        std::copy_n(pattern(9000, 5).begin(), 9000, old_.begin() + 100);
        EXPECT_EQ(again.read(), old_);
        EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
        EXPECT_EQ(read_file(path), old_);
        EXPECT_EQ(names_in(folder_of(path)), std::vector<std::string>());
    }

    TempDir dir;
    std::string path;
    Bytes old_, new_;
};

// The kernel tells of a failed write-back once, to whoever asks first, and then takes the pages for
// clean: whosever bytes they were, nothing that is not durable yet can be believed.
TEST_F(Poison, FailedFlushOfDataPoisonsTooAndTheFileIsAsItWas)
{
    for (size_t n : {size_t(64), SIZE}) {
        for (long flush : {1, 2}) { // O, R
            Mapped m(path, wish());
            ASSERT_TRUE(m) << m.sentence;
            {
                PersistFaults faults;
                fail_flush(faults, flush, "flush_data");
                EXPECT_FALSE(m.write(0, Bytes(new_.begin(), new_.begin() + static_cast<long>(n))));
                EXPECT_EQ(m.error, EIO);
            }
            expect_poisoned(m);
            EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
            Mapped again(path, wish());
            ASSERT_TRUE(again) << again.sentence;
            EXPECT_EQ(again.read(), old_) << "its commit point was not reached";
            EXPECT_TRUE(again.write(0, new_)) << again.sentence;
            EXPECT_TRUE(again.write(0, old_)) << again.sentence;
            EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0);
        }
    }
}

TEST_F(Poison, FailedFlushOfTheWordPoisonsASinglePageWrite)
{
    for (int mode : {ATO_UNMAP_FAST, ATO_UNMAP_SPATIAL}) {
        write_file(path, old_);
        new_ = old_;
        Bytes record = pattern(4096, 7);
        std::copy(record.begin(), record.end(), new_.begin() + 4096);
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        {
            PersistFaults faults;
            fail_flush(faults, 1, "flush_word");
            EXPECT_FALSE(m.write(4096, record));
            EXPECT_EQ(m.error, EIO);
        }
        expect_poisoned(m);
        expect_cured(m, mode);
    }
}

// The commit of several pages: each of its flushes fails once, and from then on.
TEST_F(Poison, FailureAnywhereInAJournaledCommitLeavesItWhole)
{
    for (bool all : {false, true}) {
        long poisoned = 0, clean = 0;
        for (long n = 1;; n++) {
            SCOPED_TRACE("flush " + std::to_string(n));
            write_file(path, old_);
            Bytes first = old_;
            Mapped m(path, wish());
            ASSERT_TRUE(m) << m.sentence;
            ASSERT_TRUE(m.write(0, old_)) << m.sentence; // makes the journal
            bool written;
            {
                PersistFaults faults;
                fail_flush(faults, n, "", all);
                written = m.write(0, new_);
            }
            if (written) {
                EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
                break;
            }
            EXPECT_EQ(m.error, EIO);
            if (ato_msync(m.base, SIZE, MS_SYNC) == 0) { // not in doubt
                clean++;
                EXPECT_EQ(m.read(), old_);
                EXPECT_TRUE(m.write(0, new_)) << m.sentence;
                EXPECT_EQ(m.read(), new_);
            } else {
                poisoned++;
                expect_poisoned(m);
            }
            expect_cured(m, ATO_UNMAP_FAST);
            old_ = first;
            ASSERT_FALSE(HasFailure());
        }
        EXPECT_EQ(clean, 1);    // the journal's list: nobody believes it yet
        EXPECT_EQ(poisoned, 5); // O, R, commit line, words, retired
    }
}

TEST_F(Poison, JournalWhoseMediumFailedIsNotUsedAgain)
{
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, old_)) << m.sentence;
    std::vector<std::string> before = journals_of(path);
    ASSERT_EQ(before.size(), 1u);
    {
        PersistFaults faults;
        fail_flush(faults, 3, "flush_data"); // the list, after O and R
        EXPECT_FALSE(m.write(0, new_));
        EXPECT_EQ(m.error, EIO);
        EXPECT_NE(m.sentence.find("journal"), std::string::npos) << m.sentence;
    }
    EXPECT_EQ(m.read(), old_);
    EXPECT_TRUE(m.write(0, new_)) << m.sentence;
    EXPECT_EQ(m.read(), new_);
    ASSERT_EQ(journals_of(path).size(), 1u);
    EXPECT_NE(journals_of(path), before);
}

TEST_F(Poison, JournalWhoseMediumFailedStaysUntilAllItsCommitsAreThrough)
{
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, old_)) << m.sentence;
    PersistFaults faults;
    std::atomic<bool> waits{false}, released{false};
    std::thread slow;
    std::atomic<int> flushes{0};
    auto main_thread = std::this_thread::get_id();
    faults.before = [&](const PersistCall &c) {
        std::string op = c.op;
        if (std::this_thread::get_id() == main_thread)
            return op == "flush_data" && ++flushes == 3 ? EIO : GO_ON; // the list
        if (op == "fence") { // it has a lane, and its list is in
            waits = true;
            while (!released)
                std::this_thread::yield();
        }
        return GO_ON;
    };
    slow = std::thread([&] { ato_memcpy(m.base, new_.data(), 8192); });
    while (!waits)
        std::this_thread::yield();
    EXPECT_EQ(ato_memcpy(m.base + 3 * 4096, new_.data(), 8192), nullptr);
    EXPECT_EQ(errno, EIO) << ato_errormsg();
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        released = true;
    });
    ato_memcpy(m.base + 3 * 4096, new_.data(), 8192); // by another journal, or poisoned by then
    EXPECT_TRUE(released) << "the journal was closed under the other commit";
    slow.join();
    later.join();
}

TEST_F(Poison, ProcessThatExitsWithACommitInDoubtLeavesItsJournal)
{
    int status = in_exiting_child([&] {
        Mapped *m = new Mapped(path, wish());
        PersistFaults faults;
        fail_flush(faults, 1, "flush_word");
        bool written = *m && m->write(0, new_);
        m->base = nullptr; // left mapped
        delete m;
        return written;
    });
    ASSERT_EQ(status, 0);
    EXPECT_EQ(journals_of(path).size(), 1u);
    Mapped again(path, wish());
    ASSERT_TRUE(again) << again.sentence;
    EXPECT_EQ(again.read(), new_); // its commit point had been passed
    EXPECT_EQ(journals_of(path).size(), 0u);
}

TEST_F(Poison, AllMappingsOfTheFileArePoisonedAndOthersAreNot)
{
    std::string other = dir / "other";
    write_file(other, old_);
    Mapped a(path, wish()), b(path, wish(), 4096, 8192), c(other, wish());
    ASSERT_TRUE(a && b && c);
    {
        PersistFaults faults;
        fail_flush(faults, 1, "flush_word");
        EXPECT_FALSE(b.write(0, Bytes(10, 1)));
    }
    EXPECT_TRUE(a.read().empty());
    EXPECT_EQ(a.error, EIO);
    EXPECT_TRUE(c.write(0, new_)) << c.sentence;
    EXPECT_EQ(c.read(), new_);
    EXPECT_EQ(a.unmap(ATO_UNMAP_FAST), 0);
    EXPECT_TRUE(b.read(0, 10).empty()); // until the last mapping is gone
    EXPECT_EQ(b.unmap(ATO_UNMAP_FAST), 0);
    Mapped again(path, wish());
    EXPECT_TRUE(again) << again.sentence;
}

// Two files share the folder's journal. One is poisoned in the middle of a commit and mapped anew
// while the other is still there.
TEST_F(Poison, FileIsCuredAlthoughAnotherFileStillUsesTheJournal)
{
    std::string other = dir / "other";
    write_file(other, old_);
    for (long n = 1; n <= 2; n++) {
        SCOPED_TRACE(n == 1 ? "words" : "retired");
        Mapped busy(other, wish());
        ASSERT_TRUE(busy) << busy.sentence;
        ASSERT_TRUE(busy.write(0, old_)) << busy.sentence;
        write_file(path, old_);
        {
            Mapped m(path, wish());
            ASSERT_TRUE(m) << m.sentence;
            ASSERT_TRUE(m.write(0, old_)) << m.sentence;
            PersistFaults faults;
            fail_flush(faults, n, "flush_word");
            ASSERT_FALSE(m.write(0, new_));
            ASSERT_EQ(m.error, EIO);
        }
        {
            Mapped again(path, wish());
            ASSERT_TRUE(again) << again.sentence;
            Bytes found = again.read();
            EXPECT_TRUE(found == old_ || found == new_) << "torn";
            ASSERT_TRUE(again.write(0, pattern(SIZE, 9))) << again.sentence;
            EXPECT_TRUE(busy.write(0, new_)) << busy.sentence;
            EXPECT_EQ(busy.read(), new_);
        }
        EXPECT_EQ(busy.unmap(ATO_UNMAP_FAST), 0) << busy.sentence;
        Mapped last(path, wish());
        ASSERT_TRUE(last) << last.sentence;
        EXPECT_EQ(last.read(), pattern(SIZE, 9)) << "an old lane was replayed over a newer write";
        EXPECT_EQ(last.unmap(ATO_UNMAP_SPATIAL), 0);
    }
}

// The same, earlier: the commit line is stored, and not one word.
TEST_F(Poison, CommitLineInDoubtIsSettledAlthoughAnotherFileStillUsesTheJournal)
{
    std::string other = dir / "other";
    write_file(other, old_);
    Mapped busy(other, wish());
    ASSERT_TRUE(busy) << busy.sentence;
    ASSERT_TRUE(busy.write(0, new_)) << busy.sentence;
    {
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        PersistFaults faults;
        // The flush of the commit line: it may be durable.
        faults.before = [](const PersistCall &c) {
            bool line = std::string(c.op) == "flush_data" && c.n == 64 &&
                        std::string(c.site).find("journal.c") != std::string::npos;
            return line ? EIO : GO_ON;
        };
        ASSERT_FALSE(m.write(0, new_));
        ASSERT_EQ(m.error, EIO);
    }
    Mapped again(path, wish());
    ASSERT_TRUE(again) << again.sentence;
    Bytes found = again.read();
    EXPECT_TRUE(found == old_ || found == new_);
    ASSERT_TRUE(again.write(0, pattern(SIZE, 9)));
    EXPECT_EQ(again.unmap(ATO_UNMAP_FAST), 0);
    EXPECT_EQ(busy.unmap(ATO_UNMAP_FAST), 0);
    Mapped last(path, wish());
    ASSERT_TRUE(last) << last.sentence;
    EXPECT_EQ(last.read(), pattern(SIZE, 9)) << "an old lane was replayed over a newer write";
}

TEST_F(Poison, FailedDeployOfAnEagerWriteDoesNotUndoIt)
{
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    {
        PersistFaults faults;
        fail_flush(faults, 2, "flush_word"); // the first is the write's own
        EXPECT_TRUE(m.write(0, Bytes(64, 9), ATO_EAGER)) << m.sentence;
    }
    Bytes expected = old_;
    std::fill_n(expected.begin(), 64, 9);
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
    Mapped again(path, wish());
    ASSERT_TRUE(again) << again.sentence;
    EXPECT_EQ(again.read(), expected);
}

TEST_F(Poison, FailedDeployKeepsEveryByte)
{
    for (long n = 1; n <= 2; n++) {
        write_file(path, old_);
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(m.write(0, new_)) << m.sentence;
        {
            PersistFaults faults;
            fail_flush(faults, 1, n == 1 ? "flush_data" : "flush_word");
            EXPECT_EQ(ato_deploy(m.base, SIZE), -1);
            EXPECT_EQ(errno, EIO);
            EXPECT_STRNE(ato_errormsg(), "");
        }
        EXPECT_TRUE(m.read().empty()); // O may not be durable: poisoned
        EXPECT_EQ(m.error, EIO);
        EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
        Mapped again(path, wish());
        ASSERT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), new_);
        EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0);
        EXPECT_EQ(read_file(path), new_);
    }
}

TEST_F(Poison, SpatialUnmapThatFailsToDeployKeepsTheMapping)
{
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, new_)) << m.sentence;
    {
        PersistFaults faults;
        fail_flush(faults, 1, "flush_data");
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), -1);
        EXPECT_EQ(m.error, EIO);
        EXPECT_NE(m.sentence, "");
    }
    EXPECT_EQ(ato_msync(m.base, SIZE, MS_SYNC), -1); // there, and poisoned
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    Mapped again(path, wish());
    ASSERT_TRUE(again) << again.sentence;
    EXPECT_EQ(again.read(), new_);
    EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
    EXPECT_EQ(read_file(path), new_);
}

// 0: both files are as they were, or as they have to be; 1: not; 2: there are fewer flushes.
int commit_to_two(const std::string &first, const std::string &second, long failing)
{
    ato_options o = options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM);
    Bytes before = pattern(SIZE, 1), after = before, bytes = pattern(5000, 7);
    std::copy(bytes.begin(), bytes.end(), after.begin() + 100);
    bool done, failed = false;
    {
        Mapped a(first, o), b(second, o);
        ato_tx *tx = ato_tx_begin(0);
        if (!a || !b || !tx)
            return 1;
        for (Mapped *m : {&a, &b})
            if (!ato_tx_memcpy(tx, m->base + 100, bytes.data(), bytes.size(), ATO_EAGER))
                return 1;
        {
            PersistFaults faults;
            fail_flush(faults, failing);
            auto fail = faults.before;
            faults.before = [&](const PersistCall &c) {
                int error = fail(c);
                failed |= error != GO_ON;
                return error;
            };
            done = ato_tx_commit(tx) == 0;
        }
        if (!done && ato_tx_abort(tx) < 0)
            return 1;
    }
    Mapped a(first, o), b(second, o);
    bool is_old = a.read() == before && b.read() == before;
    bool is_new = a.read() == after && b.read() == after;
    if (!(done ? is_new : is_old || is_new))
        return 1;
    return failed ? 0 : 2;
}

TEST_F(Poison, AnEagerTransactionOfTwoFilesIsWholeWhicheverFlushFails)
{
    int result = 0;
    long n = 0;
    while (result == 0) {
        n++;
        std::string first = dir / ("first" + std::to_string(n)), second = first + "-too";
        write_file(first, old_);
        write_file(second, old_);
        result = in_child([&] { return commit_to_two(first, second, n); });
    }
    EXPECT_EQ(result, 2) << "flush " << n;
    EXPECT_GT(n, 10);
}

} // namespace
