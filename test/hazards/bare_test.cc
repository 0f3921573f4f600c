// SPDX-License-Identifier: BSD-3-Clause
//
// What if nothing can be written on the file that says where its reflection is? An inode number
// finds the wrong one, another name finds none. So birth time and generation decide, a file of
// several names is refused, and nothing is left that a rename could lose. Attributes are switched
// off by a call of this program's own: kernels of today mount nothing without them.
#include "hazards/lab.h"
#include "support/faults.h"
#include "support/without_attributes.h"

#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace hazards;

namespace
{

constexpr size_t SIZE = 4 * 4096;

class Bare : public testing::Test
{
  protected:
    Bare()
    {
        fs::create_directory(dir / "a");
        fs::create_directory(dir / "b");
        write_file(file, old);
    }
    ~Bare() override
    {
        no_attributes = false;
    }

    void switch_attributes_off()
    {
        no_attributes = true;
        faults.fail_op("fsetxattr", ENOTSUP);
    }

    void write_atomically(const std::string &path)
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(m.write(3000, pattern(6000, 2))) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    }

    static void die_with(const std::string &path)
    {
        ASSERT_EQ(in_child([&] {
                      Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
                      bool good = m && m.write(3000, pattern(6000, 2));
                      m.base = nullptr;
                      return good ? 0 : 1;
                  }),
                  0);
    }

    TempDir dir;
    const std::string file = dir / "a/file", elsewhere = dir / "b/file";
    const Bytes old = pattern(SIZE, 1), content = over(old, 3000, pattern(6000, 2));
    FsFaults faults;
};

TEST_F(Bare, RenameLosesAReflectionThatNothingTellsOfAndNothingIsLeftHere)
{
    // The rule switched off: left in the reflection as ever, and then nothing tells of it.
    write_atomically(file);
    ASSERT_EQ(removexattr(file.c_str(), "user.ato"), 0);
    fs::rename(file, elsewhere);
    EXPECT_EQ(read_file(elsewhere), old) << "stale, without an error";
    {
        Mapped m(elsewhere);
        EXPECT_EQ(m.read(), old) << "nobody can know";
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    }
    fs::remove_all(folder_of(file));

    fs::rename(elsewhere, file);
    switch_attributes_off();
    write_atomically(file);
    EXPECT_TRUE(names_in(folder_of(file)).empty());
    fs::rename(file, elsewhere);
    EXPECT_EQ(read_file(elsewhere), content);
    Mapped m(elsewhere);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
}

TEST_F(Bare, OtherNameFindsNoReflectionAndAFileOfSeveralIsEinvalHere)
{
    fs::create_hard_link(file, elsewhere);
    write_atomically(file); // with attributes
    ASSERT_EQ(removexattr(file.c_str(), "user.ato"), 0);
    EXPECT_FALSE(exists(reflection_of(elsewhere))) << "beside its other name";
    EXPECT_EQ(read_file(elsewhere), old) << "stale, without an error";
    fs::remove_all(folder_of(file));

    switch_attributes_off();
    Snapshot before = everything_in(dir.path());
    for (const std::string &name : {file, elsewhere}) {
        Mapped m(name);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EINVAL) << m.sentence;
        EXPECT_TRUE(has(m.sentence, name)) << m.sentence;
        EXPECT_TRUE(has(m.sentence, "links")) << m.sentence;
        EXPECT_EQ(read_file(name), old);
    }
    fs::remove(elsewhere);
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), old);
}

// ext4 gives an inode number out again at once.
TEST_F(Bare, InodeNumberFindsTheReflectionOfADeadFileAndItsBirthDoesNot)
{
    TempDir there("/tmp");
    EXPECT_PLAYED(in_child([&] {
        const std::string disk = there / "disk", p = disk + "/file";
        if (!alone() || !mount_disk("/dev/shm/image", disk, 32, "-I 256"))
            return NO_SCENE;
        switch_attributes_off();
        write_file(p, old);
        die_with(p);
        const uint64_t number = inode_of(p);
        const std::string left = reflection_of(p);
        fs::remove(p);
        const Bytes fresh = pattern(SIZE, 9);
        write_file(p, fresh);
        if (inode_of(p) != number)
            return NO_SCENE;
        EXPECT_EQ(reflection_of(p), left) << "found by number, another file's";
        Bytes theirs = read_at(left, 2 * 4096, 64); // home R of page 1
        EXPECT_TRUE(theirs == Bytes(content.begin() + 4096, content.begin() + 4160))
            << "what it would be read as";

        Log log;
        Mapped m(p);
        EXPECT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), fresh);
        EXPECT_TRUE(log.has(ATO_LOG_WARNING, "set aside"));
        EXPECT_TRUE(log.has(ATO_LOG_WARNING, left));
        EXPECT_TRUE(m.write(3000, pattern(6000, 2))) << m.sentence;
        EXPECT_EQ(m.read(), over(fresh, 3000, pattern(6000, 2)));
        return static_cast<int>(HasFailure());
    }));
}

// And the file's own is found by its birth: a killed process loses nothing.
TEST_F(Bare, KilledProcessLosesItsWritesByPlainReadAndNoneHere)
{
    switch_attributes_off();
    die_with(file);
    EXPECT_EQ(read_file(file), old) << "the file alone";
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    EXPECT_EQ(read_file(file), content);
}

// A real one that has neither attributes nor fallocate(): space cannot be promised.
TEST_F(Bare, RamfsIsRefusedWithAReason)
{
    TempDir there("/tmp");
    EXPECT_PLAYED(in_child([&] {
        const std::string disk = there / "disk", p = disk + "/file";
        fs::create_directory(disk);
        if (!alone() || mount("ato-test", disk.c_str(), "ramfs", 0, nullptr) < 0)
            return NO_SCENE;
        write_file(p, old);
        Mapped m(p);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EOPNOTSUPP) << m.sentence;
        EXPECT_TRUE(has(m.sentence, disk)) << m.sentence;
        EXPECT_TRUE(has(m.sentence, "fallocate")) << m.sentence;
        EXPECT_EQ(read_file(p), old);
        return static_cast<int>(HasFailure());
    }));
}

} // namespace
