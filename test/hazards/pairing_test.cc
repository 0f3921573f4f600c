// SPDX-License-Identifier: BSD-3-Clause
//
// Which reflection belongs to which file? Files are renamed, linked, copied and replaced between two
// mappings, and the attribute that names the folder of the reflection is removed or changed. The next map
// finds the right bytes, or returns a clear error and changes nothing. (Writes by other programs and reused
// inode numbers: written_test.cc. Damage: damaged_test.cc. File systems without attributes, and moves to
// another one: bare_test.cc.)
#include "pairing_lab.h"

#include <cerrno>
#include <cstdlib>

using namespace scene;

namespace
{

TEST_P(PairingScene, IsRightOrAClearError)
{
    play(GetParam());
}

// ---- pasts --------------------------------------------------------------------------------------

void linked_near(Stage &s)
{
    fs::create_hard_link(s.path, s.near("twin"));
    s.leave_slices();
    EXPECT_NE(attribute_of(s.path).find(" " + s.dir.path()), std::string::npos) << "absolute";
}

void linked_far(Stage &s)
{
    fs::create_hard_link(s.path, s.far("twin"));
    s.leave_slices();
}

// Beside another file that is not plain either.
void two(Stage &s)
{
    s.leave_slices();
    write_file(s.near("second"), pattern(SIZE, 7));
    Mapped m(s.near("second"), options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m && m.write(1000, pattern(9000, 5))) << m.sentence;
}

// A pairing ended and another one began; there are backups of the first one.
void twice(Stage &s)
{
    auto back_up = [&](const std::string &p) {
        write_file(s.dir / fs::path(p).filename(), read_file(p));
    };
    s.leave_slices();
    back_up(manifest_of(s.path));
    back_up(reflection_of(s.path));
    write_file(s.dir / "attribute", {});
    set_attribute(s.dir / "attribute", attribute_of(s.path));
    {
        Mapped m(s.path);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
    Mapped m(s.path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m && m.write(0, pattern(4000, 5))) << m.sentence;
    s.content = m.read();
    EXPECT_EQ(attribute_of(s.path).substr(38), attribute_of(s.dir / "attribute").substr(38))
        << "number and folder are the same";
}

// ---- what happens -------------------------------------------------------------------------------

void move_far(Stage &s)
{
    s.move(s.path, s.now = s.far("file"));
}

void leave_behind(Stage &s)
{
    move_far(s);
    s.move(s.dir / "a", s.dir / "c");
}

void take_along(Stage &s)
{
    s.move(s.near(".ato"), s.far(".ato"));
    move_far(s);
}

void lose_callers_folder(Stage &s)
{
    s.move(s.dir / "reflections", s.dir / "away");
}

void make_copy(Stage &s, const std::string &commands = "cp -a file copy")
{
    ASSERT_TRUE(hazards::run_in(s.dir / "a", commands));
    s.now = s.near("copy");
    ASSERT_EQ(attribute_of(s.now), attribute_of(s.path)) << "the copy has the attribute";
    ASSERT_NE(inode_of(s.now), inode_of(s.path));
    ASSERT_EQ(read_file(s.now), read_file(s.path));
}

void copy_far(Stage &s)
{
    make_copy(s);
    fs::rename(s.now, s.far("copy"));
    s.now = s.far("copy");
}

// The source goes on writing, or makes its writes plain, and stays mapped.
void use_source(Stage &s, int policy, const Bytes &bytes)
{
    s.open = std::make_unique<Mapped>(s.path, options(ATO_DOMAIN_AUTO, policy));
    ASSERT_TRUE(*s.open) << s.open->sentence;
    if (!bytes.empty()) {
        ASSERT_TRUE(s.open->write(1000, bytes)) << s.open->sentence;
    }
    s.content = s.open->read(); // a lazy read deploys
    ASSERT_EQ(s.open->stat().slices_in_reflection == 0, policy == ATO_READ_LAZY);
}

// A program that trusts a copied attribute has two files with one reflection: a write to the one moves valid
// homes of the other.
void garbage_of_source(Stage &s)
{
    s.expect_garbage(overlay(read_file(s.now), read_file(reflection_of(s.path))));
}

void looks_in_order(Stage &s)
{
    s.expect_stale(read_file(s.now));
    EXPECT_EQ(by_number(s.path), s.content) << "the source is plain";
}

// A tool that copies a file with its attributes.
Scene copied_by(const char *name, const std::string &tool, const std::string &commands)
{
    return {name, slices,
            [tool, commands](Stage &s) {
                if (!hazards::run_in(s.dir / "a", "command -v " + tool))
                    GTEST_SKIP() << "no " << tool << " here";
                make_copy(s, commands);
                use_source(s, ATO_READ_GATHER, pattern(6000, 4));
                s.open.reset();
            },
            garbage_of_source, A_COPY};
}

// ---- names --------------------------------------------------------------------------------------

const std::vector<Scene> names = {
    {"LeftAsItLies", slices, nothing, stale_alone, FOUND},
    {"RenamedInItsFolder", slices, [](Stage &s) { s.move(s.path, s.now = s.near("other")); },
     stale_alone, FOUND},
    // As editors save. A program that pairs by name uses the reflection of the file that had the name.
    {"RenamedOverAnotherMappedFile", two,
     [](Stage &s) {
         const Bytes theirs = read_file(reflection_of(s.near("second")));
         fs::rename(s.path, s.now = s.near("second"));
         s.expect_garbage(overlay(read_file(s.now), theirs));
     },
     stale_alone, FOUND},
    {"FolderRenamed", slices,
     [](Stage &s) {
         s.move(s.dir / "a", s.dir / "c"); // a stored path would lead nowhere
         s.now = s.dir / "c/file";
     },
     stale_alone, FOUND},
    // The attribute of the second link's file has an absolute folder: the one beside the first link.
    {"FolderOfTwoLinksRenamed", linked_near,
     [](Stage &s) {
         s.move(s.dir / "a", s.dir / "c");
         s.now = s.dir / "c/twin";
     },
     stale_alone, FOUND},
    {"TakenAlongToAnotherFolder", slices, take_along, stale_alone, FOUND},
    // The lane that completes the commit lies in the manifest, which comes along, too.
    {"TakenAlongAfterAKill", cut, take_along, garbage_by_number, FOUND},
    {"LeftBehind", slices, move_far, stale_by_number, FOUND},
    {"LeftBehindInAFolderThatWasRenamed", slices, leave_behind, stale_by_number, REFUSED, ESTALE,
     "{file}|{folder}|missing", ATO_PREFER_FILE},
    {"LeftBehindInTheFolderWishedFor", slices, leave_behind, stale_by_number, FOUND, 0, "", 0,
     "{dir}/c/.ato"},
    {"LeftBehindInTheFolderOfTheEnvironment", slices,
     [](Stage &s) {
         leave_behind(s);
         setenv("ATO_REFLECTION_DIR", (s.dir / "c/.ato").c_str(), 1);
     },
     stale_by_number, FOUND},
    {"LinkInItsFolder", slices,
     [](Stage &s) { fs::create_hard_link(s.path, s.now = s.near("twin")); }, stale_alone, FOUND},
    {"LinkInItsFolderAlone", slices,
     [](Stage &s) {
         fs::create_hard_link(s.path, s.now = s.near("twin"));
         fs::remove(s.path);
     },
     stale_alone, FOUND},
    // A second reflection of one file would be made.
    {"LinkInAnotherFolderMadeBefore", linked_far, [](Stage &s) { s.now = s.far("twin"); },
     stale_by_number, FOUND},
    {"LinkInAnotherFolderMadeAfter", slices,
     [](Stage &s) { fs::create_hard_link(s.path, s.now = s.far("twin")); }, stale_by_number, FOUND},
    {"MovedFromItsFolderOfTheCallers", in_callers_folder, move_far, stale_by_number, FOUND},
    // A disk that is not mounted.
    {"FolderOfTheCallersVanished", in_callers_folder, lose_callers_folder, stale_by_number, REFUSED,
     ESTALE, "{file}|{dir}/reflections|{folder}", ATO_PREFER_FILE},
    {"FolderOfTheCallersVanishedAndAnotherIsWishedFor", in_callers_folder, lose_callers_folder,
     stale_by_number, REFUSED, ESTALE, "{file}|{dir}/reflections", ATO_PREFER_FILE, "{dir}/others"},
    {"ReflectionMissing", slices, [](Stage &s) { s.move(reflection_of(s.path), s.dir / "away"); },
     stale_by_number, REFUSED, ESTALE, "the reflection {reflection} of {file} is missing",
     ATO_PREFER_FILE},
    {"ManifestMissing", slices, [](Stage &s) { s.move(manifest_of(s.path), s.dir / "away"); },
     stale_alone, REFUSED, ESTALE, "{file}|{folder}|missing", ATO_PREFER_FILE},
    {"FolderMissing", slices, [](Stage &s) { s.move(folder_of(s.path), s.dir / "away"); },
     stale_by_number, REFUSED, ESTALE, "{file}|{folder}|missing", ATO_PREFER_FILE}};

// ---- the attribute, and what came along with a copy ---------------------------------------------

const std::vector<Scene> attributes = {
    // Everywhere else a file without the attribute counts as plain.
    {"AttributeTakenAway", slices, [](Stage &s) { s.remove_attribute(s.path); }, stale_alone,
     REFUSED, ESTALE, "{file}|{reflection}|user.ato was taken away", EITHER},
    {"AttributeOfAnotherFile", two,
     [](Stage &s) {
         const std::string second = s.near("second"), number = std::to_string(inode_of(s.path));
         s.expect_garbage(overlay(read_file(s.path), read_file(reflection_of(second))));
         set_attribute(s.path, attribute_of(second).substr(0, 38) + number + " .ato");
     },
     [](Stage &s) { EXPECT_EQ(by_number(s.path), s.content) << "only the id shows it"; }, REFUSED,
     ESTALE, "{file}|{manifest}|another file", ATO_PREFER_FILE},
    // Restored from a backup, together with the bytes.
    {"AttributeOfAnEarlierPairing", twice,
     [](Stage &s) {
         write_file(s.path, s.old);
         set_attribute(s.path, attribute_of(s.dir / "attribute"));
     },
     garbage_by_number, REFUSED, ESTALE, "{file}|{folder}", ATO_PREFER_FILE},
    // The names match, and the id does not.
    {"FolderOfAnEarlierPairing", twice,
     [](Stage &s) {
         for (const std::string &p : {manifest_of(s.path), reflection_of(s.path)})
             write_file(p, read_file(s.dir / fs::path(p).filename()));
     },
     garbage_by_number, REFUSED, ESTALE, "{file}|{folder}", ATO_PREFER_FILE},
    // As in a snapshot of a volume, or in the upper layer of an overlay. The attribute counts.
    {"BirthTimeOfAnotherFileThoughTheAttributeFits", slices, change_birth, stale_alone, FOUND},
    // After a kill no times tell that only the file was restored, with its attribute and by chance its number.
    {"FileReplacedByAnEarlierOneWithItsAttributeAndNumberAfterAKill", killed,
     [](Stage &s) {
         s.patch_manifest(manifest_of(s.path), [](manifest_record &r) {
             r.birth_nsec ^= 1;
             r.state = MANIFEST_IN_USE;
         });
     },
     stale_alone, REFUSED, ESTALE, "{file}|{reflection}|replaced, by a backup", EITHER},

    copied_by("CopiedByCp", "cp", "cp -a file copy"),
    copied_by("CopiedByTar", "tar",
              "mkdir -p t && tar --xattrs -cf t.tar file && tar --xattrs "
              "--xattrs-include='user.*' -xf t.tar -C t && mv t/file copy"),
    copied_by("CopiedByRsync", "rsync", "rsync -aX file copy"),
    // The source's reflection has newer slices than the copy.
    {"CopiedAndTheSourceIsPlainByNow", slices,
     [](Stage &s) {
         make_copy(s);
         use_source(s, ATO_READ_LAZY, {});
     },
     looks_in_order, A_COPY},
    {"CopiedAndTheSourceWasUnmappedPlain", slices,
     [](Stage &s) {
         make_copy(s);
         use_source(s, ATO_READ_LAZY, {});
         s.open.reset();
     },
     looks_in_order, A_COPY},
    // The attribute may be the only sign: it stays.
    {"CopiedToAnotherFolder", slices, copy_far, stale_by_number, REFUSED, ESTALE,
     "{file}|copied or moved|inode ", ATO_PREFER_FILE},
    // In place: inode and attribute match, the bytes are older than the reflection's.
    {"CopiedBackOverTheFile",
     [](Stage &s) {
         s.leave_slices();
         make_copy(s); // a backup
         use_source(s, ATO_READ_GATHER, pattern(12000, 4));
         s.open.reset();
         s.now = s.path;
     },
     [](Stage &s) {
         const uint64_t inode = inode_of(s.path);
         ASSERT_TRUE(hazards::run_in(s.dir / "a", "cp -a copy file")); // times and attribute too
         ASSERT_EQ(inode_of(s.path), inode);
     },
     garbage_by_number, REFUSED, ESTALE, "{file}|another program wrote to|{reflection}", EITHER}};

INSTANTIATE_TEST_SUITE_P(Names, PairingScene, testing::ValuesIn(names), name_of);
INSTANTIATE_TEST_SUITE_P(Attributes, PairingScene, testing::ValuesIn(attributes), name_of);

// ---- copies and ids -----------------------------------------------------------------------------

TEST_F(Pairing, CopyOfAFileWithAllSlicesAtHomeIsAnOrdinaryFile)
{
    leave_nothing();
    make_copy(*this);
    const std::string shared = reflection_of(path);
    Log log;
    expect_maps(now);
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, now + " was copied from another file"));
    EXPECT_NE(id_of(now), id_of(path));
    EXPECT_NE(attribute_of(now).find(std::to_string(inode_of(now))), std::string::npos);
    const Bytes copied = content;
    leave_slices(); // to the source
    EXPECT_NE(overlay(read_file(now), read_file(shared)), copied)
        << "the copy shows writes of the source, through a common reflection";
    expect_maps(path);
    content = copied;
    expect_maps(now);
}

// The folder was copied while its file was plain, and the file once more later. A killed process has left the time of modification as it
// was, so that the copied manifest fits the second copy, too; the one of the source knows better.
TEST_F(Pairing, CopyIsNotTakenForOneOfAnEarlierMoment)
{
    leave_nothing();
    const Bytes before = content;
    ASSERT_TRUE(hazards::run_in(dir.path(), "rm -rf b && cp -a a b"));
    killed(*this);
    ASSERT_TRUE(hazards::run_in(dir.path(), "cp -a a/file b/copy"));
    expect_no(far("copy"), ESTALE, {far("copy"), "was copied or moved while it was not plain"});
    // The first copy stays one of a plain file when the source has another time.
    leave_slices();
    now = far("file");
    content = before;
    expect_maps(now);
}

// The source of the copy cannot be found. Without the attribute the bytes of the copy count.
TEST_F(Pairing, CopyWithoutTheAttributeIsMappedWithItsOwnBytes)
{
    leave_slices();
    copy_far(*this);
    expect_no(now, ESTALE, {"attribute user.ato", "inode " + std::to_string(inode_of(path))});
    remove_attribute(now);
    content = read_file(now);
    expect_maps(now);
}

// As in an image or a snapshot of a file system; here made by hand, so that it needs no mount. Page states
// are shared by the id: two files would share one set of bitmaps.
TEST_F(Pairing, IdOnTwoFilesIsEbusyWhileOneOfThemIsMapped)
{
    two(*this);
    const std::string second = near("second"), other = attribute_of(second);
    const Bytes theirs = by_number(second);
    manifest_record record;
    memcpy(&record, read_at(manifest_of(path), 0, sizeof(record)).data(), sizeof(record));
    patch_manifest(manifest_of(second),
                   [&](manifest_record &r) { memcpy(r.id, record.id, sizeof(r.id)); });
    set_attribute(second, attribute_of(path).substr(0, 38) + other.substr(38));
    ASSERT_EQ(id_of(second), id_of(path));
    Bytes r = read_file(reflection_of(path)), r2 = read_file(reflection_of(second));
    std::copy_n(r2.begin(), 4096, r.begin()); // the other file's bitmaps
    expect_garbage(overlay(read_file(path), r));
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        expect_no(second, EBUSY, {second, path, "same id"});
        EXPECT_EQ(m.read(), content);
        EXPECT_TRUE(m.write(0, pattern(100, 6))) << m.sentence; // the refused map did no harm
        content = m.read();
    }
    expect_maps(path);
    content = theirs;
    expect_maps(second); // when it is the only one
}

// ---- which folder -------------------------------------------------------------------------------

TEST_F(Pairing, ReflectionWithSlicesIsUsedInItsFolderDespiteAnotherChoice)
{
    leave_slices();
    const std::string other = dir / "other";
    ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
    o.reflection_dir = other.c_str();
    expect_stale(by_number(path, other)); // the chosen folder has none
    expect_maps(path, o);
    EXPECT_FALSE(exists(other));
    { // plain: the next one is made there
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
    EXPECT_EQ(read_file(path), content);
    setenv("ATO_REFLECTION_DIR", near("unused").c_str(), 1);
    expect_maps(path, o); // the option takes precedence over the environment
    EXPECT_TRUE(exists(other + "/" + std::to_string(inode_of(path))));
    EXPECT_TRUE(names_in(folder_of(path)).empty());
    EXPECT_FALSE(exists(near("unused")));
    write_file(near("second"), content);
    expect_maps(near("second"));
    EXPECT_TRUE(exists(near("unused/" + std::to_string(inode_of(near("second"))))));
}

// ---- setting aside ------------------------------------------------------------------------------

// After a power cut that kept one of the two renames: the stale reflection has its new name, the stale
// manifest its old one, and the next birth had begun with a reflection.
TEST_F(Pairing, StaleManifestFollowsItsReflectionAlthoughABirthHadBegun)
{
    leave_slices();
    const Bytes stale = read_file(reflection_of(path));
    const std::string aside = reflection_of(path) + ".stale-" + id_of(path).substr(0, 8);
    remove_attribute(path);
    change_birth(*this);
    const Bytes manifest = read_file(manifest_of(path));
    write_file(aside, stale);
    write_file(reflection_of(path), Bytes(stale.size()));
    content = read_file(path);
    expect_maps(path);
    EXPECT_EQ(read_file(aside), stale);
    EXPECT_EQ(read_file(aside + ".manifest"), manifest);
}

// A copy of it was put back.
TEST_F(Pairing, ReflectionWithSlicesIsNotSetAsideUnderANameThatIsTaken)
{
    leave_slices();
    const Bytes other = pattern(100, 3);
    const std::string aside = reflection_of(path) + ".stale-" + id_of(path).substr(0, 8);
    remove_attribute(path);
    change_birth(*this);
    write_file(aside, other);
    const Bytes reflection = read_file(reflection_of(path));
    expect_no(path, EEXIST, {aside});
    EXPECT_EQ(read_file(aside), other);
    EXPECT_EQ(read_file(reflection_of(path)), reflection);
}

// The same, and the manifest alone tells that the file was written by another program: the file is preferred.
TEST_F(Pairing, StaleManifestFollowsItsReflectionIfThePreferredFileHasOnlyAnEmptyOne)
{
    leave_slices();
    const Bytes stale = read_file(reflection_of(path)), manifest = read_file(manifest_of(path));
    const std::string aside = reflection_of(path) + ".stale-" + id_of(path).substr(0, 8);
    write_file(aside, stale);
    write_file(reflection_of(path), Bytes(stale.size()));
    write_file(path, content = pattern(SIZE, 9));
    ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
    o.flags = ATO_PREFER_FILE;
    expect_maps(path, o);
    EXPECT_EQ(read_file(aside), stale);
    EXPECT_EQ(read_file(aside + ".manifest"), manifest);
}

TEST_F(Pairing, StaleManifestIsRenamedAfterTheNewNameOfItsReflectionIsDurable)
{
    leave_slices();
    remove_attribute(path);
    change_birth(*this);
    const std::string inode = std::to_string(inode_of(path));
    content = read_file(path);
    FsFaults seen;
    expect_maps(path);
    auto at = [&](const std::string &call) {
        return std::find(seen.calls.begin(), seen.calls.end(), call);
    };
    const auto manifest = at("renameat " + inode + ".manifest");
    ASSERT_NE(manifest, seen.calls.end());
    EXPECT_NE(std::find(at("renameat " + inode), manifest, "fsync"), manifest);
}

} // namespace
