// SPDX-License-Identifier: BSD-3-Clause
//
// Are the journals of dead processes recovered? Children die in commits; the next process that maps
// a file of the folder finishes the commit and removes the journal, or fails with the reason. (A
// process that dies at any other step, or in the recovery: events_test.cc.)
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"
#include "unit/journal_lab.h"

extern "C" {
#include "reflection/format/layout.h"
#include "reflection/media/locks.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include <sys/wait.h>
#include <unistd.h>

using namespace support;
namespace fs = std::filesystem;

namespace
{

constexpr size_t SIZE = 8 * 4096;

class RecoverFolder : public testing::TestWithParam<int>
{
  protected:
    RecoverFolder() : path(dir / "file"), old_(pattern(SIZE, 1)), new_(pattern(SIZE, 2))
    {
        write_file(path, old_);
    }

    ato_options wish() const
    {
        return options(GetParam(), ATO_READ_GATHER, ATO_NO_RTM);
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
        ASSERT_EQ(journals_of(p).size(), 1u);
    }

    void expect_recovered(const std::string &p)
    {
        Mapped m(p, wish());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), new_);
        EXPECT_EQ(journals_of(p).size(), 0u);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(p), new_);
    }

    // The offset in the journal's file of the lane that holds a commit.
    uint64_t committed_lane(const std::string &journal)
    {
        Bytes b = read_file(journal);
        for (size_t at = 0; at + 4096 <= b.size(); at += 4096) {
            uint64_t magic;
            memcpy(&magic, &b[at], 8);
            if (magic != JOURNAL_MAGIC)
                continue;
            for (unsigned lane = 0; lane <= JOURNAL_LANES; lane++) {
                uint64_t begin = at + 4096 + lane * JOURNAL_LANE_BYTES, sequence, retired;
                memcpy(&sequence, &b[begin], 8);
                memcpy(&retired, &b[begin + 64], 8);
                if (sequence == retired + 1)
                    return begin;
            }
        }
        ADD_FAILURE() << "no committed lane in " << journal;
        return 0;
    }

    TempDir dir;
    std::string path;
    Bytes old_, new_;
};

TEST_P(RecoverFolder, CommitOfADeadProcessIsFinished)
{
    for (long n : {1, 2, 5, 8}) {
        write_file(path, old_);
        die_between_flips(path, n);
        expect_recovered(path);
        ASSERT_FALSE(HasFailure()) << n;
    }
}

TEST_P(RecoverFolder, JournalOfAnotherFileInTheFolderIsRecoveredToo)
{
    std::string other = dir / "other";
    write_file(other, old_);
    die_between_flips(path, 3);
    {
        Mapped m(other, wish());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(journals_of(path).size(), 0u);
    }
    expect_recovered(path);
}

TEST_P(RecoverFolder, JournalsOfTwoDeadProcessesAreBothRecovered)
{
    std::string other = dir / "other";
    write_file(other, old_);
    // The second process has a journal before the first dies; else it would recover the first
    // journal.
    Pipe go, ready;
    pid_t second = fork();
    ASSERT_GE(second, 0);
    if (second == 0) {
        Mapped m(other, wish());
        if (!m || !m.write(0, old_) || !ready.tell() || !go.hear())
            _exit(1);
        PersistFaults faults;
        faults.die_at_flip(3);
        m.write(0, new_);
        _exit(2);
    }
    ASSERT_TRUE(ready.hear());
    ASSERT_EQ(journals_of(path).size(), 1u);
    EXPECT_EQ(in_child([&] { return write_and_die(path, 4); }), CUT);
    ASSERT_EQ(journals_of(path).size(), 2u);
    ASSERT_TRUE(go.tell());
    int status;
    ASSERT_EQ(waitpid(second, &status, 0), second);
    ASSERT_EQ(WEXITSTATUS(status), CUT);
    {
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), new_);
        EXPECT_EQ(journals_of(path).size(), 0u);
        Mapped n(other, wish());
        ASSERT_TRUE(n) << n.sentence;
        EXPECT_EQ(n.read(), new_);
    }
}

TEST_P(RecoverFolder, JournalOfALivingProcessIsLeftAlone)
{
    std::string other = dir / "other";
    write_file(other, old_);
    Pipe go, ready;
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        Mapped m(path, wish());
        bool good = m && m.write(0, new_) && ready.tell() && go.hear() && m.write(0, old_) &&
                    m.write(0, new_) && m.unmap(ATO_UNMAP_SPATIAL) == 0;
        _exit(good ? 0 : 1);
    }
    ASSERT_TRUE(ready.hear());
    {
        Mapped m(other, wish());
        EXPECT_TRUE(m) << m.sentence;
        EXPECT_EQ(journals_of(path).size(), 1u);
        EXPECT_TRUE(m.write(0, new_)) << m.sentence; // makes a journal of its own
        EXPECT_EQ(journals_of(path).size(), 2u);
    }
    EXPECT_EQ(journals_of(path).size(), 1u);
    ASSERT_TRUE(go.tell());
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(read_file(path), new_);
    EXPECT_EQ(journals_of(path).size(), 0u);
}

TEST_P(RecoverFolder, FileThatIsGoneIsSkippedWithAWarning)
{
    std::string other = dir / "other";
    write_file(other, old_);
    die_between_flips(path, 3);
    std::string reflection = reflection_of(path), manifest = manifest_of(path);
    fs::remove(path);
    fs::remove(reflection);
    fs::rename(manifest, dir / "gone.manifest"); // TempDir needs it: it names the shared memory
    Log log;
    Mapped m(other, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, "gone"));
    EXPECT_EQ(journals_of(other).size(), 0u);
}

// The pairing that the lane names is removed, and a crash cuts a birth in its place right after the
// manifest is made: there is no file to replay to, and no reason to stop another file.
TEST_P(RecoverFolder, UnfinishedBirthInPlaceOfTheFileIsSkipped)
{
    std::string other = dir / "other";
    write_file(other, old_);
    die_between_flips(path, 3);
    std::string manifest = manifest_of(path);
    fs::remove(reflection_of(path));
    fs::rename(manifest, dir / "gone.manifest"); // TempDir needs it: it names the shared memory
    write_file(manifest, Bytes());
    Mapped m(other, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), old_);
    EXPECT_EQ(journals_of(other).size(), 0u);
}

// One of them is gone, and the lock of both is in one manifest: a process that kept the lock for
// the first would wait for itself at the second. (SIGALRM would end that wait.)
TEST_P(RecoverFolder, TwoPairingsOfOneInodeInAJournalAreDistinguished)
{
    // Without an unmap the file stays in use.
    ASSERT_EQ(in_child([&] { return (new Mapped(path, wish()))->write(0, new_) ? 0 : 1; }), 0);
    JournalLab lab;
    journal_file files[2] = {{}, {}};
    Bytes id = read_at(manifest_of(path), 32, 16);
    for (journal_file &f : files) {
        memcpy(f.id, id.data(), 16);
        f.inode = inode_of(path);
    }
    uint64_t word;
    memcpy(&word, read_at(reflection_of(path), layout_word(2), 8).data(), 8);
    for (int gone : {-1, 1}) { // the missing pairing's id is smaller, then larger
        files[0].id[0] = static_cast<uint8_t>(id[0] + gone);
        journal_writer w;
        journal_begin(&w, &lab.j, &lab.p, 0, files, 2, 2);
        journal_add(&w, 0, layout_word(1), 0);
        journal_add(&w, 1, layout_word(2), 0);
        ASSERT_EQ(journal_finish(&w) | journal_commit(&w), 0);
        std::string journal = folder_of(path) + "/journal-0123456789abcdef0123456789abcdef";
        write_file(journal, Bytes(12 << 20));
        write_at(journal, 4096, lab.bytes, JOURNAL_BYTES);
        journal_retire(&w);
        int status = in_child([&] {
            alarm(60);
            auto *m = new Mapped(path, wish());
            EXPECT_TRUE(*m) << m->sentence;
            Bytes expected = new_;
            std::copy_n(&old_[8192], word ? 4096 : 0, &expected[8192]);
            EXPECT_EQ(m->read(), expected);
            return static_cast<int>(HasFailure());
        });
        EXPECT_EQ(status, 0);
        EXPECT_EQ(journals_of(path).size(), 0u);
    }
}

// ---- damage: the journal stays, and the map fails -----------------------------------------------

TEST_P(RecoverFolder, DamagedLaneIsAnErrorThatNamesTheJournal)
{
    die_between_flips(path, 3);
    std::string journal = journals_of(path)[0];
    uint64_t lane = committed_lane(journal);
    uint32_t words = UINT32_MAX;
    Bytes kept = read_at(journal, lane + 12, 4);
    write_at(journal, lane + 12, &words, 4);
    Bytes reflection = read_file(reflection_of(path));
    {
        Mapped m(path, wish());
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EUCLEAN) << m.sentence;
        EXPECT_NE(m.sentence.find(fs::path(journal).filename()), std::string::npos) << m.sentence;
    }
    EXPECT_EQ(journals_of(path).size(), 1u);
    EXPECT_EQ(read_file(reflection_of(path)), reflection);
    write_at(journal, lane + 12, kept.data(), 4); // repaired
    expect_recovered(path);
}

TEST_P(RecoverFolder, LaneThatPointsOutOfTheReflectionIsAnErrorAndStoresNothing)
{
    die_between_flips(path, 3);
    ASSERT_EQ(truncate(reflection_of(path).c_str(), 4096 * 5), 0);
    Bytes reflection = read_file(reflection_of(path));
    Mapped m(path, wish());
    EXPECT_FALSE(m);
    EXPECT_EQ(m.error, EUCLEAN) << m.sentence;
    EXPECT_EQ(read_file(reflection_of(path)), reflection);
    EXPECT_EQ(journals_of(path).size(), 1u);
}

TEST_P(RecoverFolder, TruncatedJournalIsAnErrorAndNoSignal)
{
    die_between_flips(path, 3);
    ASSERT_EQ(truncate(journals_of(path)[0].c_str(), 1 << 20), 0);
    int status = in_child([&] {
        Mapped m(path, wish());
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EUCLEAN) << m.sentence;
        return HasFailure();
    });
    EXPECT_EQ(status, 0);
    EXPECT_EQ(journals_of(path).size(), 1u);
}

TEST_P(RecoverFolder, JournalOfZerosIsAnErrorAndNoSignal)
{
    die_between_flips(path, 3);
    std::string journal = journals_of(path)[0];
    write_file(journal, Bytes(size_of(journal)));
    int status = in_child([&] {
        Mapped m(path, wish());
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EUCLEAN) << m.sentence;
        return HasFailure();
    });
    EXPECT_EQ(status, 0);
}

TEST_P(RecoverFolder, UnfinishedJournalIsRemoved)
{
    {
        Mapped m(path, wish());
    }
    write_file(dir / ".ato/journal-0123456789abcdef0123456789abcdef.tmp", Bytes(100));
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(journals_of(path).size(), 0u);
}

// The process that made it died before the lock; or it lives, and makes another (pool_test.cc).
TEST_P(RecoverFolder, UnfinishedEmptyJournalIsRemoved)
{
    {
        Mapped m(path, wish());
    }
    write_file(dir / ".ato/journal-0123456789abcdef0123456789abcdef.tmp", Bytes());
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(journals_of(path).size(), 0u);
}

// A living process makes it.
TEST_P(RecoverFolder, UnfinishedJournalThatIsLockedStays)
{
    {
        Mapped m(path, wish());
    }
    std::string unfinished = dir / ".ato/journal-0123456789abcdef0123456789abcdef.tmp";
    write_file(unfinished, Bytes(100));
    Fd maker(unfinished);
    ASSERT_EQ(locks_try(maker, 0, 1), LOCKS_MINE);
    {
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
    }
    EXPECT_TRUE(exists(unfinished));
}

INSTANTIATE_TEST_SUITE_P(Domains, RecoverFolder, testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_MSYNC),
                         [](const testing::TestParamInfo<int> &info) {
                             return info.param == ATO_DOMAIN_PMEM ? "pmem" : "msync";
                         });

} // namespace
