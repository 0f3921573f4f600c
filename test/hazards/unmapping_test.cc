// SPDX-License-Identifier: BSD-3-Clause
//
// A thread unmaps a mapping during another thread's call on it. The library cannot prevent that; a build with
// assertions reports it, another one may crash or go on.
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

// In the middle of a call: another thread unmaps.
[[maybe_unused]] void unmap_it(enum seam_point point, const void *)
{
    if (point != SEAM_RESERVED && point != SEAM_VERSION)
        return;
    seam_hook = nullptr;
    std::thread([] { victim.refused = victim.m->unmap(ATO_UNMAP_FAST) < 0; }).join();
}

TEST(Unmapping, DuringACallOfAnotherThreadFailsAnAssertion)
{
    TempDir dir;
    std::string file = dir / "file";
    write_file(file, pattern(SIZE, 1));
    EXPECT_EQ(naive([&] {
                  char *at = plain_map(file, SIZE);
                  std::thread([&] { munmap(at, SIZE); }).join();
                  memset(at, 0, 10); // in the middle of this call
                  return 0;
              }),
              died_of(SIGSEGV));
#ifdef NDEBUG
    GTEST_SKIP() << "a build without assertions";
#else
    for (const char *call : {"write", "read", "memset", "deploy"}) {
        SCOPED_TRACE(call);
        EXPECT_EQ(naive([&] {
                      Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
                      if (!m)
                          return 1;
                      if (!strcmp(call, "deploy") && !m.write(100, pattern(100, 2)))
                          return 1;
                      victim.m = &m;
                      seam_hook = unmap_it;
                      if (!strcmp(call, "write"))
                          m.write(100, pattern(100, 2));
                      else if (!strcmp(call, "read"))
                          m.read(0, 100);
                      else if (!strcmp(call, "memset"))
                          ato_memset(m.base, 0, 100);
                      else
                          ato_deploy(m.base, SIZE);
                      return 0;
                  }),
                  died_of(SIGABRT));
        write_file(file, pattern(SIZE, 1));
    }
    // An unmap after the call is no error.
    Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(100, pattern(100, 2)));
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
#endif
}

// A transaction, even one within a call, keeps the mapping.
TEST(Unmapping, DuringAChangeOfSizeOrACopyIsRefused)
{
    TempDir dir;
    std::string file = dir / "file";
    write_file(file, pattern(SIZE, 1));
    Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    victim.m = &m;
    for (bool copies : {false, true}) {
        victim.refused = false;
        seam_hook = unmap_it;
        if (copies)
            EXPECT_NE(ato_memcpy(m.base, m.base + 500, 100), nullptr) << ato_errormsg();
        else
            EXPECT_EQ(ato_ftruncate(m.base, SIZE + 1), 0) << ato_errormsg();
        EXPECT_TRUE(victim.refused);
        EXPECT_EQ(m.error, EBUSY);
    }
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
}

} // namespace
