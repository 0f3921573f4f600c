// SPDX-License-Identifier: BSD-3-Clause
//
// What may somebody else do, who may not all? A program that goes on with the file alone reads
// stale bytes. Here: EACCES with the path, or EAGAIN; never a mapping without its reflection.
#include "hazards/lab.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace hazards;

namespace
{

constexpr size_t SIZE = 4 * 4096;
constexpr uid_t NOBODY = 65534;

class Permission : public testing::Test
{
  protected:
    Permission() : content(over(old, 3000, pattern(6000, 2)))
    {
        write_file(file, old);
        chmod(file.c_str(), 0666);
        chmod(dir.path().c_str(), 0777);
    }

    void SetUp() override
    {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root, to become somebody else";
    }

    // A write that lies in the reflection.
    void write_atomically()
    {
        Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(m.write(3000, pattern(6000, 2))) << m.sentence;
    }

    static int as_nobody(const std::function<void()> &what)
    {
        return in_child([&] {
            if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
                return 99;
            what();
            return static_cast<int>(HasFailure());
        });
    }

    // What a program gets that opens the file and goes on without the reflection.
    void expect_stale_the_naive_way(int access)
    {
        EXPECT_EQ(as_nobody([&] {
                      Fd fd(file, access);
                      void *at = mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0);
                      ASSERT_NE(at, MAP_FAILED);
                      const unsigned char *bytes = static_cast<unsigned char *>(at);
                      EXPECT_EQ(Bytes(bytes, bytes + SIZE), old) << "stale, without an error";
                  }),
                  0);
        ASSERT_NE(old, content);
    }

    // Refused as nobody, with this path in the sentence, and nothing changed.
    void expect_refused(const std::string &path)
    {
        auto before = everything_in(dir.path());
        std::string attribute = attribute_of(file);
        EXPECT_EQ(as_nobody([&] {
                      Mapped m(file);
                      EXPECT_FALSE(m);
                      EXPECT_EQ(m.error, EACCES) << m.sentence;
                      EXPECT_TRUE(has(m.sentence, path)) << m.sentence;
                  }),
                  0);
        EXPECT_EQ(everything_in(dir.path()), before);
        EXPECT_EQ(attribute_of(file), attribute);
    }

    void expect_works_as_nobody()
    {
        EXPECT_EQ(as_nobody([&] {
                      Mapped m(file);
                      ASSERT_TRUE(m) << m.sentence;
                      EXPECT_EQ(m.read(), content);
                  }),
                  0);
    }

    TempDir dir;
    const std::string file = dir / "file";
    const Bytes old = pattern(SIZE, 1), content;
};

TEST_F(Permission, FolderThatIsClosedIsStaleBytesForOthersAndEaccesHere)
{
    write_atomically();
    ASSERT_EQ(chmod(folder_of(file).c_str(), 0700), 0);
    expect_stale_the_naive_way(O_RDWR);
    expect_refused(folder_of(file));
    ASSERT_EQ(chmod(folder_of(file).c_str(), 0777), 0);
    expect_works_as_nobody();
}

TEST_F(Permission, ManifestOrReflectionThatIsClosedIsStaleBytesForOthersAndEaccesHere)
{
    write_atomically();
    for (const std::string &closed : {manifest_of(file), reflection_of(file)}) {
        ASSERT_EQ(chmod(closed.c_str(), 0600), 0);
        expect_stale_the_naive_way(O_RDWR);
        expect_refused(closed);
        ASSERT_EQ(chmod(closed.c_str(), 0666), 0);
    }
    expect_works_as_nobody();
}

// May write the file, and make nothing beside it.
TEST_F(Permission, FolderThatCannotBeMadeIsEaccesWithItsPath)
{
    ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
    expect_refused(folder_of(file));
    ASSERT_EQ(chmod(dir.path().c_str(), 0777), 0);
    EXPECT_EQ(as_nobody([&] {
                  Mapped m(file);
                  ASSERT_TRUE(m) << m.sentence;
                  EXPECT_TRUE(m.write(3000, pattern(6000, 2)));
              }),
              0);
    expect_works_as_nobody();
}

TEST_F(Permission, JournalThatCannotBeMadeIsEaccesAndNothingIsWritten)
{
    const std::string folder = folder_of(file);
    write_atomically();
    ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
    EXPECT_EQ(as_nobody([&] {
                  Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM));
                  ASSERT_TRUE(m) << m.sentence;
                  EXPECT_FALSE(m.write(100, pattern(6000, 5)));
                  EXPECT_EQ(m.error, EACCES) << m.sentence;
                  EXPECT_TRUE(has(m.sentence, folder + "/journal-")) << m.sentence;
                  EXPECT_EQ(m.read(), content);
              }),
              0);
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
}

// ---- read-only openers --------------------------------------------------------------------------

TEST_F(Permission, ReaderAloneIsStaleBytesForOthersAndEagainHere)
{
    write_atomically();
    ASSERT_EQ(chmod(file.c_str(), 0444), 0);
    expect_stale_the_naive_way(O_RDONLY);
    auto before = everything_in(dir.path());
    EXPECT_EQ(as_nobody([&] {
                  Fd fd(file, O_RDONLY);
                  EXPECT_EQ(ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
                  EXPECT_EQ(errno, EAGAIN) << ato_errormsg();
                  EXPECT_TRUE(has(ato_errormsg(), "read-only")) << ato_errormsg();
              }),
              0);
    EXPECT_EQ(everything_in(dir.path()), before);
}

// Nothing on the media changes by its reads, whatever the policy; not even for the better.
TEST_F(Permission, ReaderBesideAWriterOfItsProcessReadsRightAndNeverWrites)
{
    for (int policy : {ATO_READ_LAZY, ATO_READ_GATHER, ATO_READ_ADAPTIVE, ATO_READ_EAGER}) {
        SCOPED_TRACE(policy);
        write_file(file, old);
        Mapped writer(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(writer) << writer.sentence;
        ASSERT_TRUE(writer.write(3000, pattern(6000, 2))) << writer.sentence;
        EXPECT_EQ(read_file(file), old) << "what the naive way reads";
        auto before = everything_in(dir.path());
        Fd fd(file, O_RDONLY);
        ato_options o = options(ATO_DOMAIN_AUTO, policy);
        char *at = static_cast<char *>(ato_mmap_opt(SIZE, fd, 0, &o));
        ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
        Bytes seen(SIZE);
        for (int i = 0; i < 6; i++) // the adaptive policy takes some
            for (size_t n : {SIZE, size_t(4096)}) {
                EXPECT_NE(ato_memcpy(seen.data(), at, n), nullptr) << ato_errormsg();
                EXPECT_EQ(seen, content);
            }
        EXPECT_EQ(ato_memcpy(at, "x", 1), nullptr);
        EXPECT_EQ(errno, EACCES);
        EXPECT_EQ(ato_memset(at, 0, 1), nullptr);
        EXPECT_EQ(errno, EACCES);
        EXPECT_EQ(ato_deploy(at, SIZE), -1);
        EXPECT_EQ(errno, EACCES);
        EXPECT_EQ(everything_in(dir.path()), before);
        EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_FAST), 0);
        EXPECT_EQ(everything_in(dir.path()), before);
        EXPECT_EQ(writer.unmap(ATO_UNMAP_SPATIAL), 0) << writer.sentence;
        EXPECT_EQ(read_file(file), content);
    }
}

} // namespace
