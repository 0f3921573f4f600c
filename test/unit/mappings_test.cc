// SPDX-License-Identifier: BSD-3-Clause
//
// Do several mappings of one file in one process show the same content? They share one reflection
// and one set of page states, with any ranges, policies and descriptors.
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 8 * 4096;

class Mappings : public testing::Test
{
  protected:
    Mappings() : path(dir / "file"), content(pattern(SIZE, 1))
    {
        write_file(path, content);
    }

    TempDir dir;
    std::string path;
    Bytes content;
};

TEST_F(Mappings, SeeEachOthersWritesAtOnce)
{
    Mapped whole(path), part(path, options(), 10000, 2 * 4096), tail(path, options(), 0, 7 * 4096);
    ASSERT_TRUE(whole && part && tail);
    Bytes a = pattern(9000, 2), b = pattern(5000, 3), c = pattern(4096, 4);
    ASSERT_TRUE(part.write(1000, a));
    EXPECT_EQ(whole.read(2 * 4096 + 1000, 9000), a);
    ASSERT_TRUE(whole.write(2 * 4096 + 4000, b));
    EXPECT_EQ(part.read(4000, 5000), b);
    ASSERT_TRUE(tail.write(0, c));
    EXPECT_EQ(whole.read(7 * 4096, 4096), c);
    EXPECT_EQ(tail.length, 4096u);
    ASSERT_EQ(ato_deploy(whole.base, SIZE), 0);
    EXPECT_EQ(memcmp(part.base + 4000, b.data(), 5000), 0); // plain loads through another view
}

TEST_F(Mappings, OfTwoHardLinksOfAFileShareItsContent)
{
    ASSERT_EQ(link(path.c_str(), (dir / "twin").c_str()), 0);
    Mapped a(path), b(dir / "twin");
    ASSERT_TRUE(a && b);
    ASSERT_TRUE(a.write(5, pattern(7000, 2)));
    EXPECT_EQ(b.read(5, 7000), pattern(7000, 2));
}

TEST_F(Mappings, KeepTheirOwnPolicy)
{
    Mapped gather(path, options(0, ATO_READ_GATHER)), lazy(path, options(0, ATO_READ_LAZY));
    ASSERT_TRUE(gather && lazy);
    ASSERT_TRUE(gather.write(0, pattern(64, 2)));
    EXPECT_EQ(gather.read(0, 64), pattern(64, 2));
    EXPECT_EQ(gather.stat().slices_in_reflection, 1u);
    EXPECT_EQ(lazy.read(0, 64), pattern(64, 2));
    EXPECT_EQ(gather.stat().slices_in_reflection, 0u);
}

TEST_F(Mappings, ChangeTheirPolicyOnRequest)
{
    Mapped m(path, options(0, ATO_READ_GATHER)), other(path, options(0, ATO_READ_GATHER));
    ASSERT_TRUE(m && other);
    auto away = [&] { return m.stat().slices_in_reflection; };
    ASSERT_TRUE(m.write(0, pattern(128, 2)));
    ASSERT_EQ(ato_set_read_policy(m.base + 5000, ATO_READ_LAZY), 0) << ato_errormsg();
    EXPECT_EQ(m.stat().read_policy, ATO_READ_LAZY);
    EXPECT_EQ(other.stat().read_policy, ATO_READ_GATHER);
    EXPECT_EQ(away(), 2u); // the call itself deploys nothing
    EXPECT_EQ(m.read(0, 128), pattern(128, 2));
    EXPECT_EQ(away(), 0u);
    ASSERT_EQ(ato_set_read_policy(m.base, ATO_READ_EAGER), 0) << ato_errormsg();
    ASSERT_TRUE(m.write(100, pattern(5000, 3)));
    EXPECT_EQ(away(), 0u);
    ASSERT_EQ(ato_set_read_policy(m.base, ATO_READ_GATHER), 0) << ato_errormsg();
    ASSERT_TRUE(m.write(100, pattern(5000, 4)));
    EXPECT_EQ(m.read(100, 5000), pattern(5000, 4));
    EXPECT_GT(away(), 0u);
}

TEST_F(Mappings, KeepTheirPolicyIfTheNewOneIsRefused)
{
    Mapped m(path, options(0, ATO_READ_EAGER));
    Fd fd(path, O_RDONLY);
    void *view = ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_TRUE(m && view != MAP_FAILED) << ato_errormsg();
    auto refused = [](void *addr, int policy, int err) {
        EXPECT_EQ(ato_set_read_policy(addr, policy), -1);
        EXPECT_EQ(errno, err) << ato_errormsg();
    };
    refused(m.base, -1, EINVAL);
    refused(m.base, ATO_READ_EAGER + 1, EINVAL);
    refused(&m, ATO_READ_LAZY, EINVAL);
    for (int policy : {ATO_READ_LAZY, ATO_READ_EAGER})
        refused(view, policy, EACCES);
    refused(view, 7, EINVAL);
    EXPECT_EQ(ato_set_read_policy(view, ATO_READ_GATHER), 0) << ato_errormsg();
    EXPECT_EQ(m.stat().read_policy, ATO_READ_EAGER);
    EXPECT_EQ(ato_munmap(view, SIZE, ATO_UNMAP_FAST), 0) << ato_errormsg();
}

// One thread changes the policy, others read and write: each read has the bytes of one write.
TEST_F(Mappings, ChangeTheirPolicyWhileTheyAreUsed)
{
    Mapped m(path), e(path, options(0, ATO_READ_LAZY, ATO_EPOCHS));
    ASSERT_TRUE(m && e);
    ASSERT_NE(ato_memset(m.base, 1, SIZE), nullptr) << ato_errormsg();
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (size_t n : {size_t{100}, size_t{9000}})
        threads.emplace_back([&, n] {
            Bytes seen(n);
            while (!over) {
                ASSERT_NE(ato_memcpy(seen.data(), m.base + 4000, n), nullptr) << ato_errormsg();
                ASSERT_EQ(seen, Bytes(n, seen[0]));
            }
        });
    threads.emplace_back([&] {
        for (int i = 0; !over; i++) {
            ASSERT_NE(ato_memset(m.base + 4000, i % 200, 9000), nullptr) << ato_errormsg();
            ASSERT_NE(ato_memset(e.base + 5 * 4096, i % 200, 900), nullptr) << ato_errormsg();
            ASSERT_EQ(ato_msync(e.base, SIZE, MS_SYNC), 0) << ato_errormsg();
        }
    });
    for (int i = 0; i < 20000; i++) {
        ASSERT_EQ(ato_set_read_policy(m.base, ATO_READ_LAZY + i % 3), 0) << ato_errormsg();
        ASSERT_EQ(ato_set_read_policy(e.base, ATO_READ_LAZY + i / 3 % 3), 0) << ato_errormsg();
        if (i % 100 == 0)
            std::this_thread::yield();
    }
    over = true;
    for (std::thread &thread : threads)
        thread.join();
}

TEST_F(Mappings, CopyFromOneToTheOtherIsACopyWithinTheFile)
{
    Mapped a(path), b(path, options(), 0, 4096);
    ASSERT_TRUE(a && b);
    ASSERT_NE(ato_memcpy(a.base + 100, b.base + 50, 9000), nullptr);
    memmove(&content[100], &content[4096 + 50], 9000);
    EXPECT_EQ(a.read(), content);
    ASSERT_NE(ato_memcpy(b.base, a.base + 4000, 9000), nullptr); // overlapping in the file
    memmove(&content[4096], &content[4000], 9000);
    EXPECT_EQ(a.read(), content);
}

TEST_F(Mappings, WithAnotherDomainAreExdev)
{
    Mapped a(path, options(ATO_DOMAIN_DISK));
    ASSERT_TRUE(a);
    const std::pair<int, const char *> others[] = {
        {ATO_DOMAIN_PMEM, "pmem"}, {ATO_DOMAIN_EADR, "eadr"}, {ATO_DOMAIN_PROCESS, "process"}};
    for (const auto &[domain, name] : others) {
        Mapped other(path, options(domain));
        EXPECT_FALSE(other);
        EXPECT_EQ(other.error, EXDEV);
        for (const std::string &part : {path, std::string("disk"), std::string(name)})
            EXPECT_NE(other.sentence.find(part), std::string::npos) << other.sentence;
    }
    Mapped same(path, options(ATO_DOMAIN_DISK)), any(path);
    EXPECT_TRUE(same) << same.sentence;
    EXPECT_TRUE(any) << any.sentence;
    EXPECT_EQ(any.stat().domain, ATO_DOMAIN_DISK);
}

TEST_F(Mappings, BeyondTheLargestSizeOfTheFirstAreEfbig)
{
    Mapped a(path);
    ASSERT_TRUE(a);
    Mapped beyond(path, options(), (1ull << 30) + 4096);
    EXPECT_FALSE(beyond);
    EXPECT_EQ(beyond.error, EFBIG) << beyond.sentence;
    EXPECT_NE(beyond.sentence.find(path), std::string::npos);
    Mapped fits(path, options(), 1ull << 30);
    EXPECT_TRUE(fits) << fits.sentence;
}

TEST_F(Mappings, StayAfterAnUnmapOfAnotherInEitherMode)
{
    Mapped a(path), b(path), c(path);
    ASSERT_TRUE(a && b && c);
    ASSERT_TRUE(a.write(0, pattern(SIZE, 2)));
    EXPECT_EQ(a.unmap(ATO_UNMAP_SPATIAL), 0); // other mappings stay: only detaches
    EXPECT_TRUE(exists(reflection_of(path)));
    EXPECT_EQ(b.read(), pattern(SIZE, 2));
    EXPECT_EQ(b.unmap(ATO_UNMAP_FAST), 0);
    EXPECT_EQ(c.read(), pattern(SIZE, 2));
    EXPECT_EQ(c.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(read_file(path), pattern(SIZE, 2));
    EXPECT_EQ(names_in(folder_of(path)), std::vector<std::string>());
}

TEST_F(Mappings, LastPartialMappingMakesTheWholeFilePlain)
{
    Mapped whole(path), part(path, options(), 4096, 4096);
    ASSERT_TRUE(whole && part);
    ASSERT_TRUE(whole.write(0, pattern(SIZE, 2)));
    EXPECT_EQ(whole.unmap(ATO_UNMAP_FAST), 0);
    EXPECT_EQ(part.unmap(ATO_UNMAP_SPATIAL), 0) << part.sentence;
    EXPECT_EQ(read_file(path), pattern(SIZE, 2));
}

TEST_F(Mappings, LastReadOnlyMappingMakesTheFilePlain)
{
    Fd fd(path, O_RDONLY);
    Mapped writer(path);
    ASSERT_TRUE(writer);
    void *reader = ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(reader, MAP_FAILED) << ato_errormsg();
    ASSERT_TRUE(writer.write(0, pattern(SIZE, 2)));
    EXPECT_EQ(writer.unmap(ATO_UNMAP_FAST), 0);
    EXPECT_EQ(ato_munmap(reader, SIZE, ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
    EXPECT_EQ(read_file(path), pattern(SIZE, 2));
}

TEST_F(Mappings, OfTwoFilesShareOnlyTheFolder)
{
    write_file(dir / "other", content);
    Mapped a(path), b(dir / "other");
    ASSERT_TRUE(a && b);
    ASSERT_TRUE(a.write(0, pattern(SIZE, 2)));
    EXPECT_EQ(b.read(), content);
    EXPECT_EQ(a.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_TRUE(b.write(0, pattern(SIZE, 3)));
    EXPECT_EQ(b.read(), pattern(SIZE, 3));
    EXPECT_EQ(names_in(folder_of(path)).size(), 2u);
}

// A snapshot of a file system has the same file with the same id: two images of one small disk.
TEST_F(Mappings, OfAFileAndOfItsImageInASnapshotAreEbusy)
{
    TempDir lab("/tmp");
    auto run = [&](const std::string &command) {
        return system(("cd " + lab.path() + " && (" + command + ") >/dev/null 2>&1").c_str()) == 0;
    };
    int status = in_child([&] {
        if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
            !run("mount --make-rprivate / && mkdir a b && truncate -s 16M disk && "
                 "mkfs.ext4 -q -F disk && mount -o loop disk a && dd if=/dev/zero of=a/file bs=8k "
                 "count=1"))
            return 50;
        {
            Mapped m(lab / "a/file");
            EXPECT_TRUE(m) << m.sentence;
            EXPECT_TRUE(m.write(0, pattern(5000, 2))) << m.sentence;
        }
        if (!run("umount a && cp disk image && mount -o loop disk a && mount -o loop image b"))
            return 50;
        Mapped a(lab / "a/file");
        EXPECT_TRUE(a) << a.sentence;
        Mapped b(lab / "b/file");
        EXPECT_FALSE(b);
        EXPECT_EQ(b.error, EBUSY) << b.sentence;
        EXPECT_NE(b.sentence.find("image"), std::string::npos) << b.sentence;
        EXPECT_EQ(a.read(0, 5000), pattern(5000, 2));
        EXPECT_EQ(a.unmap(ATO_UNMAP_FAST), 0);
        Mapped alone(lab / "b/file");
        EXPECT_TRUE(alone) << alone.sentence;
        EXPECT_EQ(alone.read(0, 5000), pattern(5000, 2));
        EXPECT_EQ(alone.unmap(ATO_UNMAP_FAST), 0);
        run("umount a b");
        return static_cast<int>(HasFailure());
    });
    if (status == 50)
        GTEST_SKIP() << "cannot mount a disk image here";
    EXPECT_EQ(status, 0);
}

TEST_F(Mappings, ManyAreFoundByTheirAddresses)
{
    std::vector<std::unique_ptr<Mapped>> all;
    for (unsigned i = 0; i < 40; i++) {
        std::string p = dir / ("f" + std::to_string(i));
        write_file(p, pattern(4096, i));
        all.push_back(std::make_unique<Mapped>(p));
        ASSERT_TRUE(*all.back()) << all.back()->sentence;
    }
    for (unsigned i = 0; i < 40; i++)
        EXPECT_EQ(all[i]->read(), pattern(4096, i));
    for (unsigned i = 0; i < 40; i += 2)
        EXPECT_EQ(all[i]->unmap(ATO_UNMAP_FAST), 0);
    for (unsigned i = 1; i < 40; i += 2)
        EXPECT_EQ(all[i]->read(), pattern(4096, i));
}

} // namespace
