// SPDX-License-Identifier: BSD-3-Clause
//
// What if something of a pairing is missing, damaged or of another kind? A clear error that names
// it, and nothing changed: never an empty reflection in its place, never stale bytes.
#include "pairing_lab.h"

#include <sys/stat.h>

#include <sys/xattr.h>
#include <unistd.h>

namespace
{

TEST_F(Pairing, MissingReflectionIsAnErrorAndNeverAnEmptyOne)
{
    leave_slices();
    fs::remove(reflection_of(path));
    expect_refused(path, ESTALE, "reflection");
}

TEST_F(Pairing, MissingManifestIsAnError)
{
    leave_slices();
    fs::remove(manifest_of(path));
    expect_refused(path, ESTALE, "missing");
}

TEST_F(Pairing, MissingFolderIsAnError)
{
    leave_slices();
    fs::remove_all(folder_of(path));
    expect_refused(path, ESTALE, "missing");
}

TEST_F(Pairing, AttributeTakenAwayIsAnError)
{
    leave_slices();
    ASSERT_EQ(removexattr(path.c_str(), "user.ato"), 0);
    expect_refused(path, ESTALE, "user.ato");
}

TEST_F(Pairing, AttributeOfAnotherPairingIsAnError)
{
    leave_slices();
    std::string value = attribute_of(path);
    value[5] = value[5] == '0' ? '1' : '0'; // a digit of the id
    set_attribute(path, value);
    expect_refused(path, ESTALE, "missing");
}

TEST_F(Pairing, DamagedAttributeIsAnError)
{
    leave_slices();
    set_attribute(path, "ato1 no such thing");
    expect_refused(path, EUCLEAN, "user.ato");
}

// No hang, and no pairing: whatever can be read of a pipe is no manifest.
TEST_F(Pairing, NamedPipesInPlaceOfManifestAndReflectionAreErrors)
{
    leave_slices();
    for (const std::string &name : {manifest_of(path), reflection_of(path)}) {
        fs::rename(name, dir / "kept");
        ASSERT_EQ(mkfifo(name.c_str(), 0600), 0);
        Mapped m(path);
        ASSERT_FALSE(m);
        EXPECT_NE(m.sentence.find(name), std::string::npos) << m.sentence;
        fs::remove(name);
        fs::rename(dir / "kept", name);
    }
    expect_maps(path);
}

TEST_F(Pairing, ReflectionTooShortIsAnErrorThatTellsBothLengths)
{
    leave_slices();
    uint64_t full = size_of(reflection_of(path));
    ASSERT_EQ(truncate(reflection_of(path).c_str(), static_cast<off_t>(full - 4096)), 0);
    expect_refused(path, EUCLEAN, std::to_string(full));
}

TEST_F(Pairing, ReflectionThatIsASymbolicLinkIsRefused)
{
    leave_slices();
    std::string reflection = reflection_of(path);
    fs::rename(reflection, dir / "real");
    fs::create_symlink(dir / "real", reflection);
    Mapped m(path);
    EXPECT_FALSE(m);
    EXPECT_EQ(m.error, ELOOP) << m.sentence;
}

TEST_F(Pairing, ManifestWithBothCopiesDamagedIsAnError)
{
    leave_slices();
    Bytes bytes = read_file(manifest_of(path));
    bytes[100] ^= 1;
    bytes[MANIFEST_COPY_BYTES + 100] ^= 1;
    write_file(manifest_of(path), bytes);
    expect_refused(path, EUCLEAN, "damaged");
}

TEST_F(Pairing, ManifestOfZerosIsAnErrorWhileTheFileSaysOtherwise)
{
    leave_slices();
    write_file(manifest_of(path), Bytes(MANIFEST_BYTES));
    Mapped m(path);
    EXPECT_FALSE(m);
    EXPECT_EQ(m.error, ESTALE) << m.sentence;
}

TEST_F(Pairing, ManifestWithOneDamagedCopyStillHolds)
{
    for (size_t copy : {0, MANIFEST_COPY_BYTES}) {
        leave_slices();
        Bytes bytes = read_file(manifest_of(path));
        bytes[copy + 300] ^= 0x10;
        write_file(manifest_of(path), bytes);
        expect_maps(path);
    }
}

TEST_F(Pairing, ManifestOfAnotherVersionIsNamedAsSuch)
{
    leave_slices();
    patch_manifest(manifest_of(path), [](manifest_record &r) { r.version = 7; });
    expect_refused(path, EUCLEAN, "version 7");
}

TEST_F(Pairing, ManifestOfAFileOfAnotherBirthIsRefusedThoughTheAttributeFits)
{
    leave_slices();
    patch_manifest(manifest_of(path), [](manifest_record &r) { r.birth_nsec ^= 1; });
    expect_refused(path, ESTALE, "another file");
}

TEST_F(Pairing, ManifestOfTheSparseFormatIsRefused)
{
    leave_slices();
    patch_manifest(manifest_of(path), [](manifest_record &r) { r.format = 1; });
    expect_refused(path, EUCLEAN, "format");
}

TEST_F(Pairing, DamagedSizeWordIsAnError)
{
    leave_slices();
    Bytes bytes = read_file(manifest_of(path));
    bytes[MANIFEST_SIZE_WORD] ^= 1;
    write_file(manifest_of(path), bytes);
    expect_refused(path, EUCLEAN, "size");
}

TEST_F(Pairing, ShortManifestIsAnError)
{
    leave_slices();
    ASSERT_EQ(truncate(manifest_of(path).c_str(), 100), 0);
    Mapped m(path);
    EXPECT_FALSE(m);
    EXPECT_TRUE(m.error == EUCLEAN || m.error == ESTALE) << m.sentence;
}

} // namespace
