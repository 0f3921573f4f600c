// SPDX-License-Identifier: BSD-3-Clause
//
// Which reflection belongs to which file? Every way in which files are renamed, copied, replaced,
// cut and written between two mappings: the right bytes, or a clear error and nothing changed.
// (Damage: pairing_damage_test.cc.)
#include "pairing_lab.h"
#include "support/child.h"
#include "support/faults.h"

extern "C" {
#include "reflection/locks.h"
}

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace
{

TEST_F(Pairing, FastUnmapAndMapAgainKeepsWhatWasWritten)
{
    leave_slices();
    EXPECT_NE(read_file(path), content); // it is not plain
    expect_maps(path);
}

// ---- names --------------------------------------------------------------------------------------

TEST_F(Pairing, RenamedWithinItsFolderIsFound)
{
    leave_slices();
    fs::rename(path, dir / "other");
    expect_maps(dir / "other");
}

TEST_F(Pairing, LinkedUnderAnotherNameIsTheSameFile)
{
    leave_slices();
    fs::create_directory(dir / "below");
    fs::create_hard_link(path, dir / "twin");
    expect_maps(dir / "twin");
}

TEST_F(Pairing, FolderMovedAsAWholeIsFound)
{
    fs::create_directory(dir / "a");
    path = dir / "a/file";
    write_file(path, content);
    leave_slices();
    fs::rename(dir / "a", dir / "b");
    expect_maps(dir / "b/file");
}

TEST_F(Pairing, MovedAwayFromItsReflectionIsAnErrorThatNamesBothPlaces)
{
    leave_slices();
    fs::create_directory(dir / "elsewhere");
    fs::rename(path, dir / "elsewhere/file");
    expect_refused(dir / "elsewhere/file", ESTALE, "missing");
    EXPECT_FALSE(exists(dir / "elsewhere/.ato"));
    // Back where it was, nothing is lost.
    fs::rename(dir / "elsewhere/file", path);
    expect_maps(path);
}

TEST_F(Pairing, MovedTogetherWithItsReflectionIsFound)
{
    leave_slices();
    fs::create_directory(dir / "elsewhere");
    fs::rename(dir / ".ato", dir / "elsewhere/.ato");
    fs::rename(path, dir / "elsewhere/file");
    expect_maps(dir / "elsewhere/file");
}

TEST_F(Pairing, ReflectionInAFolderOfTheCallersIsFoundWhereverTheFileMoves)
{
    std::string folder = dir / "reflections"; // not below the file's own: kept as an absolute path
    fs::create_directory(dir / "a");
    fs::create_directory(dir / "b");
    path = dir / "a/file";
    write_file(path, content);
    {
        ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
        o.reflection_dir = folder.c_str();
        Mapped m(path, o);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(m.write(0, pattern(100, 9)));
        content = m.read();
    }
    EXPECT_FALSE(exists(dir / "a/.ato"));
    fs::rename(path, dir / "b/file");
    expect_maps(dir / "b/file"); // the attribute tells, without the option
    EXPECT_FALSE(exists(dir / "b/.ato"));
}

TEST_F(Pairing, ReflectionStaysWhereItLiesWhenAnotherFolderIsWished)
{
    leave_slices();
    std::string other = dir / "other";
    ato_options o = options();
    o.reflection_dir = other.c_str();
    Mapped m(path, o);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
    EXPECT_FALSE(exists(other));
}

TEST_F(Pairing, EnvironmentNamesTheFolderAndTheOptionWins)
{
    std::string a = dir / "a", b = dir / "b";
    setenv("ATO_REFLECTION_DIR", a.c_str(), 1);
    {
        Mapped m(path);
        EXPECT_TRUE(m) << m.sentence;
        EXPECT_TRUE(exists(a + "/" + std::to_string(inode_of(path))));
    }
    write_file(dir / "second", content);
    ato_options o = options();
    o.reflection_dir = b.c_str();
    {
        Mapped m(dir / "second", o);
        EXPECT_TRUE(m) << m.sentence;
        EXPECT_TRUE(exists(b + "/" + std::to_string(inode_of(dir / "second"))));
    }
    unsetenv("ATO_REFLECTION_DIR");
}

// ---- copies and inode numbers -------------------------------------------------------------------

TEST_F(Pairing, CopiedAttributeIsDroppedWithAWarning)
{
    leave_nothing();
    std::string copy = dir / "copy";
    write_file(copy, content);
    set_attribute(copy, attribute_of(path));
    fs::last_write_time(copy, fs::last_write_time(path));
    Log log;
    expect_maps(copy);
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, "copied from"));
    EXPECT_NE(attribute_of(copy).find(std::to_string(inode_of(copy))), std::string::npos);
    expect_maps(path);
}

TEST_F(Pairing, CopyOfAFileWithSlicesElsewhereIsRefusedOnce)
{
    leave_slices();
    std::string copy = dir / "copy";
    Bytes stale = read_file(path);
    write_file(copy, stale);
    set_attribute(copy, attribute_of(path));
    {
        Mapped m(copy);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, ESTALE);
        EXPECT_NE(m.sentence.find("copy"), std::string::npos) << m.sentence;
    }
    EXPECT_EQ(attribute_of(copy), "");
    Mapped again(copy); // as it is, now that its owner knows
    ASSERT_TRUE(again) << again.sentence;
    EXPECT_EQ(again.read(), stale);
    expect_maps(path);
}

TEST_F(Pairing, CopyWhoseSourceIsNotFoundIsRefusedAndKeepsItsAttribute)
{
    leave_slices();
    fs::create_directory(dir / "far");
    std::string copy = dir / "far/file";
    write_file(copy, read_file(path));
    set_attribute(copy, attribute_of(path)); // names a folder relative to the source's
    expect_refused(copy, ESTALE, "copied");
    expect_refused(copy, ESTALE, "copied");              // it may be all that tells: each time anew
    ASSERT_EQ(removexattr(copy.c_str(), "user.ato"), 0); // the owner says that these are the bytes
    content = read_file(copy);
    expect_maps(copy);
}

TEST_F(Pairing, InodeNumberOfAnotherFileSetsItsReflectionAside)
{
    leave_slices();
    // A new file with the number of the old one, as far as the folder can tell: the old one's
    // reflection under the new one's number, with the old one's birth time.
    Bytes reflection = read_file(reflection_of(path));
    std::string second = dir / "second";
    write_file(second, pattern(SIZE, 7));
    uint64_t inode = inode_of(second);
    ASSERT_EQ(rename(manifest_of(path).c_str(), manifest_of(second).c_str()), 0);
    ASSERT_EQ(rename(reflection_of(path).c_str(), reflection_of(second).c_str()), 0);
    patch_manifest(manifest_of(second), [&](manifest_record &r) { r.inode = inode; });
    fs::remove(path);
    Log log;
    content = pattern(SIZE, 7);
    expect_maps(second);
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, "set aside"));
    bool kept = false;
    for (const std::string &name : names_in(dir / ".ato"))
        if (name.rfind(std::to_string(inode) + ".stale-", 0) == 0 &&
            name.find("manifest") == std::string::npos)
            kept = read_file(dir / (".ato/" + name)) == reflection;
    EXPECT_TRUE(kept) << "the stale reflection is evidence: it stays as it is";
}

TEST_F(Pairing, ReflectionWhoseStaleNameIsTakenIsSetAsideUnderAnother)
{
    // After a power cut that kept one of the two renames: the stale reflection has its new name, the
    // stale manifest its old one, and the next birth had begun with a reflection.
    leave_slices();
    Bytes stale = read_file(reflection_of(path));
    Bytes manifest = read_file(manifest_of(path));
    std::string id = id_of(path).substr(0, 8);
    std::string aside = reflection_of(path) + ".stale-" + id;
    ASSERT_EQ(removexattr(path.c_str(), "user.ato"), 0);
    patch_manifest(manifest_of(path), [](manifest_record &r) { r.birth_nsec ^= 1; });
    manifest = read_file(manifest_of(path));
    write_file(aside, stale);
    write_file(reflection_of(path), Bytes(stale.size()));
    content = read_file(path);
    expect_maps(path);
    EXPECT_EQ(read_file(aside), stale);
    EXPECT_EQ(read_file(aside + "-1"), Bytes(stale.size()));
    EXPECT_EQ(read_file(aside + "-1.manifest"), manifest);
}

TEST_F(Pairing, StaleManifestIsRenamedWhenTheNewNameOfItsReflectionIsDurable)
{
    leave_slices();
    ASSERT_EQ(removexattr(path.c_str(), "user.ato"), 0);
    patch_manifest(manifest_of(path), [](manifest_record &r) { r.birth_nsec ^= 1; });
    std::string inode = std::to_string(inode_of(path));
    content = read_file(path);
    FsFaults faults;
    expect_maps(path);
    auto reflection = std::find(faults.calls.begin(), faults.calls.end(), "renameat " + inode);
    auto manifest =
        std::find(faults.calls.begin(), faults.calls.end(), "renameat " + inode + ".manifest");
    ASSERT_NE(manifest, faults.calls.end());
    EXPECT_NE(std::find(reflection, manifest, "fsync"), manifest);
}

TEST_F(Pairing, InodeNumberGivenOutAgainByADiskFileSystem)
{
    std::string disk = disk_folder();
    if (disk.empty())
        GTEST_SKIP() << "no folder on a disk";
    TempDir there(disk);
    path = there / "file";
    write_file(path, content);
    leave_slices();
    uint64_t inode = inode_of(path);
    fs::remove(path);
    content = pattern(SIZE, 7);
    std::string second;
    for (int i = 0; i < 64; i++) {
        second = there / ("second" + std::to_string(i));
        write_file(second, content);
        if (inode_of(second) == inode)
            break;
    }
    if (inode_of(second) != inode)
        GTEST_SKIP() << "the inode number was not given out again";
    expect_maps(second);
}

// ---- written, cut, grown by others --------------------------------------------------------------

TEST_F(Pairing, WrittenByOthersWhileFastUnmappedIsRefused)
{
    leave_slices();
    write_at(path, 10, "x", 1);
    expect_refused(path, ESTALE, "written by other means");
}

TEST_F(Pairing, WrittenByOthersRightAfterTheUnmapIsRefused)
{
    // Within one tick of the kernel's coarse clock, many times.
    for (int i = 0; i < 50; i++) {
        TempDir own;
        std::string p = own / "file";
        write_file(p, content);
        {
            Mapped m(p);
            ASSERT_TRUE(m) << m.sentence;
            ASSERT_TRUE(m.write(0, pattern(10, 3)));
        }
        write_at(p, 10, "x", 1);
        Mapped m(p);
        ASSERT_FALSE(m) << "try " << i;
        EXPECT_EQ(m.error, ESTALE);
    }
}

TEST_F(Pairing, CutByOthersIsRefused)
{
    leave_slices();
    ASSERT_EQ(truncate(path.c_str(), 5000), 0);
    expect_refused(path, ESTALE, path);
}

TEST_F(Pairing, GrownByOthersIsRefused)
{
    leave_slices();
    ASSERT_EQ(truncate(path.c_str(), SIZE + 5000), 0);
    expect_refused(path, ESTALE, path);
}

TEST_F(Pairing, CutOrGrownAfterAKillIsRefusedThoughNoTimesWereKept)
{
    for (long size : {5000L, static_cast<long>(SIZE) + 1}) {
        TempDir own;
        std::string p = own / "file";
        write_file(p, content);
        ASSERT_EQ(in_child([&] {
                      Mapped m(p);
                      return m ? (m.base = nullptr, 0) : 1;
                  }),
                  0);
        ASSERT_EQ(truncate(p.c_str(), size), 0);
        Mapped m(p);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, ESTALE);
        EXPECT_NE(m.sentence.find(std::to_string(size)), std::string::npos) << m.sentence;
    }
}

TEST_F(Pairing, RenameLinkAndModeMoveOnlyCtimeAndAreNoError)
{
    leave_slices();
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    fs::rename(path, dir / "x");
    fs::create_hard_link(dir / "x", dir / "y");
    fs::remove(dir / "x");
    expect_maps(dir / "y");
}

// A process that unmaps stamps the file while another one waits for the attach lock to map it: the
// times that count are those under the lock.
TEST_F(Pairing, UnmappedByAnotherProcessWhileWeWaitIsNotWrittenByOthers)
{
    leave_slices();
    Fd lock(manifest_of(path)); // as the one who unmaps
    ASSERT_EQ(locks_try(lock, 0, 1), LOCKS_MINE);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        Mapped m(path);
        EXPECT_TRUE(m) << m.sentence;
        _exit(HasFailure());
    }
    usleep(200 * 1000); // by now it waits; if not, it proves nothing but fails nothing either
    const timespec times[2] = {{0, UTIME_OMIT}, {2000000000, 123456789}};
    Fd fd(path);
    ASSERT_EQ(futimens(fd, times), 0);
    patch_manifest(manifest_of(path), [&](manifest_record &r) {
        r.clean_mtime_sec = times[1].tv_sec;
        r.clean_mtime_nsec = static_cast<uint64_t>(times[1].tv_nsec);
    });
    ASSERT_EQ(locks_drop(lock, 0, 1), 0);
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

// ---- what cannot be paired ----------------------------------------------------------------------

int error_of_mapping(int fd, std::string &sentence)
{
    void *at = ato_mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_EQ(at, MAP_FAILED);
    int err = errno;
    sentence = ato_errormsg();
    EXPECT_NE(sentence, "");
    return err;
}

TEST_F(Pairing, UnlinkedFileIsRefused)
{
    Fd fd(path);
    fs::remove(path);
    std::string sentence;
    EXPECT_EQ(error_of_mapping(fd, sentence), EINVAL) << sentence;
    EXPECT_FALSE(exists(dir / ".ato"));
}

TEST_F(Pairing, FileThatNeverHadANameIsRefused)
{
    int fd = open(dir.path().c_str(), O_TMPFILE | O_RDWR, 0600);
    if (fd < 0)
        GTEST_SKIP() << "no O_TMPFILE here";
    Fd own(fd);
    ASSERT_EQ(ftruncate(fd, 4096), 0);
    std::string sentence;
    EXPECT_EQ(error_of_mapping(fd, sentence), EINVAL) << sentence;
    EXPECT_FALSE(exists(dir / ".ato"));
}

TEST_F(Pairing, FileThatLostTheNameItWasOpenedByIsRefused)
{
    fs::create_hard_link(path, dir / "twin");
    Fd fd(path);
    fs::remove(path);
    std::string sentence;
    EXPECT_EQ(error_of_mapping(fd, sentence), EINVAL) << sentence;
}

TEST_F(Pairing, NoRegularFileIsRefused)
{
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    Fd a(ends[0]), b(ends[1]);
    std::string sentence;
    EXPECT_EQ(error_of_mapping(a, sentence), EINVAL);
    EXPECT_NE(sentence.find("regular file"), std::string::npos) << sentence;
}

TEST_F(Pairing, SecondProcessTakesPartAndTheLastOneLeavesTheFileInOrder)
{
    Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(100, pattern(5000, 2)));
    const Bytes first = m.read(), more = pattern(3000, 3);
    Bytes both = first;
    std::copy(more.begin(), more.end(), both.begin() + 7000);
    EXPECT_EQ(in_child([&] {
                  Mapped second(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
                  EXPECT_TRUE(second) << second.sentence;
                  EXPECT_EQ(second.read(), first);
                  EXPECT_TRUE(second.write(7000, more)) << second.sentence;
                  EXPECT_EQ(second.unmap(ATO_UNMAP_SPATIAL), 0) << second.sentence;
                  return HasFailure();
              }),
              0);
    EXPECT_EQ(m.read(), both);
    EXPECT_TRUE(fs::exists(manifest_of(path))) << "the other one only left";
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_FALSE(fs::exists(manifest_of(path)));
    EXPECT_EQ(read_file(path), both);
}

} // namespace
