// SPDX-License-Identifier: BSD-3-Clause
//
// What if the medium fails, or two want different promises of it? The kernel tells of a lost
// write-back once, and says 0 from then on. Here the file is EIO until it is mapped anew. And a
// file has one domain: who asks for another gets EXDEV, who misspells it EINVAL.
#include "hazards/lab.h"
#include "support/faults.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace hazards;

namespace
{

constexpr size_t SIZE = 8 * 4096;

// Every call says EIO and names the file.
void expect_poisoned(Mapped &m, const std::string &path)
{
    auto expect_said = [&] {
        EXPECT_EQ(errno, EIO);
        EXPECT_TRUE(has(ato_errormsg(), path)) << ato_errormsg();
    };
    char buffer[64] = {0};
    EXPECT_EQ(ato_memcpy(buffer, m.base, 64), nullptr);
    expect_said();
    EXPECT_EQ(ato_memcpy(m.base, buffer, 64), nullptr);
    expect_said();
    EXPECT_EQ(ato_msync(m.base, SIZE, MS_SYNC), -1) << "asked again";
    expect_said();
    EXPECT_EQ(ato_deploy(m.base, SIZE), -1);
    expect_said();
}

// An ext4 whose disk is thin: it has less space than it promised, and fails when that is gone.
// (Blocks of a page, as the file system below has: a loop device takes a short write for a whole
// one.)
TEST(Medium, MsyncFailsOnceAndThenSaysZeroOfLostBytesAndPoisonsHere)
{
    TempDir dir("/tmp");
    const std::string thin = dir / "thin", disk = dir / "disk";
    const std::string file = disk + "/file", twin = disk + "/twin", ballast = thin + "/ballast";
    EXPECT_PLAYED(in_child([&] {
        if (!alone() || !mount_memory(thin, "size=16m") ||
            !mount_disk(thin + "/image", disk, 64, "-b 4096 -O ^has_journal"))
            return NO_SCENE;
        const Bytes old = pattern(SIZE, 1), news = pattern(SIZE, 2);
        for (const std::string &p : {file, twin}) {
            write_file(p, old);
            Fd fd(p);
            fsync(fd);
        }
        // The twin's second half is new on the disk, as the reflection is.
        EXPECT_EQ(truncate(twin.c_str(), 2 * SIZE), 0);
        Mapped m(file, options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM));
        EXPECT_TRUE(m) << m.sentence;
        if (!m)
            return 1;
        Fd image(disk, O_RDONLY);
        syncfs(image);
        fill(ballast);

        char *plain = plain_map(twin, 2 * SIZE);
        std::copy(news.begin(), news.end(), plain + SIZE);
        EXPECT_EQ(msync(plain, 2 * SIZE, MS_SYNC), -1); // EIO; ENOSPC in newer kernels
        EXPECT_EQ(msync(plain, 2 * SIZE, MS_SYNC), 0) << "as if all were well";
        munmap(plain, 2 * SIZE);
        {
            Fd fd(twin);
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        }
        EXPECT_TRUE(read_at(twin, SIZE, SIZE) != news) << "lost";

        EXPECT_FALSE(m.write(100, pattern(64, 2)));
        EXPECT_EQ(m.error, EIO) << m.sentence;
        EXPECT_TRUE(has(m.sentence, file)) << m.sentence;
        expect_poisoned(m, file);
        EXPECT_EQ(unlink(ballast.c_str()), 0);
        expect_poisoned(m, file);
        EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        Mapped again(file, options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM));
        EXPECT_TRUE(again) << again.sentence;
        Bytes now = again.read();
        EXPECT_TRUE(now == old || now == over(old, 100, pattern(64, 2))) << "torn";
        EXPECT_TRUE(again.write(0, news)) << again.sentence;
        EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
        EXPECT_EQ(read_file(file), news);
        return static_cast<int>(testing::Test::HasFailure());
    }));
}

// The same without a disk: one flush fails, as the kernel lets one do.
TEST(Medium, FlushThatFailsOnceIsEioUntilTheFileIsMappedAnew)
{
    TempDir dir;
    const std::string file = dir / "file";
    const Bytes old = pattern(SIZE, 1);
    write_file(file, old);
    Mapped m(file, options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM));
    ASSERT_TRUE(m) << m.sentence;
    {
        PersistFaults faults;
        long left = 1;
        faults.before = [&](const PersistCall &c) {
            return std::string(c.op) == "flush_data" && left-- > 0 ? EIO : GO_ON;
        };
        // The naive way: asked again.
        struct persist plain;
        persist_init(&plain, PERSIST_MSYNC);
        EXPECT_EQ(persist_flush_data(&plain, m.base, 4096), -1);
        EXPECT_EQ(errno, EIO);
        EXPECT_EQ(persist_flush_data(&plain, m.base, 4096), 0) << "as if all were well";
        left = 1;
        EXPECT_FALSE(m.write(100, pattern(64, 2)));
        EXPECT_EQ(m.error, EIO) << m.sentence;
        EXPECT_TRUE(has(m.sentence, file)) << m.sentence;
        expect_poisoned(m, file);
    }
    expect_poisoned(m, file);
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    Mapped again(file, options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM));
    ASSERT_TRUE(again) << again.sentence;
    EXPECT_EQ(again.read(), old) << "its commit point was not reached";
    EXPECT_TRUE(again.write(100, pattern(64, 2))) << again.sentence;
    EXPECT_EQ(again.read(), over(old, 100, pattern(64, 2)));
}

// ---- what is promised ---------------------------------------------------------------------------

TEST(Medium, WritesOfAWeakerDomainFlushNothingAndAreExdevBesideAStronger)
{
    TempDir dir;
    const std::string file = dir / "file", twin = dir / "twin";
    const Bytes old = pattern(SIZE, 1);
    for (const std::string &p : {file, twin})
        write_file(p, old);
    Mapped naive(twin, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
    Mapped strong(file, options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER));
    ASSERT_TRUE(naive && strong);
    {
        PersistFaults faults;
        ASSERT_TRUE(strong.write(0, Bytes(64, 3)));
        EXPECT_GT(faults.take().flush_data, 0);
        ASSERT_TRUE(naive.write(0, Bytes(64, 3)));
        EXPECT_EQ(faults.counts.flush_data, 0) << "what it would do to the stronger one's file";
    }
    for (int other : {ATO_DOMAIN_PROCESS, ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR}) {
        Mapped m(file, options(other));
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EXDEV) << m.sentence;
        for (const std::string &part : {file, std::string("msync")})
            EXPECT_TRUE(has(m.sentence, part)) << m.sentence;
    }
    EXPECT_EQ(strong.stat().domain, ATO_DOMAIN_MSYNC);
    EXPECT_EQ(strong.read(), over(old, 0, Bytes(64, 3)));
    Mapped same(file, options(ATO_DOMAIN_MSYNC)), any(file);
    EXPECT_TRUE(same) << same.sentence;
    EXPECT_TRUE(any) << any.sentence;
    EXPECT_EQ(any.stat().domain, ATO_DOMAIN_MSYNC);
}

TEST(Medium, MisspelledWordWouldBeTheWeakestAndIsEinval)
{
    struct {
        const char *name, *word;
    } const wrong[] = {{"ATO_DURABILITY", "mysnc"},
                       {"ATO_DURABILITY", "MSYNC"},
                       {"ATO_DURABILITY", " msync"},
                       {"ATO_READ_POLICY", "gathre"},
                       {"ATO_RTM", "no"}};
    TempDir dir;
    const std::string file = dir / "file";
    write_file(file, pattern(SIZE, 1));
    for (const auto &w : wrong) {
        SCOPED_TRACE(w.word);
        {
            Mapped m(file); // as if the word were not there
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.stat().domain, ATO_DOMAIN_PROCESS) << "not what was meant";
            EXPECT_EQ(m.stat().read_policy, ATO_READ_LAZY);
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
        }
        Snapshot before = everything_in(dir.path());
        setenv(w.name, w.word, 1);
        Mapped m(file);
        unsetenv(w.name);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EINVAL) << m.sentence;
        EXPECT_TRUE(has(m.sentence, "'" + std::string(w.word) + "'")) << m.sentence;
        EXPECT_TRUE(has(m.sentence, w.name)) << m.sentence;
        EXPECT_EQ(attribute_of(file), "");
        EXPECT_EQ(read_file(file), pattern(SIZE, 1));
        EXPECT_EQ(everything_in(dir.path()), before);
    }
    Mapped m(file);
    EXPECT_TRUE(m) << m.sentence;
}

} // namespace
