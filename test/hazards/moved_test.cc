// SPDX-License-Identifier: BSD-3-Clause
//
// Files and folders get other names and places; the reflection may not be where it was. Found and
// adopted, or a clear error: never the stale bytes that everybody else sees in the file.
#include "hazards/cut_commit.h"
#include "naive.h"
#include "support/child.h"
#include "support/faults.h"

#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{

class Moved : public Hazard
{
  protected:
    // In a folder of its own, and not plain.
    void leave_slices_below()
    {
        fs::create_directory(dir / "a");
        fs::create_directory(dir / "b");
        path = dir / "a/file";
        write_file(path, content);
        leave_slices();
    }

    ato_options wish(const std::string &folder) const
    {
        ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
        o.reflection_dir = folder.c_str();
        return o;
    }

    void expect_maps_with(const std::string &p, const ato_options &o)
    {
        Mapped m(p, o);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
    }
};

TEST_F(Moved, RenamedWithinItsFolderIsFound)
{
    leave_slices();
    fs::rename(path, dir / "other");
    expect_stale(read_file(dir / "other"));
    expect_maps(dir / "other");
}

TEST_F(Moved, RenamedOverAnotherMappedFileIsFoundAndTheOtherIsNotApplied)
{
    leave_slices();
    std::string second = dir / "second", kept = dir / "kept";
    Bytes theirs = pattern(SIZE, 7);
    write_file(second, theirs);
    {
        Mapped m(second, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m && m.write(0, pattern(9000, 8))) << m.sentence;
    }
    std::string reflection = reflection_of(second);
    fs::rename(path, second); // as editors save
    // A program that pairs by name takes the reflection of the file that had it.
    expect_garbage(overlay(read_file(second), read_file(reflection)));
    expect_stale(read_file(second));
    expect_maps(second);
}

TEST_F(Moved, FolderRenamedAsAWholeIsFound)
{
    leave_slices_below();
    fs::remove(dir / "b");
    fs::rename(dir / "a", dir / "b");
    EXPECT_FALSE(exists(dir / "a/.ato")) << "where a path that was kept would lead";
    expect_stale(read_file(dir / "b/file"));
    expect_maps(dir / "b/file");
}

// With two links the attribute's folder is an absolute path, which leads nowhere now: then it is
// the one beside the file.
TEST_F(Moved, FolderRenamedAsAWholeIsFoundByItsLinksToo)
{
    fs::create_directory(dir / "a");
    path = dir / "a/file";
    write_file(path, content);
    fs::create_hard_link(path, dir / "a/twin");
    leave_slices();
    ASSERT_NE(attribute_of(path).find(" " + dir.path()), std::string::npos);
    fs::rename(dir / "a", dir / "b");
    EXPECT_FALSE(exists(dir / "a/.ato")) << "where the attribute leads";
    expect_stale(read_file(dir / "b/twin"));
    expect_maps(dir / "b/file");
    expect_maps(dir / "b/twin");
}

TEST_F(Moved, TakenAlongToAnotherFolderIsAdoptedThere)
{
    leave_slices_below();
    fs::rename(dir / "a/file", dir / "b/file");
    fs::rename(dir / "a/.ato", dir / "b/.ato");
    expect_stale(read_file(dir / "b/file"));
    expect_maps(dir / "b/file");
}

// Its last user died in the middle of a commit: what finishes that lies in the folder too.
TEST_F(Moved, TakenAlongWithItsWholeFolderAfterAKillIsRecoveredThere)
{
    fs::create_directory(dir / "a");
    fs::create_directory(dir / "b");
    path = dir / "a/file";
    write_file(path, content);
    ASSERT_EQ(cut_commit::die_between_flips(path), CUT);
    Bytes record = cut_commit::record();
    std::copy(record.begin(), record.end(), content.begin() + cut_commit::AT);
    fs::rename(path, dir / "b/file");
    fs::rename(dir / "a/.ato", dir / "b/.ato");
    expect_garbage(by_number(dir / "b/file")); // reflection and manifest without the journal
    expect_maps(dir / "b/file");
    EXPECT_TRUE(journals_of(dir / "b/file").empty());
}

TEST_F(Moved, LeftBehindIsAnErrorThatNamesFileAndPlaces)
{
    leave_slices_below();
    std::string there = dir / "b/file";
    fs::rename(path, there);
    // A program that makes an empty reflection where it finds none.
    expect_stale(by_number(there));
    expect_no(there, ESTALE, {there, dir / "b/.ato", "missing"});
    expect_no(there, ESTALE, {there}); // it does not wear off
    fs::rename(there, path);
    expect_maps(path);
}

TEST_F(Moved, LeftBehindIsFoundInTheFolderThatIsWishedFor)
{
    leave_slices_below();
    std::string there = dir / "b/file", behind = dir / "a/.ato";
    fs::rename(path, there);
    expect_stale(by_number(there));
    expect_no(there, ESTALE, {there});
    expect_maps_with(there, wish(behind));
    EXPECT_FALSE(exists(dir / "b/.ato"));
    setenv("ATO_REFLECTION_DIR", behind.c_str(), 1);
    expect_maps(there);
    unsetenv("ATO_REFLECTION_DIR");
}

// ---- hard links ---------------------------------------------------------------------------------

TEST_F(Moved, LinkInItsFolderIsTheSameFile)
{
    leave_slices();
    fs::create_hard_link(path, dir / "twin");
    expect_stale(read_file(dir / "twin"));
    expect_maps(dir / "twin");
    fs::remove(path);
    expect_maps(dir / "twin");
}

TEST_F(Moved, LinkInAnotherFolderMadeBeforeIsFoundFromBoth)
{
    fs::create_directory(dir / "a");
    fs::create_directory(dir / "b");
    path = dir / "a/file";
    std::string twin = dir / "b/twin";
    write_file(path, content);
    fs::create_hard_link(path, twin);
    leave_slices();
    expect_stale(by_number(twin)); // beside this name there is none
    expect_maps(twin);
    EXPECT_FALSE(exists(dir / "b/.ato")) << "two reflections of one file";
    expect_maps(path);
}

TEST_F(Moved, LinkInAnotherFolderMadeAfterIsAnError)
{
    leave_slices_below();
    std::string twin = dir / "b/twin";
    fs::create_hard_link(path, twin);
    expect_stale(by_number(twin));
    expect_no(twin, ESTALE, {twin, "missing"});
    expect_maps(path);
}

// ---- the attribute says that there is one ------------------------------------------------------

TEST_F(Moved, MissingPieceIsAnErrorAndNeverMadeAnew)
{
    leave_slices();
    for (const std::string &piece : {reflection_of(path), manifest_of(path), folder_of(path)}) {
        SCOPED_TRACE(piece);
        fs::rename(piece, dir / "away");
        expect_stale(read_file(path)); // what an empty one in its place would say
        expect_no(path, ESTALE, {path, folder_of(path)});
        fs::rename(dir / "away", piece);
        expect_maps(path);
    }
}

TEST_F(Moved, FolderOfTheCallersThatVanishedIsAnErrorThatNamesIt)
{
    std::string folder = dir / "reflections";
    setenv("ATO_REFLECTION_DIR", folder.c_str(), 1);
    leave_slices();
    unsetenv("ATO_REFLECTION_DIR");
    EXPECT_FALSE(exists(folder_of(path)));
    fs::rename(folder, dir / "away"); // a disk that is not mounted
    expect_stale(by_number(path));    // beside the file there is none: make one
    expect_no(path, ESTALE, {path, folder, folder_of(path)});
    expect_no(path, ESTALE, {path, folder}, wish(dir / "yet another"));
    EXPECT_FALSE(exists(dir / "yet another"));
    fs::rename(dir / "away", folder);
    expect_maps(path);
}

TEST_F(Moved, FolderOfTheCallersIsFoundWhereverTheFileGoes)
{
    std::string folder = dir / "reflections";
    fs::create_directory(dir / "a");
    fs::create_directory(dir / "b");
    path = dir / "a/file";
    write_file(path, content);
    setenv("ATO_REFLECTION_DIR", folder.c_str(), 1);
    leave_slices();
    unsetenv("ATO_REFLECTION_DIR");
    fs::rename(path, dir / "b/file");
    expect_stale(by_number(dir / "b/file"));
    expect_maps(dir / "b/file");
    EXPECT_FALSE(exists(dir / "b/.ato"));
}

TEST_F(Moved, ReflectionWithSlicesIsUsedWhereItLiesWhateverIsWishedFor)
{
    leave_slices();
    std::string other = dir / "other";
    fs::create_directory(other);
    expect_stale(by_number(path, other)); // in the folder wished for there is none
    expect_maps_with(path, wish(other));
    EXPECT_TRUE(names_in(other).empty());
    { // plain: the next one is made there
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
    EXPECT_EQ(read_file(path), content);
    expect_maps_with(path, wish(other));
    EXPECT_TRUE(exists(other + "/" + std::to_string(inode_of(path))));
    EXPECT_TRUE(names_in(folder_of(path)).empty());
}

// ---- files without a name ----------------------------------------------------------------------

void expect_einval(int fd)
{
    void *at = ato_mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_EQ(at, MAP_FAILED);
    EXPECT_EQ(errno, EINVAL) << ato_errormsg();
    EXPECT_NE(std::string(ato_errormsg()).find("descriptor " + std::to_string(fd)),
              std::string::npos)
        << ato_errormsg();
}

TEST_F(Moved, UnlinkedFileIsRefused)
{
    uint64_t inode = inode_of(path);
    Fd fd(path);
    fs::remove(path);
    // A reflection made by number would outlive the file, and wait for the number's next owner.
    std::string orphan = dir / ("orphan-" + std::to_string(inode));
    write_file(orphan, pattern(layout_reflection_bytes(SIZE), 3));
    for (const std::string &name : names_in(dir.path()))
        EXPECT_NE(inode_of(dir / name), inode) << "nothing leads to it";
    expect_garbage(overlay(pattern(SIZE, 7), read_file(orphan)));
    expect_einval(fd);
    EXPECT_FALSE(exists(dir / ".ato"));
}

TEST_F(Moved, FileThatNeverHadANameIsRefused)
{
    int fd = open(dir.path().c_str(), O_TMPFILE | O_RDWR, 0600);
    if (fd < 0)
        GTEST_SKIP() << "no O_TMPFILE here";
    Fd own(fd);
    ASSERT_EQ(ftruncate(fd, SIZE), 0);
    char link[64], target[4096] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ASSERT_GT(readlink(link, target, sizeof(target) - 1), 0);
    EXPECT_FALSE(exists(target)) << "the kernel's name for it leads nowhere";
    expect_einval(fd);
    EXPECT_FALSE(exists(dir / ".ato"));
    // Given a name, it is a file like any other.
    ASSERT_EQ(linkat(AT_FDCWD, link, AT_FDCWD, (dir / "named").c_str(), AT_SYMLINK_FOLLOW), 0);
    Mapped m(dir / "named");
    EXPECT_TRUE(m) << m.sentence;
}

// Its other name is in another place: a reflection beside the name that is gone would be lost.
TEST_F(Moved, FileThatLostTheNameItWasOpenedByIsRefused)
{
    fs::create_directory(dir / "b");
    fs::create_hard_link(path, dir / "b/twin");
    Fd fd(path);
    fs::remove(path);
    EXPECT_EQ(stat_of(dir / "b/twin").st_nlink, 1u);
    EXPECT_FALSE(exists(path));
    expect_einval(fd);
    EXPECT_FALSE(exists(dir / ".ato"));
    expect_maps(dir / "b/twin");
}

} // namespace
