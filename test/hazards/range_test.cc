// SPDX-License-Identifier: BSD-3-Clause
//
// What if a range reaches beyond the mapping, or beyond the file? A plain copy faults in the middle and
// leaves half; on the file's last page it is lost without an error. The library returns EFAULT, and writes
// nothing.
#include "hazards/lab.h"

#include <cerrno>
#include <csignal>
#include <cstdio>

#include <sys/mman.h>
#include <unistd.h>

using namespace hazards;

namespace
{

constexpr size_t SIZE = 2 * 4096 + 1000;

class Range : public testing::Test
{
  protected:
    Range()
    {
        write_file(file, content);
        write_file(twin, content);
    }

    // The first n bytes of the twin, and then no memory.
    char *plain(size_t n)
    {
        size_t whole = (n + 4095) / 4096 * 4096;
        Fd fd(twin);
        void *room = mmap(nullptr, whole + 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return static_cast<char *>(
            mmap(room, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0));
    }

    // As memcpy(), byte by byte.
    static void store(char *to, const Bytes &bytes)
    {
        volatile char *at = to;
        for (unsigned char c : bytes)
            *at++ = static_cast<char>(c);
    }

    void expect_fault(void *answer, const void *where)
    {
        int err = errno;
        char address[32];
        snprintf(address, sizeof(address), "%p", where);
        EXPECT_EQ(answer, nullptr);
        EXPECT_EQ(err, EFAULT) << ato_errormsg();
        EXPECT_TRUE(has(ato_errormsg(), address)) << ato_errormsg();
        EXPECT_EQ(read_file(file), content);
    }

    TempDir dir;
    const std::string file = dir / "file", twin = dir / "twin";
    const Bytes content = pattern(SIZE, 1), news = pattern(4 * 4096, 2);
};

TEST_F(Range, AcrossTheEndOfTheMappingIsTornByPlainStoresAndEfaultHere)
{
    EXPECT_EQ(naive([&] {
                  store(plain(8192) + 4096, news);
                  return 0;
              }),
              died_of(SIGSEGV));
    EXPECT_EQ(read_at(twin, 4096, 4096), Bytes(news.begin(), news.begin() + 4096)) << "half";

    Mapped m(file, options(), 8192); // a part of the file
    ASSERT_TRUE(m) << m.sentence;
    for (size_t at : {size_t(0), size_t(4096), size_t(8191), size_t(8192), size_t(100000)}) {
        expect_fault(ato_memcpy(m.base + at, news.data(), 8193), m.base + at);
        expect_fault(ato_memset(m.base + at, 7, 8193), m.base + at);
        expect_fault(ato_memcpy(m.base, m.base + at, 8193), m.base);
        Bytes to(8193, 9);
        expect_fault(ato_memcpy(to.data(), m.base + at, 8193), m.base + at);
        EXPECT_EQ(to, Bytes(8193, 9)) << "nothing read either";
        EXPECT_EQ(ato_deploy(m.base + at, 8193), -1);
        EXPECT_EQ(errno, EFAULT);
    }
    for (size_t n : {1, 64, 4096})
        for (size_t at : {8192 - n + 1, size_t(8192)}) {
            Bytes to(n, 9);
            expect_fault(ato_memcpy(to.data(), m.base + at, n), m.base + at);
            EXPECT_EQ(to, Bytes(n, 9)) << n;
        }
    EXPECT_EQ(m.stat().slices_in_reflection, 0u);
    EXPECT_EQ(m.read(), Bytes(content.begin(), content.begin() + 8192));
    EXPECT_TRUE(m.write(0, Bytes(news.begin(), news.begin() + 8192))) << "up to the end";
}

TEST_F(Range, BeforeTheBeginningOfTheMappingIsEfault)
{
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    expect_fault(ato_memcpy(m.base - 10, news.data(), 20), m.base - 10);
    expect_fault(ato_memcpy(m.base - 10, m.base + 100, 20), m.base - 10);
    expect_fault(ato_memset(m.base - 1, 0, 2), m.base - 1);
    EXPECT_EQ(m.read(), content);
}

TEST_F(Range, AcrossTheEndOfTheFileIsLostByPlainStoresAndEfaultHere)
{
    EXPECT_EQ(naive([&] {
                  store(plain(3 * 4096) + SIZE - 10, Bytes(30, 7));
                  return 0;
              }),
              0)
        << "no fault on the file's last page";
    EXPECT_EQ(size_of(twin), SIZE) << "20 bytes were lost silently";
    EXPECT_EQ(naive([&] {
                  store(plain(4 * 4096) + SIZE, Bytes(4096, 7));
                  return 0;
              }),
              died_of(SIGBUS));

    Mapped m(file, options(), 4 * 4096);
    ASSERT_TRUE(m) << m.sentence;
    for (size_t at : {SIZE - 10, SIZE, size_t(3 * 4096 - 1), size_t(3 * 4096)}) {
        expect_fault(ato_memcpy(m.base + at, news.data(), 30), m.base + at);
        expect_fault(ato_memset(m.base + at, 7, 30), m.base + at);
    }
    EXPECT_EQ(m.read(0, SIZE), content);
    EXPECT_TRUE(m.write(SIZE - 10, Bytes(10, 7))) << m.sentence;
    EXPECT_EQ(m.read(0, SIZE), over(content, SIZE - 10, Bytes(10, 7)));
}

TEST_F(Range, LengthThatWrapsIsEfault)
{
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    for (size_t n : {SIZE_MAX, SIZE_MAX - reinterpret_cast<size_t>(m.base)}) {
        expect_fault(ato_memcpy(m.base + 1, news.data(), n), m.base + 1);
        expect_fault(ato_memset(m.base + 1, 7, n), m.base + 1);
    }
    for (size_t before_the_end : {1, 8, 15}) {
        char *last = reinterpret_cast<char *>(-before_the_end);
        expect_fault(ato_memcpy(last, m.base, 16), last);
        expect_fault(ato_memcpy(m.base, last, 16), last);
    }
    EXPECT_EQ(m.read(), content);
}

// A wrong pointer must not turn into a copy that is not atomic.
TEST_F(Range, OutsideOfEveryMappingIsAPlainCopyOfMemcpyAndEinvalHere)
{
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    Bytes a(64, 1), b(64, 2);
    EXPECT_EQ(ato_memcpy(a.data(), b.data(), 64), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_TRUE(has(ato_errormsg(), "neither")) << ato_errormsg();
    EXPECT_EQ(a, Bytes(64, 1));
    EXPECT_EQ(ato_memcpy(m.base, nullptr, 64), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_TRUE(has(ato_errormsg(), "NULL")) << ato_errormsg();
    EXPECT_EQ(ato_memcpy(nullptr, m.base, 64), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ato_memset(a.data(), 0, 64), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(a, Bytes(64, 1));
}

} // namespace
