// SPDX-License-Identifier: BSD-3-Clause
//
// Does a process that forks or exits never hang in the library? Locks that a child inherits from
// threads it does not have, and exit() from within a callback.
#include "model/rig.h"
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 4 * 4096;

TEST(Exit, ForkedChildReportsErrorsIfAnotherThreadReportsDuringTheFork)
{
    char a[8], b[8];
    std::atomic<bool> stop{false};
    Log log; // a thread that reports holds a lock while it calls the sink
    TempDir dir;
    write_file(dir / "file", pattern(4096, 1));
    Mapped m(dir / "file"); // the library handles forks from the first map on
    ASSERT_TRUE(m) << m.sentence;
    std::thread reporter([&] {
        while (!stop)
            ato_memcpy(a, b, sizeof(a)); // EINVAL
    });
    int hung = 0;
    for (unsigned i = 0; i < rig::rounds(100) && !hung; i++) {
        pid_t child = fork();
        if (child == 0) {
            char c[8];
            alarm(5);
            ato_memcpy(c, c, sizeof(c));
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        hung += WIFSIGNALED(status);
    }
    stop = true;
    reporter.join();
    EXPECT_EQ(hung, 0);
}

TEST(Exit, ForkedChildCanCallStatIfOtherThreadsCallItDuringTheFork)
{
    TempDir dir;
    write_file(dir / "file", pattern(4096, 1));
    write_file(dir / "other", pattern(4096, 2));
    Mapped m(dir / "file");
    ASSERT_TRUE(m) << m.sentence;
    std::atomic<bool> stop{false};
    std::vector<std::thread> askers;
    for (int i = 0; i < 3; i++)
        askers.emplace_back([&] {
            while (!stop)
                m.stat();
        });
    for (unsigned i = 0; i < rig::rounds(60) && !HasFailure(); i++)
        EXPECT_EQ(in_child([&] {
                      alarm(20); // ends a child that hangs
                      Mapped own(dir / "other");
                      return own && own.stat().size == 4096 ? 0 : 1;
                  }),
                  0)
            << "fork " << i;
    stop = true;
    for (std::thread &t : askers)
        t.join();
}

TEST(Exit, FromAProgressCallbackKeepsAllWrites)
{
    TempDir dir;
    std::string path = dir / "file";
    write_file(path, pattern(SIZE, 1));
    int status = in_exiting_child([&] {
        alarm(10);
        Mapped m(path);
        if (!m || !m.write(0, pattern(SIZE, 2)))
            return 1;
        ato_unmap_options o = {};
        o.struct_size = sizeof(o);
        o.mode = ATO_UNMAP_SPATIAL;
        o.progress = [](void *, uint64_t, uint64_t) { exit(42); };
        ato_munmap_opt(m.base, m.length, &o);
        return 2;
    });
    EXPECT_EQ(status, 42);
    Mapped m(path);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), pattern(SIZE, 2));
}

} // namespace
