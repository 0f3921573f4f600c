// SPDX-License-Identifier: BSD-3-Clause
//
// A mapped file whose calls through `persist` are counted: for the tests of what operations cost.
#ifndef ATO_TEST_UNIT_PERSIST_COUNTS_LAB_H
#define ATO_TEST_UNIT_PERSIST_COUNTS_LAB_H

#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <memory>

namespace persist_counts
{

using namespace support;

constexpr size_t SIZE = 64 * 4096;

class PersistCountsTest : public testing::Test
{
  protected:
    void SetUp() override
    {
        DENSE_ONLY("counts calls of a dense reflection");
    }

    PersistCountsTest() : path(dir / "file")
    {
        write_file(path, pattern(SIZE, 1));
    }

    // Maps and touches everything once, so that only the operation's own calls are counted.
    Mapped &map(int domain, int policy = ATO_READ_GATHER, unsigned flags = ATO_NO_RTM)
    {
        m = std::make_unique<Mapped>(path, options(domain, policy, flags));
        EXPECT_TRUE(*m) << m->sentence;
        EXPECT_EQ(m->read(), pattern(SIZE, 1));
        if (flags & ATO_NO_RTM) {
            EXPECT_TRUE(m->write(0, pattern(3 * 4096, 1))) << m->sentence; // makes the journal
            EXPECT_EQ(ato_deploy(m->base, SIZE), 0);
        }
        faults.take();
        return *m;
    }

    // A process maps the file, and ends without an unmap.
    void die_mapped(int domain)
    {
        ASSERT_EQ(in_child([&] {
                      Mapped dies(path, options(domain));
                      dies.base = nullptr;
                      return 0;
                  }),
                  0);
    }

    TempDir dir;
    std::string path;
    PersistFaults faults;
    std::unique_ptr<Mapped> m;
};

inline PersistCounts counts(void (*set)(PersistCounts &))
{
    PersistCounts c;
    set(c);
    return c;
}

class PersistCountsOfCached : public PersistCountsTest, public testing::WithParamInterface<int>
{
};

} // namespace persist_counts

#endif
