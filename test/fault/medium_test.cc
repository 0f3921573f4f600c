// SPDX-License-Identifier: BSD-3-Clause
//
// What if msync() really fails? The disk is thin: an ext4 on a loop device whose file lies on a tmpfs
// that is full, so that what was never written cannot be: the kernel's own write-back says EIO. When
// there is space again the medium is healed. From the first error on each call says EIO; after unmap and
// map all that was acknowledged is there, and the write in doubt wholly or not at all.
//
// Tried for this: device-mapper (error, flakey, dust) and nbd, which the kernels of many containers do
// not have (no /dev/mapper, no /dev/nbd0), nor a null block device or fault injection; FUSE, where a file
// system would have to be written that can mmap. A loop device needs root alone. Blocks of a page, as the
// file system below has: a loop device takes a short write for a whole one. Where loop devices cannot be
// had this is skipped; the same by the injector, at every msync and fsync, is in sweep_test.cc.
#include "hazards/lab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace hazards;

namespace
{

constexpr size_t PAGES = 40, SIZE = PAGES * 4096;

struct Write {
    size_t at, n;
};

// Of one page and of several, so that data, words and journal meet the error.
Write nth(unsigned i)
{
    static const size_t lengths[] = {64, 4096, 700, 9000};
    size_t n = lengths[i % 4];
    return {(i * 7919 * 64) % (SIZE - n), n};
}

struct Thin {
    TempDir dir{"/tmp"};
    const std::string pool = dir / "pool", disk = dir / "disk";
    const std::string file = disk + "/file", ballast = pool + "/ballast";

    bool mounted()
    {
        return alone() && mount_memory(pool, "size=40m") &&
               mount_disk(pool + "/image", disk, 128, "-b 4096 -O ^has_journal");
    }
    void leave(off_t pages)
    {
        Fd image(disk, O_RDONLY);
        syncfs(image);
        fill(ballast);
        ASSERT_EQ(truncate(ballast.c_str(), static_cast<off_t>(size_of(ballast)) - pages * 4096),
                  0);
    }
    // What failed while somebody's sync() wrote it, nobody was told: the kernel keeps such an error for the
    // next who opens the file. It is heard here, so that who maps anew hears of what fails then alone.
    void heal()
    {
        ASSERT_EQ(unlink(ballast.c_str()), 0);
        for (auto &entry : std::filesystem::recursive_directory_iterator(disk))
            if (entry.is_regular_file())
                fsync(Fd(entry.path()));
    }
};

void expect_eio(Mapped &m)
{
    char byte = 0;
    EXPECT_FALSE(m.write(0, Bytes(64, 1)));
    EXPECT_EQ(m.error, EIO) << m.sentence;
    EXPECT_TRUE(m.read(0, 64).empty());
    EXPECT_EQ(m.error, EIO) << m.sentence;
    EXPECT_EQ(ato_deploy(m.base, SIZE), -1);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(ato_msync(m.base, SIZE, MS_SYNC), -1);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(ato_ftruncate(m.base, SIZE + 5000), -1);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(ato_memcpy(m.base, &byte, 1), nullptr);
    EXPECT_EQ(errno, EIO);
}

// Writes until the medium fails. True if it did.
bool write_until_it_fails(Mapped &m, Bytes *acknowledged, Bytes *doubtful)
{
    for (unsigned i = 0; i < 60; i++) {
        Write w = nth(i);
        Bytes bytes = pattern(w.n, i + 10);
        *doubtful = over(*acknowledged, w.at, bytes);
        if (!m.write(w.at, bytes))
            return true;
        *acknowledged = *doubtful;
    }
    return false;
}

// With a journal that is there already, or one that is made when the disk is short of space: what such a
// one has in it nobody relies on yet, so that what the kernel says of it (ENOSPC, of late) harms nothing.
void fail_and_heal(Thin &t, off_t pages, bool journal, long *failures)
{
    SCOPED_TRACE(std::to_string(pages) + " pages fit on the disk yet");
    Bytes acknowledged = pattern(SIZE, 1), doubtful;
    write_file(t.file, acknowledged);
    {
        Fd fd(t.file);
        ASSERT_EQ(fsync(fd), 0);
    }
    Mapped m(t.file, options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM));
    ASSERT_TRUE(m) << m.sentence;
    if (journal) {
        ASSERT_TRUE(m.write(100, pattern(9000, 4))) << m.sentence;
        acknowledged = over(acknowledged, 100, pattern(9000, 4));
    }
    t.leave(pages);
    bool failed = write_until_it_fails(m, &acknowledged, &doubtful);
    bool poisoned = ato_msync(m.base, SIZE, MS_SYNC) < 0;
    *failures += failed;
    if (failed) {
        EXPECT_TRUE(m.error == EIO || (m.error == ENOSPC && !journal && !poisoned)) << m.sentence;
        EXPECT_TRUE(has(m.sentence, t.disk)) << m.sentence;
    }
    if (poisoned)
        expect_eio(m);
    t.heal();
    if (poisoned)
        expect_eio(m); // what the kernel has forgotten it does not tell again
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    Mapped again(t.file, options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM));
    ASSERT_TRUE(again) << again.sentence;
    Bytes now = again.read();
    EXPECT_TRUE(now == acknowledged || (failed && now == doubtful)) << "lost or torn";
    EXPECT_TRUE(again.write(100, pattern(9000, 3))) << again.sentence;
    EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
    EXPECT_TRUE(read_file(t.file) == over(now, 100, pattern(9000, 3)));
    EXPECT_TRUE(names_in(folder_of(t.file)).empty());
    EXPECT_EQ(unlink(t.file.c_str()), 0);
}

// Room for more and more of what is written: the error comes later and later.
TEST(ThinDisk, WhatWasAcknowledgedOutlivesMsyncThatFails)
{
    EXPECT_PLAYED(in_child([] {
        Thin probe;
        if (!probe.mounted())
            return NO_SCENE;
        long failures = 0;
        for (bool journal : {false, true})
            for (off_t pages : {0, 1, 2, 3, 5, 8, 13, 21, 34, 55}) {
                int status = in_child([&] { // a disk of its own, on which nothing was ever written
                    Thin t;
                    if (!t.mounted())
                        return NO_SCENE;
                    long here = 0;
                    fail_and_heal(t, pages, journal, &here);
                    return testing::Test::HasFailure() ? 1 : here ? 0 : 2;
                });
                EXPECT_TRUE(status == 0 || status == 2) << pages << " pages: status " << status;
                failures += status == 0;
            }
        std::cout << failures << " disks failed" << std::endl;
        EXPECT_GE(failures, 12) << "the medium does not fail here";
        return static_cast<int>(testing::Test::HasFailure());
    }));
}

} // namespace
