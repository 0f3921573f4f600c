// SPDX-License-Identifier: BSD-3-Clause
//
// What if nothing on the file can say where its reflection is, or the file is on another file system now? An
// inode number finds the wrong reflection, another name finds none. So birth time and generation decide, a
// file with several names is refused, and nothing stays in the reflection that a rename could lose. A file
// without a name is refused.
#include "hazards/lab.h"
#include "scene.h"
#include "support/without_attributes.h"

#include <cerrno>

#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>

using namespace scene;

namespace
{

class Bare : public Stage
{
  protected:
    ~Bare() override
    {
        no_attributes = false;
    }
};

class BareScene : public Bare, public testing::WithParamInterface<Scene>
{
};

TEST_P(BareScene, IsRightOrAClearError)
{
    play(GetParam());
}

// ---- no attributes ------------------------------------------------------------------------------

// On tmpfs, which has birth times: setting an attribute fails with ENOTSUP, and with `readable` false reading
// one, too. Current kernels mount no file system without attributes.
void switch_attributes_off(Stage &s, bool readable)
{
    no_attributes = !readable;
    s.faults = std::make_unique<FsFaults>();
    s.faults->fail_op("fsetxattr", ENOTSUP);
}

// The file's reflection is found by the birth time: a killed process loses nothing.
std::vector<Scene> without_attributes(bool readable)
{
    auto bare = [readable](Stage &s) {
        switch_attributes_off(s, readable);
        killed(s);
    };
    return {{"Killed", bare, nothing, stale_alone, FOUND},
            {"KilledAndRenamedInItsFolder", bare,
             [](Stage &s) { s.move(s.path, s.now = s.near("other")); }, stale_alone, FOUND},
            {"KilledAndAnotherHasItsNumber", bare, change_birth,
             [](Stage &s) { EXPECT_NE(by_number(s.path), read_file(s.path)); }, SET_ASIDE}};
}

INSTANTIATE_TEST_SUITE_P(OnlyRead, BareScene, testing::ValuesIn(without_attributes(true)), name_of);
INSTANTIATE_TEST_SUITE_P(NoAttributes, BareScene, testing::ValuesIn(without_attributes(false)),
                         name_of);

class BareFile : public Bare, public testing::WithParamInterface<bool>
{
};

// If slices stayed in the reflection, a rename would lose it: so a fast unmap makes the file plain.
TEST_P(BareFile, FastUnmapMakesTheFilePlainSoThatARenameLosesNothing)
{
    leave_slices();
    remove_attribute(path);
    fs::rename(path, far("file"));
    expect_stale(read_file(far("file")));
    {
        Mapped m(far("file"));
        EXPECT_EQ(m.read(), read_file(far("file"))) << "no map can notice it";
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    }
    fs::rename(far("file"), path);
    fs::remove_all(folder_of(path));
    write_file(path, old);
    switch_attributes_off(*this, GetParam());
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m && m.write(3000, pattern(6000, 2))) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    }
    EXPECT_TRUE(names_in(folder_of(path)).empty());
    fs::rename(path, far("file"));
    EXPECT_EQ(read_file(far("file")), content);
    expect_maps(far("file"));
}

// No reflection is found beside another name.
TEST_P(BareFile, FileOfSeveralNamesIsRefused)
{
    fs::create_hard_link(path, far("twin"));
    leave_slices();
    remove_attribute(path);
    expect_stale(by_number(far("twin")));
    fs::remove_all(folder_of(path));
    write_file(path, content = old);
    switch_attributes_off(*this, GetParam());
    for (const std::string &name : {path, far("twin")})
        expect_error(name, EINVAL, {name, "links"});
    EXPECT_EQ(read_file(path), old);
    fs::remove(far("twin"));
    expect_maps(path);
}

INSTANTIATE_TEST_SUITE_P(Attributes, BareFile, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &info) {
                             return info.param ? "OnlyRead" : "None";
                         });

// ---- other file systems -------------------------------------------------------------------------

using OnFileSystems = Bare;

// A file system without attributes and without fallocate(): space cannot be guaranteed.
TEST_F(OnFileSystems, RamfsIsRefusedWithAReason)
{
    EXPECT_PLAYED(in_child([&] {
        const std::string p = far("file");
        if (!hazards::alone() || !fs::create_directories(dir / "b") ||
            mount("ato-test", (dir / "b").c_str(), "ramfs", 0, nullptr) < 0)
            return hazards::NO_SCENE;
        write_file(p, old);
        expect_error(p, EOPNOTSUPP, {dir / "b", "fallocate"});
        EXPECT_EQ(read_file(p), old);
        return static_cast<int>(HasFailure());
    }));
}

// With attributes and without: the birth time decides.
TEST_F(OnFileSystems, ReusedInodeNumberOnExt4DoesNotGetTheReflectionOfARemovedFile)
{
    TempDir there("/tmp");
    for (bool with : {true, false})
        EXPECT_PLAYED(in_child([&] {
            const std::string disk = there / (with ? "disk" : "bare");
            if (!hazards::alone() || !hazards::mount_disk("/dev/shm/image", disk, 32, "-I 256"))
                return hazards::NO_SCENE;
            path = disk + "/file";
            write_file(path, content);
            if (!with)
                switch_attributes_off(*this, false);
            killed(*this);
            const uint64_t inode = inode_of(path);
            fs::remove(path);
            const Bytes theirs = pattern(SIZE, 7);
            std::string second;
            for (int i = 0; i < 100 && (i == 0 || inode_of(second) != inode); i++)
                write_file(second = disk + "/second" + std::to_string(i), theirs);
            if (inode_of(second) != inode)
                return hazards::NO_SCENE;
            EXPECT_NE(by_number(second), theirs);
            expect_garbage(by_number(second));
            expect_set_aside(second, theirs);
            return static_cast<int>(HasFailure());
        }));
}

// Two file systems with one reflection folder. The live pairing is not set aside.
TEST_F(OnFileSystems, InodeNumberInUseOnTwoFileSystemsIsAnError)
{
    EXPECT_PLAYED(in_child([&] {
        const std::string b = far("file"), folder = dir / "reflections", other = dir / "others";
        if (!hazards::alone() || !hazards::mount_memory(dir / "a", "") ||
            !hazards::mount_memory(dir / "b", ""))
            return hazards::NO_SCENE;
        const Bytes theirs = pattern(SIZE, 7);
        write_file(path, old);
        wait_for_clock(path, dir / "clock");
        write_file(b, theirs);
        if (inode_of(path) != inode_of(b))
            return hazards::NO_SCENE;
        in_callers_folder(*this);
        EXPECT_NE(by_number(b, folder), theirs);
        expect_garbage(by_number(b, folder));
        ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
        o.reflection_dir = folder.c_str();
        expect_no(b, ESTALE, {folder + "/" + std::to_string(inode_of(b)), b, "another file system"},
                  o);
        expect_maps(path);
        o.reflection_dir = other.c_str();
        content = theirs;
        expect_maps(b, o);
        return static_cast<int>(HasFailure());
    }));
}

// mv copies and unlinks.
TEST_F(OnFileSystems, MovedAcrossFileSystemsIsAnErrorAndTheReflectionStays)
{
    const std::string disk = disk_folder();
    if (disk.empty())
        GTEST_SKIP() << "no folder on a disk";
    TempDir there_is(disk);
    const std::string there = fs::path(there_is / "file").lexically_normal();
    leave_slices();
    const std::string reflection = reflection_of(path);
    const Bytes kept = read_file(reflection);
    ASSERT_TRUE(hazards::run_in(dir / "a", "mv file " + there));
    if (attribute_of(there).empty())
        GTEST_SKIP() << "no attributes on " << disk;
    ASSERT_FALSE(exists(path));
    expect_stale(by_number(there));
    const Everything before(there_is.path());
    expect_error(there, ESTALE,
                 {there, "source (inode " + fs::path(reflection).filename().string()});
    EXPECT_TRUE(before == Everything(there_is.path()));
    EXPECT_EQ(read_file(reflection), kept) << "the only place where the bytes are";
    // File and reflection, moved together by hand or by a tool, still have the content.
    EXPECT_EQ(overlay(read_file(there), kept), content);
    content = read_file(there);
    expect_maps(there, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_PREFER_FILE));
    EXPECT_EQ(read_file(reflection), kept);
}

// ---- no name, or no file ------------------------------------------------------------------------

class Unnamed : public Bare
{
  protected:
    void expect_einval(int fd, const std::string &word)
    {
        void *at = ato_mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        EXPECT_EQ(at, MAP_FAILED);
        EXPECT_EQ(errno, EINVAL) << ato_errormsg();
        EXPECT_TRUE(hazards::has(ato_errormsg(), word)) << ato_errormsg();
        EXPECT_FALSE(exists(near(".ato")));
    }
    static std::string descriptor(int fd)
    {
        return "descriptor " + std::to_string(fd);
    }
};

TEST_F(Unnamed, UnlinkedFileIsRefused)
{
    const uint64_t inode = inode_of(path);
    Fd fd(path);
    fs::remove(path);
    // A reflection named by the inode number would outlive the file, and be found by the next file with that
    // number.
    const std::string orphan = dir / ("orphan-" + std::to_string(inode));
    write_file(orphan, pattern(layout_reflection_bytes(LAYOUT_DENSE, SIZE), 3));
    for (const std::string &name : names_in(dir.path()))
        EXPECT_NE(inode_of(dir / name), inode) << "nothing leads to it";
    expect_garbage(overlay(pattern(SIZE, 7), read_file(orphan)));
    expect_einval(fd, descriptor(fd));
}

TEST_F(Unnamed, FileThatNeverHadANameIsRefused)
{
    int fd = ::open((dir / "a").c_str(), O_TMPFILE | O_RDWR, 0600);
    if (fd < 0)
        GTEST_SKIP() << "no O_TMPFILE here";
    Fd own(fd);
    ASSERT_EQ(ftruncate(fd, SIZE), 0);
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    EXPECT_FALSE(exists(fs::read_symlink(link))) << "the kernel's name for it leads nowhere";
    expect_einval(fd, descriptor(fd));
    // With a name it is an ordinary file.
    ASSERT_EQ(linkat(AT_FDCWD, link.c_str(), AT_FDCWD, near("named").c_str(), AT_SYMLINK_FOLLOW),
              0);
    Mapped m(near("named"));
    EXPECT_TRUE(m) << m.sentence;
}

// The other name is in another folder: a reflection beside the removed name would be lost.
TEST_F(Unnamed, FileWhoseOpenedNameWasRemovedIsRefused)
{
    fs::create_hard_link(path, far("twin"));
    Fd fd(path);
    fs::remove(path);
    EXPECT_EQ(stat_of(far("twin")).st_nlink, 1u);
    expect_einval(fd, descriptor(fd));
    expect_maps(far("twin"));
}

TEST_F(Unnamed, SocketIsRefused)
{
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    Fd a(ends[0]), b(ends[1]);
    expect_einval(a, "regular file");
}

} // namespace
