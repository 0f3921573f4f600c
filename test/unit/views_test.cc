// SPDX-License-Identifier: BSD-3-Clause
//
// The library's views are as long as the file needs. Is each call right that needs longer ones, because this process or another one
// has made the file longer? And is a lack of address space an error that changes nothing?
#include "support/child.h"
#include "support/limits.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 10 * PAGE, MIB = 1 << 20;

ato_options growing(size_t most = 256 * MIB, unsigned flags = 0)
{
    ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, flags);
    o.max_size = most;
    return o;
}

class Views : public testing::Test
{
  protected:
    Views()
    {
        write_file(path, pattern(SIZE, 1));
    }

    TempDir dir;
    std::string path = dir / "file";
};

// Beyond what the first views reach, whose least is 16 MiB: by the mapping that makes the file longer, and by one that existed before.
TEST_F(Views, GrowWithTheFile)
{
    Mapped m(path, growing()), second(path, growing());
    ASSERT_TRUE(m && second) << m.sentence << second.sentence;
    size_t size = SIZE;
    for (unsigned round = 1; round < 8; round++) {
        const size_t larger = size * 3 < 250 * MIB ? size * 3 : 250 * MIB;
        ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(larger)), 0) << ato_errormsg();
        const Bytes news = pattern(3 * PAGE, round);
        Mapped &writer = round % 2 ? m : second, &reader = round % 2 ? second : m;
        ASSERT_TRUE(writer.write(larger - news.size(), news)) << writer.sentence;
        ASSERT_TRUE(writer.write(size, pattern(100, round))) << writer.sentence;
        for (int times = 0; times < 3; times++) { // also by page states alone
            EXPECT_EQ(reader.read(larger - news.size(), news.size()), news) << reader.sentence;
            EXPECT_EQ(reader.read(larger - 100, 64), Bytes(news.end() - 100, news.end() - 36));
            EXPECT_EQ(reader.read(size, 100), pattern(100, round));
        }
        EXPECT_EQ(ato_msync(m.base, larger, MS_SYNC), 0) << ato_errormsg();
        EXPECT_EQ(ato_deploy(second.base, larger), 0) << ato_errormsg();
        size = larger;
    }
    EXPECT_EQ(m.read(0, SIZE), pattern(SIZE, 1));
    ASSERT_EQ(second.unmap(ATO_UNMAP_FAST), 0);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(size_of(path), size);
    EXPECT_EQ(read_at(path, 0, SIZE), pattern(SIZE, 1));
}

TEST_F(Views, GrowWithinATransaction)
{
    Mapped m(path, growing());
    ASSERT_TRUE(m) << m.sentence;
    ato_tx *tx = ato_tx_begin(0);
    const Bytes news = pattern(PAGE, 3);
    Bytes seen(PAGE);
    char *far = m.base + 100 * MIB;
    ASSERT_NE(ato_tx_memcpy(tx, m.base, news.data(), PAGE, 0), nullptr);
    EXPECT_EQ(ato_tx_memcpy(tx, far, news.data(), PAGE, 0), nullptr);
    EXPECT_EQ(errno, EFAULT);
    ASSERT_EQ(ato_tx_ftruncate(tx, m.base, 200 * MIB), 0) << ato_errormsg();
    ASSERT_NE(ato_tx_memcpy(tx, far, news.data(), PAGE, 0), nullptr) << ato_errormsg();
    ASSERT_NE(ato_tx_memcpy(tx, seen.data(), far, PAGE, 0), nullptr) << ato_errormsg();
    EXPECT_EQ(seen, news);
    EXPECT_EQ(m.read(100 * MIB, PAGE), Bytes()) << "others do not see it yet";
    ASSERT_EQ(ato_tx_commit(tx), 0) << ato_errormsg();
    EXPECT_EQ(m.read(100 * MIB, PAGE), news) << m.sentence;
}

// The parent maps first; then the child makes the file longer.
TEST_F(Views, FollowAnotherProcess)
{
    const Fd reading(path, O_RDONLY);
    const ato_options all = growing();
    for (bool may_write : {true, false}) {
        const std::string file = dir / (may_write ? "written" : "read");
        write_file(file, pattern(SIZE, 1));
        EXPECT_EQ(in_child([&] {
                      Peer writer([&](const std::function<void()> &ready) {
                          Mapped m(file, growing());
                          if (!m)
                              return 1;
                          ready();
                          for (size_t size : {20 * MIB, 90 * MIB, 200 * MIB})
                              if (ato_ftruncate(m.base, static_cast<off_t>(size)) < 0 ||
                                  !m.write(size - 2 * PAGE, pattern(2 * PAGE, 4)) ||
                                  !m.write(size / 2, pattern(64, 5)))
                                  return 2;
                          ready();
                          return 0;
                      });
                      if (!writer.is_ready())
                          return 10;
                      const Fd fd(file, may_write ? O_RDWR : O_RDONLY);
                      auto p = static_cast<char *>(ato_mmap_opt(SIZE, fd, 0, &all));
                      Bytes got(2 * PAGE);
                      if (p == MAP_FAILED || !ato_memcpy(got.data(), p, 100))
                          return 11;
                      writer.go_on();
                      if (!writer.is_ready())
                          return 12;
                      for (size_t size : {20 * MIB, 90 * MIB, 200 * MIB})
                          for (int times = 0; times < 2; times++)
                              if (!ato_memcpy(got.data(), p + size - 2 * PAGE, 2 * PAGE) ||
                                  got != pattern(2 * PAGE, 4) ||
                                  !ato_memcpy(got.data(), p + size / 2, 64) ||
                                  memcmp(got.data(), pattern(64, 5).data(), 64) != 0)
                                  return 13;
                      if (may_write && !ato_memcpy(p + 199 * MIB, got.data(), PAGE))
                          return 14;
                      ato_snapshot *s = ato_snapshot_begin(p);
                      const off_t end = ato_snapshot_seek(s, 0, SEEK_END);
                      if (end != 200 * static_cast<off_t>(MIB) ||
                          ato_snapshot_read(s, got.data(), end - 2 * PAGE, 2 * PAGE) != 2 * PAGE ||
                          got != pattern(2 * PAGE, 4) || ato_snapshot_end(s) < 0 ||
                          ato_munmap(p, SIZE, ATO_UNMAP_FAST) < 0)
                          return 15;
                      return writer.end();
                  }),
                  0)
            << may_write;
    }
}

// States are handed out in the order of first touch. This process finds those that another one has made, behind what it has mapped of
// them at first; also to free them.
TEST_F(Views, FindTheStatesThatAnotherProcessMade)
{
    constexpr size_t GROUPS = 12000,
                     STEP = 4 * PAGE; // a group has 4 pages; 8192 are mapped at first
    ASSERT_EQ(truncate(path.c_str(), GROUPS * STEP), 0);
    EXPECT_EQ(in_child([&] {
                  Peer other([&](const std::function<void()> &ready) {
                      Mapped m(path, growing());
                      for (size_t i = 0; m && i < GROUPS; i++)
                          if (!m.write(i * STEP, pattern(64, static_cast<unsigned>(i))))
                              return 1;
                      // A page that it holds when it is killed.
                      ato_tx *tx = ato_tx_begin(0);
                      ato_tx_memcpy(tx, m.base + (GROUPS - 1) * STEP, "x", 1, 0);
                      ready();
                      pause();
                      return 1;
                  });
                  if (!other.is_ready())
                      return 1;
                  Mapped m(path, growing());
                  if (!m)
                      return 2;
                  for (size_t i = GROUPS; i-- > 0;)
                      if (m.read(i * STEP, 64) != pattern(64, static_cast<unsigned>(i)))
                          return 3;
                  other.die();
                  return m.write((GROUPS - 1) * STEP, pattern(64, 1)) &&
                                 ato_deploy(m.base, GROUPS * STEP) == 0 &&
                                 m.unmap(ATO_UNMAP_SPATIAL) == 0
                             ? 0
                             : 4;
              }),
              0);
    EXPECT_EQ(read_at(path, 10000 * STEP, 64), pattern(64, 10000));
}

TEST_F(Views, ThreadsGrowAndUseThemAtOnce)
{
    Mapped m(path, growing());
    ASSERT_TRUE(m) << m.sentence;
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    ASSERT_EQ(ato_ftruncate(m.base, 200 * MIB), 0);
    for (unsigned t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            for (size_t at = t * PAGE; at < 200 * MIB; at += MIB) {
                Bytes bytes = pattern(64, t), got(64);
                wrong += !ato_memcpy(m.base + at, bytes.data(), 64) ||
                         !ato_memcpy(got.data(), m.base + at, 64) || got != bytes;
            }
        });
    for (auto &t : threads)
        t.join();
    EXPECT_EQ(wrong, 0);
}

TEST_F(Views, WorkWithLittleAddressSpaceAndTellOfTheLimit)
{
    if (!limits_address_space())
        GTEST_SKIP() << "a sanitizer takes address space itself";
    DENSE_ONLY("a sparse reflection takes as much as it may ever need");
    EXPECT_EQ(in_child([&] {
                  leave_address_space(3ull << 29);
                  Mapped m(path, growing(1u << 30));
                  // 2,000 pages: in a journal.
                  if (!m || ato_ftruncate(m.base, 40 * MIB) < 0 ||
                      !m.write(5 * MIB, pattern(2000 * PAGE, 2)))
                      return 1;
                  if (ato_ftruncate(m.base, 1000 * MIB) == 0 || errno != ENOMEM ||
                      !strstr(ato_errormsg(), "RLIMIT_AS") || !strstr(ato_errormsg(), path.c_str()))
                      return 2;
                  // It is as it was.
                  if (ato_size(m.base) != 40 * static_cast<off_t>(MIB) ||
                      m.read(5 * MIB, 2000 * PAGE) != pattern(2000 * PAGE, 2) ||
                      !m.write(40 * MIB - PAGE, pattern(PAGE, 3)))
                      return 3;
                  // No room for the view of its caller.
                  write_file(dir / "other", pattern(PAGE, 1));
                  Mapped other(dir / "other", growing(2ul << 30));
                  if (other || other.error != ENOMEM ||
                      other.sentence.find("RLIMIT_AS") == std::string::npos)
                      return 4;
                  return m.unmap(ATO_UNMAP_SPATIAL) == 0 ? 0 : 5;
              }),
              0);
    EXPECT_EQ(read_at(path, 40 * MIB - PAGE, PAGE), pattern(PAGE, 3));
}

} // namespace
