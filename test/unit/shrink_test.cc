// SPDX-License-Identifier: BSD-3-Clause
//
// Which content does a mapped file have after a shrink? The bytes behind the new end are gone, and
// zeros when the file grows again; meanwhile no reader gets a wrong byte. And in which state is a
// file after a shrink that failed, or that a crash cut before another program changed the file? (A
// crash at each step of a shrink, without another program: events_test.cc.)
#include "growth_lab.h"

#include "ato_engine.h"

#include <atomic>
#include <cerrno>
#include <thread>

#include <sys/stat.h>
#include <sys/vfs.h>

using namespace growth_lab;

namespace
{

class Shrink : public Growth
{
};

INSTANTIATE_TEST_SUITE_P(Domains, Shrink,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR,
                                                    ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS})));

void shorter_and_longer(const TempDir &dir, const ato_options &wish,
                        const std::vector<uint64_t> &sizes)
{
    for (uint64_t from : sizes)
        for (uint64_t to : {uint64_t(0), uint64_t(1), uint64_t(64), uint64_t(101), uint64_t(4095),
                            uint64_t(4096), uint64_t(4097), SIZE - 1, CHUNK - 1, CHUNK}) {
            if (to >= from)
                continue;
            SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
            std::string p = dir / ("f" + std::to_string(from) + "-" + std::to_string(to));
            Bytes expected = pattern(from, 2);
            write_file(p, expected);
            ato_options o = wish;
            o.max_size = 3 * CHUNK;
            Mapped m(p, o);
            ASSERT_TRUE(m) << m.sentence;
            // Some slices lie in the reflection, and garbage lies behind the last slice.
            uint64_t at = from > 20000 ? from - 20000 : 0;
            Bytes bytes = pattern(from - at, 3);
            for (int twice = 0; twice < 2; twice++)
                ASSERT_TRUE(m.write(at, bytes)) << m.sentence;
            ASSERT_TRUE(m.write(from / 2, Bytes(1, 'x'))) << m.sentence;
            std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<long>(at));
            expected[from / 2] = 'x';
            ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(to)), 0) << ato_errormsg();
            expected.resize(to);
            EXPECT_EQ(m.stat().size, to);
            ASSERT_EQ(m.read(0, to), expected);
            EXPECT_EQ(m.read(to, 1), Bytes());
            EXPECT_EQ(m.error, EFAULT);
            EXPECT_FALSE(m.write(to ? to - 1 : 0, Bytes(2)));
            EXPECT_EQ(m.error, EFAULT);
            // To less than the old size, to the old size, to more.
            uint64_t middle = to + (from - to + 1) / 2;
            for (uint64_t again : {middle, from, from + 5000}) {
                ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(again)), 0) << ato_errormsg();
                expected.resize(again);
                ASSERT_EQ(m.read(0, again), expected) << again;
                ASSERT_TRUE(m.write(again - 1, Bytes(1, 'y'))) << m.sentence;
                expected[again - 1] = 'y';
            }
            ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(middle)), 0) << ato_errormsg();
            expected.resize(middle);
            ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
            EXPECT_EQ(size_of(p), middle);
            Mapped next(p, o);
            ASSERT_TRUE(next) << next.sentence;
            ASSERT_EQ(next.read(0, middle), expected);
            ASSERT_EQ(ato_ftruncate(next.base, static_cast<off_t>(to)), 0) << ato_errormsg();
            expected.resize(to);
            ASSERT_EQ(next.unmap(ATO_UNMAP_SPATIAL), 0) << next.sentence;
            ASSERT_EQ(read_file(p), expected);
        }
}

TEST_P(Shrink, FileGetsShorterAndLongerAgainWithZeros)
{
    shorter_and_longer(dir, wish(), {1, 100, 4096, SIZE, CHUNK - 64, CHUNK + 5, 2 * CHUNK + 300});
}

// On the file system of a disk, where the space behind the new end is freed at once.
class ShrinkOnDisk : public Growth
{
  protected:
    ShrinkOnDisk() : Growth("/var/tmp")
    {
    }
};

INSTANTIATE_TEST_SUITE_P(Domains, ShrinkOnDisk,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK})));

TEST_P(ShrinkOnDisk, FileGetsShorterAndLongerAgainWithZeros)
{
    shorter_and_longer(dir, wish(), {SIZE});
}

TEST_P(ShrinkOnDisk, SpaceIsFreedAtTheLastUnmap)
{
    struct stat st;
    write_file(path, pattern(3 * CHUNK, 4));
    Mapped m(path, wish());
    ASSERT_TRUE(m.write(0, pattern(3 * CHUNK, 5))) << m.sentence;
    ASSERT_EQ(ato_ftruncate(m.base, 5000), 0) << ato_errormsg();
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    for (const std::string &which : {path, reflection_of(path)}) {
        if (which != path && has_log(GetParam())) // a ring keeps its length
            continue;
        ASSERT_EQ(stat(which.c_str(), &st), 0);
        EXPECT_LE(st.st_blocks * 512, 64 << 10) << which;
    }
}

// A load from behind the new end through a mapping of the file causes no SIGBUS.
TEST_P(Shrink, FileIsTruncatedAtTheLastUnmap)
{
    for (int mode : {ATO_UNMAP_FAST, ATO_UNMAP_SPATIAL}) {
        write_file(path, content);
        Mapped m(path, wish()), other(path, wish());
        ASSERT_TRUE(m && other) << m.sentence;
        ASSERT_EQ(ato_ftruncate(m.base, 100), 0) << ato_errormsg();
        EXPECT_EQ(size_of(path), SIZE);
        volatile char c = m.base[SIZE - 1];
        (void)c;
        ASSERT_EQ(other.unmap(mode), 0) << other.sentence;
        EXPECT_EQ(size_of(path), SIZE);
        ASSERT_EQ(m.unmap(mode), 0) << m.sentence;
        EXPECT_EQ(size_of(path), 100u);
        Mapped again(path, wish());
        ASSERT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), Bytes(content.begin(), content.begin() + 100));
        ASSERT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
    }
}

TEST_P(Shrink, ShrinkWordIsClearedWhenTheFileIsTruncated)
{
    Mapped m(path, wish());
    ASSERT_EQ(ato_ftruncate(m.base, 100), 0) << ato_errormsg();
    EXPECT_NE(read_at(manifest_of(path), 8208, 8), Bytes(8));
    ASSERT_NE(ato_memset(m.base, 7, 10), nullptr);
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    EXPECT_EQ(read_at(manifest_of(path), 8208, 8), Bytes(8));
    // After that, bytes that another program appends are its own.
    ASSERT_EQ(truncate(path.c_str(), 200), 0);
    Mapped again(path, wish());
    if (has_log(GetParam())) {
        Bytes expected(200);
        std::copy_n(content.begin(), 100, expected.begin());
        std::fill_n(expected.begin(), 10, 7);
        EXPECT_EQ(again.read(), expected) << again.sentence;
        return;
    }
    EXPECT_FALSE(again);
    EXPECT_EQ(again.error, ESTALE);
}

TEST_P(Shrink, GuardedBytesCannotBeTruncated)
{
    Mapped m(path, wish());
    ASSERT_EQ(ato_set_guard(m.base, 1000, content.data() + 1000, 16), 0) << ato_errormsg();
    for (off_t to : {0, 500, 1000, 1015}) {
        EXPECT_EQ(ato_ftruncate(m.base, to), -1);
        EXPECT_EQ(errno, EINVAL);
        EXPECT_NE(std::string(ato_errormsg()).find("guard"), std::string::npos) << ato_errormsg();
    }
    EXPECT_EQ(m.read(), content);
    EXPECT_EQ(ato_ftruncate(m.base, 1016), 0) << ato_errormsg();
    ASSERT_EQ(ato_set_guard(m.base, 0, nullptr, 0), 0);
    EXPECT_EQ(ato_ftruncate(m.base, 1000), 0) << ato_errormsg();
}

// ---- sizes that other programs change ----

TEST_P(Shrink, FileThatAnotherProgramResizedIsEstale)
{
    for (uint64_t size : {size_t(99), SIZE + 1, size_t(LONGER)}) {
        SCOPED_TRACE(size);
        write_file(path, content);
        Mapped m(path, wish());
        ASSERT_EQ(ato_ftruncate(m.base, 100), 0) << ato_errormsg();
        ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
        for (off_t to : {50, 200, 9000000}) {
            EXPECT_EQ(ato_ftruncate(m.base, to), -1);
            EXPECT_EQ(errno, ESTALE) << ato_errormsg();
        }
        EXPECT_EQ(size_of(path), size);
        ASSERT_EQ(truncate(path.c_str(), SIZE), 0);
        EXPECT_EQ(ato_ftruncate(m.base, 90), 0) << ato_errormsg();
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(size_of(path), 90u);
    }
}

// No write is lost: once the file has its length again, it can be unmapped.
TEST_P(Shrink, FileThatAnotherProgramExtendedIsNotMadePlain)
{
    Mapped m(path, wish());
    ASSERT_EQ(ato_ftruncate(m.base, 100), 0) << ato_errormsg();
    ASSERT_EQ(truncate(path.c_str(), LONGER), 0);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), -1);
    EXPECT_EQ(m.error, ESTALE) << m.sentence;
    EXPECT_EQ(size_of(path), LONGER);
    ASSERT_EQ(truncate(path.c_str(), SIZE), 0);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(path), Bytes(content.begin(), content.begin() + 100));
}

// ---- readers and writers during a shrink ----

// The undo of a growth does not truncate pages that a reader may use.
TEST_P(Shrink, FailedGrowthIsTruncatedToTheOldLengthOfTheFile)
{
    Mapped m(path, wish());
    ASSERT_EQ(ato_ftruncate(m.base, 100), 0) << ato_errormsg();
    {
        FsFaults faults;
        faults.fail_op("ftruncate", ENOSPC);
        EXPECT_EQ(ato_ftruncate(m.base, LONGER), -1);
        EXPECT_EQ(errno, ENOSPC);
        EXPECT_EQ(ato_ftruncate(m.base, SIZE), 0) << "neither file has to become longer";
        EXPECT_EQ(ato_ftruncate(m.base, 100), 0) << ato_errormsg();
    }
    ato_tx *tx = ato_tx_begin(0);
    ASSERT_EQ(ato_tx_ftruncate(tx, m.base, LONGER), 0) << ato_errormsg();
    {
        FsFaults faults;
        faults.fail_op("ftruncate", EIO);
        EXPECT_EQ(ato_tx_abort(tx), 0) << ato_errormsg();
    }
    EXPECT_EQ(size_of(path), LONGER) << "it could not be truncated yet";
    EXPECT_EQ(ato_ftruncate(m.base, 50), 0) << ato_errormsg();
    EXPECT_EQ(size_of(path), SIZE);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(path), Bytes(content.begin(), content.begin() + 50));
}

// Records of 128 equal bytes, or zeros where the file was shorter. Readers and writers use the
// whole file, and the range behind its end.
TEST_P(Shrink, ReadersAndWritersContinueDuringAShrink)
{
    const uint64_t records = 2000, large = records * 128, small = 130 * 128;
    for (int policy : {ATO_READ_GATHER, ATO_READ_LAZY}) {
        write_file(path, Bytes(large));
        Mapped m(path, wish(policy));
        ASSERT_TRUE(m) << m.sentence;
        std::atomic<bool> stop{false};
        std::atomic<unsigned> wrong{0}, refused{0};
        auto work = [&](unsigned char mark) {
            for (uint64_t i = mark; !stop; i++) {
                unsigned char record[5 * 128];
                uint64_t k = i * 7919 % (records - 5), n = i % 7 ? 1 : 5;
                if (!ato_memcpy(record, m.base + k * 128, n * 128)) {
                    refused++;
                    if (errno != EFAULT || k * 128 + n * 128 <= small)
                        wrong++;
                    continue;
                }
                for (uint64_t r = 0; r < n; r++)
                    if (std::count(record + r * 128, record + r * 128 + 128, record[r * 128]) !=
                        128)
                        wrong++;
                std::fill_n(record, n * 128, mark);
                if (!ato_memcpy(m.base + k * 128, record, n * 128) &&
                    (errno != EFAULT || k * 128 + n * 128 <= small))
                    wrong++;
            }
        };
        std::thread a(work, 1), b(work, 2);
        for (uint64_t i = 0; i < 300; i++) {
            uint64_t to = small + i * 104729 % (large - small) / 128 * 128;
            EXPECT_EQ(ato_ftruncate(m.base, static_cast<off_t>(to)), 0) << ato_errormsg();
            if (i % 3 == 0) {
                EXPECT_EQ(ato_ftruncate(m.base, static_cast<off_t>(large)), 0) << ato_errormsg();
            }
        }
        stop = true;
        a.join();
        b.join();
        EXPECT_EQ(wrong, 0u);
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
}

// ---- a shrink that a crash cut or that failed ------------

class ShrinkOfReflection : public Growth
{
};

INSTANTIATE_TEST_SUITE_P(Domains, ShrinkOfReflection,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR, ATO_DOMAIN_PROCESS));

// The dead process cleared the words, and may not have flushed them: then they are zeros in memory and
// not on the medium.
TEST_P(ShrinkOfReflection, WordsThatADeadProcessClearedAreWrittenAgain)
{
    DENSE_ONLY("stores words of a dense reflection");
    int status = in_child([&]() -> int {
        auto *m = new Mapped(path, wish_to_grow());
        bool good = *m && m->write(0, pattern(SIZE, 3)) && ato_ftruncate(m->base, 5000) == 0;
        _exit(good ? CUT : 1);
    });
    ASSERT_EQ(status, CUT);
    write_at(reflection_of(path), 16, Bytes(510 * 8).data(), 510 * 8); // as if it had begun to
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

// Before the new end is durable no call sees it. No content is discarded.
TEST_P(Shrink, NewSizeIsNotSeenBeforeItIsDurable)
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
    EXPECT_EQ(words, (std::vector<uint64_t>{SIZE, SIZE})); // shrink word, size word
}

// A length that another program sets after a crash is detected, unless it is the new size.
TEST_P(Shrink, FileThatAnotherProgramResizedAfterACrashIsEstale)
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
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.stat().size, 100u);
    EXPECT_EQ(read_at(manifest_of(path), 8208, 8), Bytes(8));
}

// After the commit no failure undoes the shrink, and the rest is cleared later. Before it there are only
// calls for a log: nothing has changed, or, if it is the sync that failed, the next map decides.
TEST_P(Shrink, FailureOfAnyCallLeavesAShorterFile)
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
        if (r < 0) {
            EXPECT_TRUE(has_log(GetParam()) && k < 2) << ato_errormsg();
            EXPECT_EQ(m.read(0, 10).empty(), k == 1);
            ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        }
        if (unmapped < 0) {
            EXPECT_EQ(m.error, EIO) << m.sentence;
            if (m.unmap(ATO_UNMAP_FAST) < 0) { // it is unmapped, unless it is the log that failed
                EXPECT_EQ(m.error, EINVAL) << m.sentence;
                m.base = nullptr;
            }
        }
        Mapped next(path, wish_to_grow());
        ASSERT_TRUE(next) << next.sentence;
        Bytes expected = content;
        expected.resize(r < 0 && k == 0 ? SIZE : 100);
        ASSERT_EQ(next.stat().size, expected.size());
        ASSERT_EQ(next.read(0, expected.size()), expected);
        ASSERT_EQ(ato_ftruncate(next.base, LONGER), 0) << ato_errormsg();
        ASSERT_EQ(next.read(0, LONGER), grown(expected, LONGER));
        ASSERT_EQ(next.unmap(ATO_UNMAP_SPATIAL), 0) << next.sentence;
        if (static_cast<size_t>(k) >= calls)
            break;
    }
}

TEST(ShrinkOnDisk, FailureOfTheMediumPoisonsTheFile)
{
    const ato_options o = options(ATO_DOMAIN_DISK, ATO_READ_GATHER);
    ato_options to_grow = o;
    to_grow.max_size = 1 << 24;
    TempDir dir;
    const std::string path = dir / "file";
    const Bytes content = pattern(SIZE, 1);
    for (long k = 1;; k++) {
        SCOPED_TRACE("sync " + std::to_string(k));
        write_file(path, content);
        Mapped m(path, o);
        ASSERT_TRUE(m.write(0, content)) << m.sentence;
        int r;
        {
            FailingSync fails(k);
            r = ato_ftruncate(m.base, 100);
        }
        if (r == 0) {
            EXPECT_EQ(k, 3); // shrink word, record
            break;
        }
        EXPECT_EQ(errno, EIO);
        EXPECT_EQ(m.read(0, 10), Bytes());
        EXPECT_EQ(m.error, EIO);
        EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        Mapped again(path, to_grow, 1);
        ASSERT_TRUE(again) << again.sentence;
        uint64_t size = again.stat().size;
        EXPECT_TRUE(size == SIZE || (k == 2 && size == 100)) << size;
        Bytes expected = content;
        expected.resize(size);
        EXPECT_EQ(again.read(0, size), expected);
        ASSERT_EQ(ato_ftruncate(again.base, LONGER), 0) << ato_errormsg();
        EXPECT_EQ(again.read(0, LONGER), grown(expected, LONGER));
        EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0);
    }
}

} // namespace
