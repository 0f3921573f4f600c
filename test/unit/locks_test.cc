// SPDX-License-Identifier: BSD-3-Clause
//
// Do the byte locks tell which processes live? Between descriptions, processes, parents and
// children.
#include "support/child.h"
#include "support/temp.h"

extern "C" {
#include "reflection/media/locks.h"
}

#include <gtest/gtest.h>

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

using namespace support;

namespace
{

class Locks : public testing::Test
{
  protected:
    Locks() : path(dir / "file")
    {
        write_file(path, Bytes());
    }

    TempDir dir;
    std::string path;
};

TEST_F(Locks, ExcludeOtherDescriptionsByteByByte)
{
    Fd a(path), b(path);
    EXPECT_EQ(locks_try(a, F_WRLCK, 5, 1), LOCKS_MINE);
    EXPECT_EQ(locks_try(b, F_WRLCK, 5, 1), LOCKS_TAKEN);
    EXPECT_EQ(locks_try(b, F_WRLCK, 1, 100), LOCKS_TAKEN) << "a range that has the byte";
    EXPECT_EQ(locks_ask(b, 5, 1), LOCKS_TAKEN);
    EXPECT_EQ(locks_ask(b, 6, 1), LOCKS_FREE);
    EXPECT_EQ(locks_try(b, F_WRLCK, 6, 1), LOCKS_MINE);
    EXPECT_EQ(locks_ask(a, 5, 1), LOCKS_FREE) << "a description's own lock reads as free";
    EXPECT_EQ(locks_drop(a, 5, 1), 0);
    EXPECT_EQ(locks_try(b, F_WRLCK, 5, 1), LOCKS_MINE);
}

TEST_F(Locks, AreDroppedWhenTheProcessEnds)
{
    EXPECT_EQ(in_child([&] {
                  int fd = open(path.c_str(), O_RDWR);
                  return locks_try(fd, F_WRLCK, 0, 1) == LOCKS_MINE ? 0 : 1;
              }),
              0);
    Fd b(path);
    EXPECT_EQ(locks_ask(b, 0, 1), LOCKS_FREE);
}

TEST_F(Locks, AreKeptWhenAForkedChildClosesTheDescriptor)
{
    Fd a(path), b(path);
    ASSERT_EQ(locks_try(a, F_WRLCK, 0, 1), LOCKS_MINE);
    EXPECT_EQ(in_child([&] { return close(a); }), 0);
    EXPECT_EQ(locks_ask(b, 0, 1), LOCKS_TAKEN);
}

TEST_F(Locks, FailWithTheErrnoOfTheCall)
{
    EXPECT_EQ(locks_try(-1, F_WRLCK, 0, 1), LOCKS_FAILED);
    EXPECT_EQ(errno, EBADF);
    EXPECT_EQ(locks_ask(-1, 0, 1), LOCKS_FAILED);
    EXPECT_EQ(locks_wait(-1, F_WRLCK, 0, 1), -1);
    EXPECT_EQ(locks_drop(-1, 0, 1), -1);
}

TEST_F(Locks, WaitersGetTheLockWhenItsHolderDies)
{
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        int fd = open(path.c_str(), O_RDWR);
        bool good = locks_try(fd, F_WRLCK, 0, 1) == LOCKS_MINE && write(ready[1], "x", 1) == 1;
        usleep(50 * 1000);
        _exit(good ? 0 : 1);
    }
    char c;
    ASSERT_EQ(read(ready[0], &c, 1), 1);
    Fd b(path);
    EXPECT_EQ(locks_try(b, F_WRLCK, 0, 1), LOCKS_TAKEN);
    EXPECT_EQ(locks_wait(b, F_WRLCK, 0, 1), 0);
    close(ready[0]);
    close(ready[1]);
}

} // namespace
