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

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/vfs.h>

using namespace scene;

// A network file system, by its type only: of files and folders whose path has `false_place` in it. Replaces the C library's
// function.
static long false_type; // 0: none
static std::string false_place;

extern "C" int fstatfs64(int fd, struct statfs64 *s) noexcept
{
    const long r = syscall(SYS_fstatfs, fd, s);
    if (r == 0 && false_type &&
        fs::read_symlink("/proc/self/fd/" + std::to_string(fd)).string().find(false_place) !=
            std::string::npos)
        s->f_type = false_type;
    return static_cast<int>(r);
}

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

// A backup was restored: by size the two are found, refused, and joined, whenever the process dies meanwhile.
TEST_P(BareFile, RestoredFileIsJoinedWithItsReflection)
{
    switch_attributes_off(*this, GetParam());
    killed(*this);
    now = far("file");
    for (long k = 0, end = CUT; end == CUT; k++) {
        SCOPED_TRACE(k);
        fs::remove_all(dir / "b");
        ASSERT_TRUE(hazards::run_in(dir.path(), "cp -r a b"));
        expect_error(now, ESTALE, {now, far(".ato"), "ATO_PREFER_REFLECTION"});
        auto join = [&](unsigned flag) {
            Mapped m(now, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, flag));
            if (m) {
                EXPECT_EQ(m.read(), content);
            } else {
                EXPECT_EQ(m.error, flag ? 0 : ESTALE) << m.sentence;
            }
            m.base = nullptr;
        };
        end = in_child([&] {
            faults->before = [&](const FsCall &c) {
                return c.index == k ? DIE : strcmp(c.op, "fsetxattr") == 0 ? ENOTSUP : GO_ON;
            };
            join(ATO_PREFER_REFLECTION);
            return 0;
        });
        ASSERT_EQ(in_child([&] {
                      join(0);
                      join(ATO_PREFER_REFLECTION);
                      return static_cast<int>(HasFailure());
                  }),
                  0);
        EXPECT_TRUE(end == 0 || end == CUT);
        EXPECT_TRUE(end == CUT || k > 10);
    }
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
        const std::string elsewhere = dir / "reflections"; // slices could not come home
        ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
        o.reflection_dir = elsewhere.c_str();
        expect_error(p, EOPNOTSUPP, {p, "fallocate"}, o);
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

// ---- where libato is not safe, or not complete --------------------------------------------------

class OnNetwork : public Bare, public testing::WithParamInterface<std::pair<long, const char *>>
{
  protected:
    ~OnNetwork() override
    {
        false_type = 0;
        unsetenv("ATO_ANY_FILE_SYSTEM");
    }
    // Of files and folders whose path has this in it.
    static void pretend(const std::string &where)
    {
        false_type = GetParam().first;
        false_place = where;
    }
    void expect_plain_read() const
    {
        Fd fd(path, O_RDONLY);
        void *at = ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0);
        ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
        Bytes seen(SIZE);
        EXPECT_TRUE(ato_memcpy(seen.data(), at, SIZE)) << ato_errormsg();
        EXPECT_EQ(seen, old);
        EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_FAST), 0);
    }
};

// Another machine has neither the locks nor the shared memory. A plain file is only read.
TEST_P(OnNetwork, FileIsRefusedByItsTypeUnlessAnOptionSaysSo)
{
    pretend("/a");
    expect_no(path, ENOTSUP, {path, GetParam().second, "ATO_ANY_FILE_SYSTEM"});
    EXPECT_FALSE(exists(folder_of(path)));
    expect_plain_read();
    EXPECT_FALSE(exists(folder_of(path)));
    const std::string elsewhere = dir / "reflections";
    ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
    o.reflection_dir = elsewhere.c_str();
    pretend("/reflections");
    expect_error(path, ENOTSUP, {elsewhere, GetParam().second}, o);
    pretend("");
    o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_ANY_FILE_SYSTEM);
    o.domain = ATO_DOMAIN_PROCESS; // slices stay in the reflection
    leave_slices(o);
    Fd fd(path, O_RDONLY);
    for (bool with_log : {false, true}) {
        SCOPED_TRACE(with_log);
        expect_error(path, ENOTSUP, {GetParam().second});
        EXPECT_EQ(ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
        EXPECT_EQ(errno, ENOTSUP) << ato_errormsg();
        Environment any("ATO_ANY_FILE_SYSTEM", "1");
        expect_maps(path); // in domain disk: it gets a log
    }
    setenv("ATO_ANY_FILE_SYSTEM", "yes", 1);
    expect_error(path, EINVAL, {"ATO_ANY_FILE_SYSTEM"});
}

INSTANTIATE_TEST_SUITE_P(Types, OnNetwork,
                         testing::Values(std::pair(0x6969l, "NFS"), std::pair(0x517bl, "SMB"),
                                         std::pair(0xff534d42l, "SMB"),
                                         std::pair(0xfe534d42l, "SMB"),
                                         std::pair(0x01021997l, "9p"),
                                         std::pair(0x65735546l, "FUSE"),
                                         std::pair(0x00c36400l, "Ceph")),
                         [](const testing::TestParamInfo<std::pair<long, const char *>> &i) {
                             return i.param.second + std::to_string(i.index);
                         });

// As on unionfs: a process that may only read needs nothing that is not there. It notices a writer that comes, by the folder
// beside the file.
TEST_F(OnFileSystems, WithoutAttributesAPlainFileIsReadUntilAWriterComes)
{
    Fd fd(path, O_RDONLY);
    switch_attributes_off(*this, false);
    wait_for_clock(path, dir / "clock"); // else the reader looks again and again
    void *at = ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
    EXPECT_FALSE(exists(folder_of(path)));
    Bytes seen(SIZE);
    auto read = [&] { return ato_memcpy(seen.data(), at, SIZE) ? seen : Bytes(); };
    EXPECT_EQ(read(), old);
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m && m.write(3000, pattern(6000, 2))) << m.sentence;
        content = m.read();
        EXPECT_EQ(read(), content);
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
    EXPECT_EQ(read(), content);
    EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_FAST), 0);
}

// As in gVisor: fcntl() does not know the locks.
TEST_F(OnFileSystems, WithoutDescriptionLocksIsAnErrorThatSaysSo)
{
    EXPECT_PLAYED(in_child([&] {
        sock_filter code[] = {
            {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
            {BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_fcntl},
            {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, args[1])},
            {BPF_JMP | BPF_JGE | BPF_K, 0, 2, F_OFD_GETLK},
            {BPF_JMP | BPF_JGT | BPF_K, 1, 0, F_OFD_SETLKW},
            {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EINVAL},
            {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
        };
        const sock_fprog program = {std::size(code), code};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
            return hazards::NO_SCENE;
        expect_error(path, ENOSYS, {manifest_of(path), "F_OFD_SETLK"});
        return static_cast<int>(HasFailure());
    }));
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
