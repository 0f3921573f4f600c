// SPDX-License-Identifier: BSD-3-Clause
//
// Tools that copy a file take its attribute along, and with it a pairing that is not the copy's.
// When the source was not plain, the copy has bytes that the file never held together: an error
// says so.
#include "mounts.h"
#include "naive.h"

#include <sys/xattr.h>

namespace
{

// A tool that copies `file` to `copy`, with attributes.
struct Tool {
    const char *name, *command;
};

class Copied : public Hazard, public testing::WithParamInterface<Tool>
{
  protected:
    Copied() : copy(dir / "copy")
    {
    }

    bool have_tool() const
    {
        return run_in(dir.path(), std::string("command -v ") + GetParam().name);
    }

    void make_copy()
    {
        ASSERT_TRUE(run_in(dir.path(), GetParam().command));
        ASSERT_EQ(attribute_of(copy), attribute_of(path)) << "came along";
        ASSERT_NE(inode_of(copy), inode_of(path));
    }

    // The folder that it lies in then.
    std::string take_copy_away() const
    {
        std::string far = dir / "far";
        fs::create_directory(far);
        fs::rename(copy, far + "/copy");
        return far;
    }

    std::string copy;
};

// Who believes the copied attribute has two files with one reflection: what is written to the one
// moves the other's valid homes.
TEST_P(Copied, OfAFileWithSlicesElsewhereIsAnErrorAndTheAttributeIsDropped)
{
    if (!have_tool())
        GTEST_SKIP() << "no " << GetParam().name << " here";
    leave_slices();
    make_copy();
    Bytes stale = read_file(copy);
    expect_stale(stale);
    EXPECT_EQ(overlay(stale, read_file(reflection_of(path))), content) << "right by chance";
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m && m.write(1000, pattern(6000, 4))) << m.sentence;
        content = m.read();
    }
    expect_garbage(overlay(stale, read_file(reflection_of(path))));

    Everything before(folder_of(path));
    Bytes source = read_file(path);
    std::string attribute = attribute_of(path);
    {
        Mapped m(copy);
        ASSERT_FALSE(m);
        EXPECT_EQ(m.error, ESTALE) << m.sentence;
        EXPECT_NE(m.sentence.find(copy + " is a copy"), std::string::npos) << m.sentence;
    }
    EXPECT_EQ(attribute_of(copy), "");
    EXPECT_EQ(read_file(copy), stale);
    EXPECT_TRUE(before == Everything(folder_of(path)));
    EXPECT_EQ(read_file(path), source);
    EXPECT_EQ(attribute_of(path), attribute);
    { // its owner knows now: it is taken as it is, with a reflection of its own
        Mapped m(copy);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), stale);
        EXPECT_TRUE(m.write(0, pattern(100, 9))) << m.sentence;
    }
    EXPECT_NE(id_of(copy), id_of(path));
    expect_maps(path);
}

TEST_P(Copied, OfAFileWhoseSlicesAreAllAtHomeIsAFileLikeAnyOther)
{
    if (!have_tool())
        GTEST_SKIP() << "no " << GetParam().name << " here";
    leave_nothing();
    make_copy();
    std::string shared = reflection_of(path);
    Log log;
    expect_maps(copy);
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, copy + " carried the attribute"));
    EXPECT_NE(id_of(copy), id_of(path));
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m && m.write(3000, pattern(6000, 4))) << m.sentence;
    }
    EXPECT_NE(overlay(read_file(copy), read_file(shared)), content)
        << "what the source writes, through a reflection that both believe theirs";
    expect_maps(copy);
}

// What the source has in its reflection now tells nothing of then.
TEST_P(Copied, OfAFileThatHasBeenDeployedSinceIsAnError)
{
    if (!have_tool())
        GTEST_SKIP() << "no " << GetParam().name << " here";
    for (bool clean : {true, false}) {
        SCOPED_TRACE(clean);
        write_file(path, old);
        content = old;
        leave_slices();
        make_copy();
        Bytes stale = read_file(copy);
        expect_stale(stale);
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.read(), content); // a lazy read deploys
        ASSERT_EQ(m.stat().slices_in_reflection, 0u);
        if (clean) {
            ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
        }
        EXPECT_EQ(by_number(path), content) << "who looks at the source now finds it in order";
        {
            Mapped c(copy);
            ASSERT_FALSE(c) << "stale bytes, without a word";
            EXPECT_EQ(c.error, ESTALE) << c.sentence;
            EXPECT_NE(c.sentence.find(copy + " is a copy"), std::string::npos) << c.sentence;
        }
        EXPECT_EQ(read_file(copy), stale);
        fs::remove(copy);
        if (!clean) {
            ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
        }
        expect_maps(path);
        Mapped last(path);
        ASSERT_TRUE(last) << last.sentence;
        ASSERT_EQ(last.unmap(ATO_UNMAP_SPATIAL), 0);
    }
}

TEST_P(Copied, ToAnotherFolderIsAnErrorEachTimeAndKeepsWhatItKnows)
{
    if (!have_tool())
        GTEST_SKIP() << "no " << GetParam().name << " here";
    leave_slices();
    make_copy();
    const std::string far = take_copy_away();
    expect_stale(read_file(far + "/copy"));
    for (int i = 0; i < 2; i++)
        expect_no(far + "/copy", ESTALE,
                  {far + "/copy", "copied or moved", std::to_string(inode_of(path))});
    expect_maps(path);
    // The owner says that these are the bytes.
    Bytes stale = read_file(far + "/copy");
    ASSERT_EQ(removexattr((far + "/copy").c_str(), "user.ato"), 0);
    Mapped m(far + "/copy");
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), stale);
}

// The folder with its .ato: every piece is there, for other inodes.
TEST_P(Copied, TogetherWithItsFolderIsAnError)
{
    if (!have_tool())
        GTEST_SKIP() << "no " << GetParam().name << " here";
    leave_slices();
    make_copy();
    const std::string far = take_copy_away();
    fs::copy(folder_of(path), far + "/.ato");
    std::string reflection = far + "/.ato/" + std::to_string(inode_of(path));
    ASSERT_TRUE(exists(reflection));
    expect_stale(by_number(far + "/copy")); // by its own number there is none
    Everything before(far + "/.ato");
    {
        Mapped m(far + "/copy");
        ASSERT_FALSE(m);
        EXPECT_EQ(m.error, ESTALE) << m.sentence;
        EXPECT_NE(m.sentence.find(far + "/copy is a copy"), std::string::npos) << m.sentence;
    }
    EXPECT_TRUE(before == Everything(far + "/.ato"));
    expect_maps(path);
}

// In place: inode and attribute fit, the bytes are older than the reflection's.
TEST_P(Copied, BackOverTheFileAfterItWentOnIsNoticed)
{
    if (!have_tool())
        GTEST_SKIP() << "no " << GetParam().name << " here";
    leave_slices();
    make_copy(); // a backup
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m && m.write(0, pattern(12000, 4))) << m.sentence;
        content = m.read();
    }
    uint64_t inode = inode_of(path);
    ASSERT_TRUE(run_in(dir.path(), "cp -a copy file")); // in place, times and attribute too
    ASSERT_EQ(inode_of(path), inode);
    ASSERT_NE(attribute_of(path), "");
    expect_garbage(by_number(path));
    expect_no(path, ESTALE, {path, "written by other means", reflection_of(path)});
}

INSTANTIATE_TEST_SUITE_P(
    With, Copied,
    testing::Values(Tool{"cp", "cp -a file copy"},
                    Tool{"tar", "mkdir -p t && tar --xattrs -cf t.tar file && tar --xattrs "
                                "--xattrs-include='user.*' -xf t.tar -C t && mv t/file copy"},
                    Tool{"rsync", "rsync -aX file copy"}),
    [](const testing::TestParamInfo<Tool> &info) { return info.param.name; });

// ---- mv across file systems: copy, then unlink --------------------------------------------------

class MovedAcross : public Hazard
{
};

TEST_F(MovedAcross, FileSystemsIsAnErrorAndTheReflectionStays)
{
    std::string disk = disk_folder();
    if (disk.empty())
        GTEST_SKIP() << "no folder on a disk";
    TempDir far(disk);
    std::string there = fs::path(far / "file").lexically_normal();
    leave_slices();
    std::string reflection = reflection_of(path);
    Bytes kept = read_file(reflection);
    ASSERT_TRUE(run_in(dir.path(), "mv file " + there));
    if (attribute_of(there).empty())
        GTEST_SKIP() << "no attributes on " << disk;
    ASSERT_FALSE(exists(path));
    expect_stale(by_number(there));
    {
        Everything before(far.path());
        Mapped m(there);
        ASSERT_FALSE(m);
        EXPECT_EQ(m.error, ESTALE) << m.sentence;
        EXPECT_NE(m.sentence.find(there), std::string::npos) << m.sentence;
        EXPECT_NE(m.sentence.find("reflection (inode " + fs::path(reflection).filename().string()),
                  std::string::npos)
            << m.sentence;
        EXPECT_TRUE(before == Everything(far.path()));
    }
    EXPECT_EQ(read_file(reflection), kept) << "the only place where the bytes are";
    // By hand, or by a tool: file and reflection together are the content still.
    EXPECT_EQ(overlay(read_file(there), kept), content);
    // As it lies there, when somebody says so.
    Bytes plain = read_file(there);
    Mapped m(there, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_PREFER_FILE));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), plain);
    EXPECT_EQ(read_file(reflection), kept);
}

} // namespace
