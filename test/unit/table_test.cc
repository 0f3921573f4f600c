// SPDX-License-Identifier: BSD-3-Clause
//
// Does the table find the mapping of an address, and only that?
extern "C" {
#include "lib/file/table.h"
}

#include <gtest/gtest.h>

#include <cstring>

#include <sys/mman.h>

namespace
{

mapping *fake(uintptr_t n)
{
    return reinterpret_cast<mapping *>(n);
}

class Table : public testing::Test
{
  protected:
    char *reserve(uint64_t n, void *hint = nullptr)
    {
        return static_cast<char *>(table_reserve(hint, n));
    }
};

TEST_F(Table, ReservesWholeGibibytesOnTheirBoundary)
{
    for (uint64_t n : {1ull, 4096ull, TABLE_GRAIN, TABLE_GRAIN + 1}) {
        char *at = reserve(n);
        ASSERT_NE(at, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % TABLE_GRAIN, 0u);
        uint64_t whole = n > TABLE_GRAIN ? 2 * TABLE_GRAIN : TABLE_GRAIN;
        // All of it is reserved: no other mapping gets an address in it.
        void *inside = mmap(at + whole - 4096, 4096, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        EXPECT_EQ(inside, MAP_FAILED);
        EXPECT_EQ(munmap(at, whole), 0);
    }
}

TEST_F(Table, UsesAHintThatFitsAndIsNotTaken)
{
    void *hint = reserve(10); // free, once it is given back
    munmap(hint, TABLE_GRAIN);
    char *at = reserve(10, hint);
    EXPECT_EQ(at, hint);
    char *second = reserve(10, hint);
    ASSERT_NE(second, nullptr);
    EXPECT_NE(second, hint);
    char *odd = reserve(10, static_cast<char *>(hint) + 4096);
    ASSERT_NE(odd, nullptr);
    char *beyond = reserve(10, reinterpret_cast<void *>(~0ull & ~(TABLE_GRAIN - 1)));
    ASSERT_NE(beyond, nullptr);
    for (char *p : {at, second, odd, beyond})
        munmap(p, TABLE_GRAIN);
}

TEST_F(Table, FindsEveryAddressOfAMappingAndNoneBeside)
{
    char *at = reserve(3 * TABLE_GRAIN);
    ASSERT_NE(at, nullptr);
    EXPECT_EQ(table_find(at), nullptr);
    table_put(at, 2 * TABLE_GRAIN + 1, fake(16)); // owns the third GiB that it reaches into
    EXPECT_EQ(table_find(at), fake(16));
    EXPECT_EQ(table_find(at + TABLE_GRAIN + 12345), fake(16));
    EXPECT_EQ(table_find(at + 3 * TABLE_GRAIN - 1), fake(16));
    EXPECT_EQ(table_find(at - 1), nullptr);
    EXPECT_EQ(table_find(at + 3 * TABLE_GRAIN), nullptr);
    table_put(at, 2 * TABLE_GRAIN + 1, nullptr);
    EXPECT_EQ(table_find(at), nullptr);
    EXPECT_EQ(table_find(at + 3 * TABLE_GRAIN - 1), nullptr);
    munmap(at, 3 * TABLE_GRAIN);
}

TEST_F(Table, AnyAddressCanBeLookedUp)
{
    for (uint64_t at : {0ull, 1ull << 47, (1ull << 47) - 1, ~0ull})
        EXPECT_EQ(table_find(reinterpret_cast<void *>(at)), nullptr);
    EXPECT_FALSE(table_touches(reinterpret_cast<void *>(~0ull - 10), 5));
}

TEST_F(Table, TellsWhetherARangeTouchesAnotherMapping)
{
    char *at = reserve(4 * TABLE_GRAIN);
    ASSERT_NE(at, nullptr);
    table_put(at + TABLE_GRAIN, TABLE_GRAIN, fake(16));
    table_put(at + 2 * TABLE_GRAIN, TABLE_GRAIN, fake(32));
    EXPECT_FALSE(table_touches(at, TABLE_GRAIN));
    EXPECT_TRUE(table_touches(at, TABLE_GRAIN + 1));
    EXPECT_TRUE(table_touches(at + TABLE_GRAIN, 1));
    EXPECT_FALSE(table_touches(at + 3 * TABLE_GRAIN, 1));
    EXPECT_FALSE(table_touches(at, 0));
    table_put(at + TABLE_GRAIN, 2 * TABLE_GRAIN, nullptr);
    munmap(at, 4 * TABLE_GRAIN);
}

} // namespace
