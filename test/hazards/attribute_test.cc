// SPDX-License-Identifier: BSD-3-Clause
//
// The attribute says which reflection is a file's. What if somebody takes it away, puts another one
// in its place, or one id is on two files? An error: believing the number, the folder or the id
// alone gives bytes of something else.
#include "naive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

namespace
{

class Attribute : public Hazard
{
  protected:
    // A second file that is not plain either.
    void leave_slices_in_second()
    {
        write_file(second, theirs);
        Mapped m(second, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m && m.write(1000, pattern(9000, 5))) << m.sentence;
        theirs = m.read();
    }

    void expect_second()
    {
        Mapped m(second, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), theirs);
    }

    std::string second = dir / "second";
    Bytes theirs = pattern(SIZE, 7);
};

// A file without it counts as plain everywhere else.
TEST_F(Attribute, TakenAwayIsAnError)
{
    leave_slices();
    std::string value = attribute_of(path);
    ASSERT_EQ(removexattr(path.c_str(), "user.ato"), 0);
    expect_stale(read_file(path));
    for (int i = 0; i < 2; i++)
        expect_no(path, ESTALE, {path, reflection_of(path), "user.ato was taken away"});
    set_attribute(path, value);
    expect_maps(path);
}

TEST_F(Attribute, OfAnotherFileIsAnError)
{
    leave_slices();
    leave_slices_in_second();
    std::string mine = attribute_of(path), other = attribute_of(second);
    // As it is: the other file's reflection would be applied to this one.
    set_attribute(path, other);
    expect_garbage(overlay(read_file(path), read_file(reflection_of(second))));
    EXPECT_EQ(mine.substr(0, 5), other.substr(0, 5));
    std::string forged = other.substr(0, 38) + std::to_string(inode_of(path)) + " .ato";
    set_attribute(path, forged);
    EXPECT_EQ(by_number(path), content) << "right by chance: nothing but the id tells";
    expect_no(path, ESTALE, {path, folder_of(path)});
    set_attribute(path, mine);
    expect_maps(path);
    expect_second();
}

// Of an earlier pairing of the same file, put back from a backup together with the bytes.
TEST_F(Attribute, OfAnEarlierPairingIsAnError)
{
    leave_slices();
    std::string earlier = attribute_of(path);
    {
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m && m.write(0, pattern(4000, 5))) << m.sentence;
        content = m.read();
    }
    std::string now = attribute_of(path);
    ASSERT_EQ(earlier.substr(38), now.substr(38)) << "number and folder are the same";
    ASSERT_NE(earlier, now);
    Bytes plain = read_file(path);
    struct timespec times[2] = {stat_of(path).st_atim, stat_of(path).st_mtim};
    write_file(path, old);
    set_attribute(path, earlier);
    expect_garbage(by_number(path)); // who asks for number and folder
    for (unsigned flag : {0u, ATO_PREFER_REFLECTION})
        expect_no(path, ESTALE, {path, folder_of(path)},
                  options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, flag));
    write_file(path, plain);
    set_attribute(path, now);
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    expect_maps(path);
}

// The manifest's: a reflection folder restored from a backup has names that fit and ids that do
// not.
TEST_F(Attribute, ThatTheFoldersManifestDoesNotKnowIsAnError)
{
    leave_slices();
    Bytes manifest = read_file(manifest_of(path)), reflection = read_file(reflection_of(path));
    {
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m && m.write(1000, pattern(9000, 5))) << m.sentence;
        content = m.read();
    }
    Bytes its_manifest = read_file(manifest_of(path)), its_own = read_file(reflection_of(path));
    write_file(manifest_of(path), manifest);
    write_file(reflection_of(path), reflection);
    expect_garbage(by_number(path));
    expect_no(path, ESTALE, {path, folder_of(path)});
    write_file(manifest_of(path), its_manifest);
    write_file(reflection_of(path), its_own);
    expect_maps(path);
}

// As an image or a snapshot of a file system has it; here by hand, so that it takes no mount. The
// states of pages go by the id: two files would share one set of bitmaps.
TEST_F(Attribute, IdOnTwoFilesIsEbusyWhileOneOfThemIsMapped)
{
    leave_slices();
    leave_slices_in_second();
    std::string mine = attribute_of(path), other = attribute_of(second);
    manifest_record record;
    memcpy(&record, read_at(manifest_of(path), 0, sizeof(record)).data(), sizeof(record));
    patch_manifest(manifest_of(second),
                   [&](manifest_record &r) { memcpy(r.id, record.id, sizeof(r.id)); });
    set_attribute(second, mine.substr(0, 38) + other.substr(38));
    ASSERT_EQ(id_of(second), id_of(path));
    Bytes o = read_file(path), r = read_file(reflection_of(path));
    Bytes o2 = read_file(second), r2 = read_file(reflection_of(second));
    std::copy_n(r2.begin(), 4096, r.begin()); // the other one's bitmaps
    expect_garbage(overlay(o, r));
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        expect_no(second, EBUSY, {second, path, "same id"});
        EXPECT_EQ(m.read(), content);
        EXPECT_TRUE(m.write(0, pattern(100, 6))) << m.sentence; // it did no harm
        content = m.read();
    }
    EXPECT_EQ(read_file(second), o2);
    expect_second(); // alone
    expect_maps(path);
}

} // namespace
