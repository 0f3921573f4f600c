// SPDX-License-Identifier: BSD-3-Clause
//
// What if an attacker makes files or folders where the side files of another user are looked up? A program
// that trusts them lets the attacker change files that only the victim may write to. That is possible in a
// folder with the sticky bit, in which all users may make names. The library refuses such a file with its
// path, or ignores it, and does not wait for its locks. (Symbolic links: damaged_test.cc.)
#include "support/faults.h"
#include "users.h"

extern "C" {
#include "reflection/format/lane.h"
#include "reflection/format/layout.h"
#include "reflection/media/locks.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/identity.h"
}

#include <csignal>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/xattr.h>

namespace fs = std::filesystem;
using namespace hazards;

namespace
{

constexpr uid_t VICTIM = 1000, ATTACKER = 4242;

class Planted : public Users
{
  protected:
    void SetUp() override
    {
        Users::SetUp();
        if (IsSkipped())
            return;
        write_file(file, content);
        give(file, VICTIM, VICTIM, 0644);
        give(dir.path(), 0, 0, 01777);
    }

    void make_folder() const
    {
        fs::create_directory(folder_of(file));
        give(folder_of(file), 0, 0, 01777);
    }

    // A valid record for this file, of a pairing without an attribute.
    manifest_record record_of(const std::string &path) const
    {
        Fd fd(path, O_RDONLY);
        identity of_file;
        manifest_record r = {};
        EXPECT_EQ(identity_of(fd, &of_file), 0);
        identity_to_record(&of_file, &r);
        r.state = MANIFEST_IN_USE;
        r.domain = PERSIST_PROCESS;
        r.slots = MANIFEST_SLOTS;
        memset(r.id, 0xaa, sizeof(r.id));
        return r;
    }

    static Bytes manifest_bytes(manifest_record r, uint64_t size)
    {
        alignas(64) static char bytes[MANIFEST_BYTES];
        struct persist p;
        int which = 1;
        memset(bytes, 0, sizeof(bytes));
        persist_init(&p, PERSIST_PROCESS);
        const uint64_t word = manifest_encode_size(size);
        memcpy(bytes + MANIFEST_SIZE_WORD, &word, sizeof(word));
        EXPECT_EQ(manifest_write(&p, bytes, &r, &which), 0);
        EXPECT_EQ(manifest_write(&p, bytes, &r, &which), 0);
        return Bytes(bytes, bytes + sizeof(bytes));
    }

    // Each slice is valid in R, with the attacker's bytes.
    static Bytes reflection_bytes()
    {
        Bytes bytes(layout_reflection_bytes(LAYOUT_DENSE, SIZE), 0x66);
        std::fill_n(bytes.begin(), 4096, 0); // the bitmaps
        std::fill_n(bytes.begin(), SIZE / 4096 * 8, 0xff);
        return bytes;
    }

    static void make(const std::string &path, const Bytes &bytes)
    {
        write_file(path, bytes);
        EXPECT_EQ(chmod(path.c_str(), 0666), 0);
    }

    // A commit of a dead process in the manifest of a file: it sets each word to `value`.
    static void plant_commit(const std::string &path, uint64_t value)
    {
        struct persist p;
        struct pairing pairing = {};
        struct lane area = {};
        persist_init(&p, PERSIST_PROCESS);
        Fd fd(manifest_of(path), O_RDWR);
        pairing.lock = fd;
        ASSERT_EQ(area_map(&pairing, 5, MANIFEST_AREA_BYTES, &area), 0) << ato_errormsg();
        const struct lane lane = lane_small(area.at, 0);
        struct lane_writer w;
        lane_begin(&w, &p, &lane, lane_retired(&lane), SIZE / 4096);
        for (uint64_t page = 0; page < SIZE / 4096; page++)
            lane_add(&w, layout_word(LAYOUT_DENSE, page), value);
        ASSERT_EQ(lane_commit(&w), 0);
        fault_unmap(area.at, area.bytes);
    }

    // Leaves a reflection with older bytes than the file, which stays in use.
    static void write_and_die(const std::string &path, const Bytes &bytes)
    {
        auto *m = new Mapped(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        for (const Bytes &all : {pattern(SIZE, 2), bytes})
            for (size_t at = 0; at < SIZE; at += 4096) { // by pages: without a lane
                const Bytes page(&all[at], &all[at] + std::min<size_t>(4096, SIZE - at));
                ASSERT_TRUE(m->write(at, page)) << m->sentence;
            }
        _exit(testing::Test::HasFailure() ? 1 : 0);
    }

    void expect_refused(const std::string &path)
    {
        Users::expect_refused(VICTIM, file, EACCES, path);
        EXPECT_EQ(attribute_of(file), "");
    }

    const Bytes &content = old;
};

TEST_F(Planted, FolderOfAnotherUserGivesForgedFilesNaivelyAndIsRefusedHere)
{
    fs::create_directory(folder_of(file));
    give(folder_of(file), ATTACKER, ATTACKER, 0777);
    const std::string mine = folder_of(file) + "/naive";
    const Bytes forged = {'f', 'o', 'r', 'g', 'e', 'd'};
    write_file(mine, {}); // a careless program makes its side file like this
    as(ATTACKER, [&] {
        fs::remove(mine); // root's file, in the attacker's folder
        write_file(mine, forged);
    });
    EXPECT_EQ(read_file(mine), forged);
    fs::remove(mine);
    for (uid_t user : {0u, VICTIM})
        for (const std::string &word : {folder_of(file), std::to_string(ATTACKER)})
            Users::expect_refused(user, file, EACCES, word);
    fs::remove(folder_of(file));
    expect_content(VICTIM, file, content);
}

TEST_F(Planted, PairingWithValidContentIsRefusedForItsOwner)
{
    make_folder();
    const std::string manifest = manifest_of(file), reflection = reflection_of(file);
    auto plant = [&] {
        make(manifest, manifest_bytes(record_of(file), SIZE));
        make(reflection, reflection_bytes());
    };
    // If the maker may write to the file, the pairing is used: here, root.
    plant();
    expect_content(VICTIM, file, Bytes(SIZE, 0x66));
    fs::remove_all(folder_of(file));
    write_file(file, content);

    make_folder();
    as(ATTACKER, plant);
    expect_refused(manifest);
    // The victim's manifest beside the attacker's reflection.
    ASSERT_EQ(lchown(manifest.c_str(), VICTIM, VICTIM), 0);
    expect_refused(reflection);
    fs::remove(manifest);
    fs::remove(reflection);
    expect_content(VICTIM, file, content);
}

TEST_F(Planted, CommitIsReplayedFromAManifestThatOnlyWritersOfTheFileCanWrite)
{
    DENSE_ONLY("stores words of a dense reflection");
    make_folder();
    auto write_home = [&] { write_and_die(file, content); };
    as(VICTIM, write_home);
    as(VICTIM, [&] { plant_commit(file, ~0ull); });
    expect_content(VICTIM, file, pattern(SIZE, 2)); // the victim's own commit is replayed
    as(VICTIM, write_home);

    const Bytes before = read_file(manifest_of(file));
    as(ATTACKER, [&] { EXPECT_LT(open(manifest_of(file).c_str(), O_WRONLY | O_CLOEXEC), 0); });
    EXPECT_TRUE(read_file(manifest_of(file)) == before) << "the attacker has changed the manifest";
    expect_content(VICTIM, file, content);
}

TEST_F(Planted, LocksOnUntrustedFilesAreNotWaitedFor)
{
    make_folder();
    const std::string manifest = manifest_of(file);
    // A sleeping process of the attacker keeps it locked.
    Pipe ready;
    Child holder(0, [&] {
        if (!become(ATTACKER))
            return 1;
        make(manifest, Bytes(100));
        Fd fd(manifest);
        if (locks_try(fd, F_WRLCK, 0, 2) != LOCKS_MINE)
            return 2;
        ready.tell();
        pause();
        return 0;
    });
    ASSERT_TRUE(ready.hear());
    expect_refused(manifest); // without waiting for the lock
    fs::remove(manifest);
    expect_content(VICTIM, file, content);
}

// Names that look like unfinished manifests, which a recovery sweeps.
TEST_F(Planted, FalseLeftoversDoNotStopOtherUsers)
{
    make_folder();
    auto name = [&](char which) {
        return manifest_of(file) + "." + std::string(15, 'a') + which + ".tmp";
    };
    as(ATTACKER, [&] {
        EXPECT_EQ(mkdir(name('1').c_str(), 0777), 0);
        EXPECT_EQ(mkfifo(name('2').c_str(), 0666), 0);
        EXPECT_EQ(symlink("/etc/passwd", name('3').c_str()), 0);
        EXPECT_EQ(mknod(name('4').c_str(), S_IFSOCK | 0666, 0), 0);
        make(name('5'), pattern(2 << 20, 7));
        make(name('6'), pattern(100, 7));
    });
    expect_content(VICTIM, file, content);
    as(VICTIM, [&] { write_and_die(file, content); });
    expect_content(VICTIM, file, content);
}

// The kernel may forbid such links (fs.protected_hardlinks).
TEST_F(Planted, HardLinkToAnotherFileIsTruncatedByOpenAndRefusedHere)
{
    make_folder();
    const std::string precious = dir / "precious";
    write_file(precious, content);
    ASSERT_EQ(chown(precious.c_str(), VICTIM, VICTIM), 0);
    ASSERT_EQ(link(precious.c_str(), manifest_of(file).c_str()), 0);
    expect_refused(manifest_of(file));
    EXPECT_EQ(read_file(precious), content);
    fs::remove(manifest_of(file));

    // As a reflection, of a pairing that is valid.
    write_file(precious, reflection_bytes());
    make(manifest_of(file), manifest_bytes(record_of(file), SIZE));
    ASSERT_EQ(link(precious.c_str(), reflection_of(file).c_str()), 0);
    expect_refused(reflection_of(file));
    EXPECT_EQ(read_file(precious), reflection_bytes());
}

// In a folder without the sticky bit the attacker can move another user's file, whose owner is trusted.
TEST_F(Planted, MovedFileOfTheVictimIsRefusedAndKeepsItsMode)
{
    const std::string secret = dir / "secret";
    auto make_secret = [&](uid_t owner, size_t n) {
        write_file(secret, Bytes(n, 's'));
        give(secret, owner, owner, 0600);
    };
    auto expect_untouched = [&](const std::string &at, uid_t owner, size_t n) {
        EXPECT_EQ(read_file(at), Bytes(n, 's'));
        EXPECT_EQ(stat_of(at).st_mode & 07777, 0600u);
        EXPECT_EQ(stat_of(at).st_uid, owner);
        fs::rename(at, secret);
    };
    fs::create_directory(folder_of(file));
    give(folder_of(file), 0, 0, 0777);
    give(dir.path(), 0, 0, 0777);
    auto move_to = [&](const std::string &to) { as(ATTACKER, [&] { fs::rename(secret, to); }); };

    // As a manifest, before there is one: a short file would count as an interrupted birth.
    for (size_t n : {size_t(100), size_t(5000), size_t(MANIFEST_BYTES), size_t(20000)}) {
        make_secret(VICTIM, n);
        move_to(manifest_of(file));
        expect_error(VICTIM, file, EUCLEAN, manifest_of(file));
        expect_untouched(manifest_of(file), VICTIM, n);
    }
    // As the reflection of a file that has one.
    auto map_once = [&](const std::string &path) {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        EXPECT_TRUE(m.write(0, pattern(SIZE, 2))) << m.sentence;
    };
    as(VICTIM, [&] { map_once(file); });
    make_secret(VICTIM, 1 << 20);
    move_to(reflection_of(file));
    expect_error(VICTIM, file, EACCES, reflection_of(file));
    expect_untouched(reflection_of(file), VICTIM, 1 << 20);
    // Root's file, as the reflection of the attacker's file that root maps.
    const std::string attackers = dir / "attackers";
    write_file(attackers, content);
    give(attackers, ATTACKER, ATTACKER, 0644);
    as(ATTACKER, [&] { map_once(attackers); });
    make_secret(0, 1 << 20);
    move_to(reflection_of(attackers));
    expect_error(0, attackers, EACCES, reflection_of(attackers));
    expect_untouched(reflection_of(attackers), 0, 1 << 20);
}

// The attribute names a folder where another pairing is in use. The preference for the file does not allow
// setting that pairing aside.
TEST_F(Planted, PairingOfAnotherFileNamedByTheAttributeIsNotChanged)
{
    const std::string elsewhere = dir / "elsewhere", inode = std::to_string(inode_of(file));
    ASSERT_EQ(mkdir(elsewhere.c_str(), 0700), 0);
    manifest_record r = record_of(file);
    r.birth_sec++, r.device++; // a file of another file system with this inode number
    make(elsewhere + "/" + inode + ".manifest", manifest_bytes(r, SIZE));
    make(elsewhere + "/" + inode, reflection_bytes());
    set_attribute(file, "ato1 " + std::string(32, 'a') + " " + inode + " " + elsewhere);
    auto before = everything_in(elsewhere);
    Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_LAZY, ATO_PREFER_FILE));
    EXPECT_FALSE(m);
    EXPECT_EQ(m.error, ESTALE) << m.sentence;
    EXPECT_EQ(everything_in(elsewhere), before);
}

// ---- owner, group, mode -------------------------------------------------------------------------

// A user outside the file's group maps it, and cannot give side files to that group: then no group may use
// them.
TEST_F(Planted, GroupThatCannotBeSetIsNotReplacedByAnother)
{
    constexpr uid_t OTHER = 1001;
    constexpr gid_t TEAM = 5000;
    for (const auto &modes : {std::pair(0666, 0606), std::pair(0606, 0600)}) {
        const mode_t mode = static_cast<mode_t>(modes.first),
                     expected = static_cast<mode_t>(modes.second);
        SCOPED_TRACE(mode);
        fs::remove_all(folder_of(file));
        write_file(file, content);
        give(file, VICTIM, TEAM, mode);
        as(OTHER, [&] {
            ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM);
            Fd fd(file);
            char *at = static_cast<char *>(ato_mmap_opt(SIZE, fd, 0, &o));
            ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
            EXPECT_TRUE(ato_memset(at, 'x', SIZE)) << ato_errormsg();
            const std::string shared = "/dev/shm/ato-" + id_of(file) + "-1";
            for (const std::string &path : {reflection_of(file), manifest_of(file), shared}) {
                EXPECT_EQ(stat_of(path).st_gid, OTHER) << path;
                EXPECT_EQ(stat_of(path).st_mode & 0777, expected) << path;
            }
            EXPECT_EQ(ato_munmap(at, SIZE, ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
        });
    }
}

// With an access list the group bits of a mode are the mask of the list, not the group's rights: the group gets none.
TEST_F(Planted, MaskOfAnAccessListIsNotTheGroupsMode)
{
    const unsigned char list[] = {2,  0, 0, 0,                      // version
                                  1,  0, 6, 0, 255,  255, 255, 255, // the owner rw
                                  2,  0, 6, 0, 0xe9, 3,   0,   0,   // user 1001 rw
                                  4,  0, 4, 0, 255,  255, 255, 255, // the group r
                                  16, 0, 6, 0, 255,  255, 255, 255,
                                  32, 0, 4, 0, 255,  255, 255, 255};
    if (setxattr(file.c_str(), "system.posix_acl_access", list, sizeof(list), 0) < 0)
        GTEST_SKIP() << "no access lists on this file system";
    ASSERT_EQ(stat_of(file).st_mode & 0777, 0664u) << "what the naive way copies";
    as(VICTIM, [&] {
        Mapped m(file);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_TRUE(m.write(0, pattern(100, 2)));
    });
    for (const std::string &path : {reflection_of(file), manifest_of(file)})
        EXPECT_EQ(stat_of(path).st_mode & 0777, 0604u) << path;
}

TEST_F(Planted, MemberThatMayWriteTheFileMayMakeItsPairing)
{
    DENSE_ONLY("stores words of a dense reflection");
    constexpr uid_t COLLEAGUE = 1001;
    constexpr gid_t TEAM = 5000;
    const Bytes written = over(content, 100, pattern(3000, 4));
    make_folder();
    give(file, VICTIM, TEAM, 0664);
    as(COLLEAGUE,
       [&] {
           Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
           ASSERT_TRUE(m) << m.sentence;
           EXPECT_TRUE(m.write(100, pattern(3000, 4))) << m.sentence;
       },
       {TEAM});
    EXPECT_EQ(stat_of(manifest_of(file)).st_uid, COLLEAGUE);
    EXPECT_EQ(stat_of(manifest_of(file)).st_gid, TEAM);
    expect_content(VICTIM, file, written, {TEAM});
    // The member commits and dies; the owner finishes the commit.
    as(COLLEAGUE,
       [&] {
           auto *m = new Mapped(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
           ASSERT_TRUE(*m) << m->sentence;
           plant_commit(file, 0);
           _exit(HasFailure() ? 1 : 0);
       },
       {TEAM});
    expect_content(VICTIM, file, content, {TEAM});
    expect_content(VICTIM, file, content, {TEAM});
    // The group loses its right: files made by the member are not trusted any more.
    ASSERT_EQ(chmod(file.c_str(), 0644), 0);
    expect_error(VICTIM, file, EACCES, std::to_string(COLLEAGUE), {TEAM});
}

} // namespace
