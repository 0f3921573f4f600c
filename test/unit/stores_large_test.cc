// SPDX-License-Identifier: BSD-3-Clause
//
// Plain stores to all of a GiB, in one commit, beside another view.
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

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

} // namespace
