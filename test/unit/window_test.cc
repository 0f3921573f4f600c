// SPDX-License-Identifier: BSD-3-Clause
//
// Does a view become longer where it lies? Does it take address space only for what is mapped, and is a lack of it an error?
#include "support/child.h"
#include "support/limits.h"
#include "support/temp.h"

extern "C" {
#include "lib/file/table.h"
#include "reflection/media/report.h"
#include "reflection/media/window.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include <sys/mman.h>

using namespace support;

namespace
{

constexpr uint64_t PAGE = 4096, GIB = 1ull << 30;

class Window : public testing::Test
{
  protected:
    Window() : file(dir / "file")
    {
        write_file(file, pattern(100 * PAGE, 1));
        fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    }
    ~Window() override
    {
        close(fd);
    }

    window of_file(uint64_t at = 0) const
    {
        window w = {};
        w.domain = PERSIST_PROCESS;
        w.fd = fd;
        w.prot = PROT_READ | PROT_WRITE;
        w.at = at;
        return w;
    }

    TempDir dir;
    std::string file;
    int fd;
};

TEST_F(Window, GrowsWhereItLies)
{
    const Bytes content = pattern(100 * PAGE, 1);
    window w = of_file(2 * PAGE);
    ASSERT_EQ(window_open(&w, 1, GIB, nullptr), 0) << strerror(errno);
    char *base = w.base;
    EXPECT_EQ(w.bytes, PAGE);
    for (uint64_t bytes : {PAGE, 2 * PAGE + 1, 10 * PAGE, 3 * PAGE, 98 * PAGE, GIB}) {
        ASSERT_EQ(window_reach(&w, bytes), 0) << strerror(errno);
        EXPECT_EQ(w.base, base);
        EXPECT_GE(w.bytes, bytes);
        const uint64_t there = w.bytes < 98 * PAGE ? w.bytes : 98 * PAGE;
        EXPECT_EQ(memcmp(base, &content[2 * PAGE], there), 0);
    }
    EXPECT_EQ(window_reach(&w, GIB + 1), -1);
    EXPECT_EQ(errno, ENOMEM);
    window_close(&w);
    EXPECT_EQ(w.base, nullptr);
    window_close(&w);
}

TEST_F(Window, GrowsUpToTheNextOneOnADiskToo)
{
    const std::string folder = disk_folder();
    if (folder.empty())
        GTEST_SKIP() << "no disk";
    TempDir on_disk(folder);
    const std::string name = on_disk / "file";
    write_file(name, pattern(PAGE, 1));
    Fd disk(name);
    window w = of_file(), next = of_file();
    w.fd = next.fd = disk;
    ASSERT_EQ(window_open(&w, 1, GIB, nullptr), 0) << strerror(errno);
    ASSERT_EQ(window_open(&next, 1, GIB, nullptr), 0) << strerror(errno);
    EXPECT_EQ(next.base, w.base + GIB);
    EXPECT_EQ(window_reach(&w, GIB), 0) << strerror(errno);
    window_close(&next);
    window_close(&w);
}

TEST_F(Window, SomethingElseInItsRoomIsEnomemAndStays)
{
    window w = of_file();
    ASSERT_EQ(window_open(&w, PAGE, GIB, nullptr), 0);
    if (w.reserved)
        GTEST_SKIP() << "addresses cannot be chosen here, so that nothing else can lie in its room";
    char *other = w.base + 4 * PAGE;
    ASSERT_EQ(mmap(other, PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
              other);
    memset(other, 'x', PAGE);
    EXPECT_EQ(window_reach(&w, 8 * PAGE), -1);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(w.bytes, PAGE);
    EXPECT_EQ(window_reach(&w, 4 * PAGE), 0);
    EXPECT_EQ(other[0], 'x');
    munmap(other, PAGE);
    EXPECT_EQ(window_reach(&w, 8 * PAGE), 0);
    window_close(&w);
}

TEST_F(Window, EachHasItsOwnRoomAlsoAfterOthersWereClosed)
{
    std::vector<window> all(60, of_file());
    for (int round = 0; round < 3; round++)
        for (size_t i = round ? 1 : 0; i < all.size(); i += round ? 2 : 1) {
            if (round)
                window_close(&all[i]);
            ASSERT_EQ(window_open(&all[i], PAGE, (1 + i % 7) * GIB, nullptr), 0) << i;
            for (size_t k = 0; k < all.size(); k++) {
                const window &a = all[i], &b = all[k];
                if (k == i || !b.base)
                    continue;
                EXPECT_TRUE(a.base + a.room <= b.base || b.base + b.room <= a.base)
                    << i << " " << k;
            }
        }
    for (window &w : all)
        window_close(&w);
}

TEST_F(Window, TakesAddressSpaceOnlyForWhatIsMapped)
{
    if (!limits_address_space())
        GTEST_SKIP() << "a sanitizer takes address space itself";
    EXPECT_EQ(in_child([&] {
                  leave_address_space(3 * GIB / 2);
                  window w = of_file();
                  if (window_open(&w, PAGE, 1024 * GIB, nullptr) < 0 ||
                      window_reach(&w, GIB / 2) < 0)
                      return 1;
                  if (window_reach(&w, 4 * GIB) == 0 || errno != ENOMEM || w.bytes != GIB / 2)
                      return 2;
                  if (window_no_room(errno, 4 * GIB, "the file ", "x") != -1 ||
                      !strstr(report_sentence(), "4294967296 bytes of the file x") ||
                      !strstr(report_sentence(), "RLIMIT_AS"))
                      return 3;
                  window_close(&w);
                  /* A GiB more would be needed for a moment to find a boundary. */
                  void *at = table_reserve(nullptr, GIB);
                  if (!at || reinterpret_cast<uintptr_t>(at) % GIB)
                      return 4;
                  if (table_reserve(nullptr, GIB))
                      return 5;
                  window_give_back(at, GIB);
                  return table_reserve(nullptr, GIB) ? 0 : 6;
              }),
              0);
}

} // namespace
