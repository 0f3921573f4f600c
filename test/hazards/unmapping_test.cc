// SPDX-License-Identifier: BSD-3-Clause
//
// A thread unmaps what another one is in a call on. No library can mend that; one with assertions
// says so, where a plain one dies of something else, or does not die.
#include "lab.h"

extern "C" {
#include "reflection/media/seam.h"
}

#include <cstring>
#include <thread>

#include <sys/mman.h>

using namespace hazards;

namespace
{

constexpr size_t SIZE = 4096;

struct Victim {
    Mapped *m;
    bool refused;
} victim;

// In the middle of a call: the other thread does its worst.
[[maybe_unused]] void unmap_it(enum seam_point point, const void *)
{
    if (point != SEAM_RESERVED && point != SEAM_VERSION)
        return;
    seam_hook = nullptr;
    std::thread([] { victim.refused = victim.m->unmap(ATO_UNMAP_FAST) < 0; }).join();
}

TEST(Unmapping, WhileAnotherThreadIsInACallIsSaidWhereAssertionsAre)
{
    TempDir dir;
    std::string file = dir / "file";
    write_file(file, pattern(SIZE, 1));
    EXPECT_EQ(naive([&] {
                  char *at = plain_map(file, SIZE);
                  std::thread([&] { munmap(at, SIZE); }).join();
                  memset(at, 0, 10); // it was in the middle of this
                  return 0;
              }),
              died_of(SIGSEGV));
#ifdef NDEBUG
    GTEST_SKIP() << "a build without assertions";
#else
    for (const char *call : {"write", "read", "copy", "memset", "deploy"}) {
        SCOPED_TRACE(call);
        EXPECT_EQ(naive([&] {
                      Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
                      if (!m)
                          return 1;
                      victim.m = &m;
                      seam_hook = unmap_it;
                      if (!strcmp(call, "write"))
                          m.write(100, pattern(100, 2));
                      else if (!strcmp(call, "read"))
                          m.read(0, 100);
                      else if (!strcmp(call, "copy"))
                          ato_memcpy(m.base, m.base + 500, 100);
                      else if (!strcmp(call, "memset"))
                          ato_memset(m.base, 0, 100);
                      else
                          ato_deploy(m.base, SIZE);
                      return 0;
                  }),
                  died_of(SIGABRT));
        write_file(file, pattern(SIZE, 1));
    }
    // One after the other is no error.
    Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(100, pattern(100, 2)));
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
#endif
}

// What is a transaction, even one within a call, keeps the mapping.
TEST(Unmapping, WhileAnotherThreadChangesTheSizeIsRefused)
{
    TempDir dir;
    std::string file = dir / "file";
    write_file(file, pattern(SIZE, 1));
    Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    victim.m = &m;
    seam_hook = unmap_it;
    EXPECT_EQ(ato_ftruncate(m.base, SIZE + 1), 0) << ato_errormsg();
    EXPECT_TRUE(victim.refused);
    EXPECT_EQ(m.error, EBUSY);
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
}

} // namespace
