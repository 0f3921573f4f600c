// SPDX-License-Identifier: BSD-3-Clause
//
// Other programs write to a file, cut it or make it longer between two mappings, or its inode number is given
// to another file. The next map notices it, except after a kill, where ato(7) states the limit; the caller
// can choose the side to prefer. (Files that are moved or copied: pairing_test.cc.)
#include "model/rig.h"
#include "pairing_lab.h"

extern "C" {
#include "reflection/media/locks.h"

#include "ato_engine.h"
}

#include <cerrno>

#include <sys/mman.h>

using namespace scene;

namespace
{

void write_theirs(Stage &s)
{
    write_file(s.path, pattern(SIZE, 8)); // in place
}

// A new file with the inode number of a removed one, as far as the folder shows.
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

const std::vector<Scene> bytes = {
    {"Written", slices, write_theirs, garbage_by_number, REFUSED, ESTALE,
     "{file}|another program wrote to|{reflection}", EITHER},
    // In a slice that is valid in the reflection: the write would be lost.
    {"OneByteWritten", slices,
     [](Stage &s) {
         const Bytes before = by_number(s.path);
         s.flip_byte(s.path, 4000, 0xff);
         EXPECT_EQ(by_number(s.path), before) << "the write is lost silently";
     },
     stale_alone, REFUSED, ESTALE, "{file}", EITHER},
    {"Cut", slices, [](Stage &s) { fs::resize_file(s.path, 5000); }, garbage_by_number, REFUSED,
     ESTALE, "{file}|5000|{was}", ATO_PREFER_FILE},
    {"Grown", slices, [](Stage &s) { fs::resize_file(s.path, SIZE + 5000); }, garbage_by_number,
     REFUSED, ESTALE, "{file}|{size}|{was}", ATO_PREFER_FILE},
    // After a write that keeps the size only the time shows it. If the time is put back, the map succeeds.
    {"TimeMoved", slices,
     [](Stage &s) {
         const struct timespec is = stat_of(s.path).st_mtim,
                               moved[2] = {{0, UTIME_OMIT}, {is.tv_sec, is.tv_nsec ^ 1}};
         ASSERT_EQ(utimensat(AT_FDCWD, s.path.c_str(), moved, 0), 0);
     },
     stale_alone, REFUSED, ESTALE, "{file}|time of modification is", EITHER},
    // A program that compares ctime refuses a file without changes.
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
    // The limit in ato(7): a write that keeps the size is not noticed. Slices in the reflection take
    // precedence.
    {"WrittenAfterAKill", killed, write_theirs, garbage_by_number, UNSEEN},
    // Neither are stores through a mapping without libato, whatever times the kernel sets.
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
    // In pages that the old reflection does not have.
    {"NumberOfADeadFileThatWasSmaller", slices,
     [](Stage &s) {
         give_number_to_another(s, 3 * SIZE);
         if (!sparse()) {
             EXPECT_LT(size_of(reflection_of(s.now)),
                       layout_reflection_bytes(LAYOUT_DENSE, 3 * SIZE));
         }
     },
     garbage_by_number, SET_ASIDE}};

INSTANTIATE_TEST_SUITE_P(Bytes, PairingScene, testing::ValuesIn(bytes), name_of);

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

// An unmapping process stamps the file while another one waits for the attach lock to map it: the times under
// the lock count.
TEST_F(Pairing, UnmapByAnotherProcessDuringTheWaitIsNotAWriteByOthers)
{
    leave_slices();
    Fd lock(manifest_of(path)); // as an unmapping process holds it
    ASSERT_EQ(locks_try(lock, F_WRLCK, 0, 1), LOCKS_MINE);
    hazards::Child child(0, [&] {
        expect_maps(path);
        return static_cast<int>(HasFailure());
    });
    usleep(200 * 1000); // the map waits by now; if not, the test shows nothing and does not fail
    const timespec times[2] = {{0, UTIME_OMIT}, {2000000000, 123456789}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    patch_manifest(manifest_of(path), [&](manifest_record &r) {
        r.clean_mtime_sec = times[1].tv_sec;
        r.clean_mtime_nsec = static_cast<uint64_t>(times[1].tv_nsec);
    });
    ASSERT_EQ(locks_drop(lock, 0, 1), 0);
    EXPECT_EQ(child.wait(), 0);
}

// ---- preferences, and files without slices in the reflection -----------------------------------

TEST_F(Pairing, BothPreferencesAtOnceAreRefused)
{
    expect_no(path, EINVAL, {}, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, EITHER));
}

// Leaves a file with every slice at home: 100 bytes of 7, two of them guarded, or not.
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

// Bytes that others wrote count, even if the map fails at any step, if the reflection holds no slices and the
// first guarded byte is plain. With less than all work: at every n-th step.
TEST_F(Pairing, WritesByOthersCountIfTheReflectionHoldsNothing)
{
    for (const int variant : {0, 1, 2, 3})
        for (const int64_t longer : {-3000, 0, 5000})
            for (unsigned k = 0, last = 1; k <= last;
                 k = k ? k + rig::stride() : 1 + rig::first_step(rig::stride())) {
                const bool kill = variant & 1;
                SCOPED_TRACE(testing::Message() << "variant " << variant << ", longer " << longer
                                                << ", step " << k << ", " << rig::replay());
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
                    last = k ? last : static_cast<unsigned>(failing.calls.size());
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

// A backup is copied over a file that libato holds. It has the same size, so only the guard tells: its first byte is plain again.
class Overwritten : public Pairing, public testing::WithParamInterface<int>
{
  protected:
    enum Then { UNMAPS_FAST, UNMAPS_SPATIAL, DIES };

    // Maps, masks two bytes, writes; `overwrites`: in place, as cp does without truncating.
    int live(bool overwrites, bool writes) const
    {
        return in_child([&] {
            Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM | ATO_MASK_FIRST));
            const Bytes plain(old.begin() + 18, old.begin() + 20),
                masked{static_cast<unsigned char>(~plain[0]), 0xee};
            if (!m || ato_set_guard(m.base, 18, plain.data(), 2) < 0 ||
                !m.write(18, masked, ATO_EAGER) || (writes && !m.write(3000, pattern(6000, 2))))
                return 1;
            if (overwrites)
                write_at(path, 0, backup.data(), backup.size());
            if (writes && !m.write(18, masked)) // the bytes beside them are in the reflection now
                return 4;
            if (GetParam() != DIES) {
                const bool failed =
                    m.unmap(GetParam() == UNMAPS_FAST ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL) < 0;
                if (failed && m.error != ESTALE)
                    return 2;
                if (failed != (overwrites && writes))
                    return 3;
            }
            m.base = nullptr;
            return 0;
        });
    }
    Bytes with_guard(Bytes all) const
    {
        std::copy_n(old.begin() + 18, 2, all.begin() + 18);
        return all;
    }

    void play_refusal();

    Bytes backup = with_guard(pattern(SIZE, 8));
};

TEST_P(Overwritten, FileIsNotMixedWithItsReflection)
{
    play_refusal();
}

// An encrypted backup, or another file: neither plain nor masked.
TEST_P(Overwritten, FileOfAnotherKindIsNotMixedEither)
{
    backup = pattern(SIZE, 8);
    backup[18] = static_cast<unsigned char>(old[18] ^ 1);
    play_refusal();
}

void Overwritten::play_refusal()
{
    ASSERT_EQ(live(true, true), 0);
    EXPECT_EQ(read_file(path), backup) << "nothing was deployed over it";
    expect_garbage(by_number(path));
    const Everything before(dir.path());
    for (int i = 0; i < 2; i++)
        expect_error(path, ESTALE, {path, reflection_of(path), "overwrote", "ATO_PREFER_FILE"});
    EXPECT_TRUE(before == Everything(dir.path()));
    const Bytes mixed = by_number(path);
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_PREFER_FILE));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), backup);
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
    write_file(path, old);
    ASSERT_EQ(live(true, true), 0);
    Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_PREFER_REFLECTION));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), mixed);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(path), with_guard(mixed));
}

// What looks like it and is not: nothing in the reflection, or the mask is still on.
TEST_P(Overwritten, FileThatIsCompleteOrMaskedIsMapped)
{
    ASSERT_EQ(live(true, false), 0);
    content = backup;
    expect_maps(path);
    fs::remove_all(folder_of(path));
    fs::remove(path);
    write_file(path, old);
    ASSERT_EQ(live(false, true), 0);
    content = old;
    if (GetParam() != UNMAPS_SPATIAL) {
        content[18] = static_cast<unsigned char>(~old[18]);
        content[19] = 0xee;
    }
    std::copy_n(pattern(6000, 2).begin(), 6000, content.begin() + 3000);
    expect_maps(path);
}

INSTANTIATE_TEST_SUITE_P(Then, Overwritten, testing::Values(0, 1, 2),
                         [](const testing::TestParamInfo<int> &i) {
                             return i.param == 0   ? "UnmappedFast"
                                    : i.param == 1 ? "UnmappedSpatial"
                                                   : "Killed";
                         });

// A guard need not have a mask.
TEST_F(Pairing, GuardWithoutAMaskIsNoOverwriting)
{
    for (const bool kill : {true, false}) {
        ASSERT_EQ(in_child([&] {
                      Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM));
                      const bool good = m && m.write(3000, pattern(6000, 2)) &&
                                        ato_set_guard(m.base, 18, &old[18], 2) == 0;
                      if (good && kill)
                          m.base = nullptr;
                      return good && (kill || m.unmap(ATO_UNMAP_FAST) == 0) ? 0 : 1;
                  }),
                  0);
        std::copy_n(pattern(6000, 2).begin(), 6000, content.begin() + 3000);
        expect_maps(path);
    }
}

// After a mask was taken off the file grows: zeros are in the reflection for a moment.
TEST_F(Pairing, KillAfterAGrowthOfAFileWithoutItsMaskIsNoOverwriting)
{
    const uint64_t whole = 4 * 4096, less = 2 * 4096;
    write_file(path, content = pattern(whole, 1));
    ASSERT_EQ(in_child([&] {
                  Mapped m(path,
                           options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM | ATO_MASK_FIRST));
                  const bool good = m && ato_set_guard(m.base, 18, &content[18], 2) == 0 &&
                                    ato_ftruncate(m.base, less) == 0 &&
                                    ato_ftruncate(m.base, whole) == 0 &&
                                    m.stat().slices_in_reflection > 0;
                  m.base = nullptr;
                  return good ? 0 : 1;
              }),
              0);
    std::fill(content.begin() + less, content.end(), 0);
    expect_maps(path);
}

TEST_F(Pairing, GrowthOfAMaskedFileByOthersIsRefused)
{
    leave_home(path, true, {9, 7});
    Bytes longer = read_file(path);
    longer.resize(longer.size() + 5000, 'x');
    write_file(path, longer);
    expect_no(path, ESTALE, {});
    EXPECT_EQ(read_file(path), longer);
}

// Discarding a reflection changes several names. A map after a crash between any two of them refuses again,
// and never uses the old slices.
TEST_F(Pairing, DiscardingAReflectionMayFailAnywhere)
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
        map(0, ESTALE); // refused, or with the file's own bytes: never the old slices
        map(ATO_PREFER_FILE, 0);
        ASSERT_FALSE(HasFailure());
        if (!failed) {
            EXPECT_GT(k, 5);
            break;
        }
    }
}

} // namespace
