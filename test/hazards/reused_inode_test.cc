// SPDX-License-Identifier: BSD-3-Clause
//
// An inode number is no identity: file systems give it out again. What becomes of the reflection of
// a file that is gone, when a new file has its number? It is set aside, and never applied.
#include "mounts.h"
#include "naive.h"

namespace
{

class ReusedInode : public Hazard
{
  protected:
    // The pairing of a file that is gone, where the new file's would be.
    void give_number_to(const std::string &second)
    {
        uint64_t inode = inode_of(second);
        fs::rename(manifest_of(path), manifest_of(second));
        fs::rename(reflection_of(path), reflection_of(second));
        patch_manifest(manifest_of(second), [&](manifest_record &r) { r.inode = inode; });
        fs::remove(path);
    }

    // The new file has its own bytes, now and later; the stale pairing is kept as it was.
    void expect_set_aside(const std::string &second, const Bytes &theirs)
    {
        std::string number = std::to_string(inode_of(second)), folder = folder_of(second);
        Bytes reflection = read_file(reflection_of(second)),
              manifest = read_file(manifest_of(second));
        std::string aside;
        Log log;
        {
            Mapped m(second, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), theirs);
            EXPECT_EQ(m.stat().slices_in_reflection, 0u);
        }
        for (const std::string &name : names_in(folder))
            if (name.rfind(number + ".stale-", 0) == 0 && fs::path(name).extension() != ".manifest")
                aside = name;
        ASSERT_NE(aside, "");
        EXPECT_TRUE(log.has(ATO_LOG_WARNING, folder + "/" + number + " "));
        EXPECT_TRUE(log.has(ATO_LOG_WARNING, "set aside as " + aside));
        EXPECT_EQ(read_file(folder + "/" + aside), reflection) << "evidence, and it was changed";
        EXPECT_EQ(read_file(folder + "/" + aside + ".manifest"), manifest);
        // Nothing is left under the number that any program could apply; and there is one warning.
        EXPECT_EQ(by_number(second), theirs);
        Log later;
        Mapped again(second);
        ASSERT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), theirs);
        EXPECT_FALSE(later.has(ATO_LOG_WARNING, "set aside"));
    }
};

TEST_F(ReusedInode, StaleReflectionIsSetAsideAndNeverApplied)
{
    leave_slices();
    std::string second = dir / "second";
    const Bytes theirs = pattern(SIZE, 7);
    write_file(second, theirs);
    give_number_to(second);
    Bytes naive = by_number(second); // bytes of a file that is gone in the middle of another one
    EXPECT_NE(naive, theirs);
    expect_garbage(naive);
    expect_set_aside(second, theirs);
}

// The new file is longer: its pages lie where the old reflection has none.
TEST_F(ReusedInode, LargerFileDoesNotMeetAShorterReflection)
{
    leave_slices();
    std::string second = dir / "second";
    const Bytes theirs = pattern(3 * SIZE, 7);
    write_file(second, theirs);
    give_number_to(second);
    EXPECT_NE(by_number(second), theirs);
    EXPECT_LT(size_of(reflection_of(second)), layout_reflection_bytes(theirs.size()));
    expect_set_aside(second, theirs);
}

TEST_F(ReusedInode, NumberThatExt4GivesOutAgain)
{
    TempDir lab("/tmp");
    int status = with_mounts(
        lab.path(),
        "mkdir a && truncate -s 16M disk && mkfs.ext4 -q -F disk && mount -o loop disk a", [&] {
            path = lab / "a/file";
            content = old;
            write_file(path, content);
            leave_slices();
            uint64_t inode = inode_of(path);
            fs::remove(path);
            const Bytes theirs = pattern(SIZE, 7);
            std::string second;
            for (int i = 0; i < 100 && (i == 0 || inode_of(second) != inode); i++) {
                second = lab / ("a/second" + std::to_string(i));
                write_file(second, theirs);
            }
            if (inode_of(second) != inode) {
                run_in(lab.path(), "umount a");
                return NO_MOUNTS + 1;
            }
            Bytes naive = by_number(second);
            EXPECT_NE(naive, theirs);
            expect_garbage(naive);
            expect_set_aside(second, theirs);
            run_in(lab.path(), "umount a");
            return static_cast<int>(HasFailure());
        });
    if (status == NO_MOUNTS)
        GTEST_SKIP() << "cannot mount a disk image here";
    if (status == NO_MOUNTS + 1)
        GTEST_SKIP() << "the inode number was not given out again";
    EXPECT_EQ(status, 0);
}

// Two file systems, one reflection folder: the number is alive twice. The live one is not pushed
// aside.
TEST_F(ReusedInode, NumberThatIsAliveOnTwoFileSystemsIsAnError)
{
    int status =
        with_mounts(dir.path(), "mkdir a b && mount -t tmpfs none a && mount -t tmpfs none b", [&] {
            std::string a = dir / "a/file", b = dir / "b/file", folder = dir / "reflections";
            const Bytes theirs = pattern(SIZE, 7);
            write_file(a, old);
            wait_for_clock(a, dir / "clock");
            write_file(b, theirs);
            if (inode_of(a) != inode_of(b))
                return NO_MOUNTS;
            ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
            o.reflection_dir = folder.c_str();
            content = old;
            std::copy_n(pattern(6000, 2).begin(), 6000, content.begin() + 3000);
            {
                Mapped m(a, o);
                EXPECT_TRUE(m && m.write(3000, pattern(6000, 2))) << m.sentence;
            }
            EXPECT_NE(by_number(b, folder), theirs);
            expect_garbage(by_number(b, folder));
            expect_no(b, ESTALE,
                      {folder + "/" + std::to_string(inode_of(b)), b, "another file system"}, o);
            expect_maps(a);
            std::string other = dir / "others";
            o.reflection_dir = other.c_str();
            Mapped m(b, o);
            EXPECT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), theirs);
            return static_cast<int>(HasFailure());
        });
    if (status == NO_MOUNTS)
        GTEST_SKIP() << "cannot mount file systems here";
    EXPECT_EQ(status, 0);
}

} // namespace
