// SPDX-License-Identifier: BSD-3-Clause
//
// Is a Disk a value? Equal disks have equal hashes, copies share no change, and bytes that were cut
// off a file are gone.
#include "rules_lab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

using namespace crash;

namespace
{

TEST(DiskHash, IsTheSameForAHoleAndAPageOfZeros)
{
    Disk hole = start_disk(), zeros = start_disk(), was = start_disk();
    zeros.edit(F).set_word(PAGE, 0);
    was.edit(F).set_word(PAGE, 1);
    EXPECT_NE(was.hash(), hole.hash());
    was.edit(F).set_word(PAGE, 0);
    EXPECT_EQ(zeros.hash(), hole.hash());
    EXPECT_EQ(was.hash(), hole.hash());
}

TEST(DiskHash, IsTheSameForTheSameContentWithAnotherHistory)
{
    Disk a = start_disk(), b = start_disk();
    a.edit(F).set_word(0, 1);
    a.edit(F).set_word(PAGE, 2);
    a.edit(F).attribute = "x";
    b.edit(F).attribute = "x";
    b.edit(F).set_word(PAGE, 2);
    b.edit(F).set_word(8, 3);
    (void)b.hash();
    b.edit(F).set_word(0, 1);
    b.edit(F).set_word(8, 0);
    EXPECT_EQ(a.hash(), b.hash());
}

TEST(DiskHash, DiffersForEachKindOfDifference)
{
    std::vector<Disk> disks(14, start_disk());
    disks[1].edit(F).set_word(0, 1);
    disks[2].edit(F).set_word(0, 2);
    disks[3].edit(F).set_word(8, 1);
    disks[4].edit(F).set_word(PAGE, 1);
    disks[5].edit(G).set_word(0, 1);
    disks[6].edit(F).size--;
    disks[7].edit(F).attribute = "x";
    disks[8].edit(F).mtime = {1, 0};
    disks[9].edit(F).mtime = {0, 1};
    disks[10].edit(Disk::ROOT).names.erase("g");
    disks[11].edit(Disk::ROOT).names["h"] = G;
    disks[12].edit(D).names["h"] = F;
    disks[13].edit(D).folder = false;
    std::set<uint64_t> hashes;
    for (const Disk &disk : disks)
        hashes.insert(disk.hash());
    EXPECT_EQ(hashes.size(), disks.size());
}

TEST(DiskHash, IgnoresInodesWithoutAName)
{
    Disk disk = start_disk(), other = start_disk();
    Inode orphan;
    orphan.attribute = "x";
    other.add(orphan);
    EXPECT_EQ(disk.hash(), other.hash());
}

TEST(DiskCopies, DoNotShareChanges)
{
    Disk first = start_disk();
    first.edit(F).set_word(0, 1);
    Disk second = first;
    uint64_t hash = first.hash();
    second.edit(F).set_word(0, 2);
    second.edit(F).attribute = "x";
    second.edit(Disk::ROOT).names.erase("g");
    second.add(Inode());
    EXPECT_EQ(tell(first), "0=1");
    EXPECT_EQ(first.hash(), hash);
    EXPECT_EQ(first.count(), 4u);
    Disk third = second;
    first.edit(F).set_word(8, 3);
    third.edit(F).resize(0);
    EXPECT_EQ(tell(second), "-g 0=2 attr=x");
    EXPECT_EQ(tell(first), "0=1 8=3");
}

TEST(DiskResize, BytesThatWereCutOffReadAsZeros)
{
    constexpr unsigned char FULL = 0xff;
    for (uint64_t cut : {0, 1, 7, 8, 9, 4088, 4089, 4095, 4096, 4097, 5000, 8191, 8192, 12287}) {
        SCOPED_TRACE(cut);
        Inode file;
        file.size = 3 * PAGE;
        for (uint64_t at = 0; at < file.size; at += 8)
            file.set_word(at, ~0ull);
        const Inode before = file;
        file.resize(cut);
        EXPECT_EQ(file.size, cut);
        EXPECT_EQ(file.content(), Bytes(cut, FULL));
        file.resize(3 * PAGE);
        Bytes expected(3 * PAGE);
        std::fill_n(expected.begin(), cut, FULL);
        EXPECT_EQ(file.content(), expected);
        EXPECT_EQ(before.content(), Bytes(3 * PAGE, FULL));
    }
}

TEST(DiskRead, GoesOverPagesAndHoles)
{
    Inode file;
    file.size = 3 * PAGE;
    file.set_word(0, 0x0807060504030201ull);
    file.set_word(2 * PAGE, 0x1817161514131211ull);
    Bytes bytes(2 * PAGE);
    file.read(3, bytes.data(), bytes.size());
    Bytes expected(2 * PAGE);
    for (unsigned char i = 0; i < 5; i++)
        expected[i] = static_cast<unsigned char>(4 + i);
    for (unsigned char i = 0; i < 3; i++)
        expected[2 * PAGE - 3 + i] = static_cast<unsigned char>(0x11 + i);
    EXPECT_EQ(bytes, expected);
    EXPECT_EQ(file.word(PAGE), 0u);
}

} // namespace
