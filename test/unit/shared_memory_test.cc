// SPDX-License-Identifier: BSD-3-Clause
//
// ato_shared(): do the processes that have a file mapped share its memory, which begins as zeros?
#include "support/faults.h"
#include "unit/watched.h"

#include <algorithm>
#include <cerrno>

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

using namespace watched;

namespace
{

class SharedMemory : public testing::Test
{
  protected:
    SharedMemory()
    {
        write_file(path, pattern(SIZE, 1));
    }
    ato_options wish() const
    {
        return options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
    }
    // What another process finds there; it adds 1.
    int found_by_another() const
    {
        return in_child([&] {
            Mapped m(path, wish());
            auto *word = static_cast<int *>(ato_shared(m.base, sizeof(int)));
            return word ? (*word)++ : -1;
        });
    }
    TempDir dir;
    std::string path = dir / "file";
};

TEST_F(SharedMemory, IsTheSameInAllProcessesAndForAllAddresses)
{
    Mapped m(path, wish());
    auto *first = static_cast<int *>(ato_shared(m.base, sizeof(int)));
    ASSERT_TRUE(first) << ato_errormsg();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 4096, 0u);
    EXPECT_EQ(ato_shared(m.base + SIZE - 1, ATO_SHARED_MAX), first);
    for (size_t i = 0; i < ATO_SHARED_MAX / sizeof(int); i++)
        ASSERT_EQ(first[i], 0) << i;
    *first = 41;
    EXPECT_EQ(found_by_another(), 41);
    EXPECT_EQ(*first, 42);
    // The states of pages lie behind it.
    memset(first, 0xff, ATO_SHARED_MAX);
    EXPECT_TRUE(ato_memcpy(m.base + 5000, "new", 3)) << ato_errormsg();
    EXPECT_EQ(memcmp(m.base, pattern(SIZE, 1).data(), 5000), 0);
    EXPECT_EQ(found_by_another() & 0xff, 0xff);
}

TEST_F(SharedMemory, BeginsAsZerosAgain)
{
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(found_by_another(), 0); // it ends without a close
        Mapped m(path, wish());
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
    EXPECT_EQ(found_by_another(), 0);
    EXPECT_EQ(found_by_another(), 0) << "the one before has died";
}

// It is there for as long as a process has the file mapped, and gone with the last one, also if all were killed.
TEST_F(SharedMemory, OfKilledProcessesIsKeptByALivingOne)
{
    const auto scribble = [&](const std::function<void()> &report) {
        Mapped m(path, wish());
        void *all = ato_shared(m.base, ATO_SHARED_MAX);
        if (!all)
            return 1;
        memset(all, 0x55, ATO_SHARED_MAX);
        report();
        return 2;
    };
    for (const bool one_lives : {true, false, true}) {
        Peer first(scribble), second(scribble);
        EXPECT_TRUE(first.is_ready());
        EXPECT_TRUE(second.is_ready());
        first.die();
        if (!one_lives)
            second.die();
        Mapped m(path, wish());
        auto *bytes = static_cast<char *>(ato_shared(m.base, ATO_SHARED_MAX));
        ASSERT_TRUE(bytes) << ato_errormsg();
        EXPECT_EQ(std::count(bytes, bytes + ATO_SHARED_MAX, one_lives ? 0x55 : 0), ATO_SHARED_MAX)
            << one_lives;
    }
}

TEST_F(SharedMemory, IsOfOneFileOnly)
{
    write_file(dir / "second", pattern(SIZE, 2));
    Mapped m(path, wish()), n(dir / "second", wish());
    auto *first = static_cast<int *>(ato_shared(m.base, sizeof(int)));
    auto *second = static_cast<int *>(ato_shared(n.base, sizeof(int)));
    ASSERT_TRUE(first && second) << ato_errormsg();
    *first = 41;
    EXPECT_EQ(*second, 0);
    EXPECT_EQ(found_by_another(), 41);
}

TEST_F(SharedMemory, IsNotInheritedByAChild)
{
    Mapped m(path, wish());
    void *word = ato_shared(m.base, 1);
    ASSERT_TRUE(word) << ato_errormsg();
    const auto is_mapped = [&] {
        unsigned char in_core;
        return mincore(word, 4096, &in_core) == 0 ? 0 : errno;
    };
    EXPECT_EQ(is_mapped(), 0);
    EXPECT_EQ(in_child(is_mapped), ENOMEM);
}

// The kernel would send SIGXFSZ.
TEST_F(SharedMemory, IsRefusedBeyondALimitOfTheProcess)
{
    EXPECT_EQ(in_child([&] {
                  Mapped m(path, wish());
                  const struct rlimit small = {1 << 20, RLIM_INFINITY};
                  if (!m || setrlimit(RLIMIT_FSIZE, &small) < 0)
                      return 1;
                  if (ato_shared(m.base, 1) || errno != EFBIG ||
                      !strstr(ato_errormsg(), "RLIMIT_FSIZE"))
                      return 2;
                  const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
                  return setrlimit(RLIMIT_FSIZE, &none) == 0 && ato_shared(m.base, 1) ? 0 : 3;
              }),
              0);
}

TEST_F(SharedMemory, IsRefusedWithASentence)
{
    Mapped m(path, wish());
    const auto refused = [](const void *addr, size_t bytes, int error) {
        errno = 0;
        EXPECT_EQ(ato_shared(addr, bytes), nullptr);
        EXPECT_EQ(errno, error) << ato_errormsg();
        EXPECT_TRUE(*ato_errormsg());
    };
    refused(m.base, 0, EINVAL);
    refused(m.base, ATO_SHARED_MAX + 1, EINVAL);
    refused(m.base, SIZE_MAX, EINVAL);
    refused(&m, 1, EINVAL);
    // The process has no other mapping of the file.
    EXPECT_EQ(in_child([&] {
                  const Watched reader(path);
                  return reader.base && !ato_shared(reader.base, 1) ? errno : 0;
              }),
              EACCES);
    FsFaults faults;
    faults.before = [](const FsCall &call) {
        return std::string(call.op) == "fallocate" ? ENOSPC : GO_ON;
    };
    refused(m.base, 1, ENOSPC);
    faults.before = nullptr;
    EXPECT_TRUE(ato_shared(m.base, 1));
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
        const Mapped m(file, options(ATO_DOMAIN_PROCESS));
        const Fd filler("/dev/shm/filler", O_RDWR | O_CREAT);
        auto take_all = [&] {
            const Bytes page(4096);
            for (off_t at = 0; pwrite(filler, page.data(), page.size(), at) == 4096;)
                at += 4096;
            return errno == ENOSPC;
        };
        if (!m || !take_all() || ato_shared(m.base, ATO_SHARED_MAX) || errno != ENOSPC)
            return 1;
        if (ftruncate(filler, 0) < 0)
            return 2;
        void *words = ato_shared(m.base, ATO_SHARED_MAX);
        return words && take_all() && memset(words, 9, ATO_SHARED_MAX) ? 0 : 3;
    });
    if (status == 50)
        GTEST_SKIP() << "cannot mount a file system here";
    EXPECT_EQ(status, 0);
}

} // namespace
