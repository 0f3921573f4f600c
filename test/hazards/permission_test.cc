// SPDX-License-Identifier: BSD-3-Clause
//
// What if a user lacks a permission? A program that goes on with the file alone reads stale bytes. The
// library returns EACCES with the path, the right bytes, or EAGAIN; never a mapping without its reflection.
#include "support/dying.h"
#include "users.h"

extern "C" {
#include "lib/file/shared.h"
#include "reflection/format/manifest.h"
#include "reflection/media/locks.h"
}

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

using namespace hazards;

namespace
{

constexpr uid_t NOBODY = 65534;

class Permission : public Users
{
  protected:
    Permission()
    {
        write_file(file, old);
        chmod(file.c_str(), 0666);
        chmod(dir.path().c_str(), 0777);
    }

    static bool write_record(Mapped &m)
    {
        return m && m.write(3000, pattern(6000, 2));
    }

    // A write that stays in the reflection.
    void write_atomically()
    {
        Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(write_record(m)) << m.sentence;
    }

    // A program that goes on without the reflection reads stale bytes.
    void expect_stale_the_naive_way(int access)
    {
        as(NOBODY, [&] {
            Fd fd(file, access);
            void *at = mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0);
            ASSERT_NE(at, MAP_FAILED);
            const unsigned char *bytes = static_cast<unsigned char *>(at);
            EXPECT_EQ(Bytes(bytes, bytes + SIZE), old) << "stale, without an error";
        });
        ASSERT_NE(old, content);
    }

    void expect_reads(const Bytes &wanted);

    const Bytes content = over(old, 3000, pattern(6000, 2));
};

TEST_F(Permission, UnreadableSideFileGivesStaleBytesNaivelyAndEaccesHere)
{
    write_atomically();
    for (const std::string &closed : {folder_of(file), manifest_of(file), reflection_of(file)}) {
        const mode_t mode = stat_of(closed).st_mode & 07777;
        ASSERT_EQ(chmod(closed.c_str(), mode & 0700), 0);
        expect_stale_the_naive_way(O_RDWR);
        expect_refused(NOBODY, file, EACCES, closed);
        ASSERT_EQ(chmod(closed.c_str(), mode), 0);
        expect_content(NOBODY, file, content);
    }
}

// The user may write the file, and make no files beside it.
TEST_F(Permission, FolderThatCannotBeMadeIsEaccesWithItsPath)
{
    ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
    expect_refused(NOBODY, file, EACCES, folder_of(file));
    ASSERT_EQ(chmod(dir.path().c_str(), 0777), 0);
    as(NOBODY, [&] {
        Mapped m(file);
        EXPECT_TRUE(write_record(m)) << m.sentence;
    });
    expect_content(NOBODY, file, content);
}

// The library would write through a duplicate, and Linux appends what pwrite() writes through that.
TEST_F(Permission, DescriptorThatAppendsIsRefusedIfTheFileCannotBeOpenedAgain)
{
    ASSERT_EQ(chmod(file.c_str(), 0600), 0);
    Fd appends(file, O_RDWR | O_APPEND);
    auto map = [&] { return ato_mmap_opt(SIZE, appends, 0, nullptr); };
    as(NOBODY, [&] {
        EXPECT_EQ(map(), MAP_FAILED);
        EXPECT_EQ(errno, EINVAL);
        EXPECT_TRUE(has(ato_errormsg(), "O_APPEND")) << ato_errormsg();
    });
    void *at = map();
    ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
    EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_SPATIAL), 0);
}

// A reflection holds content of the file, current or old: a user who has lost the right to read the file may
// not read its reflection either.
TEST_F(Permission, ReflectionGetsTheRestrictedModeOfItsFileAtTheNextMap)
{
    write_atomically();
    ASSERT_EQ(chmod(file.c_str(), 0600), 0);
    as(NOBODY, [&] {
        EXPECT_FALSE(read_file(reflection_of(file)).empty()) << "the naive way it stays readable";
    });
    for (const auto &[owner, mode] : {std::pair(0, 0600), std::pair(1000, 0640)}) {
        give(file, static_cast<uid_t>(owner), static_cast<gid_t>(owner), static_cast<mode_t>(mode));
        Mapped m(file);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
        for (const std::string &path : {reflection_of(file), manifest_of(file)}) {
            EXPECT_EQ(stat_of(path).st_mode & 0777, static_cast<mode_t>(mode)) << path;
            EXPECT_EQ(stat_of(path).st_uid, static_cast<uid_t>(owner)) << path;
            EXPECT_EQ(stat_of(path).st_gid, static_cast<gid_t>(owner)) << path;
        }
    }
    as(NOBODY, [&] { EXPECT_LT(open(reflection_of(file).c_str(), O_RDONLY), 0); });
}

// A user who may read the manifest may lock it, and nothing more; the lock ends with the process. Others wait
// for a limited time.
TEST_F(Permission, ReaderThatLocksTheManifestBlocksMapsUntilItEnds)
{
    write_atomically();
    ASSERT_EQ(chmod(file.c_str(), 0644), 0);
    {
        Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM));
        ASSERT_TRUE(write_record(m)) << m.sentence;
        EXPECT_EQ(stat_of(manifest_of(file)).st_mode & 0777, 0644u) << "follows";
    }
    for (off_t byte : {1, 0}) { // a slot; the attach lock
        Pipe ready;
        Child reader(0, [&] {
            struct flock l = {};
            l.l_type = F_RDLCK;
            l.l_whence = SEEK_SET;
            l.l_start = byte;
            l.l_len = 1;
            if (!become(NOBODY))
                return 1;
            Fd fd(manifest_of(file), O_RDONLY);
            if (fcntl(fd, F_OFD_SETLK, &l) < 0)
                return 2;
            ready.tell();
            pause();
            return 0;
        });
        ASSERT_TRUE(ready.hear());
        locks_patience_ms = 50;
        Mapped kept_out(file);
        locks_patience_ms = 30000;
        EXPECT_FALSE(kept_out);
        EXPECT_EQ(kept_out.error, EBUSY) << kept_out.sentence;
        reader.kill();
        Mapped m(file);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
    }
}

// A set-user-id program runs in the environment of its caller.
TEST_F(Permission, EnvironmentIsIgnoredBySetUserIdPrograms)
{
    TempDir place("/tmp"); // /dev/shm may be mounted without set-user-id programs
    struct statvfs mounted;
    if (statvfs(place.path().c_str(), &mounted) < 0 || (mounted.f_flag & (ST_NOSUID | ST_NOEXEC)))
        GTEST_SKIP() << "/tmp is mounted without set-user-id programs";
    const std::string program = place / "program", log = place / "log";
    ASSERT_EQ(chmod(place.path().c_str(), 0777), 0);
    std::filesystem::copy_file("/proc/self/exe", program);
    for (mode_t mode : {0755, 04755}) {
        ASSERT_EQ(chmod(program.c_str(), mode), 0);
        as(NOBODY, [&] {
            setenv("ATO_LOG", log.c_str(), 1);
            unsetenv("GTEST_TOTAL_SHARDS"); // that test runs in each shard
            unsetenv("GTEST_SHARD_INDEX");
            EXPECT_EQ(system((program + " --gtest_filter='*FailsToMap' >/dev/null").c_str()), 0);
        });
        EXPECT_EQ(exists(log), !(mode & S_ISUID)) << "root's program made the caller's file";
        std::filesystem::remove(log);
    }
}

// The files of a pairing, and its shared memory.
std::vector<std::string> parts_of(const std::string &file, const std::string &folder)
{
    std::vector<std::string> all;
    for (const std::string &name : names_in(folder + "/.ato"))
        all.push_back(folder + "/.ato/" + name);
    all.push_back(memory_of(file));
    return all;
}

// The members of a group share a file: each of them may map it first. Others may not map it, not even by a
// descriptor that was passed to them.
TEST_F(Permission, UsersThatMayWriteTheFileShareItAndOthersCannotMapIt)
{
    constexpr gid_t GROUP = 4242;
    constexpr uid_t OWNER = 1111, MEMBER = 2222, STRANGER = 3333;
    const std::string folder = dir / "together", shared = folder + "/file";
    const ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM);
    std::filesystem::create_directory(folder);
    give(folder, OWNER, GROUP, 02775);
    write_file(shared, old);
    give(shared, OWNER, GROUP, 0660);
    Fd handed(shared, O_RDWR);
    Pipe is_mapped, end;
    for (uid_t first : {OWNER, MEMBER}) {
        const uid_t second = first == OWNER ? MEMBER : OWNER;
        Child child(0, [&] {
            if (!become(first, {GROUP}))
                return 99;
            Mapped m(shared, o);
            bool good = write_record(m);
            is_mapped.tell();
            end.hear();
            return good && m.read(100, 5000) == pattern(5000, 3) ? 0 : 1;
        });
        ASSERT_TRUE(is_mapped.hear());
        const std::vector<std::string> parts = parts_of(shared, folder);
        EXPECT_EQ(parts.size(), 3u); // reflection, manifest, memory
        as(STRANGER, [&] {
            EXPECT_EQ(ato_mmap_opt(SIZE, handed, 0, nullptr), MAP_FAILED);
            EXPECT_EQ(errno, EACCES) << ato_errormsg();
            EXPECT_TRUE(has(ato_errormsg(), folder)) << ato_errormsg();
            for (const std::string &part : parts)
                EXPECT_LT(open(part.c_str(), O_RDONLY | O_CLOEXEC), 0) << part;
        });
        auto join = [&] {
            Mapped m(shared, o);
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(3000, 6000), pattern(6000, 2));
            EXPECT_TRUE(m.write(100, pattern(5000, 3))) << m.sentence;
        };
        as(second, join, {GROUP});
        end.tell();
        EXPECT_EQ(child.wait(), 0);
    }
}

TEST(PermissionOfADescriptor, ThatIsInvalidFailsToMap)
{
    EXPECT_EQ(ato_mmap(nullptr, 4096, PROT_READ, MAP_SHARED, -1, 0), MAP_FAILED);
}

// ---- read-only openers --------------------------------------------------------------------------

// As the Unix user `nobody`, by a read-only descriptor: reads `wanted`, or gets EAGAIN if that is empty.
// Nothing changes.
void Permission::expect_reads(const Bytes &wanted)
{
    auto before = everything_in(dir.path());
    as(NOBODY, [&] {
        Fd fd(file, O_RDONLY);
        Bytes seen(SIZE);
        void *at = ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0);
        if (wanted.empty()) {
            EXPECT_EQ(at, MAP_FAILED);
            EXPECT_EQ(errno, EAGAIN) << ato_errormsg();
            return;
        }
        ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
        EXPECT_NE(ato_memcpy(seen.data(), at, SIZE), nullptr) << ato_errormsg();
        EXPECT_EQ(seen, wanted);
        EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
    });
    EXPECT_EQ(everything_in(dir.path()), before);
}

TEST_F(Permission, ReaderGetsStaleBytesNaivelyAndTheRightOnesHere)
{
    ASSERT_EQ(chmod(file.c_str(), 0444), 0);
    expect_reads(old);
    write_atomically();
    expect_stale_the_naive_way(O_RDONLY);
    expect_reads(Bytes());
    Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    expect_reads(content);
    ASSERT_TRUE(m.write(0, content)) << m.sentence;
    expect_reads(content);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    expect_reads(content);
}

TEST_F(Permission, ReaderGetsAnErrorIfOnlyAWriterCanRecover)
{
    ASSERT_EQ(chmod(file.c_str(), 0444), 0);
    EXPECT_EQ(in_child([&] {
                  Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
                  bool good = write_record(m);
                  m.base = nullptr; // it exits without an unmap
                  return good ? 0 : 1;
              }),
              0);
    expect_reads(Bytes());
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    expect_reads(content);
}

// With no policy do its reads change anything on the media.
TEST_F(Permission, ReaderBesideAWriterOfItsProcessReadsRightAndNeverWrites)
{
    for (int policy : {ATO_READ_LAZY, ATO_READ_GATHER, ATO_READ_EAGER}) {
        SCOPED_TRACE(policy);
        write_file(file, old);
        Mapped writer(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(write_record(writer)) << writer.sentence;
        EXPECT_EQ(read_file(file), old) << "what the naive way reads";
        auto before = everything_in(dir.path());
        Fd fd(file, O_RDONLY);
        ato_options o = options(ATO_DOMAIN_AUTO, policy);
        char *at = static_cast<char *>(ato_mmap_opt(SIZE, fd, 0, &o));
        ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
        Bytes seen(SIZE);
        for (size_t n : {SIZE, size_t(4096)}) {
            EXPECT_NE(ato_memcpy(seen.data(), at, n), nullptr) << ato_errormsg();
            EXPECT_EQ(seen, content);
        }
        EXPECT_EQ(ato_memset(at, 0, 1), nullptr);
        EXPECT_EQ(errno, EACCES);
        EXPECT_EQ(everything_in(dir.path()), before);
        EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_FAST), 0);
        EXPECT_EQ(everything_in(dir.path()), before);
        EXPECT_EQ(writer.unmap(ATO_UNMAP_SPATIAL), 0) << writer.sentence;
        EXPECT_EQ(read_file(file), content);
    }
}

// It has no reflection whose pages the call could fetch ahead.
TEST_F(Permission, ToReadOnlyAPlainFileAlsoHoldsForTransactions)
{
    write_file(file, old);
    Fd fd(file, O_RDONLY);
    ato_options o = options(ATO_DOMAIN_AUTO);
    char *at = static_cast<char *>(ato_mmap_opt(SIZE, fd, 0, &o));
    ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
    ato_tx *tx = ato_tx_begin(0);
    EXPECT_EQ(ato_tx_memcpy(tx, at, "a", 1, 0), nullptr);
    EXPECT_EQ(errno, EACCES);
    ato_tx_abort(tx);
    EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_FAST), 0);
    EXPECT_EQ(read_file(file), old);
}

// The folder of the files is opened to a group, or closed, after the folder of reflections was made: that follows at the next map by
// a process that may change it.
TEST_F(Permission, FolderOfReflectionsFollowsTheFolderAroundIt)
{
    constexpr uid_t OWNER = 1001, MEMBER = 1002;
    constexpr gid_t TEAM = 5000;
    give(dir.path(), OWNER, OWNER, 0700);
    give(file, OWNER, TEAM, 0660);
    as(OWNER, [&] { EXPECT_TRUE(Mapped(file)); });
    give(dir.path(), OWNER, TEAM, 0770);
    const std::string second = dir / "second";
    write_file(second, old);
    give(second, OWNER, TEAM, 0660);
    expect_error(MEMBER, second, EACCES, folder_of(second), {TEAM});
    as(OWNER, [&] { EXPECT_TRUE(Mapped(file)); }, {TEAM});
    EXPECT_EQ(stat_of(folder_of(file)).st_mode & 07777, 0770u);
    EXPECT_EQ(stat_of(folder_of(file)).st_gid, TEAM);
    expect_content(MEMBER, second, old, {TEAM});
    ASSERT_EQ(chmod(dir.path().c_str(), 0750), 0);
    as(OWNER, [&] { EXPECT_TRUE(Mapped(file)); }, {TEAM});
    EXPECT_EQ(stat_of(folder_of(file)).st_mode & 07777, 0750u);
}

} // namespace
