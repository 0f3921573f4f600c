// SPDX-License-Identifier: BSD-3-Clause
//
// What if the disk is full, in the reflection or in a hole of the original? ENOSPC before anything
// happened, nothing changed, the next try works; never a signal.
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 20 * 4096;

class Space : public testing::Test
{
  protected:
    Space() : path(dir / "file"), content(pattern(SIZE, 1))
    {
        write_file(path, content);
    }

    TempDir dir;
    std::string path;
    Bytes content;
};

TEST_F(Space, WriteWithoutSpaceIsEnospcChangesNothingAndWorksLater)
{
    for (size_t n : {size_t(10), size_t(4096), SIZE}) {
        for (long k = 0;; k++) {
            SCOPED_TRACE(std::to_string(n) + " bytes, no allocation after " + std::to_string(k));
            TempDir own;
            std::string p = own / "file";
            write_file(p, content);
            Mapped m(p, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            ASSERT_TRUE(m) << m.sentence;
            FsFaults faults;
            long left = k;
            faults.before = [&](const FsCall &c) {
                return std::string(c.op) == "fallocate" && left-- <= 0 ? ENOSPC : GO_ON;
            };
            bool written = m.write(0, pattern(n, 2));
            if (written) {
                EXPECT_GE(k, 4); // states (2), meta page, RefPages, for many pages the journal
                break;
            }
            EXPECT_EQ(m.error, ENOSPC);
            EXPECT_NE(m.sentence, "");
            EXPECT_EQ(m.stat().slices_in_reflection, 0u);
            faults.before = nullptr;
            EXPECT_EQ(m.read(), content);
            EXPECT_TRUE(m.write(0, pattern(n, 2))) << m.sentence;
            Bytes expected = content;
            std::copy_n(pattern(n, 2).begin(), n, expected.begin());
            EXPECT_EQ(m.read(), expected);
            ASSERT_FALSE(HasFailure());
        }
    }
}

TEST_F(Space, HolesOfTheOriginalGetTheirSpaceBeforeTheyAreTouched)
{
    std::string sparse = dir / "sparse";
    write_file(sparse, Bytes());
    ASSERT_EQ(truncate(sparse.c_str(), SIZE), 0);
    Mapped m(sparse);
    ASSERT_TRUE(m) << m.sentence;
    {
        FsFaults faults;
        // The states' space is there after this; the hole's is not.
        Bytes first = m.read(0, 10);
        EXPECT_EQ(first, Bytes(10));
        faults.fail_op("fallocate", ENOSPC);
        Bytes buffer(10);
        EXPECT_EQ(ato_memcpy(buffer.data(), m.base + 2 * 4096, 10), nullptr)
            << "on tmpfs even reading a hole takes space";
        EXPECT_EQ(errno, ENOSPC);
        EXPECT_NE(std::string(ato_errormsg()).find(sparse), std::string::npos) << ato_errormsg();
        EXPECT_FALSE(m.write(3 * 4096, Bytes(10, 1)));
        EXPECT_EQ(m.error, ENOSPC);
    }
    EXPECT_EQ(m.read(), Bytes(SIZE));
    EXPECT_TRUE(m.write(3 * 4096, Bytes(10, 1))) << m.sentence;
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(size_of(sparse), SIZE);
}

bool words_are_durable, said_full;
long too_early, given_back;

int scarce_fallocate(int fd, int mode, off_t offset, off_t n)
{
    if (mode & FALLOC_FL_PUNCH_HOLE) {
        given_back++;
        too_early += !words_are_durable;
    } else if (!std::exchange(said_full, true)) {
        errno = ENOSPC;
        return -1;
    }
    return fsops_real.fallocate(fd, mode, offset, n);
}

// A word that only its dead writer's memory has may be gone after a power cut; the slices that it makes invalid
// have to be there then. (Files in memory give nothing back.)
TEST_F(Space, IsGivenBackWhereTheWordsAreDurable)
{
    TempDir disk{"/tmp"};
    struct statfs fs;
    ASSERT_EQ(statfs((disk / "").c_str(), &fs), 0);
    if (fs.f_type == TMPFS_MAGIC)
        GTEST_SKIP() << "/tmp lies in memory";
    const std::string file = disk / "file";
    write_file(file, pattern(8 * 4096, 1));
    ASSERT_EQ(truncate(file.c_str(), 9 * 4096), 0);
    const ato_options wish = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM);
    EXPECT_EQ(in_child([&] {
                  Mapped m(file, wish);
                  if (!m || !m.write(4096, pattern(4096, 2)) || !m.write(8 * 4096, pattern(10, 2)))
                      return 1;
                  PersistFaults faults;
                  faults.before = [](const PersistCall &c) {
                      return std::string(c.op) == "flush_word" ? DIE : GO_ON;
                  };
                  m.write(4096, pattern(4096, 3));
                  return 2;
              }),
              CUT);
    Mapped m(file, wish);
    ASSERT_TRUE(m) << m.sentence;
    struct fsops scarce = fsops_real;
    scarce.fallocate = scarce_fallocate;
    words_are_durable = said_full = false;
    too_early = given_back = 0;
    PersistFaults faults;
    faults.before = [](const PersistCall &c) {
        words_are_durable |= std::string(c.op) == "flush_any" &&
                             std::string(c.site).find("file.c") != std::string::npos;
        return GO_ON;
    };
    fsops = &scarce;
    const int unmapped = m.unmap(ATO_UNMAP_SPATIAL);
    fsops = &fsops_real;
    EXPECT_EQ(unmapped, 0) << m.sentence;
    EXPECT_TRUE(given_back || !said_full) << "it never met a full disk";
    EXPECT_EQ(too_early, 0);
    EXPECT_EQ(read_at(file, 0, 4096), pattern(4096, 1));
    EXPECT_EQ(read_at(file, 4096, 4096), pattern(4096, 3));
    EXPECT_EQ(read_at(file, 8 * 4096, 10), pattern(10, 2));
}

// Killed before each of some calls for space, and told now and then that there is none, which is when pages that
// are home give back the space of their other one. (Files in memory never do.)
TEST_F(Space, KillsWhileSpaceIsGivenBackLoseNothing)
{
    constexpr size_t LONG = 1100 * 4096 + 1000;
    bool ended = false;
    for (long k : {1, 2, 97, 98, 300, 511, 512, 513, 700, 1024, 1030, 1100, 1110, 1000000}) {
        SCOPED_TRACE("killed before call " + std::to_string(k));
        TempDir disk{"/tmp"};
        const std::string sparse = disk / "sparse";
        write_file(sparse, Bytes());
        ASSERT_EQ(truncate(sparse.c_str(), LONG), 0);
        const Bytes expected = pattern(LONG, 2);
        const int how = in_child([&] {
            Mapped m(sparse, options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER));
            if (!m || !m.write(0, expected))
                return 1;
            FsFaults faults;
            long calls = 0;
            faults.before = [&](const FsCall &c) {
                if (std::string(c.op) != "fallocate")
                    return GO_ON;
                if (calls++ == k)
                    _exit(2);
                return calls % 97 == 1 ? ENOSPC : GO_ON;
            };
            if (m.unmap(ATO_UNMAP_SPATIAL) == 0)
                return 0;
            const bool alike = m.error == ENOSPC && m.read() == expected;
            faults.before = nullptr;
            return alike && m.write(0, expected) && m.unmap(ATO_UNMAP_SPATIAL) == 0 ? 0 : 3;
        });
        EXPECT_TRUE(how == 0 || how == 2) << how;
        ended |= how == 0;
        Mapped m(sparse);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), expected);
        EXPECT_TRUE(m.write(0, pattern(LONG, 3))) << m.sentence;
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(sparse), pattern(LONG, 3));
    }
    EXPECT_TRUE(ended);
}

TEST_F(Space, AllocatingKeepsTheFilesSize)
{
    std::string odd = dir / "odd";
    write_file(odd, Bytes());
    ASSERT_EQ(truncate(odd.c_str(), 4096 + 100), 0);
    Mapped m(odd);
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(4096, Bytes(100, 5)));
    ASSERT_EQ(ato_deploy(m.base, 4196), 0);
    EXPECT_EQ(size_of(odd), 4196u);
}

TEST_F(Space, LargeWriteAsksInFewCalls)
{
    std::string large = dir / "large";
    write_file(large, Bytes(512 * 4096));
    Mapped m(large, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    FsFaults faults;
    ASSERT_TRUE(m.write(0, Bytes(512 * 4096, 1)));
    EXPECT_LE(faults.count("fallocate"), 6) << "in batches, not one a page";
    long before = faults.count("fallocate");
    ASSERT_TRUE(m.write(0, Bytes(512 * 4096, 2))); // to O, which has space
    ASSERT_TRUE(m.write(0, Bytes(512 * 4096, 3)));
    EXPECT_EQ(faults.count("fallocate"), before) << "homes that have space are not asked for again";
}

// What is behind the end of a file is no hole: words that are gone are not zeros.
TEST_F(Space, ReflectionThatOthersCutWhileItWasMappedIsAnError)
{
    for (int domain : {ATO_DOMAIN_PROCESS, ATO_DOMAIN_MSYNC}) {
        for (off_t cut : {off_t(0), off_t(513 * 4096)}) {
            TempDir own;
            std::string large = own / "file";
            Bytes news = pattern(4096, 2);
            write_file(large, Bytes(600 * 4096, 'o'));
            {
                Mapped m(large, options(domain, ATO_READ_GATHER));
                ASSERT_TRUE(m.write(550 * 4096, news)) << m.sentence;
            }
            Mapped m(large, options(domain, ATO_READ_GATHER));
            ASSERT_TRUE(m) << m.sentence;
            off_t whole = static_cast<off_t>(size_of(reflection_of(large)));
            Bytes kept = read_file(reflection_of(large));
            ASSERT_EQ(truncate(reflection_of(large).c_str(), cut), 0);
            EXPECT_EQ(m.read(550 * 4096, 4096), Bytes());
            EXPECT_EQ(m.error, ESTALE) << m.sentence;
            EXPECT_FALSE(m.write(550 * 4096, Bytes(64, 3)));
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), -1);
            EXPECT_EQ(m.error, ESTALE) << m.sentence;
            ASSERT_EQ(truncate(reflection_of(large).c_str(), whole), 0);
            write_file(reflection_of(large), kept);
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
            EXPECT_EQ(read_at(large, 550 * 4096, 4096), news);
        }
    }
}

// On a disk, where holes may be read: the way home is made sure of before the write.
TEST_F(Space, EagerWriteThatCouldNotComeHomeIsEnospcAndChangesNothing)
{
    std::string disk = disk_folder();
    if (disk.empty())
        GTEST_SKIP() << "no folder on a disk";
    TempDir there(disk);
    std::string sparse = there / "sparse";
    write_file(sparse, Bytes());
    ASSERT_EQ(truncate(sparse.c_str(), SIZE), 0);
    Mapped m(sparse, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, Bytes(64, 1))) << m.sentence; // R has space now, O has none
    FsFaults faults;
    faults.fail_op("fallocate", ENOSPC);
    EXPECT_TRUE(m.write(64, Bytes(64, 2))) << m.sentence;
    EXPECT_FALSE(m.write(128, Bytes(64, 3), ATO_EAGER));
    EXPECT_EQ(m.error, ENOSPC) << m.sentence;
    EXPECT_EQ(m.read(128, 64), Bytes(64));
    faults.before = nullptr;
    EXPECT_TRUE(m.write(128, Bytes(64, 3), ATO_EAGER)) << m.sentence;
    EXPECT_EQ(m.stat().slices_in_reflection, 0u);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    Bytes all(64, 1);
    all.insert(all.end(), 64, 2);
    all.insert(all.end(), 64, 3);
    EXPECT_EQ(read_at(sparse, 0, 192), all);
}

// A real small file system, seen by one child alone.
TEST_F(Space, RealFullFileSystemIsEnospcAndNeverASignal)
{
    std::string mount_at = dir / "small";
    ASSERT_EQ(mkdir(mount_at.c_str(), 0755), 0);
    int status = in_child([&] {
        if (unshare(CLONE_NEWNS) < 0 ||
            mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0 ||
            mount("ato-test", mount_at.c_str(), "tmpfs", 0, "size=2m") < 0)
            return 50;
        std::string p = mount_at + "/file";
        constexpr size_t N = 300 * 4096;
        Bytes model = pattern(N, 1);
        write_file(p, model); // 1.2 MiB: the reflection of all of it does not fit
        Mapped m(p, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
        EXPECT_TRUE(m) << m.sentence;
        if (!m)
            return 1;
        long refused = 0;
        for (unsigned round = 0; round < 2; round++)
            for (size_t at = 0; at < N; at += 4096) {
                Bytes bytes = pattern(3000, static_cast<unsigned>(at + round));
                if (m.write(at + 500, bytes)) {
                    std::copy(bytes.begin(), bytes.end(),
                              model.begin() + static_cast<long>(at) + 500);
                } else {
                    EXPECT_EQ(m.error, ENOSPC) << m.sentence;
                    EXPECT_NE(m.sentence.find(p), std::string::npos) << m.sentence;
                    refused++;
                }
            }
        EXPECT_GT(refused, 50);
        EXPECT_EQ(m.read(), model);
        EXPECT_FALSE(m.write(100, pattern(N - 200, 3))); // several pages: the journal, or a page
        EXPECT_EQ(m.error, ENOSPC);
        EXPECT_EQ(m.read(), model);
        // Everything can come home, where it has space.
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(p), model);
        return static_cast<int>(HasFailure());
    });
    if (status == 50)
        GTEST_SKIP() << "cannot mount a file system here";
    EXPECT_EQ(status, 0);
}

TEST_F(Space, RealFullFileSystemRefusesToMapAndLeavesTheFileAlone)
{
    std::string mount_at = dir / "small";
    ASSERT_EQ(mkdir(mount_at.c_str(), 0755), 0);
    int status = in_child([&] {
        if (unshare(CLONE_NEWNS) < 0 ||
            mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0 ||
            mount("ato-test", mount_at.c_str(), "tmpfs", 0, "size=256k") < 0)
            return 50;
        std::string p = mount_at + "/file", ballast = mount_at + "/ballast";
        write_file(p, pattern(100000, 1));
        int fd = open(ballast.c_str(), O_CREAT | O_WRONLY, 0600);
        Bytes page(4096);
        while (write(fd, page.data(), page.size()) > 0)
            ;
        close(fd);
        {
            Mapped m(p);
            EXPECT_FALSE(m);
            EXPECT_EQ(m.error, ENOSPC) << m.sentence;
            EXPECT_NE(m.sentence, "");
        }
        EXPECT_EQ(read_file(p), pattern(100000, 1));
        unlink(ballast.c_str());
        Mapped m(p);
        EXPECT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), pattern(100000, 1));
        return static_cast<int>(HasFailure());
    });
    if (status == 50)
        GTEST_SKIP() << "cannot mount a file system here";
    EXPECT_EQ(status, 0);
}

} // namespace
