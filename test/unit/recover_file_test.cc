// SPDX-License-Identifier: BSD-3-Clause
//
// Is what a dead process committed to one file finished? Children die in commits; the next map of
// the file finishes them by the lanes in the manifest, or fails with the reason. (A process that dies at
// any other step, or in the recovery: events_test.cc.)
#include "support/child.h"
#include "support/dying.h"
#include "support/faults.h"
#include "support/mapped.h"

extern "C" {
#include "reflection/format/checksum.h"
#include "reflection/format/lane.h"
#include "reflection/format/layout.h"
#include "reflection/format/manifest.h"
#include "reflection/media/persist.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace support;
namespace fs = std::filesystem;

namespace
{

constexpr size_t SIZE = 8 * 4096;

class RecoverFile : public testing::Test
{
  protected:
    RecoverFile() : path(dir / "file"), old_(pattern(SIZE, 1)), new_(pattern(SIZE, 2))
    {
        write_file(path, old_);
    }

    ato_options wish() const
    {
        return options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM);
    }

    // Writes the whole file and dies at the n-th flip, in a child.
    int write_and_die(const std::string &p, long n)
    {
        Mapped m(p, wish());
        if (!m)
            return 1;
        PersistFaults faults;
        faults.die_at_flip(n);
        m.write(0, new_);
        return 0;
    }

    void die_between_flips(const std::string &p, long n)
    {
        ASSERT_EQ(in_child([&] { return write_and_die(p, n); }), CUT);
    }

    void expect_recovered(const std::string &p)
    {
        Mapped m(p, wish());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), new_);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(p), new_);
    }

    // The offset in the manifest of the lane that holds a commit.
    uint64_t committed_lane()
    {
        Bytes b = read_file(manifest_of(path));
        for (uint64_t lane = 0; lane < LANE_SMALL; lane++) {
            uint64_t at = manifest_area(0) + lane * LANE_SMALL_BYTES;
            uint64_t sequence, retired;
            memcpy(&sequence, &b[at], 8);
            memcpy(&retired, &b[at + 64], 8);
            if (sequence == retired + 1)
                return at;
        }
        ADD_FAILURE() << "no committed lane";
        return 0;
    }

    void expect_refused(int err, const std::string &word)
    {
        Bytes reflection = read_file(reflection_of(path));
        Mapped m(path, wish());
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, err) << m.sentence;
        EXPECT_NE(m.sentence.find(word), std::string::npos) << m.sentence;
        EXPECT_EQ(read_file(reflection_of(path)), reflection);
    }

    // The manifest has version 1, in both copies.
    void make_older()
    {
        for (size_t copy : {0, 4096}) {
            Bytes record = read_at(manifest_of(path), copy, 512);
            const uint32_t version = 1;
            memcpy(&record[8], &version, 4);
            const uint64_t sum = checksum(record.data(), 504);
            memcpy(&record[504], &sum, 8);
            write_at(manifest_of(path), copy, record.data(), record.size());
        }
    }

    TempDir dir;
    std::string path;
    Bytes old_, new_;
};

TEST_F(RecoverFile, CommitOfADeadProcessIsFinished)
{
    for (long n : {1, 2, 5, 8}) {
        write_file(path, old_);
        die_between_flips(path, n);
        expect_recovered(path);
        ASSERT_FALSE(HasFailure()) << n;
    }
}

TEST_F(RecoverFile, MapOfAnotherFileInTheFolderChangesNothing)
{
    std::string other = dir / "other";
    write_file(other, old_);
    die_between_flips(path, 3);
    Bytes manifest = read_file(manifest_of(path));
    {
        Mapped m(other, wish());
        ASSERT_TRUE(m) << m.sentence;
    }
    EXPECT_EQ(read_file(manifest_of(path)), manifest);
    expect_recovered(path);
}

// Both lie in areas of their own: the second process is in slot 1.
TEST_F(RecoverFile, CommitsOfTwoDeadProcessesAreBothFinished)
{
    Pipe go[2], ready[2];
    pid_t process[2];
    for (int i : {0, 1}) {
        process[i] = fork();
        ASSERT_GE(process[i], 0);
        if (process[i] == 0) {
            Mapped m(path, wish());
            if (!m || !ready[i].tell() || !go[i].hear())
                _exit(1);
            PersistFaults faults;
            faults.die_at_flip(2);
            m.write(i * 4 * 4096, Bytes(&new_[i * 4 * 4096], &new_[i * 4 * 4096] + 3 * 4096));
            _exit(2);
        }
        ASSERT_TRUE(ready[i].hear());
    }
    for (int i : {0, 1}) {
        int status;
        ASSERT_TRUE(go[i].tell());
        ASSERT_EQ(waitpid(process[i], &status, 0), process[i]);
        ASSERT_EQ(WEXITSTATUS(status), CUT);
    }
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    Bytes expected = new_;
    for (size_t page : {3, 7})
        std::copy_n(&old_[page * 4096], 4096, &expected[page * 4096]);
    EXPECT_EQ(m.read(), expected);
}

// The lanes of the machine's last run say nothing.
TEST_F(RecoverFile, LanesOfAnotherBootAreDroppedInDomainProcess)
{
    ASSERT_EQ(in_child([&] {
                  Mapped m(path, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER, ATO_NO_RTM));
                  PersistFaults faults;
                  faults.die_at_flip(1);
                  m.write(0, new_);
                  return 0;
              }),
              CUT);
    edit_manifest(path, [](manifest_record &record) { record.boot_id[0]++; });
    Mapped m(path, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER, ATO_NO_RTM));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), old_);
    EXPECT_TRUE(m.write(0, new_)) << m.sentence;
    EXPECT_EQ(m.read(), new_);
}

// ---- damage: the map fails, and nothing changes -------------------------------------------------

TEST_F(RecoverFile, DamagedLaneIsAnErrorThatNamesTheFile)
{
    die_between_flips(path, 3);
    uint64_t lane = committed_lane();
    uint64_t words = UINT32_MAX;
    Bytes kept = read_at(manifest_of(path), lane + 8, 8);
    write_at(manifest_of(path), lane + 8, &words, 8);
    expect_refused(EUCLEAN, path);
    write_at(manifest_of(path), lane + 8, kept.data(), 8); // repaired
    expect_recovered(path);
}

TEST_F(RecoverFile, LaneThatPointsOutOfTheReflectionIsAnErrorAndStoresNothing)
{
    die_between_flips(path, 3);
    ASSERT_EQ(truncate(reflection_of(path).c_str(), 4096), 0);
    uint64_t lane = committed_lane(), far = layout_word(LAYOUT_DENSE, 512);
    write_at(manifest_of(path), lane + 128, &far, 8);
    Bytes b = read_at(manifest_of(path), lane, 128 + 8 * 16);
    uint64_t sum = checksum_add(checksum(b.data(), 56), &b[128], b.size() - 128);
    write_at(manifest_of(path), lane + 56, &sum, 8);
    expect_refused(EUCLEAN, path);
}

// It never was one. The next commit in the lane gets another sequence (lane_test.cc).
TEST_F(RecoverFile, CommitWithoutAPartOfItsListIsRetired)
{
    die_between_flips(path, 1); // before any word is stored
    const uint64_t lane = committed_lane(), none = ~0ull;
    uint64_t retired;
    write_at(manifest_of(path), lane + 128, &none, 8);
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), old_);
    memcpy(&retired, read_at(manifest_of(path), lane + 64, 8).data(), 8);
    EXPECT_EQ(retired, 1u);
}

// The reflection is cut off in that moment: the stores go nowhere. When it is back the commit is finished.
TEST_F(RecoverFile, NoLaneIsRetiredIfItsWordsWereNotStored)
{
    die_between_flips(path, 1);
    const Bytes reflection = read_file(reflection_of(path));
    {
        bool cut = false;
        PersistFaults faults;
        faults.before = [&](const PersistCall &c) {
            if (!cut && std::string(c.op) == "store_word" &&
                std::string(c.site).find("replay.c") != std::string::npos)
                cut = truncate(reflection_of(path).c_str(), 0) == 0;
            return GO_ON;
        };
        Mapped m(path, wish());
        EXPECT_TRUE(cut);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EIO) << m.sentence;
    }
    write_file(reflection_of(path), reflection);
    expect_recovered(path);
}

// A large commit is in the long lane: any part of its words was stored.
TEST_F(RecoverFile, LongCommitOfADeadProcessIsFinished)
{
    constexpr size_t LARGE = 300 * 4096;
    for (long n : {1, 150, 300}) {
        write_file(path, pattern(LARGE, 1));
        ASSERT_EQ(in_child([&] {
                      Mapped m(path, wish());
                      PersistFaults faults;
                      faults.die_at_flip(n);
                      m.write(0, pattern(LARGE, 2));
                      return 0;
                  }),
                  CUT);
        EXPECT_GT(size_of(manifest_of(path)), manifest_area(MANIFEST_SLOTS));
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), pattern(LARGE, 2));
        EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        EXPECT_EQ(size_of(manifest_of(path)), MANIFEST_BORN_BYTES);
        Mapped again(path, wish());
        EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
        EXPECT_EQ(read_file(path), pattern(LARGE, 2));
    }
}

// A manifest that was copied, or cut.
TEST_F(RecoverFile, LongLaneMayHaveHolesAndMustNotBeCutOff)
{
    constexpr size_t LARGE = 300 * 4096;
    write_file(path, pattern(LARGE, 1));
    ASSERT_EQ(in_child([&] {
                  Mapped m(path, wish());
                  PersistFaults faults;
                  faults.die_at_flip(5);
                  m.write(0, pattern(LARGE, 2));
                  return 0;
              }),
              CUT);
    const Bytes whole = read_file(manifest_of(path));
    const uint64_t lane = manifest_area(MANIFEST_SLOTS);
    for (uint64_t length : {lane + 64, lane + 4096}) {
        ASSERT_EQ(truncate(manifest_of(path).c_str(), static_cast<off_t>(length)), 0);
        expect_refused(EUCLEAN, path);
        write_file(manifest_of(path), whole);
    }
    ASSERT_EQ(system(("fallocate --dig-holes " + manifest_of(path)).c_str()), 0);
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), pattern(LARGE, 2));
}

// Of its first commit line the sequence alone was stored: nothing was committed.
TEST_F(RecoverFile, TornFirstLineOfTheLongLaneIsNoDamage)
{
    ASSERT_EQ(in_child([&] { return (new Mapped(path, wish()))->write(0, new_) ? 0 : 1; }), 0);
    const uint64_t lane = manifest_area(MANIFEST_SLOTS), sequence = 1;
    ASSERT_EQ(truncate(manifest_of(path).c_str(), static_cast<off_t>(lane + (1 << 20))), 0);
    write_at(manifest_of(path), lane, &sequence, 8);
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), new_);
    EXPECT_EQ(read_at(manifest_of(path), lane + 64, 1), Bytes(1, 1)) << "it is retired";
}

// Nor a small one: what is missing of it would count as a commit that was never complete.
TEST_F(RecoverFile, SmallLaneMustNotBeCutOff)
{
    ASSERT_EQ(in_child([&] {
                  Mapped m(path, wish());
                  PersistFaults faults;
                  faults.die_at_flip(2);
                  m.write(0, new_);
                  return 0;
              }),
              CUT);
    const Bytes whole = read_file(manifest_of(path));
    for (uint64_t length : {64, 128 + 8}) {
        ASSERT_EQ(
            truncate(manifest_of(path).c_str(), static_cast<off_t>(manifest_area(0) + length)), 0);
        expect_refused(EUCLEAN, path);
        expect_refused(EUCLEAN, path); // and again
        write_file(manifest_of(path), whole);
    }
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), new_);
}

TEST_F(RecoverFile, ManifestOfAnotherVersionIsAnError)
{
    ASSERT_EQ(in_child([&] { return (new Mapped(path, wish()))->write(0, new_) ? 0 : 1; }), 0);
    make_older();
    expect_refused(EUCLEAN, "version 1");
    expect_refused(EUCLEAN, "an older libato made it: make the file plain with that one");
    Fd may_read(path, O_RDONLY);
    EXPECT_EQ(ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, may_read, 0), MAP_FAILED);
    EXPECT_EQ(errno, EUCLEAN);
    EXPECT_NE(std::string(ato_errormsg()).find("an older libato made it"), std::string::npos);
}

// By the older library: there is no wait for the end of that process.
TEST_F(RecoverFile, ManifestOfAnOlderVersionIsAnErrorAlsoWhileAnotherProcessHasTheFileMapped)
{
    const Mapped other(path, wish());
    ASSERT_TRUE(other) << other.sentence;
    const Bytes was = read_file(manifest_of(path));
    make_older();
    EXPECT_EQ(in_child([&] {
                  expect_refused(EUCLEAN, "an older libato made it");
                  return HasFailure() ? 1 : 0;
              }),
              0);
    write_at(manifest_of(path), 0, was.data(), MANIFEST_BYTES);
}

} // namespace
