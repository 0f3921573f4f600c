// SPDX-License-Identifier: BSD-3-Clause
//
// Does a mapped file grow at its address, with zeros, up to max_size, and does the library notice a
// size that another program changed? (A growth that fails, or that a crash cuts:
// growth_failed_test.cc.)
#include "growth_lab.h"

#include <atomic>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

using namespace growth_lab;

namespace
{

INSTANTIATE_TEST_SUITE_P(Domains, Growth,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR,
                                                    ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS})));

class GrowthOfReflection : public Growth
{
};

INSTANTIATE_TEST_SUITE_P(Domains, GrowthOfReflection,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR, ATO_DOMAIN_PROCESS));

// ---- growth -----------

TEST_P(Growth, FileOfAnySizeGrowsAtItsAddressWithZeros)
{
    const uint64_t sizes[] = {0,    1,           64,         100,       4095,
                              4096, CHUNK - 700, CHUNK - 64, CHUNK + 5, 2 * CHUNK};
    for (uint64_t from : sizes)
        for (uint64_t to : {from + 1, from + 63, from + 4096, CHUNK, 2 * CHUNK + 300}) {
            if (to <= from || (from > CHUNK && to > 2 * CHUNK + 4096))
                continue;
            SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
            Bytes expected = pattern(from, 2);
            std::string p = dir / ("f" + std::to_string(from) + "-" + std::to_string(to));
            write_file(p, expected);
            Mapped m(p, wish(), from ? from : 1);
            ASSERT_TRUE(m) << m.sentence;
            if (from) {
                expected[from - 1] ^= 1;
                ASSERT_TRUE(m.write(from - 1, Bytes(1, expected[from - 1]))) << m.sentence;
            }
            ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(to)), 0) << ato_errormsg();
            EXPECT_EQ(m.stat().size, to);
            EXPECT_EQ(size_of(p), to);
            expected = grown(expected, to);
            ASSERT_EQ(m.read(0, to), expected);
            uint64_t at = from ? from - 1 : 0; // across the old end
            Bytes bytes = pattern(std::min<uint64_t>(to - at, 9000), 3);
            ASSERT_TRUE(m.write(at, bytes)) << m.sentence;
            std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<long>(at));
            ASSERT_EQ(m.read(0, to), expected);
            ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
            Mapped again(p, wish());
            ASSERT_TRUE(again) << again.sentence;
            ASSERT_EQ(again.read(), expected);
            ASSERT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
            ASSERT_EQ(read_file(p), expected);
        }
}

// On tmpfs a plain ftruncate() makes bytes visible that another process stored behind the end.
TEST_P(Growth, BytesThatAnotherProgramStoredBehindTheEndAreZeros)
{
    for (bool in_r : {false, true}) {
        SCOPED_TRACE(in_r);
        write_file(path, content);
        {
            std::string plain = dir / "plain";
            write_file(plain, content);
            store_behind(plain, SIZE, 3000);
            ASSERT_EQ(truncate(plain.c_str(), LONGER), 0);
            if (read_file(plain) == grown(content, LONGER))
                GTEST_SKIP() << "this kernel clears what lies behind the end of a file";
        }
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        store_behind(path, SIZE, 3000);
        Bytes expected = content;
        if (in_r) { // the last slice, which is written as a whole, brings garbage along
            ASSERT_TRUE(m.write(SIZE - 5, pattern(5, 3))) << m.sentence;
            std::copy_n(pattern(5, 3).begin(), 5, expected.begin() + SIZE - 5);
        }
        ASSERT_EQ(ato_ftruncate(m.base, LONGER), 0) << ato_errormsg();
        EXPECT_EQ(m.read(0, LONGER), grown(expected, LONGER));
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(path), grown(expected, LONGER));
    }
}

TEST_P(Growth, BeyondMaxSizeIsEnospcAndChangesNothing)
{
    ato_options o = wish();
    o.max_size = LONGER;
    Mapped m(path, o);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(ato_ftruncate(m.base, LONGER + 1), -1);
    EXPECT_EQ(errno, ENOSPC);
    std::string sentence = ato_errormsg();
    EXPECT_NE(sentence.find(path), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("max_size"), std::string::npos) << sentence;
    EXPECT_EQ(m.stat().size, SIZE);
    EXPECT_EQ(size_of(path), SIZE);
    EXPECT_EQ(ato_ftruncate(m.base, LONGER), 0) << ato_errormsg();
    EXPECT_EQ(m.read(0, LONGER), grown(content, LONGER));
    EXPECT_EQ(ato_ftruncate(m.base, LONGER + 1), -1);
    EXPECT_EQ(errno, ENOSPC);
}

// The length that a growth leaves when a crash cuts it does not count as the file's size.
TEST_P(Growth, MaxSizeIsKeptAfterACrash)
{
    bool returned;
    cut_growth<FsFaults>(path, wish(), content, 50 << 20, last_before_size(GetParam()), &returned);
    ASSERT_EQ(size_of(path), 50u << 20);
    ato_options o = wish();
    o.max_size = LONGER;
    Mapped m(path, o, SIZE);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(ato_ftruncate(m.base, LONGER + 1), -1);
    EXPECT_EQ(errno, ENOSPC);
}

TEST_P(Growth, ArgumentsAreChecked)
{
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    char here;
    EXPECT_EQ(ato_ftruncate(&here, LONGER), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ato_ftruncate(m.base, -1), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ato_ftruncate(m.base, SIZE), 0);
    Fd reading(path, O_RDONLY);
    void *view = ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, reading, 0);
    ASSERT_NE(view, MAP_FAILED) << ato_errormsg();
    EXPECT_EQ(ato_ftruncate(view, LONGER), -1);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(ato_munmap(view, SIZE, ATO_UNMAP_FAST), 0);
    EXPECT_EQ(m.stat().size, SIZE);
    EXPECT_EQ(m.read(), content);
}

TEST_P(Growth, PartialMappingStaysPartialAndTheOtherMappingsGrow)
{
    Mapped whole(path, wish()), part(path, wish(), 4096, 4096), tail(path, wish(), 0, 4096);
    ato_options o = wish();
    o.max_size = 1 << 20;
    Mapped with_max_size(path, o, 4096, 4096);
    ASSERT_TRUE(whole && part && tail && with_max_size);
    ASSERT_EQ(ato_ftruncate(part.base, LONGER), 0) << ato_errormsg();
    Bytes expected = grown(content, LONGER);
    EXPECT_EQ(whole.read(0, LONGER), expected);
    Bytes from_4096(expected.begin() + 4096, expected.end());
    EXPECT_EQ(tail.read(0, LONGER - 4096), from_4096);
    EXPECT_EQ(with_max_size.read(0, LONGER - 4096), from_4096);
    EXPECT_EQ(part.read(0, 4097), Bytes());
    EXPECT_EQ(part.error, EFAULT);
    EXPECT_EQ(whole.read(LONGER - 10, 11), Bytes());
    EXPECT_EQ(whole.error, EFAULT);
    EXPECT_EQ(ato_msync(whole.base, LONGER, MS_SYNC), 0);
    EXPECT_EQ(ato_msync(part.base, 8192, MS_SYNC), -1);
    ASSERT_TRUE(tail.write(LONGER - 4096 - 9, pattern(9, 4))) << tail.sentence;
    EXPECT_EQ(whole.read(LONGER - 9, 9), pattern(9, 4));
    ASSERT_EQ(ato_deploy(whole.base, LONGER), 0); // plain loads beyond the length of the map call
    EXPECT_EQ(whole.base[LONGER - 1], static_cast<char>(pattern(9, 4)[8]));
}

TEST_P(Growth, ReadersAndWritersContinueDuringAGrowth)
{
    Mapped m(path, wish(ATO_READ_LAZY));
    ASSERT_TRUE(m) << m.sentence;
    std::atomic<bool> stop{false};
    std::atomic<unsigned> wrong{0};
    auto work = [&](unsigned char mark) {
        for (uint64_t i = mark; !stop; i++) {
            uint64_t size = m.stat().size, at = i * 7919 % (size - 200);
            // A record is zeros, or whole and of one writer.
            unsigned char record[128];
            if (at >= SIZE) {
                at = at / 128 * 128;
                if (at + 128 > size || at < SIZE)
                    continue;
                if (!ato_memcpy(record, m.base + at, 128) ||
                    std::count(record, record + 128, record[0]) != 128)
                    wrong++;
                std::fill_n(record, 128, mark);
                if (!ato_memcpy(m.base + at, record, 128))
                    wrong++;
            } else if (!ato_memcpy(record, m.base + at, 100)) {
                wrong++;
            }
        }
    };
    std::thread a(work, 1), b(work, 2);
    for (uint64_t size = SIZE + 500; size < 2 * CHUNK; size += size / 8)
        EXPECT_EQ(ato_ftruncate(m.base, static_cast<off_t>(size)), 0) << ato_errormsg();
    stop = true;
    a.join();
    b.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(m.read(0, SIZE), content);
}

// Each thread sets sizes of its own, which may be smaller than the current size.
TEST_P(Growth, FileThatTwoThreadsResizeHasOneOfTheirSizes)
{
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    std::atomic<unsigned> wrong{0};
    auto work = [&](uint64_t step) {
        for (uint64_t size = SIZE; size <= SIZE + 300 * step; size += step)
            if (ato_ftruncate(m.base, static_cast<off_t>(size)) < 0)
                wrong++;
    };
    std::thread a(work, 3000), b(work, 3100);
    a.join();
    b.join();
    EXPECT_EQ(wrong, 0u);
    uint64_t size = m.stat().size;
    EXPECT_TRUE(size == SIZE + 300 * 3000 || size == SIZE + 300 * 3100) << size;
    EXPECT_EQ(m.read(0, size), grown(content, size));
    EXPECT_EQ(m.stat().writes, 0u) << "bytes that the library clears count as no write";
}

// ---- sizes that other programs change ----

TEST_P(Growth, FileThatAnotherProgramResizedIsEstaleAndStaysUnchanged)
{
    for (uint64_t size : {SIZE + 1, SIZE - 1, size_t(4096), size_t(LONGER)}) {
        SCOPED_TRACE(size);
        write_file(path, content);
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
        Bytes others(size > SIZE ? size - SIZE : 0, 'x');
        write_at(path, SIZE, others.data(), others.size());
        EXPECT_EQ(ato_ftruncate(m.base, LONGER), -1);
        EXPECT_EQ(errno, ESTALE) << ato_errormsg();
        ASSERT_EQ(size_of(path), size);
        if (size > SIZE) {
            EXPECT_EQ(read_at(path, SIZE, size - SIZE), others);
        }
        ASSERT_EQ(truncate(path.c_str(), SIZE), 0);
        EXPECT_EQ(ato_ftruncate(m.base, LONGER), 0) << ato_errormsg();
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
}

TEST_P(GrowthOfReflection, BitmapBehindTheEndIsEuclean)
{
    DENSE_ONLY("stores words of a dense reflection");
    for (uint64_t page : {uint64_t(6), uint64_t(511), uint64_t(512)}) {
        SCOPED_TRACE(page);
        write_file(path, content);
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        uint64_t ones = ~0ull, at = page / 512 * 513 * 4096 + page % 512 * 8;
        write_at(reflection_of(path), at, &ones, 8);
        EXPECT_EQ(ato_ftruncate(m.base, 513 * 4096), -1);
        EXPECT_EQ(errno, EUCLEAN);
        EXPECT_NE(std::string(ato_errormsg()).find("page " + std::to_string(page)),
                  std::string::npos)
            << ato_errormsg();
        EXPECT_EQ(size_of(path), SIZE);
        uint64_t zero = 0;
        write_at(reflection_of(path), at, &zero, 8);
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
}

// Another program resizes the file before the unmap. No write is lost: once the file has its old
// length, it can be mapped again.
TEST_P(Growth, FileResizedBeforeTheUnmapCanBeMappedAtItsOldLength)
{
    for (uint64_t size : {SIZE + 1, size_t(4096)})
        for (int mode : {ATO_UNMAP_FAST, ATO_UNMAP_SPATIAL}) {
            SCOPED_TRACE(std::to_string(size) + ", mode " + std::to_string(mode));
            path = dir / std::to_string(size + static_cast<uint64_t>(mode));
            write_file(path, content);
            Mapped m(path, wish());
            ASSERT_TRUE(m.write(100, pattern(1000, 5)));
            Bytes expected = content;
            std::copy_n(pattern(1000, 5).begin(), 1000, expected.begin() + 100);
            ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
            const Bytes theirs = read_file(path);
            EXPECT_EQ(ato_deploy(m.base, 2000), -1);
            EXPECT_EQ(errno, ESTALE) << ato_errormsg();
            if (mode == ATO_UNMAP_FAST && has_log(GetParam())) { // the next map tells
                EXPECT_EQ(m.unmap(mode), 0) << m.sentence;
            } else {
                EXPECT_EQ(m.unmap(mode), -1);
                EXPECT_EQ(m.error, ESTALE) << m.sentence;
            }
            EXPECT_EQ(read_file(path), theirs) << "nothing was deployed";
            if (mode == ATO_UNMAP_FAST) { // unmapped, and refused while it has that length
                m.base = nullptr;
                EXPECT_FALSE(Mapped(path, wish()));
            }
            ASSERT_EQ(truncate(path.c_str(), SIZE), 0);
            if (size < SIZE)
                std::fill(expected.begin() + static_cast<long>(size), expected.end(), 0);
            Mapped again(path, wish());
            ASSERT_TRUE(again) << again.sentence;
            EXPECT_EQ(again.read(), expected);
        }
}

// All of the file is in it: what other programs make of it counts.
TEST_P(Growth, FileWithNothingInItsReflectionIsMadePlainAtAnyLength)
{
    for (uint64_t size : {SIZE + 5000, size_t(5000)}) {
        write_file(path, content);
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
        const Bytes theirs = read_file(path);
        EXPECT_EQ(ato_deploy(m.base, 4000), 0) << ato_errormsg();
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(path), theirs);
        EXPECT_TRUE(names_in(folder_of(path)).empty());
    }
}

// ---- space ----

// That a page has space says nothing about the pages that a growth adds.
TEST_P(Growth, PagesThatAGrowthAddsHaveNoSpaceYet)
{
    int status = in_child([&] {
        std::string small = dir / "small";
        if (unshare(CLONE_NEWNS) < 0 ||
            mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
            mkdir(small.c_str(), 0700) < 0 ||
            mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m") < 0)
            return 7;
        std::string p = small + "/file";
        write_file(p, pattern(SIZE, 1));
        Mapped m(p, wish(ATO_READ_LAZY));
        if (!m || m.read() != content || !m.write(0, pattern(100, 2)) || m.read().empty())
            return 1;
        if (ato_ftruncate(m.base, 100 * 4096) < 0)
            return 2;
        Bytes filler(64 * 4096); // the disk is full
        int fd = open((small + "/filler").c_str(), O_WRONLY | O_CREAT, 0600);
        while (::write(fd, filler.data(), 4096) == 4096) {
        }
        close(fd);
        int full = 0;
        for (uint64_t page = 5; page < 100; page++)
            if (!m.write(page * 4096 + 200, pattern(64, 3))) {
                if (m.error != ENOSPC)
                    return 3;
                full++;
            }
        for (uint64_t page = 5; page < 100; page++) // on tmpfs reading takes space too
            if (m.read(page * 4096 + 1000, 64).empty() && m.error != ENOSPC)
                return 4;
        if (!full)
            return 5;
        unlink((small + "/filler").c_str());
        return m.write(99 * 4096, pattern(4096, 3)) ? 0 : 6;
    });
    if (status == 7)
        GTEST_SKIP() << "no file system can be mounted here";
    EXPECT_EQ(status, 0);
}

} // namespace
