// SPDX-License-Identifier: BSD-3-Clause
//
// What if somebody prepared the place where reflections go? Open follows a link into his folder,
// and what lies there he may change. Here: refused, with the path; his files and ours are as
// before.
#include "hazards/lab.h"

#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace hazards;

namespace
{

constexpr size_t SIZE = 2 * 4096;
constexpr uid_t ATTACKER = 4242, VICTIM = 1000;

class Trust : public testing::Test
{
  protected:
    Trust()
    {
        write_file(file, content);
        fs::create_directory(his);
    }

    // As a program makes its side file that takes no care.
    static void make_naively(const std::string &path)
    {
        Fd fd(path, O_RDWR | O_CREAT | O_TRUNC);
        EXPECT_EQ(write(fd, "secret", 6), 6);
    }

    void expect_refused(int err, const std::string &path)
    {
        auto before = everything_in(dir.path());
        Mapped m(file);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, err) << m.sentence;
        EXPECT_TRUE(has(m.sentence, path)) << m.sentence;
        EXPECT_EQ(everything_in(dir.path()), before);
        EXPECT_EQ(attribute_of(file), "");
    }

    void expect_works()
    {
        Mapped m(file);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }

    TempDir dir;
    const std::string file = dir / "file", his = dir / "his";
    const Bytes content = pattern(SIZE, 1);
};

TEST_F(Trust, SymbolicLinkAsFolderIsFollowedByOpenAndRefusedHere)
{
    for (const std::string &target : {his, dir / "nowhere"}) {
        fs::create_symlink(target, folder_of(file));
        if (target == his) {
            make_naively(folder_of(file) + "/naive");
            EXPECT_EQ(names_in(his), std::vector<std::string>{"naive"})
                << "in the attacker's folder";
            fs::remove(his + "/naive");
        }
        expect_refused(EACCES, folder_of(file));
        fs::remove(folder_of(file));
    }
    expect_works();
}

TEST_F(Trust, SymbolicLinkAsManifestIsTruncatedByOpenAndRefusedHere)
{
    const std::string precious = dir / "precious";
    fs::create_directory(folder_of(file));
    for (const std::string &name : {manifest_of(file), reflection_of(file)}) {
        write_file(precious, content);
        fs::create_symlink(precious, name);
        make_naively(name);
        EXPECT_EQ(read_file(precious), Bytes({'s', 'e', 'c', 'r', 'e', 't'})) << "clobbered";

        write_file(precious, content);
        if (name == manifest_of(file)) {
            expect_refused(ELOOP, name);
        } else { // no manifest vouches for it: it is cleared away, and what it points to is not
            expect_works();
        }
        EXPECT_EQ(read_file(precious), content);
        fs::remove(name);
    }
    expect_works();
}

TEST_F(Trust, FolderOfAForeignOwnerIsInHisHandsAndRefusedHere)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to give folders away";
    // As in /tmp: everybody may make names, nobody may take others' away.
    ASSERT_EQ(chmod(dir.path().c_str(), 01777), 0);
    ASSERT_EQ(mkdir(folder_of(file).c_str(), 0777), 0);
    ASSERT_EQ(chown(folder_of(file).c_str(), ATTACKER, ATTACKER), 0);
    const std::string mine = folder_of(file) + "/naive";
    make_naively(mine);
    EXPECT_EQ(in_child([&] {
                  if (setgid(ATTACKER) < 0 || setuid(ATTACKER) < 0)
                      return 99;
                  fs::remove(mine); // root's, in the attacker's folder
                  write_file(mine, Bytes({'f', 'o', 'r', 'g', 'e', 'd'}));
                  return 0;
              }),
              0);
    EXPECT_EQ(read_file(mine), Bytes({'f', 'o', 'r', 'g', 'e', 'd'}));
    fs::remove(mine);

    expect_refused(EACCES, folder_of(file));
    EXPECT_TRUE(has(ato_errormsg(), std::to_string(ATTACKER))) << ato_errormsg();
    // Nor does it for another user, whose the file is.
    ASSERT_EQ(chown(file.c_str(), VICTIM, VICTIM), 0);
    auto before = everything_in(dir.path());
    EXPECT_EQ(in_child([&] {
                  if (setgid(VICTIM) < 0 || setuid(VICTIM) < 0)
                      return 99;
                  Mapped m(file);
                  EXPECT_FALSE(m);
                  EXPECT_EQ(m.error, EACCES) << m.sentence;
                  EXPECT_TRUE(has(m.sentence, folder_of(file))) << m.sentence;
                  return static_cast<int>(HasFailure());
              }),
              0);
    EXPECT_EQ(everything_in(dir.path()), before);
    ASSERT_EQ(rmdir(folder_of(file).c_str()), 0);
    expect_works();
}

} // namespace
