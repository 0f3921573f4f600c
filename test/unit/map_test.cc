// SPDX-License-Identifier: BSD-3-Clause
//
// Which calls of ato_mmap() succeed, and with which error do the others fail? Arguments,
// descriptors, and the views that it returns. (Options: options_test.cc; several mappings:
// mappings_test.cc.)
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 3 * 4096 + 123;
constexpr int RW = PROT_READ | PROT_WRITE;

class Map : public testing::Test
{
  protected:
    Map() : path(dir / "file"), content(pattern(SIZE, 1))
    {
        write_file(path, content);
    }

    // The call fails with `err` and a sentence that has `words` in it; nothing is made.
    void expect_refused(int err, const std::string &words, size_t length, int prot, int flags,
                        int fd, off_t offset)
    {
        errno = 0;
        void *at = ato_mmap(nullptr, length, prot, flags, fd, offset);
        ASSERT_EQ(at, MAP_FAILED);
        EXPECT_EQ(errno, err) << ato_errormsg();
        EXPECT_NE(std::string(ato_errormsg()).find(words), std::string::npos) << ato_errormsg();
        EXPECT_STRNE(ato_errormsg(), "");
        EXPECT_FALSE(exists(dir / ".ato"));
        EXPECT_EQ(attribute_of(path), "");
    }

    void *map(int fd, size_t length = SIZE, int prot = RW, off_t offset = 0)
    {
        return ato_mmap(nullptr, length, prot, MAP_SHARED, fd, offset);
    }

    TempDir dir;
    std::string path;
    Bytes content;
};

TEST_F(Map, GivesAViewOfTheFileThatOutlivesTheDescriptor)
{
    char *at;
    {
        Fd fd(path);
        at = static_cast<char *>(map(fd));
        ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
    }
    EXPECT_EQ(memcmp(at, content.data(), SIZE), 0);
    EXPECT_NE(ato_memcpy(at, "abc", 3), nullptr) << ato_errormsg();
    char back[3];
    EXPECT_EQ(ato_memcpy(back, at, 3), back);
    EXPECT_EQ(memcmp(back, "abc", 3), 0);
    EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(memcmp(read_file(path).data(), "abc", 3), 0);
}

TEST_F(Map, AddressIsAMultipleOfAGibibyte)
{
    Mapped a(path), b(path, options(), 4096, 4096);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.base) % (1ull << 30), 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.base) % (1ull << 30), 0u);
    EXPECT_NE(a.base, b.base);
}

TEST_F(Map, AddressIsAHint)
{
    Fd fd(path);
    void *wish = map(fd); // free, once it is unmapped
    ASSERT_EQ(ato_munmap(wish, SIZE, ATO_UNMAP_FAST), 0);
    void *at = ato_mmap(wish, SIZE, RW, MAP_SHARED, fd, 0);
    EXPECT_EQ(at, wish) << "free, and on a boundary";
    void *taken = ato_mmap(wish, SIZE, RW, MAP_SHARED, fd, 0);
    EXPECT_NE(taken, MAP_FAILED) << ato_errormsg();
    EXPECT_NE(taken, wish);
    void *odd = ato_mmap(reinterpret_cast<void *>(12345), SIZE, RW, MAP_SHARED, fd, 0);
    EXPECT_NE(odd, MAP_FAILED) << ato_errormsg();
    for (void *mapping : {at, taken, odd})
        EXPECT_EQ(ato_munmap(mapping, SIZE, ATO_UNMAP_FAST), 0);
}

TEST_F(Map, FlagsOfPlainMmapThatOnlyAdviseAreAccepted)
{
    Fd fd(path);
    for (int flags :
         {MAP_SHARED, MAP_SHARED_VALIDATE, MAP_SHARED | MAP_POPULATE, MAP_SHARED | MAP_NORESERVE}) {
        void *at = ato_mmap(nullptr, SIZE, RW, flags, fd, 0);
        ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
        EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_SPATIAL), 0);
    }
}

TEST_F(Map, PrivateAnonymousAndFixedAreRefused)
{
    Fd fd(path);
    expect_refused(EINVAL, "MAP_SHARED", SIZE, RW, MAP_PRIVATE, fd, 0);
    expect_refused(EINVAL, "MAP_SHARED", SIZE, RW, 0, fd, 0);
    expect_refused(EINVAL, "flags", SIZE, RW, MAP_SHARED | MAP_FIXED, fd, 0);
    expect_refused(EINVAL, "flags", SIZE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    expect_refused(EINVAL, "flags", SIZE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect_refused(EINVAL, "flags", SIZE, RW, MAP_SHARED | MAP_HUGETLB, fd, 0);
}

TEST_F(Map, ProtectionOtherThanReadAndWriteIsRefused)
{
    Fd fd(path);
    expect_refused(EINVAL, "PROT_READ", SIZE, PROT_NONE, MAP_SHARED, fd, 0);
    expect_refused(EINVAL, "PROT_READ", SIZE, PROT_WRITE, MAP_SHARED, fd, 0);
    expect_refused(EINVAL, "PROT_READ", SIZE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
}

TEST_F(Map, LengthAndOffsetAreChecked)
{
    Fd fd(path);
    expect_refused(EINVAL, "is 0", 0, RW, MAP_SHARED, fd, 0);
    expect_refused(EINVAL, "offset 100", SIZE, RW, MAP_SHARED, fd, 100);
    expect_refused(EINVAL, "offset 512", SIZE, RW, MAP_SHARED, fd, 512);
    expect_refused(EINVAL, "offset -4096", SIZE, RW, MAP_SHARED, fd, -4096);
    expect_refused(EFBIG, "256 TiB", 1ull << 48, RW, MAP_SHARED, fd, 0);
    expect_refused(EFBIG, "256 TiB", SIZE_MAX, RW, MAP_SHARED, fd, 0);
    expect_refused(EFBIG, "256 TiB", 8192, RW, MAP_SHARED, fd, (1ll << 48) - 4096);
}

TEST_F(Map, DescriptorsAreChecked)
{
    expect_refused(EBADF, "descriptor -1", SIZE, RW, MAP_SHARED, -1, 0);
    expect_refused(EBADF, "descriptor 987", SIZE, RW, MAP_SHARED, 987, 0);
    Fd read_only(path, O_RDONLY), write_only(path, O_WRONLY), name_only(path, O_PATH);
    expect_refused(EACCES, "read-only", SIZE, RW, MAP_SHARED, read_only, 0);
    expect_refused(EACCES, "cannot be read", SIZE, RW, MAP_SHARED, write_only, 0);
    expect_refused(EBADF, "O_PATH", SIZE, RW, MAP_SHARED, name_only, 0);
    Fd folder(dir.path(), O_RDONLY | O_DIRECTORY);
    expect_refused(EINVAL, "regular file", SIZE, PROT_READ, MAP_SHARED, folder, 0);
    Fd device("/dev/zero");
    expect_refused(EINVAL, "regular file", SIZE, RW, MAP_SHARED, device, 0);
}

TEST_F(Map, ReadOnlyDescriptorSharesTheMappingOfAWriterInTheProcess)
{
    Fd fd(path, O_RDONLY);
    Mapped writer(path);
    ASSERT_TRUE(writer) << writer.sentence;
    ASSERT_TRUE(writer.write(10, pattern(100, 2)));
    char *at = static_cast<char *>(map(fd, SIZE, PROT_READ));
    ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
    Bytes seen(100);
    EXPECT_NE(ato_memcpy(seen.data(), at + 10, 100), nullptr);
    EXPECT_EQ(seen, pattern(100, 2));
    EXPECT_EQ(ato_memcpy(at, "x", 1), nullptr);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_FAST), 0);
}

TEST_F(Map, OptionsFollowTheDescriptorsAccess)
{
    Mapped writer(path);
    ASSERT_TRUE(writer);
    Fd fd(path, O_RDONLY);
    ato_options o = options();
    void *at = ato_mmap_opt(SIZE, fd, 0, &o);
    ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
    EXPECT_EQ(ato_memcpy(at, "x", 1), nullptr);
    EXPECT_EQ(errno, EACCES);
    EXPECT_NE(std::string(ato_errormsg()).find("reading only"), std::string::npos);
    EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_FAST), 0);
}

TEST_F(Map, NullOptionsAreTheDefaults)
{
    Fd fd(path);
    void *at = ato_mmap_opt(SIZE, fd, 0, nullptr);
    ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
    struct ato_stat st = {};
    st.struct_size = sizeof(st);
    ASSERT_EQ(ato_stat(at, &st), 0);
    EXPECT_EQ(st.read_policy, ATO_READ_LAZY);
    EXPECT_EQ(st.format, sparse() ? ATO_FORMAT_SPARSE : ATO_FORMAT_DENSE);
    EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_FAST), 0);
}

TEST_F(Map, MappingWithoutProtWriteCannotBeWritten)
{
    Fd fd(path);
    char *at = static_cast<char *>(map(fd, SIZE, PROT_READ));
    ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
    EXPECT_EQ(ato_memcpy(at, "x", 1), nullptr);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(ato_memset(at, 0, 10), nullptr);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(ato_memcpy(at, at + 100, 10), nullptr);
    EXPECT_EQ(errno, EACCES);
    EXPECT_STRNE(ato_errormsg(), "");
    Bytes seen(SIZE);
    EXPECT_NE(ato_memcpy(seen.data(), at, SIZE), nullptr);
    EXPECT_EQ(seen, content);
    EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_FAST), 0);
}

TEST_F(Map, EmptyFileCanBeMappedAndHoldsNothing)
{
    std::string empty = dir / "empty";
    write_file(empty, Bytes());
    Mapped m(empty, options(), 4096);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_FALSE(m.write(0, Bytes(1)));
    EXPECT_EQ(m.error, EFAULT);
    EXPECT_EQ(m.stat().size, 0u);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(size_of(empty), 0u);
}

TEST_F(Map, FilesOfEverySmallSizeKeepTheirSizeAndTail)
{
    for (size_t size : {1, 63, 64, 65, 4095, 4096, 4097, 8191}) {
        std::string p = dir / ("s" + std::to_string(size));
        write_file(p, pattern(size, 3));
        Mapped m(p);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), pattern(size, 3));
        EXPECT_TRUE(m.write(0, pattern(size, 4)));
        EXPECT_EQ(m.read(), pattern(size, 4));
        EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
        Mapped again(p);
        ASSERT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), pattern(size, 4));
        EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0);
        EXPECT_EQ(read_file(p), pattern(size, 4));
    }
}

// ---- stray stores -------------------------------------------------------------------------------

TEST_F(Map, StrayStoreThroughTheViewFaultsAndChangesNothing)
{
    int status = in_child([&] {
        signal(SIGSEGV, SIG_DFL); // a sanitizer's handler would print a report
        Mapped m(path);
        if (!m)
            return 1;
        *const_cast<volatile char *>(m.base + 10) = 'x';
        return 0;
    });
    EXPECT_EQ(status, 256 + SIGSEGV);
    EXPECT_EQ(read_file(path), content);
}

TEST_F(Map, PlainLoadsAreRightAfterADeploy)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(4000, pattern(300, 2)));
    EXPECT_EQ(memcmp(m.base, content.data(), SIZE), 0); // the file's own copy
    ASSERT_EQ(ato_deploy(m.base + 4000, 300), 0);
    EXPECT_EQ(memcmp(m.base + 4000, pattern(300, 2).data(), 300), 0);
}

// ---- permissions --------------------------------------------------------------------------------

TEST_F(Map, FolderWithoutPermissionIsEaccesWithItsPath)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to become another user";
    {
        Mapped m(path);
    }
    ASSERT_EQ(chmod(folder_of(path).c_str(), 0700), 0);
    ASSERT_EQ(chmod(path.c_str(), 0666), 0);
    ASSERT_EQ(chmod(dir.path().c_str(), 0777), 0);
    int status = in_child([&] {
        if (setgid(65534) < 0 || setuid(65534) < 0)
            return 2;
        Mapped m(path);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EACCES);
        EXPECT_NE(m.sentence.find(folder_of(path)), std::string::npos) << m.sentence;
        return static_cast<int>(HasFailure());
    });
    EXPECT_EQ(status, 0);
}

// The library's duplicate of the descriptor shares its offset.
TEST_F(Map, DoesNotMoveADescriptorWhoseFileCannotBeOpenedAgain)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to become another user";
    ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
    ASSERT_EQ(chmod(dir.path().c_str(), 0777), 0);
    int status = in_child([&] {
        if (setgid(65534) < 0 || setuid(65534) < 0)
            return 2;
        {
            Mapped m(path);
            EXPECT_TRUE(m) << m.sentence;
        }
        const int fd = open(path.c_str(), O_RDWR);
        EXPECT_EQ(fchmod(fd, 0444), 0);
        EXPECT_EQ(lseek(fd, 1234, SEEK_SET), 1234);
        void *at = ato_mmap(nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        EXPECT_NE(at, MAP_FAILED) << ato_errormsg();
        EXPECT_EQ(lseek(fd, 0, SEEK_CUR), 1234);
        EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_FAST), 0) << ato_errormsg();
        return static_cast<int>(HasFailure());
    });
    EXPECT_EQ(status, 0);
}

TEST_F(Map, SymbolicLinkInPlaceOfTheFolderIsRefused)
{
    ASSERT_EQ(symlink("/tmp", (dir / ".ato").c_str()), 0);
    Mapped m(path);
    EXPECT_FALSE(m);
    EXPECT_EQ(m.error, EACCES);
    EXPECT_NE(m.sentence.find(".ato"), std::string::npos) << m.sentence;
    EXPECT_EQ(attribute_of(path), "");
}

} // namespace
