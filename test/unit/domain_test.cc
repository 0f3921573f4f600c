// SPDX-License-Identifier: BSD-3-Clause
//
// Which durability domain does a file get? Names, the weaker of two, and what media offer.
#include "support/temp.h"

extern "C" {
#include "reflection/media/domain.h"
#include "reflection/media/report.h"
}

#include <gtest/gtest.h>

#include <cerrno>

#include <sys/mman.h>

using namespace support;

namespace
{

TEST(Domain, NamesAndNumbersMatch)
{
    EXPECT_STREQ(domain_name(PERSIST_PMEM), "pmem");
    EXPECT_STREQ(domain_name(PERSIST_EADR), "eadr");
    EXPECT_STREQ(domain_name(PERSIST_DISK), "disk");
    EXPECT_STREQ(domain_name(PERSIST_PROCESS), "process");
    EXPECT_EQ(domain_name(5), nullptr);
    EXPECT_EQ(domain_name(-1), nullptr);
    for (int d = PERSIST_PMEM; d <= PERSIST_PROCESS; d++)
        EXPECT_EQ(domain_from_name(domain_name(d)), d);
}

TEST(Domain, NoNameMeansDetectionAndAnUnknownNameIsEinval)
{
    EXPECT_EQ(domain_from_name(nullptr), PERSIST_AUTO);
    EXPECT_EQ(domain_from_name(""), PERSIST_AUTO);
    for (const char *bad : {"PMEM", "pmem ", "auto", "msync", "p"}) {
        EXPECT_EQ(domain_from_name(bad), -1) << bad;
        EXPECT_EQ(errno, EINVAL);
        EXPECT_NE(std::string(report_sentence()).find(bad), std::string::npos);
    }
}

TEST(Domain, WeakerOfTwoIsTheDomainThatPromisesLess)
{
    const persist_domain strong_to_weak[] = {PERSIST_PMEM, PERSIST_EADR, PERSIST_DISK,
                                             PERSIST_PROCESS};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            persist_domain expected = strong_to_weak[i > k ? i : k];
            // pmem and eadr promise the same; pmem's protocol is right for both, eadr's is not.
            if (i < 2 && k < 2)
                expected = i == 1 && k == 1 ? PERSIST_EADR : PERSIST_PMEM;
            EXPECT_EQ(domain_weaker(strong_to_weak[i], strong_to_weak[k]), expected)
                << i << " and " << k;
        }
}

TEST(Domain, OfTmpfsIsProcess)
{
    TempDir dir;
    write_file(dir / "file", Bytes(4096));
    Fd fd(dir / "file");
    EXPECT_EQ(domain_of(fd), PERSIST_PROCESS);
}

TEST(Domain, OfADiskIsDisk)
{
    std::string disk = disk_folder();
    if (disk.empty())
        GTEST_SKIP() << "no folder on a disk";
    TempDir dir(disk);
    write_file(dir / "file", Bytes(4096));
    Fd fd(dir / "file");
    void *dax = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | 0x80000, fd, 0);
    if (dax != MAP_FAILED) {
        munmap(dax, 4096);
        GTEST_SKIP() << disk << " is on persistent memory";
    }
    EXPECT_EQ(domain_of(fd), PERSIST_DISK);
}

TEST(Domain, EveryDomainMapsAFileOnTmpfs)
{
    TempDir dir;
    write_file(dir / "file", Bytes(8192, 7));
    Fd fd(dir / "file");
    for (persist_domain d : {PERSIST_PMEM, PERSIST_EADR, PERSIST_DISK, PERSIST_PROCESS}) {
        void *at = domain_map(d, nullptr, 8192, PROT_READ | PROT_WRITE, fd, 0);
        ASSERT_NE(at, MAP_FAILED);
        EXPECT_EQ(static_cast<char *>(at)[8191], 7);
        void *again = domain_map(d, at, 4096, PROT_READ, fd, 4096); // in its place
        EXPECT_EQ(again, at);
        munmap(at, 8192);
    }
    void *memory = domain_map(PERSIST_DISK, nullptr, 4096, PROT_READ, -1, 0); // no file's
    ASSERT_NE(memory, MAP_FAILED);
    EXPECT_EQ(*static_cast<char *>(memory), 0);
    munmap(memory, 4096);
    EXPECT_EQ(domain_map(PERSIST_PMEM, nullptr, 4096, PROT_READ, 1000, 0), MAP_FAILED);
    EXPECT_EQ(errno, EBADF);
}

} // namespace
