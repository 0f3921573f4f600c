// SPDX-License-Identifier: BSD-3-Clause
//
// Is the reflection folder made with the right owner and mode, and refused when it cannot be
// trusted? (A symbolic link in its place: test/hazards/damaged_test.cc; a folder of another user:
// planted_test.cc.)
#include "support/child.h"
#include "support/faults.h"
#include "support/temp.h"

extern "C" {
#include "reflection/media/report.h"
#include "reflection/pairing/folder.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <climits>

#include <sys/stat.h>
#include <unistd.h>

using namespace support;

namespace
{

class Folder : public testing::Test
{
  protected:
    ~Folder() override
    {
        folder_close(&f);
    }

    void expect_refused(const std::string &path, bool make, int err, const std::string &words)
    {
        EXPECT_EQ(folder_open(&f, path.c_str(), make), -1);
        EXPECT_EQ(errno, err) << report_sentence();
        EXPECT_NE(std::string(report_sentence()).find(words), std::string::npos)
            << report_sentence();
        EXPECT_EQ(f.fd, -1);
    }

    folder f = {};
    TempDir dir;
};

TEST_F(Folder, IsMadeWithOwnerGroupAndModeOfItsParent)
{
    for (mode_t mode : {0700, 0755, 0770, 02775, 01777}) {
        std::string parent = dir / ("p" + std::to_string(mode));
        ASSERT_EQ(mkdir(parent.c_str(), 0700), 0);
        if (geteuid() == 0) {
            ASSERT_EQ(chown(parent.c_str(), 1234, 4321), 0);
        }
        ASSERT_EQ(chmod(parent.c_str(), mode), 0);
        ASSERT_EQ(folder_open(&f, (parent + "/.ato").c_str(), true), 0) << report_sentence();
        struct stat a = stat_of(parent), b = stat_of(parent + "/.ato");
        EXPECT_EQ(a.st_mode, b.st_mode);
        EXPECT_EQ(a.st_uid, b.st_uid);
        EXPECT_EQ(a.st_gid, b.st_gid);
        folder_close(&f);
    }
}

// For a user that does not know libato. It costs no sync, is written once, and may fail.
TEST_F(Folder, GetsANoteWhenItIsMadeAndAtNoOtherTime)
{
    FsFaults files;
    ASSERT_EQ(chmod(dir.path().c_str(), 0775), 0);
    ASSERT_EQ(folder_open(&f, (dir / ".ato").c_str(), true), 0) << report_sentence();
    EXPECT_EQ(files.count("fsync"), 0);
    const std::string note = dir / ".ato/README";
    const Bytes bytes = read_file(note);
    const std::string text(bytes.begin(), bytes.end());
    for (const char *words : {"ato info FILE", "ato deploy FILE", "file is not a database"})
        EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_EQ(stat_of(note).st_mode & 07777, 0644u);
    folder_close(&f);
    ASSERT_EQ(unlink(note.c_str()), 0);
    files.calls.clear();
    ASSERT_EQ(folder_open(&f, (dir / ".ato").c_str(), true), 0);
    EXPECT_EQ(files.calls, std::vector<std::string>());
    folder_close(&f);
    files.fail_op("create", ENOSPC);
    EXPECT_EQ(folder_open(&f, (dir / "other").c_str(), true), 0);
    EXPECT_FALSE(exists(dir / "other/README"));
}

TEST_F(Folder, IsOpenedAgainAndKnowsItsPath)
{
    ASSERT_EQ(folder_open(&f, (dir / ".ato").c_str(), true), 0);
    folder_close(&f);
    ASSERT_EQ(folder_open(&f, (dir / ".ato///").c_str(), false), 0);
    EXPECT_EQ(f.path, dir / ".ato");
    EXPECT_EQ(folder_sync(&f), 0);
}

TEST_F(Folder, RelativePathBeginsAtTheWorkingDirectory)
{
    int status = in_child([&] {
        if (chdir(dir.path().c_str()) < 0)
            return 1;
        EXPECT_EQ(folder_open(&f, "refl", true), 0);
        EXPECT_EQ(f.path, dir / "refl");
        return static_cast<int>(HasFailure());
    });
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(exists(dir / "refl"));
}

TEST_F(Folder, IsMadeOnlyOnRequestAndOnlyInAnExistingFolder)
{
    expect_refused(dir / ".ato", false, ENOENT, dir / ".ato");
    expect_refused(dir / "no/.ato", true, ENOENT, dir / "no");
    EXPECT_FALSE(exists(dir / ".ato"));
}

TEST_F(Folder, IsRefusedIfItIsAFile)
{
    write_file(dir / ".ato", Bytes(1));
    expect_refused(dir / ".ato", true, EACCES, "not a folder");
}

TEST_F(Folder, OwnedByTheCallerOrRootOrTheParentsOwnerIsTrusted)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to change the owner of a folder";
    ASSERT_EQ(mkdir((dir / ".ato").c_str(), 0777), 0);
    ASSERT_EQ(chown(dir.path().c_str(), 1000, 1000), 0);
    ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
    EXPECT_EQ(folder_open(&f, (dir / ".ato").c_str(), true), 0) << "root's own";
    folder_close(&f);
    ASSERT_EQ(chown((dir / ".ato").c_str(), 1000, 1000), 0);
    EXPECT_EQ(folder_open(&f, (dir / ".ato").c_str(), true), 0) << "the parent's owner's";
    folder_close(&f);
    // User 2000 trusts folders of the parent's owner, of root and of user 2000.
    for (uid_t owner : {1000u, 0u, 2000u, 3000u}) {
        ASSERT_EQ(chown((dir / ".ato").c_str(), owner, 1000), 0);
        int status = in_child([&] {
            if (setuid(2000) < 0)
                return 9;
            return folder_open(&f, (dir / ".ato").c_str(), true) == 0 ? 0 : 1;
        });
        EXPECT_EQ(status, owner == 3000 ? 1 : 0) << owner;
    }
}

TEST_F(Folder, OfAnotherUserIsTrustedIfItsGroupMayRenameIt)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to change the owner of a folder";
    ASSERT_EQ(mkdir((dir / ".ato").c_str(), 0777), 0);
    ASSERT_EQ(chown(dir.path().c_str(), 1000, 1500), 0);
    for (const auto &[mode, group, good] :
         {std::tuple(0775, 1500u, true), std::tuple(02770, 1500u, true),
          std::tuple(0775, 3000u, false), std::tuple(0755, 1500u, false),
          std::tuple(01775, 1500u, false)}) {
        ASSERT_EQ(chown((dir / ".ato").c_str(), 3000, group), 0);
        ASSERT_EQ(chmod(dir.path().c_str(), static_cast<mode_t>(mode)), 0);
        EXPECT_EQ(folder_open(&f, (dir / ".ato").c_str(), true) == 0, good) << std::oct << mode;
        EXPECT_EQ(f.fd >= 0, good) << "a refused folder has no descriptor";
        folder_close(&f);
    }
}

TEST_F(Folder, ThatCannotBeMadeIsNamed)
{
    expect_refused("/proc/self/.ato", true, ENOENT, "/proc/self/.ato");
}

TEST_F(Folder, IsRefusedIfItsPathIsTooLong)
{
    expect_refused("/" + std::string(PATH_MAX, 'a'), true, ENAMETOOLONG, "too long");
    expect_refused(std::string(PATH_MAX - 2, 'a'), true, ENAMETOOLONG, "too long");
}

} // namespace
