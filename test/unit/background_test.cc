// SPDX-License-Identifier: BSD-3-Clause
//
// Does the thread of ATO_BACKGROUND keep reflections below three quarters of their budget? A process has one,
// as long as it has such a mapping; it takes no signals, and neither a fork nor an exit finds it in the way.
#include "support/child.h"
#include "support/mapped.h"

extern "C" {
#include "reflection/media/races.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <sys/mman.h>
#include <sys/stat.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, PAGES = 1024, SIZE = PAGES * PAGE;
constexpr uint64_t MOST = 1 << 19;

ato_options in_background(int domain = ATO_DOMAIN_PROCESS)
{
    ato_options o = options(domain, ATO_READ_GATHER, ATO_BACKGROUND);
    o.max_reflection_bytes = MOST;
    return o;
}

// Waits for what the thread does; false after longer than it can take.
bool comes_true(const std::function<bool()> &what)
{
    for (int i = 0; i < 20000; i++) {
        if (what())
            return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

using Threads = std::set<std::string>;

Threads threads()
{
    Threads all;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/task"))
        all.insert(entry.path().filename());
    return all;
}

struct Background : testing::Test {
    explicit Background(const std::string &below = "/dev/shm") : dir(below)
    {
        write_file(file, content);
    }
    uint64_t space() const
    {
        return static_cast<uint64_t>(stat_of(reflection_of(file)).st_blocks) * 512;
    }
    // 400 KiB, so that no write is past the budget.
    bool put(Mapped &m, unsigned seed)
    {
        const Bytes news = pattern(100 * PAGE, seed);
        std::copy(news.begin(), news.end(), content.begin() + 300 * PAGE);
        return m.write(300 * PAGE, news);
    }
    // Threads that were not there before the test. One that was joined may stay in /proc for a moment.
    size_t new_threads() const
    {
        const Threads now = threads();
        return static_cast<size_t>(std::count_if(
            now.begin(), now.end(), [&](const std::string &id) { return !before.count(id); }));
    }
    bool has_no_new_thread() const
    {
        return comes_true([&] { return new_threads() == 0; });
    }
    bool gets_small() const
    {
        return comes_true([&] { return space() <= MOST / 4 * 3; });
    }
    TempDir dir;
    const std::string file = dir / "file";
    Bytes content = pattern(SIZE, 1);
    const Threads before = threads();
};

struct BackgroundOfDomain : Background, testing::WithParamInterface<int> {
};

INSTANTIATE_TEST_SUITE_P(, BackgroundOfDomain,
                         testing::Values(ATO_DOMAIN_PROCESS, ATO_DOMAIN_PMEM));

TEST_P(BackgroundOfDomain, KeepsTheReflectionBelowThreeQuartersAndTheContent)
{
    Mapped m(file, in_background(GetParam()));
    ASSERT_TRUE(m) << m.sentence;
    for (unsigned seed : {2, 3}) {
        ASSERT_TRUE(put(m, seed)) << m.sentence;
        EXPECT_TRUE(gets_small()) << space();
        EXPECT_GE(space(), MOST / 4) << "it does not empty it";
        EXPECT_EQ(m.read(), content);
    }
    EXPECT_GT(m.stat().deployed_slices, 0u);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(file), content);
}

// Space that is taken there comes back at the last unmap only.
struct BackgroundOnADisk : Background {
    BackgroundOnADisk() : Background(disk_folder())
    {
    }
};

TEST_F(BackgroundOnADisk, NoMoreThanThreeQuartersAreTaken)
{
    ato_options o = in_background();
    o.format = ATO_FORMAT_SPARSE;
    Mapped m(file, o);
    ASSERT_TRUE(m) << m.sentence;
    unsigned page = 1;
    for (unsigned i = 0; i < 3000; i++) {
        page = (page * 1103515245 + 12345) % PAGES;
        const Bytes news = pattern(64, i);
        std::copy(news.begin(), news.end(), content.begin() + static_cast<long>(page * PAGE));
        ASSERT_NE(ato_memcpy(m.base + page * PAGE, news.data(), 64), nullptr) << ato_errormsg();
    }
    EXPECT_LE(space(), MOST / 4 * 3 + 16 * PAGE) << "the thread may hold a batch while one writes";
    EXPECT_GE(space(), MOST / 2) << "it is used";
    EXPECT_EQ(m.read(), content);
}

// No write of this process tells the thread of them.
TEST_F(Background, SeesWhatAnEarlierMappingLeftAndWhatOtherProcessesWrite)
{
    {
        Mapped m(file, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
        ASSERT_TRUE(m && put(m, 2)) << m.sentence;
    }
    ASSERT_GT(space(), MOST / 4 * 3);
    Mapped m(file, in_background());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_TRUE(gets_small()) << space();
    ASSERT_EQ(in_child([&] {
                  Mapped other(file, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
                  return other && put(other, 3) ? 0 : 1;
              }),
              0);
    EXPECT_TRUE(gets_small()) << space();
    const Bytes news = pattern(100 * PAGE, 3);
    std::copy(news.begin(), news.end(), content.begin() + 300 * PAGE);
    EXPECT_EQ(m.read(), content);
}

TEST_F(Background, OneThreadServesAllMappingsAndEndsWithTheLastOne)
{
    const std::string second = dir / "second";
    write_file(second, content);
    {
        Mapped a(file, in_background()), b(second, in_background()), c(file, in_background());
        ASSERT_TRUE(a && b && c);
        EXPECT_EQ(new_threads(), 1u);
        EXPECT_EQ(a.unmap(ATO_UNMAP_FAST), 0);
        EXPECT_EQ(b.unmap(ATO_UNMAP_SPATIAL), 0);
        EXPECT_EQ(new_threads(), 1u);
        ASSERT_TRUE(put(c, 4));
        EXPECT_TRUE(gets_small()) << space();
    }
    EXPECT_TRUE(has_no_new_thread());
    ato_options o = in_background();
    o.flags = 0;
    Mapped without(file, o);
    ASSERT_TRUE(without && put(without, 5));
    EXPECT_TRUE(has_no_new_thread());
    EXPECT_EQ(ato_mmap_opt(SIZE, -1, 0, &o), MAP_FAILED);
    EXPECT_TRUE(has_no_new_thread()) << "a map that failed leaves none";
}

// An unmap that fails leaves the mapping as it was.
TEST_F(Background, GoesOnIfAnUnmapFails)
{
    Mapped m(file, in_background());
    ASSERT_TRUE(m && put(m, 2)) << m.sentence;
    ASSERT_EQ(truncate(file.c_str(), SIZE - PAGE), 0);
    EXPECT_EQ(ato_munmap(m.base, SIZE, ATO_UNMAP_SPATIAL), -1);
    EXPECT_EQ(errno, ESTALE) << ato_errormsg();
    ASSERT_EQ(truncate(file.c_str(), SIZE), 0);
    EXPECT_EQ(new_threads(), 1u);
    ASSERT_TRUE(put(m, 3)) << m.sentence;
    EXPECT_TRUE(gets_small()) << space();
}

TEST_F(Background, TheThreadBlocksAllSignalsButThatOfAFault)
{
    Mapped m(file, in_background());
    ASSERT_TRUE(m && put(m, 2)) << m.sentence;
    ASSERT_TRUE(gets_small()) << "while the C library starts it, it blocks them anyway";
    for (const std::string &id : threads()) {
        if (before.count(id))
            continue;
        std::ifstream status("/proc/self/task/" + id + "/status");
        std::string word;
        while (status >> word && word != "SigBlk:")
            ;
        uint64_t blocked = 0;
        status >> std::hex >> blocked;
        EXPECT_FALSE(blocked & 1ull << (SIGBUS - 1)) << "blocked, it would kill the process";
        // Nobody can block the next two, and the C library keeps the first real-time signals for itself.
        for (int signal : {SIGBUS, SIGKILL, SIGSTOP, 32, 33, 34})
            blocked |= 1ull << (signal - 1);
        EXPECT_EQ(blocked, UINT64_MAX);
    }
}

TEST_F(Background, AForkedChildHasNoThreadAndMayMapWithOneOfItsOwn)
{
    Mapped m(file, in_background());
    ASSERT_TRUE(m && put(m, 99)) << m.sentence;
    // A child of a process with a thread that AddressSanitizer is just starting could not start one.
    ASSERT_TRUE(gets_small()) << space();
    // ThreadSanitizer starts no threads in the child of a process that has some.
#ifdef RACES_WATCHED
    const bool maps_too = false;
#else
    const bool maps_too = true;
#endif
    for (unsigned i = 0; i < 20; i++) {
        ASSERT_TRUE(put(m, i)) << m.sentence; // the thread has work
        ASSERT_EQ(in_child([&] {
                      alarm(20);
                      char c = 'x';
                      if (threads().size() != 1 || ato_memcpy(m.base, &c, 1) || errno != EINVAL)
                          return 1;
                      m.base = nullptr;
                      if (!maps_too || i % 10)
                          return 0;
                      Mapped mine(file, in_background());
                      if (!mine || threads().size() != 2 || !put(mine, i + 100) || !gets_small())
                          return 2;
                      const auto is_alone = [] { return threads().size() == 1; };
                      return mine.unmap(ATO_UNMAP_FAST) == 0 && comes_true(is_alone) ? 0 : 3;
                  }),
                  0);
        if (maps_too && i % 10 == 0) {
            const Bytes news = pattern(100 * PAGE, i + 100);
            std::copy(news.begin(), news.end(), content.begin() + 300 * PAGE);
        }
        EXPECT_EQ(m.read(), content);
    }
    EXPECT_TRUE(gets_small()) << space();
}

TEST_F(Background, AnExitWithTheThreadAtWorkEnds)
{
    for (unsigned i = 1; i <= 3; i++)
        ASSERT_EQ(in_exiting_child([&] {
                      alarm(20);
                      auto *m = new Mapped(file, in_background());
                      return *m && put(*m, i) ? 0 : 1;
                  }),
                  0);
    const Bytes news = pattern(100 * PAGE, 3);
    std::copy(news.begin(), news.end(), content.begin() + 300 * PAGE);
    Mapped m(file, in_background());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
}

// Others free the pages that it held.
TEST_F(Background, AKillWithTheThreadAtWorkLosesNothing)
{
    Mapped m(file, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    for (unsigned i = 1; i <= 10; i++) {
        ASSERT_EQ(in_child([&] {
                      Mapped other(file, in_background());
                      if (!other || !put(other, i))
                          return 1;
                      usleep(i * 200);
                      return raise(SIGKILL);
                  }),
                  256 + SIGKILL);
        const Bytes news = pattern(100 * PAGE, i);
        std::copy(news.begin(), news.end(), content.begin() + 300 * PAGE);
        ASSERT_EQ(m.read(), content) << i;
    }
    EXPECT_EQ(ato_deploy(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_EQ(ato_reclaim(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_LE(space(), 8 * PAGE) << "no page is held";
}

TEST_F(Background, WithoutABudgetItIsRefused)
{
    Mapped m(file, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER, ATO_BACKGROUND));
    EXPECT_FALSE(m);
    EXPECT_EQ(m.error, EINVAL);
    EXPECT_NE(m.sentence.find("max_reflection_bytes"), std::string::npos) << m.sentence;
}

TEST_F(Background, AReadOnlyDescriptorGetsNoThread)
{
    Mapped writer(file);
    ASSERT_TRUE(writer);
    ASSERT_EQ(in_child([&] {
                  const Fd fd(file, O_RDONLY);
                  const ato_options o = in_background();
                  const Threads own = threads();
                  const void *const map = ato_mmap_opt(SIZE, fd, 0, &o);
                  return map != MAP_FAILED && comes_true([&] { return threads() == own; }) ? 0 : 1;
              }),
              0);
}

} // namespace
