// SPDX-License-Identifier: BSD-3-Clause
//
// ato_shared(): do the processes that use a file share its memory, which begins as zeros? Does a process find the memory of the
// living ones, or none?
#include "support/faults.h"
#include "unit/watched.h"

#include "ato_engine.h"

#include <algorithm>
#include <cerrno>

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

using namespace watched;

namespace
{

constexpr size_t BYTES = 5000;

class SharedMemory : public testing::Test
{
  protected:
    SharedMemory()
    {
        write_file(path, pattern(SIZE, 1));
    }
    // A process's memory of a file. It ends as a killed process's does, unless end() is called.
    struct Memory {
        explicit Memory(const std::string &file)
            : fd(file, O_RDWR), at(static_cast<char *>(ato_shared(fd, BYTES)))
        {
        }
        int end(bool is_last)
        {
            return ato_shared_end(fd, at, BYTES, is_last);
        }
        Fd fd;
        char *at;
    };
    // What another process finds in the first byte; it adds 1. 200 and more: errno.
    int found_by_another() const
    {
        return in_child([&] {
            Memory m(path);
            return m.at ? (*m.at)++ : 200 + errno;
        });
    }
    std::string object() const
    {
        struct stat st;
        char name[128];
        stat(path.c_str(), &st);
        snprintf(name, sizeof(name), "/dev/shm/ato-%jx-%ju-%u", uintmax_t(st.st_dev),
                 uintmax_t(st.st_ino), geteuid());
        return name;
    }
    TempDir dir;
    std::string path = dir / "file";
};

TEST_F(SharedMemory, IsTheSameInAllProcesses)
{
    Memory first(path);
    ASSERT_TRUE(first.at) << ato_errormsg();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first.at) % 4096, 0u);
    EXPECT_EQ(std::count(first.at, first.at + BYTES, 0), BYTES);
    *first.at = 41;
    EXPECT_EQ(found_by_another(), 41);
    EXPECT_EQ(*first.at, 42);
    memset(first.at, 0x55, BYTES);
    EXPECT_EQ(found_by_another(), 0x55);
    EXPECT_FALSE(exists(dir / ".ato")) << "the file is mapped by none";
    EXPECT_EQ(first.end(true), 0) << ato_errormsg();
    EXPECT_FALSE(exists(object()));
    EXPECT_EQ(found_by_another(), 0) << "it is new";
}

TEST_F(SharedMemory, BeginsAsZerosAgainAfterKilledProcesses)
{
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(in_child([&] {
                      Memory m(path);
                      return m.at ? *m.at = 41 : 0;
                  }),
                  41);
        EXPECT_TRUE(exists(object())) << "the process has died";
        EXPECT_EQ(found_by_another(), 0) << "nobody living has it";
        Memory m(path);
        ASSERT_TRUE(m.at) << ato_errormsg();
        EXPECT_EQ(std::count(m.at, m.at + BYTES, 0), BYTES);
        EXPECT_EQ(m.end(true), 0);
    }
}

TEST_F(SharedMemory, IsKeptByOneThatLives)
{
    const auto scribble = [&](const std::function<void()> &report) {
        Memory m(path);
        if (!m.at)
            return 1;
        *m.at = 41;
        report();
        return 2;
    };
    Peer first(scribble);
    ASSERT_TRUE(first.is_ready());
    Peer second(scribble);
    ASSERT_TRUE(second.is_ready());
    first.die();
    EXPECT_EQ(found_by_another(), 41);
    second.die();
    EXPECT_EQ(found_by_another(), 0) << "it is new";
}

// Where /dev/shm is another one, or somebody has removed the object, or made another one by that name.
TEST_F(SharedMemory, OfAnotherPlaceIsRefused)
{
    Memory m(path);
    ASSERT_TRUE(m.at) << ato_errormsg();
    ASSERT_EQ(rename(object().c_str(), (object() + "x").c_str()), 0);
    EXPECT_EQ(found_by_another(), 200 + EBUSY);
    write_file(object(), read_file(object() + "x"));
    EXPECT_EQ(found_by_another(), 0) << "the content tells";
    if (geteuid() == 0) { // and who has made it: not a user that may not write to the file
        ASSERT_EQ(chown(object().c_str(), 65534, 65534), 0);
        EXPECT_EQ(found_by_another(), 200 + EBUSY);
    }
    Bytes other = read_file(object() + "x");
    other[8] ^= 1; // the random number
    write_file(object(), other);
    EXPECT_EQ(found_by_another(), 200 + EBUSY);
    write_file(object(), Bytes(other.begin(), other.begin() + 100));
    EXPECT_EQ(found_by_another(), 200 + EBUSY);
    ASSERT_EQ(rename((object() + "x").c_str(), object().c_str()), 0);
    EXPECT_EQ(found_by_another(), 0);
    EXPECT_EQ(m.end(true), 0);
}

// A lock for writing needs a descriptor for writing. So a process that may only read the file leads nobody astray.
TEST_F(SharedMemory, IsNotWhatAReaderOfTheFileSays)
{
    const Fd reader(path, O_RDONLY);
    struct flock lock = {};
    lock.l_type = F_RDLCK;
    lock.l_start = 1ll << 62 | 7ll << 30;
    ASSERT_EQ(fcntl(reader, F_OFD_SETLK, &lock), 0);
    Memory m(path);
    ASSERT_TRUE(m.at) << ato_errormsg();
    EXPECT_EQ(found_by_another(), 0);
    EXPECT_EQ(m.end(true), 0);
}

TEST_F(SharedMemory, IsOfOneFileOnly)
{
    write_file(dir / "second", pattern(SIZE, 2));
    Memory first(path), second(dir / "second");
    ASSERT_TRUE(first.at && second.at) << ato_errormsg();
    *first.at = 41;
    EXPECT_EQ(*second.at, 0);
    EXPECT_EQ(found_by_another(), 41);
    EXPECT_EQ(first.end(true), 0);
    EXPECT_EQ(second.end(true), 0);
}

TEST_F(SharedMemory, IsNotInheritedByAChild)
{
    Memory m(path);
    ASSERT_TRUE(m.at) << ato_errormsg();
    const auto is_mapped = [&] {
        unsigned char in_core;
        return mincore(m.at, 4096, &in_core) == 0 ? 0 : errno;
    };
    EXPECT_EQ(is_mapped(), 0);
    EXPECT_EQ(in_child(is_mapped), ENOMEM);
    EXPECT_EQ(m.end(true), 0);
}

// The kernel would send SIGXFSZ.
TEST_F(SharedMemory, IsRefusedBeyondALimitOfTheProcess)
{
    EXPECT_EQ(in_child([&] {
                  const struct rlimit small = {4096, RLIM_INFINITY},
                                      none = {RLIM_INFINITY, RLIM_INFINITY};
                  if (setrlimit(RLIMIT_FSIZE, &small) < 0)
                      return 1;
                  Memory refused(path);
                  if (refused.at || errno != EFBIG || !strstr(ato_errormsg(), "RLIMIT_FSIZE"))
                      return 2;
                  if (exists(object()) || setrlimit(RLIMIT_FSIZE, &none) < 0)
                      return 3;
                  Memory m(path);
                  return m.at && m.end(true) == 0 ? 0 : 4;
              }),
              0);
}

TEST_F(SharedMemory, IsRefusedWithASentence)
{
    const Fd fd(path, O_RDWR), reader(path, O_RDONLY), folder(dir.path(), O_RDONLY);
    const auto refused = [](int file, size_t bytes, int error) {
        errno = 0;
        EXPECT_EQ(ato_shared(file, bytes), nullptr);
        EXPECT_EQ(errno, error) << ato_errormsg();
        EXPECT_TRUE(*ato_errormsg());
    };
    refused(fd, 0, EINVAL);
    refused(fd, ATO_SHARED_MAX + 1, EINVAL);
    refused(fd, SIZE_MAX, EINVAL);
    refused(reader, 1, EACCES);
    refused(folder, 1, EACCES);
    refused(-1, 1, EBADF);
    EXPECT_EQ(ato_shared_end(fd, nullptr, 1, true), -1);
    FsFaults faults;
    faults.before = [](const FsCall &call) {
        return std::string(call.op) == "fallocate" ? ENOSPC : GO_ON;
    };
    refused(fd, 1, ENOSPC);
    EXPECT_FALSE(exists(object()));
    faults.before = nullptr;
    EXPECT_EQ(found_by_another(), 0) << "no lock is left";
}

// In a child, which would die.
TEST_F(SharedMemory, ThatIsCutTellsSo)
{
    EXPECT_EQ(in_child([&] {
                  Mapped m(path); // installs the handler
                  Memory own(path);
                  if (!m || !own.at || ato_shared_check(own.at) < 0)
                      return 1;
                  memset(own.at, 1, BYTES);
                  if (truncate(object().c_str(), 2 * 4096) < 0 || own.at[4095] != 1)
                      return 2; // that page is still there
                  if (ato_shared_check(own.at) < 0 || own.at[4096] != 0)
                      return 3;
                  if (ato_shared_check(own.at) == 0 || errno != EIO || !*ato_errormsg())
                      return 4;
                  if (m.read(0, 10).empty()) // the file is not concerned
                      return 5;
                  if (own.end(true) < 0)
                      return 6;
                  Memory anew(path);
                  return anew.at && ato_shared_check(anew.at) == 0 && anew.at[4096] == 0 ? 0 : 7;
              }),
              0);
    EXPECT_EQ(ato_shared_check(nullptr), -1);
    EXPECT_EQ(errno, EINVAL);
}

// Only the child sees a /dev/shm of one MiB, which it fills. With the space there is memory, which needs no more.
TEST_F(SharedMemory, HasItsSpaceOrIsRefused)
{
    const TempDir elsewhere("/tmp");
    const std::string file = elsewhere / "file";
    write_file(file, pattern(SIZE, 1));
    const int status = in_child([&] {
        if (unshare(CLONE_NEWNS) < 0 ||
            mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0 ||
            mount("ato-test", "/dev/shm", "tmpfs", 0, "size=1m") < 0)
            return 50;
        const Fd fd(file, O_RDWR), filler("/dev/shm/filler", O_RDWR | O_CREAT);
        auto take_all = [&] {
            const Bytes page(4096);
            for (off_t at = 0; pwrite(filler, page.data(), page.size(), at) == 4096;)
                at += 4096;
            return errno == ENOSPC;
        };
        if (!take_all() || ato_shared(fd, ATO_SHARED_MAX) || errno != ENOSPC)
            return 1;
        if (ftruncate(filler, 0) < 0)
            return 2;
        void *words = ato_shared(fd, ATO_SHARED_MAX);
        return words && take_all() && memset(words, 9, ATO_SHARED_MAX) ? 0 : 3;
    });
    if (status == 50)
        GTEST_SKIP() << "cannot mount a file system here";
    EXPECT_EQ(status, 0);
}

} // namespace
