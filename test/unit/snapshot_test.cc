// SPDX-License-Identifier: BSD-3-Clause
//
// Does ato_snapshot() copy a whole file as it was at one moment, whatever others do to it meanwhile? Does it end, and do
// others go on if it is killed?
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

using namespace support;

extern "C" unsigned reader_patience_ms; // lib/read/reader.h

namespace
{

constexpr size_t PAGE = 4096, PAGES = 600, SIZE = PAGES * PAGE - 1000;

// A copy, and what happens while it is made.
struct Copy {
    Bytes bytes;
    size_t puts = 0, pages = 0;
    std::function<int(off_t)> then = [](off_t) { return 0; };
    off_t size = -1;
    int error = 0;
    std::string sentence;

    bool take(const void *at)
    {
        bytes.clear();
        size = ato_snapshot(
            at,
            [](void *arg, off_t offset, const void *from, size_t n) {
                Copy &c = *static_cast<Copy *>(arg);
                c.bytes.resize(std::max(c.bytes.size(), static_cast<size_t>(offset) + n));
                memcpy(c.bytes.data() + offset, from, n);
                c.puts++;
                c.pages += (n + PAGE - 1) / PAGE;
                return c.then(offset);
            },
            this);
        error = errno;
        sentence = ato_errormsg();
        if (size >= 0)
            bytes.resize(static_cast<size_t>(size));
        return size >= 0;
    }
};

// The domain, and where the file lies.
struct Place {
    int domain;
    bool disk;
};

std::string name_of(const testing::TestParamInfo<Place> &info)
{
    static const char *const names[] = {"Auto", "Pmem", "Eadr", "Disk", "Process"};
    return names[info.param.domain];
}

class Snapshot : public testing::TestWithParam<Place>
{
  protected:
    void SetUp() override
    {
        write_file(file, content);
    }
    bool put(Mapped &m, size_t at, const Bytes &news)
    {
        std::copy(news.begin(), news.end(), content.begin() + static_cast<long>(at));
        return m.write(at, news);
    }
    TempDir dir{GetParam().disk ? disk_folder() : "/dev/shm"};
    const std::string file = dir / "file";
    const ato_options gather = options(GetParam().domain, ATO_READ_GATHER);
    Bytes content = pattern(SIZE, 1);
};

INSTANTIATE_TEST_SUITE_P(, Snapshot,
                         testing::Values(Place{ATO_DOMAIN_PROCESS, false},
                                         Place{ATO_DOMAIN_PMEM, false},
                                         Place{ATO_DOMAIN_DISK, true}),
                         name_of);

TEST_P(Snapshot, HasTheBytesOfBothHomesOfPagesThatAreLoadedOrNot)
{
    {
        Mapped before(file, gather);
        ASSERT_TRUE(before && put(before, 3 * PAGE + 100, pattern(5 * PAGE, 2)) &&
                    put(before, SIZE - 70, pattern(70, 3)) && put(before, 511 * PAGE, Bytes(90)))
            << before.sentence;
    }
    Mapped m(file, gather);
    ASSERT_TRUE(m && put(m, 5 * PAGE + 10, pattern(300, 4)) && put(m, 0, Bytes(7, 'a')))
        << m.sentence;
    Copy c;
    ASSERT_TRUE(c.take(m.base + 5)) << c.sentence;
    EXPECT_EQ(c.bytes, content);
    EXPECT_EQ(c.pages, PAGES) << "nothing is copied twice";
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(file), content);
}

TEST_P(Snapshot, LeavesLongHolesOut)
{
    content.assign(SIZE, 0);
    ASSERT_EQ(truncate(file.c_str(), 0), 0);
    ASSERT_EQ(truncate(file.c_str(), SIZE), 0);
    {
        Mapped before(file, gather);
        ASSERT_TRUE(before && put(before, 530 * PAGE, Bytes(100, 'r'))) << before.sentence;
    }
    Mapped m(file, gather);
    ASSERT_TRUE(m && put(m, 200 * PAGE, Bytes(9, 'a'))) << m.sentence;
    Copy c;
    ASSERT_TRUE(c.take(m.base)) << c.sentence;
    EXPECT_EQ(c.bytes, content);
    EXPECT_LE(c.pages, 300u);
}

// Each transaction writes the same number to pages far apart, and each write fills some pages with one byte.
TEST_P(Snapshot, TearsNoTransactionAndNoWrite)
{
    static constexpr size_t AT[] = {0, 17, 150, 151, 513, 599}, FILLED = 300, MANY = 5;
    content.assign(SIZE, 0);
    write_file(file, content);
    const auto writes = [&](const std::function<void()> &pause) {
        Mapped m(file, gather);
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
    Mapped m(file, gather);
    const Fd fd(file, O_RDONLY);
    ASSERT_TRUE(m) << m.sentence;
    for (int i = 0; i < 12; i++) {
        Copy c;
        ASSERT_TRUE(c.take(m.base)) << c.sentence;
        ASSERT_EQ(c.bytes.size(), SIZE);
        for (size_t page : AT)
            ASSERT_EQ(memcmp(c.bytes.data() + page * PAGE + 40, c.bytes.data() + 40, 8), 0)
                << "page " << page << " of copy " << i;
        const auto filled = c.bytes.begin() + FILLED * PAGE + 50;
        ASSERT_EQ(std::count(filled, filled + MANY * PAGE, *filled),
                  static_cast<long>(MANY * PAGE));
    }
}

TEST_P(Snapshot, HasOneSizeThoughTheFileGetsShorterAndLongerMeanwhile)
{
    Mapped m(file, gather);
    ASSERT_TRUE(m) << m.sentence;
    for (const std::vector<size_t> &sizes : std::vector<std::vector<size_t>>{
             {100 * PAGE + 7}, {700 * PAGE + 9}, {50 * PAGE + 5, 650 * PAGE}, {0, 1}, {0}}) {
        Copy c;
        size_t next = 0;
        content.resize(SIZE);
        ASSERT_TRUE(m.base && ato_ftruncate(m.base, SIZE) == 0 && put(m, 0, pattern(SIZE, 5)));
        // The last part of the file has been copied.
        c.then = [&](off_t offset) {
            if (static_cast<size_t>(offset) + 64 * PAGE > SIZE)
                for (; next < sizes.size(); next++) {
                    EXPECT_EQ(ato_ftruncate(m.base, static_cast<off_t>(sizes[next])), 0)
                        << ato_errormsg();
                    content.resize(sizes[next]);
                }
            return 0;
        };
        ASSERT_TRUE(c.take(m.base)) << c.sentence;
        EXPECT_TRUE(c.bytes == content) << sizes[0];
        EXPECT_EQ(next, sizes.size());
    }
}

// Each pass finds a change until others are kept from writing.
TEST_P(Snapshot, EndsThoughOthersWriteAllTheTimeAndKeepsNobodyOutIfItIsKilled)
{
    for (bool killed : {false, true}) {
        Peer copier([&](const std::function<void()> &pause) {
            Mapped m(file, gather);
            Copy c;
            c.then = [&](off_t offset) {
                if (offset == 0)
                    pause();
                return 0;
            };
            return m && c.take(m.base) && c.bytes == m.read() ? 0 : 1;
        });
        Mapped m(file, gather);
        ASSERT_TRUE(m) << m.sentence;
        int passes = 0;
        for (bool refused = false; !refused; passes++) {
            ASSERT_LT(passes, 100) << "others are never kept out";
            ASSERT_TRUE(copier.is_ready()) << "it has ended";
            ato_tx *t = ato_tx_begin(0);
            refused = !ato_tx_memcpy(t, m.base + 100, &passes, sizeof(passes), 0);
            EXPECT_TRUE(!refused || errno == EAGAIN) << ato_errormsg();
            EXPECT_EQ(refused ? ato_tx_abort(t) : ato_tx_commit(t), 0) << ato_errormsg();
            if (!refused)
                copier.go_on();
        }
        EXPECT_GE(passes, 2) << "others may write at first";
        if (killed)
            copier.die();
        else
            EXPECT_EQ(copier.end(), 0);
        EXPECT_TRUE(m.write(77, Bytes(9000, 'w'))) << m.sentence;
        Copy c;
        EXPECT_TRUE(c.take(m.base)) << c.sentence;
        EXPECT_EQ(c.bytes, m.read());
    }
}

TEST_P(Snapshot, OfAProcessThatMayOnlyReadSeesTheFilePlainOrInUse)
{
    const Fd fd(file, O_RDONLY);
    char *reader = static_cast<char *>(ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0));
    ASSERT_NE(reader, MAP_FAILED) << ato_errormsg();
    Copy plain, used;
    ASSERT_TRUE(plain.take(reader)) << plain.sentence;
    EXPECT_EQ(plain.bytes, content);
    // Another program writes to the file, twice: the second time it makes it a hole.
    int writes = 0;
    plain.then = [&](off_t offset) {
        if (offset >= static_cast<off_t>(300 * PAGE) && ++writes <= 2) {
            content = writes == 1 ? pattern(SIZE, 4) : Bytes(SIZE);
            if (writes == 2)
                EXPECT_EQ(truncate(file.c_str(), 0) + truncate(file.c_str(), SIZE), 0);
            else
                write_file(file, content);
        }
        return 0;
    };
    ASSERT_TRUE(plain.take(reader)) << plain.sentence;
    EXPECT_TRUE(plain.bytes == content);
    write_file(file, content = pattern(SIZE, 1));
    // A process that begins to write in the middle of a copy.
    std::unique_ptr<Mapped> m;
    used.then = [&](off_t offset) {
        if (offset >= static_cast<off_t>(300 * PAGE) && !m) {
            m = std::make_unique<Mapped>(file, gather);
            EXPECT_TRUE(*m && put(*m, 0, pattern(PAGE, 7)) && put(*m, 500 * PAGE, pattern(PAGE, 8)))
                << m->sentence;
        }
        return 0;
    };
    ASSERT_TRUE(used.take(reader)) << used.sentence;
    EXPECT_EQ(used.bytes, content);
    ASSERT_TRUE(put(*m, 0, pattern(2 * PAGE, 9)));
    ASSERT_TRUE(used.take(reader)) << used.sentence;
    EXPECT_EQ(used.bytes, content);
    // It cannot keep others out.
    const unsigned patience = reader_patience_ms;
    reader_patience_ms = 20;
    used.then = [&](off_t) { return put(*m, 9 * PAGE, Bytes(5, 'x')) ? 0 : -1; };
    EXPECT_FALSE(used.take(reader));
    EXPECT_EQ(used.error, EAGAIN) << used.sentence;
    reader_patience_ms = patience;
    m.reset();
    EXPECT_EQ(ato_munmap(reader, SIZE, ATO_UNMAP_FAST), 0);
}

TEST_P(Snapshot, WhatCannotBeCopiedIsAnError)
{
    ato_options small = gather;
    small.max_size = SIZE;
    Mapped m(file, small);
    ASSERT_TRUE(m) << m.sentence;
    Copy c;
    char plain[64];
    EXPECT_FALSE(c.take(plain));
    EXPECT_EQ(c.error, EINVAL);
    EXPECT_EQ(ato_snapshot(m.base, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EINVAL);
    c.then = [](off_t) { return errno = ENOSPC; };
    EXPECT_FALSE(c.take(m.base));
    EXPECT_EQ(c.error, ENOSPC) << c.sentence;
    EXPECT_EQ(c.puts, 1u);
    c.then = [](off_t) { return 1; };
    EXPECT_FALSE(c.take(m.base));
    EXPECT_EQ(c.error, ECANCELED) << c.sentence;
    // Of an open transaction nothing is in it; and it is in nobody's way, unless others are to be kept out.
    ato_tx *t = ato_tx_begin(0);
    ASSERT_EQ(ato_tx_ftruncate(t, m.base, SIZE - 5 * PAGE), 0) << ato_errormsg();
    c.then = [](off_t) { return 0; };
    EXPECT_TRUE(c.take(m.base)) << c.sentence;
    EXPECT_EQ(c.bytes, content);
    c.then = [&](off_t) { return put(m, 0, Bytes(3, 'x')) ? 0 : -1; };
    EXPECT_FALSE(c.take(m.base));
    EXPECT_EQ(c.error, EDEADLK) << c.sentence;
    EXPECT_EQ(ato_tx_abort(t), 0);
    EXPECT_EQ(in_child([&] {
                  Mapped other(file, gather);
                  return other && ato_ftruncate(other.base, SIZE + 5 * PAGE) == 0 ? 0 : 1;
              }),
              0);
    EXPECT_FALSE(c.take(m.base));
    EXPECT_EQ(c.error, EFBIG) << c.sentence;
}

} // namespace
