// SPDX-License-Identifier: BSD-3-Clause
//
// Which reflection belongs to which file? Files are renamed, linked, copied, replaced, written and
// cut between two mappings, their inode numbers are given out again, and the attribute that says
// where the reflection lies is taken away or changed. The next map finds the right bytes, or says
// clearly why not and changes nothing. (Damage: damaged_test.cc. Nothing to carry an attribute, or
// another file system: bare_test.cc.)
#include "hazards/lab.h"
#include "scene.h"

extern "C" {
#include "reflection/media/locks.h"
}

#include <cerrno>
#include <cstdlib>

#include <sys/mman.h>

using namespace scene;

namespace
{

class Pairing : public Stage
{
  protected:
    ~Pairing() override
    {
        unsetenv("ATO_REFLECTION_DIR");
    }
};

class PairingScene : public Pairing, public testing::WithParamInterface<Scene>
{
};

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

// A pairing ended and another one began; of the first one there are backups.
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
    ASSERT_EQ(attribute_of(s.now), attribute_of(s.path)) << "came along";
    ASSERT_NE(inode_of(s.now), inode_of(s.path));
    ASSERT_EQ(read_file(s.now), read_file(s.path));
}

void copy_far(Stage &s)
{
    make_copy(s);
    fs::rename(s.now, s.far("copy"));
    s.now = s.far("copy");
}

// The source writes on, or makes what it wrote plain, and stays mapped.
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

// A program that believes a copied attribute has two files with one reflection: a write to the one
// moves the other's valid homes.
void garbage_of_source(Stage &s)
{
    s.expect_garbage(overlay(read_file(s.now), read_file(reflection_of(s.path))));
}

void looks_in_order(Stage &s)
{
    s.expect_stale(read_file(s.now));
    EXPECT_EQ(by_number(s.path), s.content) << "the source is in order by now";
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

void write_theirs(Stage &s)
{
    write_file(s.path, pattern(SIZE, 8)); // in place
}

// A new file with the number of one that is gone, as far as the folder can tell.
void give_number_to_another(Stage &s, size_t size)
{
    s.now = s.near("second");
    write_file(s.now, pattern(size, 7));
    const uint64_t inode = inode_of(s.now);
    fs::rename(manifest_of(s.path), manifest_of(s.now));
    fs::rename(reflection_of(s.path), reflection_of(s.now));
    s.patch_manifest(manifest_of(s.now), [&](manifest_record &r) { r.inode = inode; });
    fs::remove(s.path);
}

constexpr unsigned EITHER = ATO_PREFER_FILE | ATO_PREFER_REFLECTION;

// ---- names --------------------------------------------------------------------------------------

const std::vector<Scene> names = {
    {"LeftAsItLies", slices, nothing, stale_alone, FOUND},
    {"RenamedInItsFolder", slices, [](Stage &s) { s.move(s.path, s.now = s.near("other")); },
     stale_alone, FOUND},
    // As editors save. A program that pairs by name takes the reflection of the file that had it.
    {"RenamedOverAnotherMappedFile", two,
     [](Stage &s) {
         const Bytes theirs = read_file(reflection_of(s.near("second")));
         fs::rename(s.path, s.now = s.near("second"));
         s.expect_garbage(overlay(read_file(s.now), theirs));
     },
     stale_alone, FOUND},
    {"FolderRenamed", slices,
     [](Stage &s) {
         s.move(s.dir / "a", s.dir / "c"); // where a path that was kept would lead is nothing
         s.now = s.dir / "c/file";
     },
     stale_alone, FOUND},
    // Of two links the attribute's folder is an absolute path: then it is the one beside the file.
    {"FolderOfTwoLinksRenamed", linked_near,
     [](Stage &s) {
         s.move(s.dir / "a", s.dir / "c");
         s.now = s.dir / "c/twin";
     },
     stale_alone, FOUND},
    {"TakenAlongToAnotherFolder", slices, take_along, stale_alone, FOUND},
    // What finishes the commit lies in the folder too.
    {"TakenAlongAfterAKill", cut, take_along, garbage_by_number, FOUND},
    {"LeftBehind", slices, move_far, stale_by_number, REFUSED, ESTALE, "{file}|{folder}|missing",
     ATO_PREFER_FILE},
    {"LeftBehindInTheFolderWishedFor", slices, move_far, stale_by_number, FOUND, 0, "", 0,
     "{dir}/a/.ato"},
    {"LeftBehindInTheFolderOfTheEnvironment", slices,
     [](Stage &s) {
         s.move(s.path, s.now = s.far("file"));
         setenv("ATO_REFLECTION_DIR", s.near(".ato").c_str(), 1);
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
     [](Stage &s) { fs::create_hard_link(s.path, s.now = s.far("twin")); }, stale_by_number,
     REFUSED, ESTALE, "{file}|missing", ATO_PREFER_FILE},
    {"MovedFromItsFolderOfTheCallers", in_callers_folder, move_far, stale_by_number, FOUND},
    // A disk that is not mounted.
    {"FolderOfTheCallersVanished", in_callers_folder, lose_callers_folder, stale_by_number, REFUSED,
     ESTALE, "{file}|{dir}/reflections|{folder}", ATO_PREFER_FILE},
    {"FolderOfTheCallersVanishedAndAnotherIsWishedFor", in_callers_folder, lose_callers_folder,
     stale_by_number, REFUSED, ESTALE, "{file}|{dir}/reflections", ATO_PREFER_FILE, "{dir}/others"},
    {"ReflectionMissing", slices, [](Stage &s) { s.move(reflection_of(s.path), s.dir / "away"); },
     stale_by_number, REFUSED, ESTALE, "{file}|cannot open the reflection {reflection}",
     ATO_PREFER_FILE},
    {"ManifestMissing", slices, [](Stage &s) { s.move(manifest_of(s.path), s.dir / "away"); },
     stale_alone, REFUSED, ESTALE, "{file}|{folder}|missing", ATO_PREFER_FILE},
    {"FolderMissing", slices, [](Stage &s) { s.move(folder_of(s.path), s.dir / "away"); },
     stale_by_number, REFUSED, ESTALE, "{file}|{folder}|missing", ATO_PREFER_FILE}};

// ---- the attribute, and what came along with a copy ---------------------------------------------

const std::vector<Scene> attributes = {
    // A file without it counts as plain everywhere else.
    {"AttributeTakenAway", slices, [](Stage &s) { s.remove_attribute(s.path); }, stale_alone,
     REFUSED, ESTALE, "{file}|{reflection}|user.ato was taken away", ATO_PREFER_FILE},
    {"AttributeOfAnotherFile", two,
     [](Stage &s) {
         const std::string second = s.near("second"), number = std::to_string(inode_of(s.path));
         s.expect_garbage(overlay(read_file(s.path), read_file(reflection_of(second))));
         set_attribute(s.path, attribute_of(second).substr(0, 38) + number + " .ato");
     },
     [](Stage &s) { EXPECT_EQ(by_number(s.path), s.content) << "nothing but the id tells"; },
     REFUSED, ESTALE, "{file}|{folder}|missing", ATO_PREFER_FILE},
    // Put back from a backup together with the bytes.
    {"AttributeOfAnEarlierPairing", twice,
     [](Stage &s) {
         write_file(s.path, s.old);
         set_attribute(s.path, attribute_of(s.dir / "attribute"));
     },
     garbage_by_number, REFUSED, ESTALE, "{file}|{folder}", ATO_PREFER_FILE},
    // Names that fit, and an id that does not.
    {"FolderOfAnEarlierPairing", twice,
     [](Stage &s) {
         for (const std::string &p : {manifest_of(s.path), reflection_of(s.path)})
             write_file(p, read_file(s.dir / fs::path(p).filename()));
     },
     garbage_by_number, REFUSED, ESTALE, "{file}|{folder}", ATO_PREFER_FILE},
    {"ManifestOfAnotherFileThoughTheAttributeFits", slices, change_birth, stale_alone, REFUSED,
     ESTALE, "{file}|{manifest}|another file", ATO_PREFER_FILE},

    copied_by("CopiedByCp", "cp", "cp -a file copy"),
    copied_by("CopiedByTar", "tar",
              "mkdir -p t && tar --xattrs -cf t.tar file && tar --xattrs "
              "--xattrs-include='user.*' -xf t.tar -C t && mv t/file copy"),
    copied_by("CopiedByRsync", "rsync", "rsync -aX file copy"),
    // What the source has in its reflection now tells nothing of then.
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
    // Every piece is there, for other inodes.
    {"CopiedTogetherWithItsFolder", slices,
     [](Stage &s) {
         copy_far(s);
         fs::copy(s.near(".ato"), s.far(".ato"));
     },
     stale_by_number, A_COPY},
    // The attribute may be all that tells: it stays.
    {"CopiedToAnotherFolder", slices, copy_far, stale_by_number, REFUSED, ESTALE,
     "{file}|copied or moved|inode ", ATO_PREFER_FILE},
    // In place: inode and attribute fit, the bytes are older than the reflection's.
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

// ---- writes by other means, and numbers given out again -----------------------------------------

const std::vector<Scene> bytes = {
    {"Written", slices, write_theirs, garbage_by_number, REFUSED, ESTALE,
     "{file}|another program wrote to|{reflection}", EITHER},
    // In a slice that is valid in the reflection: it would vanish without a trace.
    {"OneByteWritten", slices,
     [](Stage &s) {
         const Bytes before = by_number(s.path);
         s.flip_byte(s.path, 4000, 0xff);
         EXPECT_EQ(by_number(s.path), before) << "nobody would see it";
     },
     stale_alone, REFUSED, ESTALE, "{file}", EITHER},
    {"Cut", slices, [](Stage &s) { fs::resize_file(s.path, 5000); }, garbage_by_number, REFUSED,
     ESTALE, "{file}|5000|{was}", ATO_PREFER_FILE},
    {"Grown", slices, [](Stage &s) { fs::resize_file(s.path, SIZE + 5000); }, garbage_by_number,
     REFUSED, ESTALE, "{file}|{size}|{was}", ATO_PREFER_FILE},
    // A write whose size is the same has no other trace. Put back, it is no error.
    {"TimeMoved", slices,
     [](Stage &s) {
         const struct timespec is = stat_of(s.path).st_mtim,
                               moved[2] = {{0, UTIME_OMIT}, {is.tv_sec, is.tv_nsec ^ 1}};
         ASSERT_EQ(utimensat(AT_FDCWD, s.path.c_str(), moved, 0), 0);
     },
     stale_alone, REFUSED, ESTALE, "{file}", EITHER},
    // A program that looks at ctime refuses a file that was not written to.
    {"RenamedLinkedAndOfAnotherModeButNotWritten", slices,
     [](Stage &s) {
         const auto before = ctime_of(s.path);
         wait_for_clock(s.path, s.dir / "clock");
         ASSERT_EQ(chmod(s.path.c_str(), 0600), 0);
         ASSERT_EQ(chown(s.path.c_str(), geteuid(), getegid()), 0);
         s.move(s.path, s.now = s.near("other"));
         fs::create_hard_link(s.now, s.near("twin"));
         fs::remove(s.near("twin"));
         EXPECT_GT(ctime_of(s.now), before);
     },
     stale_alone, FOUND},
    {"CutAfterAKill", killed, [](Stage &s) { fs::resize_file(s.path, 5000); }, garbage_by_number,
     REFUSED, ESTALE, "{file}|5000|{was}|another program truncated", ATO_PREFER_FILE},
    {"GrownAfterAKill", killed, [](Stage &s) { fs::resize_file(s.path, SIZE + 1); },
     garbage_by_number, REFUSED, ESTALE, "{file}|{size}|another program extended", ATO_PREFER_FILE},
    // The limit, written down in ato(7): the same size cannot be seen. Slices in the reflection win.
    {"WrittenAfterAKill", killed, write_theirs, garbage_by_number, UNSEEN},
    // Nor are stores through a mapping without libato, whatever times the kernel gave the file.
    {"StoredToAfterAKill", killed,
     [](Stage &s) {
         const Bytes theirs = pattern(SIZE, 8);
         char *view = hazards::plain_map(s.path, SIZE);
         std::copy(theirs.begin(), theirs.end(), view);
         ASSERT_EQ(munmap(view, SIZE), 0);
         EXPECT_EQ(read_file(s.path), theirs);
     },
     garbage_by_number, UNSEEN},
    {"NumberOfADeadFile", slices, [](Stage &s) { give_number_to_another(s, SIZE); },
     garbage_by_number, SET_ASIDE},
    // Its pages lie where the old reflection has none.
    {"NumberOfADeadFileThatWasSmaller", slices,
     [](Stage &s) {
         give_number_to_another(s, 3 * SIZE);
         EXPECT_LT(size_of(reflection_of(s.now)), layout_reflection_bytes(3 * SIZE));
     },
     garbage_by_number, SET_ASIDE}};

INSTANTIATE_TEST_SUITE_P(Names, PairingScene, testing::ValuesIn(names), name_of);
INSTANTIATE_TEST_SUITE_P(Attributes, PairingScene, testing::ValuesIn(attributes), name_of);
INSTANTIATE_TEST_SUITE_P(Bytes, PairingScene, testing::ValuesIn(bytes), name_of);
// ---- copies and ids -----------------------------------------------------------------------------

TEST_F(Pairing, CopyOfAFileWhoseSlicesAreAllAtHomeIsAFileLikeAnyOther)
{
    leave_nothing();
    make_copy(*this);
    const std::string shared = reflection_of(path);
    Log log;
    expect_maps(now);
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, "removed from " + now + " the attribute"));
    EXPECT_NE(id_of(now), id_of(path));
    EXPECT_NE(attribute_of(now).find(std::to_string(inode_of(now))), std::string::npos);
    const Bytes copied = content;
    leave_slices(); // to the source
    EXPECT_NE(overlay(read_file(now), read_file(shared)), copied)
        << "what the source writes, through a reflection that both believe theirs";
    expect_maps(path);
    content = copied;
    expect_maps(now);
}

// The owner of a copy whose source is not to be found says that these are the bytes.
TEST_F(Pairing, CopyIsTakenAsItIsWithoutTheAttribute)
{
    leave_slices();
    copy_far(*this);
    expect_no(now, ESTALE, {"attribute user.ato", "inode " + std::to_string(inode_of(path))});
    remove_attribute(now);
    content = read_file(now);
    expect_maps(now);
}

// As an image or a snapshot of a file system has it; here by hand, so that it takes no mount. The
// states of pages go by the id: two files would share one set of bitmaps.
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
    std::copy_n(r2.begin(), 4096, r.begin()); // the other one's bitmaps
    expect_garbage(overlay(read_file(path), r));
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        expect_no(second, EBUSY, {second, path, "same id"});
        EXPECT_EQ(m.read(), content);
        EXPECT_TRUE(m.write(0, pattern(100, 6))) << m.sentence; // it did no harm
        content = m.read();
    }
    expect_maps(path);
    content = theirs;
    expect_maps(second); // alone
}

// ---- which folder -------------------------------------------------------------------------------

TEST_F(Pairing, ReflectionWithSlicesIsUsedWhereItLiesWhateverIsWishedFor)
{
    leave_slices();
    const std::string other = dir / "other";
    ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
    o.reflection_dir = other.c_str();
    expect_stale(by_number(path, other)); // in the folder wished for there is none
    expect_maps(path, o);
    EXPECT_FALSE(exists(other));
    { // plain: the next one is made there
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
    EXPECT_EQ(read_file(path), content);
    setenv("ATO_REFLECTION_DIR", near("unused").c_str(), 1);
    expect_maps(path, o); // the option wins over the environment
    EXPECT_TRUE(exists(other + "/" + std::to_string(inode_of(path))));
    EXPECT_TRUE(names_in(folder_of(path)).empty());
    EXPECT_FALSE(exists(near("unused")));
    write_file(near("second"), content);
    expect_maps(near("second"));
    EXPECT_TRUE(exists(near("unused/" + std::to_string(inode_of(near("second"))))));
}

// ---- times --------------------------------------------------------------------------------------

// Within one tick of the kernel's coarse clock, many times.
TEST_F(Pairing, WriteByOthersRightAfterTheUnmapIsNoticed)
{
    for (int i = 0; i < 20; i++) {
        TempDir own;
        path = own / "file";
        write_file(path, content = old);
        leave_slices();
        write_at(path, 10, "x", 1);
        expect_error(path, ESTALE, {path});
        ASSERT_FALSE(HasFailure()) << "try " << i;
    }
}

// A process that unmaps stamps the file while another one waits for the attach lock to map it: the
// times that count are those under the lock.
TEST_F(Pairing, UnmapByAnotherProcessWhileWeWaitIsNoWriteByOthers)
{
    leave_slices();
    Fd lock(manifest_of(path)); // as a process that unmaps holds it
    ASSERT_EQ(locks_try(lock, 0, 1), LOCKS_MINE);
    hazards::Child child(0, [&] {
        expect_maps(path);
        return static_cast<int>(HasFailure());
    });
    usleep(200 * 1000); // by now it waits; if not, it proves nothing but fails nothing either
    const timespec times[2] = {{0, UTIME_OMIT}, {2000000000, 123456789}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    patch_manifest(manifest_of(path), [&](manifest_record &r) {
        r.clean_mtime_sec = times[1].tv_sec;
        r.clean_mtime_nsec = static_cast<uint64_t>(times[1].tv_nsec);
    });
    ASSERT_EQ(locks_drop(lock, 0, 1), 0);
    EXPECT_EQ(child.wait(), 0);
}

// ---- setting aside, and preferring --------------------------------------------------------------

// After a power cut that kept one of the two renames: the stale reflection has its new name, the
// stale manifest its old one, and the next birth had begun with a reflection.
TEST_F(Pairing, ReflectionWhoseStaleNameIsTakenIsSetAsideUnderAnother)
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
    EXPECT_EQ(read_file(aside + "-1"), Bytes(stale.size()));
    EXPECT_EQ(read_file(aside + "-1.manifest"), manifest);
}

TEST_F(Pairing, StaleManifestIsRenamedWhenTheNewNameOfItsReflectionIsDurable)
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

TEST_F(Pairing, BothPreferencesAtOnceAreRefused)
{
    expect_no(path, EINVAL, {}, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, EITHER));
}

// Leaves a file with everything home: 100 bytes of 7, two of them guarded, or not.
void leave_home(const std::string &path, bool kill, const Bytes &guarded)
{
    write_file(path, pattern(20000, 1));
    ASSERT_EQ(in_child([&] {
                  Mapped m(path);
                  if (!m || !ato_memset(m.base, 7, 100) || ato_deploy(m.base, 100) < 0 ||
                      ato_set_guard(m.base, 40, guarded.data(), guarded.size()) < 0)
                      return 1;
                  return kill || m.unmap(ATO_UNMAP_FAST) == 0 ? 0 : 2;
              }),
              0);
}

// What others wrote, before a map that may fail anywhere, is right where the reflection holds nothing of the file; if the
// first guarded byte is plain, too.
TEST_F(Pairing, OthersMayWriteWhereTheReflectionHoldsNothing)
{
    for (const int variant : {0, 1, 2, 3})
        for (const int64_t longer : {-3000, 0, 5000})
            for (int k = 0, last = 1; k <= last; k++) {
                const bool kill = variant & 1;
                SCOPED_TRACE(testing::Message()
                             << "variant " << variant << ", longer " << longer << ", step " << k);
                TempDir own;
                path = own / "file";
                leave_home(path, kill, variant & 2 ? Bytes{7, 9} : Bytes{});
                Bytes plain = read_file(path);
                plain.resize(plain.size() + static_cast<size_t>(longer), 'x');
                write_file(path, plain);
                {
                    FsFaults failing;
                    if (k)
                        failing.fail_at(k, EIO);
                    Mapped m(path);
                    failing.before = nullptr;
                    EXPECT_TRUE(k || m) << m.sentence;
                    if (m) {
                        EXPECT_EQ(m.read(), plain);
                    } else {
                        EXPECT_NE(m.error, ESTALE) << m.sentence;
                    }
                    last = k ? last : static_cast<int>(failing.calls.size());
                }
                {
                    Mapped m(path);
                    ASSERT_TRUE(m) << m.sentence;
                    EXPECT_EQ(m.read(), plain);
                    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
                }
                EXPECT_TRUE(names_in(folder_of(path)).empty());
                ASSERT_FALSE(HasFailure());
            }
}

TEST_F(Pairing, OthersMayNotMakeAMaskedFileLonger)
{
    leave_home(path, true, {9, 7});
    Bytes longer = read_file(path);
    longer.resize(longer.size() + 5000, 'x');
    write_file(path, longer);
    expect_no(path, ESTALE, {});
    EXPECT_EQ(read_file(path), longer);
}

// Forgetting is several changes of names. A process that is cut between any two of them says it once
// more, and never gets the old slices.
TEST_F(Pairing, ForgettingMayFailAnywhere)
{
    for (int k = 1;; k++) {
        SCOPED_TRACE(k);
        TempDir own;
        path = own / "file";
        write_file(path, content = old);
        leave_slices();
        write_at(path, 3100, "others", 6);
        const Bytes plain = read_file(path);
        auto map = [&](unsigned flag, int err, FsFaults *failing = nullptr) {
            Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, flag));
            if (failing)
                failing->before = nullptr;
            if (m) {
                EXPECT_EQ(m.read(), plain);
            } else {
                EXPECT_EQ(m.error, err) << m.sentence;
            }
        };
        bool failed;
        {
            FsFaults failing;
            failing.fail_at(k, EIO);
            map(ATO_PREFER_FILE, EIO, &failing);
            failed = failing.calls.size() > static_cast<size_t>(k);
        }
        map(0, ESTALE); // refused, or as the file lies there: never the old slices
        map(ATO_PREFER_FILE, 0);
        ASSERT_FALSE(HasFailure());
        if (!failed) {
            EXPECT_GT(k, 5);
            break;
        }
    }
}

} // namespace
