// SPDX-License-Identifier: BSD-3-Clause
//
// Does a process keep its fcntl(2) locks on a file that it maps with ATO_BORROW_FD? The kernel
// drops them when the process closes any descriptor of the file, so the library must open none of
// its own.
#include "support/child.h"
#include "support/mapped.h"

#include "ato_engine.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 3 * 4096 + 100;

class Borrowed : public testing::Test
{
  protected:
    Borrowed()
    {
        write_file(path, pattern(SIZE, 1));
        fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
        EXPECT_TRUE(lock());
    }
    ~Borrowed() override
    {
        close(fd);
    }

    bool lock()
    {
        struct flock whole = {};
        whole.l_type = F_WRLCK;
        return fcntl(fd, F_SETLK, &whole) == 0;
    }
    // Asks from a child: a process does not see its own locks.
    bool is_locked()
    {
        return in_child([&] {
                   struct flock whole = {};
                   whole.l_type = F_WRLCK;
                   int own = open(path.c_str(), O_RDWR | O_CLOEXEC);
                   return fcntl(own, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
               }) == 1;
    }
    char *map(unsigned flags = ATO_BORROW_FD, int with = -1)
    {
        ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_LAZY, flags);
        o.max_size = 1 << 20;
        void *p = ato_mmap_opt(SIZE, with < 0 ? fd : with, 0, &o);
        return p == MAP_FAILED ? nullptr : static_cast<char *>(p);
    }

    TempDir dir;
    std::string path = dir / "file";
    int fd = -1;
};

TEST_F(Borrowed, LocksOutliveMapsAndUnmaps)
{
    for (int mode : {ATO_UNMAP_FAST, ATO_UNMAP_FAST, ATO_UNMAP_SPATIAL, ATO_UNMAP_SPATIAL}) {
        char *p = map();
        ASSERT_NE(p, nullptr) << ato_errormsg();
        EXPECT_TRUE(is_locked());
        ASSERT_NE(ato_memset(p + 4000, mode + 1, 5000), nullptr) << ato_errormsg();
        ASSERT_EQ(ato_ftruncate(p, 5 * 4096), 0) << ato_errormsg();
        ASSERT_EQ(ato_ftruncate(p, SIZE), 0) << ato_errormsg();
        ASSERT_EQ(ato_munmap(p, SIZE, mode), 0) << ato_errormsg();
        EXPECT_TRUE(is_locked());
    }
}

// The control.
TEST_F(Borrowed, LocksAreLostWithoutTheFlag)
{
    char *p = map(0);
    ASSERT_NE(p, nullptr) << ato_errormsg();
    ASSERT_EQ(ato_munmap(p, SIZE, ATO_UNMAP_FAST), 0);
    EXPECT_FALSE(is_locked());
}

TEST_F(Borrowed, LocksOutliveARecovery)
{
    EXPECT_EQ(in_child([&] {
                  char *p = map();
                  ato_tx *t = ato_tx_begin(0);
                  if (p && t && ato_tx_memcpy(t, p, pattern(9000, 2).data(), 9000, 0))
                      raise(SIGKILL);
                  return 1;
              }),
              256 + SIGKILL);
    char *p = map();
    ASSERT_NE(p, nullptr) << ato_errormsg();
    EXPECT_TRUE(is_locked());
    ASSERT_EQ(ato_munmap(p, SIZE, ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
    EXPECT_TRUE(is_locked());
}

TEST_F(Borrowed, LocksOutliveAMapThatFails)
{
    char *p = map(0);
    ASSERT_NE(p, nullptr);
    ASSERT_NE(ato_memset(p, 7, 100), nullptr);
    ASSERT_EQ(ato_munmap(p, SIZE, ATO_UNMAP_FAST), 0);
    ASSERT_TRUE(lock());
    write_file(path, pattern(100, 3)); // not through the library: ESTALE; it closes a descriptor
    ASSERT_TRUE(lock());
    EXPECT_EQ(map(), nullptr);
    EXPECT_EQ(errno, ESTALE);
    EXPECT_TRUE(is_locked());
}

TEST_F(Borrowed, LocksOutliveAReadOnlyMap)
{
    int own = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    char *p = map(ATO_BORROW_FD, own);
    ASSERT_NE(p, nullptr) << ato_errormsg();
    EXPECT_TRUE(is_locked());
    ASSERT_EQ(ato_munmap(p, SIZE, ATO_UNMAP_FAST), 0);
    EXPECT_TRUE(is_locked());
    close(own);
}

TEST_F(Borrowed, SecondMapOfTheFileIsEbusy)
{
    char *p = map();
    ASSERT_NE(p, nullptr) << ato_errormsg();
    for (unsigned flags : {0u, ATO_BORROW_FD}) {
        EXPECT_EQ(map(flags), nullptr);
        EXPECT_EQ(errno, EBUSY);
    }
    EXPECT_TRUE(is_locked());
    ASSERT_EQ(ato_munmap(p, SIZE, ATO_UNMAP_FAST), 0);
    p = map(0);
    ASSERT_NE(p, nullptr) << ato_errormsg();
    EXPECT_EQ(map(), nullptr);
    EXPECT_EQ(errno, EBUSY);
    ASSERT_EQ(ato_munmap(p, SIZE, ATO_UNMAP_FAST), 0);
}

} // namespace
