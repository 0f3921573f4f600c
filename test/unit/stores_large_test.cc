// SPDX-License-Identifier: BSD-3-Clause
//
// Plain stores to files that are long: to all of a GiB, in one commit, beside another view; to a few of many pages that are mapped.
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr uint64_t GIB = 1ull << 30, PAGE = 4096;

uint64_t number(uint64_t page, uint64_t turn)
{
    return page * 1000003 + turn;
}

TEST(LargeStores, OfAGibibyteAreOneCommit)
{
    TempDir dir;
    struct statvfs fs;
    ASSERT_EQ(statvfs(dir.path().c_str(), &fs), 0);
    if (fs.f_bavail * fs.f_bsize < 3 * GIB ||
        static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * PAGE < 5 * GIB)
        GTEST_SKIP() << "less than 5 GiB are free";
    const std::string path = dir / "file";
    write_file(path, {});
    ASSERT_EQ(truncate(path.c_str(), GIB), 0);
    const ato_options o = options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER, ATO_PLAIN_STORES);
    Mapped m(path, o), other(path, o);
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    for (uint64_t turn = 1; turn <= 2; turn++) {
        for (uint64_t page = 0; page < GIB / PAGE; page++) {
            const uint64_t n = number(page, turn);
            memcpy(m.base + page * PAGE + page % 60 * 64, &n, 8);
        }
        other.base[PAGE + 63 * 64] = static_cast<char>(turn); // a page that the commit changes
        EXPECT_EQ(in_child([&] {                              // a part of it
                      Mapped own(path, o);
                      for (uint64_t at = 0; at < GIB; at += 8 * PAGE)
                          own.base[at] = 99;
                      own.base = nullptr;
                      raise(SIGKILL);
                      return 0;
                  }),
                  256 + SIGKILL);
        ASSERT_EQ(ato_msync(m.base, GIB, MS_SYNC), 0) << ato_errormsg();
        ASSERT_EQ(ato_msync(other.base, GIB, MS_SYNC), 0) << ato_errormsg();
        for (const Mapped *each : {&m, &other})
            for (uint64_t page = 0; page < GIB / PAGE; page++) {
                uint64_t n;
                memcpy(&n, each->base + page * PAGE + page % 60 * 64, 8);
                ASSERT_EQ(n, number(page, turn)) << page;
            }
        EXPECT_EQ(m.base[PAGE + 63 * 64], static_cast<char>(turn));
    }
}

// A search looks at all pages that are mapped.
TEST(LargeStores, AreNotLookedForAmongAllPagesThatWereReadForEver)
{
    constexpr uint64_t BYTES = 65ull << 20;
    TempDir dir("/dev/shm");
    const std::string path = dir / "file";
    write_file(path, {});
    ASSERT_EQ(truncate(path.c_str(), BYTES), 0);
    Mapped m(path, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER, ATO_PLAIN_STORES));
    ASSERT_TRUE(m) << m.sentence;
    const auto all_zeros = [&] {
        uint64_t n = 0;
        for (uint64_t at = PAGE; at < BYTES; at += PAGE)
            n += m.base[at] == 0;
        return n == BYTES / PAGE - 1;
    };
    const auto mapped = [&] { // of 2 MiB away from the page with stores
        const Fd pagemap("/proc/self/pagemap", 0);
        std::vector<uint64_t> entries((2 << 20) / PAGE);
        const auto at = reinterpret_cast<uintptr_t>(m.base) + (20 << 20);
        EXPECT_EQ(
            pread(pagemap, entries.data(), entries.size() * 8, static_cast<off_t>(at / PAGE * 8)),
            static_cast<ssize_t>(entries.size() * 8));
        return std::count_if(entries.begin(), entries.end(), [](uint64_t e) { return e >> 63; });
    };
    ASSERT_TRUE(all_zeros());
    EXPECT_GT(mapped(), 0);
    for (char i = 1; i <= 32; i++) {
        m.base[0] = i;
        ASSERT_EQ(ato_msync(m.base, BYTES, MS_SYNC), 0) << ato_errormsg();
    }
    EXPECT_EQ(mapped(), 0);
    EXPECT_TRUE(all_zeros());
    EXPECT_EQ(m.base[0], 32);
}

} // namespace
