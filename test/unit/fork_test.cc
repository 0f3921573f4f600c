// SPDX-License-Identifier: BSD-3-Clause
//
// What may a forked child do, and which state does a process leave when it ends? A child has no
// mapping until it maps the file itself; it can neither damage its parent's state nor keep the
// parent's locks. A process that exits leaves no shared memory; the files keep every
// acknowledged write.
#include "support/child.h"
#include "support/mapped.h"

extern "C" {
#include "lib/file/thread.h"
#include "reflection/media/races.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 252 * 4096; // too much for a small lane

class Fork : public testing::Test
{
  protected:
    Fork() : path(dir / "file"), content(pattern(SIZE, 1))
    {
        write_file(path, content);
    }

    TempDir dir;
    std::string path;
    Bytes content;
};

TEST_F(Fork, ChildCannotUseTheParentsMapping)
{
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(0, content)) << m.sentence; // by the long lane
    int status = in_child([&] {
        char c = 'x';
        EXPECT_EQ(ato_memcpy(m.base, &c, 1), nullptr);
        EXPECT_EQ(errno, EINVAL);
        EXPECT_STRNE(ato_errormsg(), "");
        EXPECT_EQ(ato_memcpy(&c, m.base, 1), nullptr);
        EXPECT_EQ(ato_memset(m.base, 0, SIZE), nullptr);
        EXPECT_EQ(ato_deploy(m.base, SIZE), -1);
        EXPECT_EQ(ato_munmap(m.base, SIZE, ATO_UNMAP_SPATIAL), -1);
        EXPECT_EQ(errno, EINVAL);
        struct ato_stat st = {};
        st.struct_size = sizeof(st);
        EXPECT_EQ(ato_stat(m.base, &st), -1);
        m.base = nullptr;
        return HasFailure();
    });
    EXPECT_EQ(status, 0);
    EXPECT_EQ(m.read(), content);
    EXPECT_TRUE(m.write(0, pattern(SIZE, 2))) << m.sentence;
    EXPECT_EQ(m.read(), pattern(SIZE, 2));
}

TEST_F(Fork, ChildsLoadFromTheParentsViewFaults)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    int status = in_child([&] {
        signal(SIGSEGV, SIG_DFL);
        return *const_cast<volatile char *>(m.base);
    });
    EXPECT_EQ(status, 256 + SIGSEGV);
}

TEST_F(Fork, ChildMapsTheFileItselfAndContinuesAfterItsParentUnmaps)
{
    Pipe go, tried;
    pid_t child;
    {
        Mapped m(path, options(ATO_DOMAIN_PMEM));
        ASSERT_TRUE(m);
        ASSERT_TRUE(m.write(0, pattern(SIZE, 2)));
        child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            m.base = nullptr;
            Mapped mine(path);
            EXPECT_TRUE(mine) << mine.sentence;
            EXPECT_EQ(mine.read(), pattern(SIZE, 2));
            EXPECT_TRUE(tried.tell() && go.hear());
            EXPECT_EQ(mine.read(), pattern(SIZE, 3));
            EXPECT_TRUE(mine.write(0, pattern(SIZE, 4))) << mine.sentence;
            EXPECT_EQ(mine.unmap(ATO_UNMAP_SPATIAL), 0) << mine.sentence;
            EXPECT_EQ(read_file(path), pattern(SIZE, 4));
            _exit(HasFailure());
        }
        EXPECT_TRUE(tried.hear());
        EXPECT_TRUE(m.write(0, pattern(SIZE, 3))) << m.sentence;
    }
    ASSERT_TRUE(go.tell());
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST_F(Fork, ChildThatOutlivesItsParentKeepsNoLockOfIt)
{
    int go[2];
    ASSERT_EQ(pipe(go), 0);
    pid_t child;
    // The parent of the child is a separate process, which dies with the file mapped.
    int pid_pipe[2];
    ASSERT_EQ(pipe(pid_pipe), 0);
    int status = in_child([&] {
        Mapped m(path, options(ATO_DOMAIN_PMEM));
        if (!m || !m.write(0, pattern(SIZE, 2))) // by a lane
            return 1;
        pid_t grandchild = fork();
        if (grandchild == 0) {
            char c;
            close(go[1]);
            m.base = nullptr;
            // Tells that the child runs: within fork() it still has its parent's descriptors and
            // locks.
            pid_t self = getpid();
            if (write(pid_pipe[1], &self, sizeof(self)) != sizeof(self))
                _exit(1);
            _exit(read(go[0], &c, 1) >= 0 ? 0 : 1);
        }
        m.base = nullptr;
        return grandchild < 0 ? 1 : 0;
    });
    ASSERT_EQ(status, 0);
    ASSERT_EQ(read(pid_pipe[0], &child, sizeof(child)), ssize_t(sizeof(child)));
    Mapped m(path);
    EXPECT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), pattern(SIZE, 2));
    for (int fd : {go[0], go[1], pid_pipe[0], pid_pipe[1]})
        close(fd); // ends the grandchild
}

TEST_F(Fork, ChildThatExitsCleanlyLeavesTheParentsLanesAndStates)
{
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(0, pattern(SIZE, 2)));
    EXPECT_EQ(shared_objects(id_of(path)), 1u);
    EXPECT_EQ(in_exiting_child([&] {
                  m.base = nullptr;
                  return 0;
              }),
              0);
    EXPECT_EQ(shared_objects(id_of(path)), 1u);
    EXPECT_TRUE(m.write(0, pattern(SIZE, 3))) << m.sentence;
    EXPECT_EQ(m.read(), pattern(SIZE, 3));
}

TEST_F(Fork, ChildOfAProcessWithMappingsMayMapOtherFiles)
{
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(0, pattern(SIZE, 2)));
    write_file(dir / "other", content);
    EXPECT_EQ(in_exiting_child([&] {
                  m.base = nullptr;
                  Mapped other(dir / "other", options(ATO_DOMAIN_PMEM));
                  EXPECT_TRUE(other) << other.sentence;
                  EXPECT_TRUE(other && other.write(0, pattern(SIZE, 5))) << other.sentence;
                  EXPECT_EQ(other.read(), pattern(SIZE, 5));
                  EXPECT_EQ(other.unmap(ATO_UNMAP_SPATIAL), 0);
                  return HasFailure();
              }),
              0);
    EXPECT_EQ(read_file(dir / "other"), pattern(SIZE, 5));
    EXPECT_EQ(m.read(), pattern(SIZE, 2));
}

// A thread counts under its number, without locked instructions. A child does not inherit the
// threads of its parent, and their numbers are free again.
TEST_F(Fork, ChildReusesTheNumbersOfThreadsThatItDidNotInherit)
{
#ifdef RACES_WATCHED
    GTEST_SKIP() << "ThreadSanitizer starts no threads in the child of a process that has some";
#endif
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    std::mutex lock;
    std::condition_variable turned;
    unsigned there = 0;
    bool done = false;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < THREAD_SHARED; i++)
        threads.emplace_back([&] {
            std::unique_lock<std::mutex> hold(lock);
            m.read(0, 1);
            there++;
            turned.notify_all();
            turned.wait(hold, [&] { return done; });
        });
    {
        std::unique_lock<std::mutex> hold(lock);
        turned.wait(hold, [&] { return there == THREAD_SHARED; });
        unsigned beside = 0;
        std::thread([&] { beside = thread_number(); }).join();
        EXPECT_EQ(beside, THREAD_SHARED);
        EXPECT_EQ(in_child([] {
                      unsigned first = THREAD_SHARED, second = THREAD_SHARED;
                      std::thread([&] {
                          first = thread_number();
                          std::thread([&] { second = thread_number(); }).join();
                      }).join();
                      return first < THREAD_SHARED && second < THREAD_SHARED && first != second ? 0
                                                                                                : 1;
                  }),
                  0);
        done = true;
        turned.notify_all();
    }
    for (std::thread &thread : threads)
        thread.join();
}

TEST_F(Fork, ChildOfAProcessWithLanesCanRecoverAnotherFile)
{
    ASSERT_EQ(mkdir((dir / "sub").c_str(), 0755), 0);
    std::string other = dir / "sub/file";
    write_file(other, content);
    ASSERT_EQ(in_child([&] { // dies with lanes
                  Mapped m(other, options(ATO_DOMAIN_PMEM));
                  bool good = m && m.write(0, pattern(SIZE, 4));
                  m.base = nullptr;
                  return good ? 0 : 1;
              }),
              0);
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(0, pattern(SIZE, 2)));
    EXPECT_EQ(in_child([&] {
                  m.base = nullptr;
                  Mapped mine(other, options(ATO_DOMAIN_PMEM));
                  EXPECT_TRUE(mine) << mine.sentence;
                  EXPECT_EQ(mine.read(), pattern(SIZE, 4));
                  return HasFailure();
              }),
              0);
}

TEST_F(Fork, ProcessThatIsKilledLosesNoAcknowledgedWrite)
{
    for (int domain : {ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS}) {
        write_file(path, content);
        int status = in_child([&] {
            Mapped m(path, options(domain));
            if (!m || !m.write(100, pattern(9000, 2)))
                return 1;
            raise(SIGKILL);
            return 2;
        });
        ASSERT_EQ(status, 256 + SIGKILL);
        Mapped m(path, options(domain));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(100, 9000), pattern(9000, 2));
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    }
}

TEST_F(Fork, ProcessThatExitsWithFilesMappedLeavesNoSharedMemory)
{
    int status = in_exiting_child([&] {
        Mapped *m = new Mapped(path, options(ATO_DOMAIN_PMEM));
        bool good = *m && m->write(0, pattern(SIZE, 2));
        m->base = nullptr;
        delete m;
        return good ? 0 : 1;
    });
    ASSERT_EQ(status, 0);
    EXPECT_EQ(shared_objects(id_of(path)), 0u);
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), pattern(SIZE, 2));
}

} // namespace
