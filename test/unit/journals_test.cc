// SPDX-License-Identifier: BSD-3-Clause
//
// Which lane does a commit get? One of the file's own, in its manifest, if it fits there. Else one in
// a journal of the process: one for each folder and domain, made at the first commit that needs it
// and removed with the last file that used it. Any number of threads share lanes, and a lane of a
// journal names any number of files.
#include "several_lab.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace
{

class Journals : public testing::Test
{
  protected:
    // Of more pages than a lane of the manifest has words.
    static constexpr size_t LARGE = (JOURNAL_SLOT_WORDS + 10) * 4096;

    std::string file(const std::string &name)
    {
        write_file(dir / name, Bytes(LARGE));
        return dir / name;
    }

    TempDir dir;
};

TEST_F(Journals, AreNotMadeForACommitToOneFileThatFitsIntoItsManifest)
{
    std::string path = file("file");
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(size_of(manifest_of(path)), MANIFEST_BORN_BYTES);
    const Bytes bytes = pattern(JOURNAL_SLOT_WORDS * 4096, 2);
    ASSERT_TRUE(m.write(0, bytes)) << m.sentence;
    EXPECT_EQ(m.read(0, bytes.size()), bytes);
    EXPECT_EQ(m.stat().commits_journal, 1u);
    EXPECT_EQ(journals_of(path).size(), 0u);
    ASSERT_TRUE(m.write(0, pattern(LARGE, 3))) << m.sentence;
    EXPECT_EQ(journals_of(path).size(), 1u);
}

TEST_F(Journals, AreMadeByTheFirstLargeCommitAndRemovedWithTheLastFile)
{
    std::string path = file("file");
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, pattern(LARGE, 2)));
    EXPECT_EQ(journals_of(path).size(), 1u);
    Mapped other(file("other"), options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(other.write(0, pattern(LARGE, 2))); // uses the same
    EXPECT_EQ(journals_of(path).size(), 1u);
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
    EXPECT_EQ(journals_of(path).size(), 1u);
    EXPECT_EQ(other.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(journals_of(path).size(), 0u);
}

TEST_F(Journals, AreSeparateForEachDomainAndFolder)
{
    Mapped a(file("a"), options(ATO_DOMAIN_PMEM)), b(file("b"), options(ATO_DOMAIN_MSYNC));
    ASSERT_EQ(mkdir((dir / "sub").c_str(), 0755), 0);
    Mapped c(file("sub/c"), options(ATO_DOMAIN_PMEM));
    for (Mapped *m : {&a, &b, &c}) {
        ASSERT_TRUE(*m) << m->sentence;
        ASSERT_TRUE(m->write(0, pattern(LARGE, 2))) << m->sentence;
    }
    EXPECT_EQ(journals_of(dir / "a").size(), 2u);
    EXPECT_EQ(journals_of(dir / "sub/c").size(), 1u);
}

TEST_F(Journals, HaveTheModeOfTheCommittedFile)
{
    std::string path = file("file");
    ASSERT_EQ(chmod(path.c_str(), 0660), 0);
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m.write(0, pattern(LARGE, 2)));
    ASSERT_EQ(journals_of(path).size(), 1u);
    EXPECT_EQ(stat_of(journals_of(path)[0]).st_mode & 07777, 0660u);
}

TEST_F(Journals, MoreThreadsThanLanesAllCommit)
{
    std::string path = file("file");
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    std::vector<std::thread> threads;
    std::atomic<int> failed{0};
    for (size_t t = 0; t < 20; t++)
        threads.emplace_back([&m, &failed, t] {
            for (unsigned i = 0; i < 30; i++) {
                Bytes bytes = pattern(8192, static_cast<unsigned>(t * 100 + i));
                if (!ato_memcpy(m.base + t * 8192, bytes.data(), bytes.size()))
                    failed++;
            }
        });
    for (std::thread &t : threads)
        t.join();
    EXPECT_EQ(failed, 0);
    for (unsigned t = 0; t < 20; t++)
        EXPECT_EQ(m.read(t * 8192, 8192), pattern(8192, t * 100 + 29));
    EXPECT_EQ(m.stat().commits_journal, 600u);
    EXPECT_EQ(journals_of(path).size(), 0u);
}

TEST_F(Journals, WriteTooLargeForASmallLaneTakesTheLargeLane)
{
    constexpr size_t N = 5000 * 4096; // more than 4088 words
    std::string path = dir / "file";
    write_file(path, Bytes(N));
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, Bytes(N, 7))) << m.sentence;
    EXPECT_EQ(m.read(), Bytes(N, 7));
    EXPECT_EQ(m.stat().commits_journal, 1u);
    EXPECT_EQ(m.stat().flips, 5000u);
}

// The test asks for a lane directly, to avoid a copy of a GiB.
TEST_F(Journals, MoreWordsThanAnyLaneHoldsAreE2big)
{
    Mapped m(file("file"), options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    struct file *f = table_find(m.base)->file;
    journal_lane lane;
    EXPECT_EQ(take_lane({f}, (1ull << 18) + 1, &lane), 0) << ato_errormsg(); // an odd GiB
    EXPECT_EQ(lane.lane, JOURNAL_LANES);
    journals_give_lane(&lane, false);
    EXPECT_EQ(take_lane({f}, (1ull << 28) + 1, &lane), -1);
    EXPECT_EQ(errno, E2BIG);
    EXPECT_NE(std::string(ato_errormsg()).find("268435457"), std::string::npos) << ato_errormsg();
}

// ---- commits that are more than a new journal holds ---------------------------------------------

TEST_F(Journals, LargeLaneGrowsForALargerCommitAndIsReplayed)
{
    DENSE_ONLY("stores words of a dense reflection");
    constexpr uint64_t WORDS = 1 << 18;
    std::string path = dir / "file";
    write_file(path, {});
    ASSERT_EQ(truncate(path.c_str(), 1ll << 31), 0); // 2^19 pages
    {
        Mapped m(path, options(ATO_DOMAIN_PMEM));
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(m.write(0, pattern(LARGE, 2)));
        const auto first = journals_of(path);
        ASSERT_EQ(first.size(), 1u);
        EXPECT_EQ(size_of(first[0]), journal_bytes(0));
        struct file *f = table_find(m.base)->file;
        journal_lane large;
        ASSERT_EQ(take_lane({f}, WORDS, &large), 0) << ato_errormsg();
        EXPECT_EQ(journals_of(path), first);
        EXPECT_EQ(size_of(first[0]), journal_bytes(WORDS));
        const journal_file name = pairing_in_journals(&f->pairing);
        journal_writer w;
        journal_begin(&w, large.journal, &f->persist, large.lane, 1, WORDS);
        journal_name(&w, &name);
        for (uint64_t i = 0; i < WORDS; i++)
            journal_add(&w, 0, layout_word(LAYOUT_DENSE, i), i << 8);
        ASSERT_EQ(journal_commit(&w), 0);
        file_poison(f); // as if the medium had failed
        journals_give_lane(&large, true);
    }
    EXPECT_EQ(journals_of(path).size(), 1u) << "the journal to replay";
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(journals_of(path).size(), 0u);
    for (uint64_t i : {uint64_t{1}, WORDS / 2, WORDS - 1}) {
        uint64_t word;
        memcpy(&word, read_at(reflection_of(path), layout_word(LAYOUT_DENSE, i), 8).data(), 8);
        EXPECT_EQ(word, i << 8);
    }
}

// Commits in the small lanes go on meanwhile.
TEST_F(Journals, LargeLaneGrowsWhileOtherLanesAreBusy)
{
    Mapped a(file("a"), options(ATO_DOMAIN_PMEM)), b(file("b"), options(ATO_DOMAIN_PMEM));
    struct file *first = table_find(a.base)->file, *second = table_find(b.base)->file;
    journal_lane under_way, lane;
    ASSERT_EQ(take_lane({first}, 1000, &under_way), 0) << ato_errormsg();
    const char *lanes = under_way.journal->lanes_at;
    ASSERT_EQ(take_lane({second}, 1 << 18, &lane), 0) << ato_errormsg();
    EXPECT_EQ(lane.journal->lanes_at, lanes);
    journals_give_lane(&lane, false);
    journals_give_lane(&under_way, false);
    EXPECT_EQ(journals_of(dir / "a").size(), 1u);
}

TEST_F(Journals, NoSpaceForALongerLaneIsAnErrorAndSmallCommitsGoOn)
{
    Mapped m(file("file"), options(ATO_DOMAIN_PMEM));
    struct file *f = table_find(m.base)->file;
    journal_lane lane;
    ASSERT_EQ(take_lane({f}, 1000, &lane), 0) << ato_errormsg();
    journals_give_lane(&lane, false);
    {
        FsFaults faults;
        faults.fail_at(0, ENOSPC);
        EXPECT_EQ(take_lane({f}, 1 << 18, &lane), -1);
        EXPECT_EQ(errno, ENOSPC);
        EXPECT_NE(std::string(ato_errormsg()).find("journal-"), std::string::npos);
    }
    for (uint64_t words : {1000, 1 << 18}) {
        ASSERT_EQ(take_lane({f}, words, &lane), 0) << ato_errormsg();
        journals_give_lane(&lane, false);
    }
}

TEST_F(Journals, ThreadsThatWaitForTheLargeLaneAllGetIt)
{
    Mapped m(file("file"), options(ATO_DOMAIN_PMEM));
    struct file *f = table_find(m.base)->file;
    for (int round = 0; round < 5; round++) {
        const uint64_t words = 1 << (17 + round);
        journal_lane under_way;
        ASSERT_EQ(take_lane({f}, 10000, &under_way), 0) << ato_errormsg();
        std::vector<std::thread> threads;
        std::atomic<int> failed{0};
        for (int t = 0; t < 3; t++)
            threads.emplace_back([&] {
                journal_lane lane;
                if (take_lane({f}, words, &lane) < 0)
                    failed++;
                else
                    journals_give_lane(&lane, false);
            });
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        journals_give_lane(&under_way, false);
        for (std::thread &t : threads)
            t.join();
        EXPECT_EQ(failed, 0) << ato_errormsg();
        EXPECT_EQ(journals_of(dir / "file").size(), 1u);
    }
}

// ---- several files ------------------------------------------------------------------------------

using SeveralFiles = Several;

TEST_F(SeveralFiles, ShareOneJournalUntilAllAreUnmapped)
{
    All all = map(3);
    for (int turn = 0; turn < 2; turn++) {
        Commit c;
        ASSERT_TRUE(commit(c, files_of(all)) && complete(c)) << ato_errormsg();
    }
    const auto journal = journals_of(paths[0]);
    EXPECT_EQ(journal.size(), 1u);
    all[0].reset();
    EXPECT_EQ(journals_of(paths[0]), journal);
    Commit rest;
    ASSERT_TRUE(commit(rest, {file_of(*all[1]), file_of(*all[2])}) && complete(rest))
        << ato_errormsg();
    EXPECT_EQ(journals_of(paths[0]), journal) << "the same journal";
    all[1].reset();
    EXPECT_EQ(journals_of(paths[0]), journal);
    all[2].reset();
    expect_no_journals();
}

// The third file has used no journal before.
TEST_F(SeveralFiles, UseTheJournalThatAnotherFileOfTheFolderMade)
{
    All all = map(3);
    Commit one, others;
    ASSERT_TRUE(commit(one, {file_of(*all[0]), file_of(*all[1])}) && complete(one))
        << ato_errormsg();
    const auto journal = journals_of(paths[0]);
    ASSERT_TRUE(commit(others, {file_of(*all[1]), file_of(*all[2])}) && complete(others))
        << ato_errormsg();
    EXPECT_EQ(journals_of(paths[0]), journal);
    all[0].reset();
    EXPECT_EQ(journals_of(paths[0]), journal);
    all.clear();
    expect_no_journals();
}

TEST_F(SeveralFiles, FailureToMakeTheJournalIsAnErrorAndTheNextTrySucceeds)
{
    long total = 0;
    for (long k = 0; k <= total; k++) {
        SCOPED_TRACE(k);
        All all = map(2);
        auto files = files_of(all);
        journal_lane lane;
        {
            FsFaults faults;
            faults.fail_at(k, ENOSPC);
            int r = take_lane(files, 2, &lane);
            total = static_cast<long>(faults.calls.size());
            if (r == 0) { // fchown may fail
                journals_give_lane(&lane, false);
                continue;
            }
            EXPECT_EQ(errno, ENOSPC);
            EXPECT_STRNE(ato_errormsg(), "");
            faults.before = nullptr;
            EXPECT_EQ(journals_of(paths[0]).size(), file_of(*all[0])->journal ? 1u : 0u)
                << faults.calls[static_cast<size_t>(k)];
        }
        ASSERT_EQ(take_lane(files, 2, &lane), 0) << ato_errormsg();
        journals_give_lane(&lane, false);
    }
    EXPECT_GT(total, 2);
    expect_no_journals();
}

TEST_F(SeveralFiles, MoreFilesThanALaneNamesAreE2big)
{
    Mapped m(paths[0], wish());
    const std::vector<struct file *> files(JOURNAL_MAX_FILES, file_of(m));
    auto one_more = files;
    one_more.push_back(files[0]);
    journal_lane lane;
    EXPECT_EQ(take_lane(one_more, 2, &lane), -1);
    EXPECT_EQ(errno, E2BIG);
    ASSERT_EQ(take_lane(files, 1 << 18, &lane), 0) << ato_errormsg();
    EXPECT_EQ(lane.lane, JOURNAL_LANES);
    journals_give_lane(&lane, false);
}

// As after a failure of the medium, with either file unmapped first.
TEST_F(SeveralFiles, CommitInDoubtIsFinishedByTheNextMapOfEitherFile)
{
    for (size_t first : {0, 1}) {
        All all = map(2);
        Commit c;
        ASSERT_TRUE(commit(c, files_of(all))) << ato_errormsg();
        for (struct file *f : c.files)
            file_poison(f);
        journals_give_lane(&c.lane, true);
        all[first].reset();
        EXPECT_EQ(journals_of(paths[0]).size(), 1u) << "the journal is closed, not removed";
        {
            Mapped m(paths[first], wish());
            ASSERT_TRUE(m) << m.sentence;
            expect_words(2);
        }
        all.clear();
        for (size_t i : {0, 1}) {
            Mapped m(paths[i], wish());
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        }
        expect_no_journals();
        ASSERT_FALSE(HasFailure());
    }
}

// The third file is only in an earlier commit, which is complete.
TEST_F(SeveralFiles, FilesNotInDoubtContinueWithANewJournal)
{
    All all = map(3);
    Commit before, c, after;
    ASSERT_TRUE(commit(before, files_of(all)) && complete(before)) << ato_errormsg();
    ASSERT_TRUE(commit(c, {file_of(*all[0]), file_of(*all[1])})) << ato_errormsg();
    for (struct file *f : c.files)
        file_poison(f);
    journals_give_lane(&c.lane, true);
    all[1].reset();
    EXPECT_EQ(journals_of(paths[0]).size(), 1u);
    add("other");
    Mapped other(paths[3], wish());
    ASSERT_TRUE(other) << other.sentence;
    ASSERT_TRUE(commit(after, {file_of(other), file_of(*all[2])}) && complete(after))
        << ato_errormsg();
    EXPECT_EQ(journals_of(paths[0]).size(), 2u);
    EXPECT_EQ(other.unmap(ATO_UNMAP_FAST), 0);
    all.clear();
    EXPECT_EQ(journals_of(paths[0]).size(), 1u);
    expect_maps(paths[0]);
    expect_words(2);
    expect_no_journals();
}

TEST_F(SeveralFiles, ExitOfAForkedChildRemovesNothing)
{
    All all = map(2);
    Commit c, more;
    ASSERT_TRUE(commit(c, files_of(all)) && complete(c)) << ato_errormsg();
    EXPECT_EQ(in_exiting_child([] { return 0; }), 0);
    EXPECT_EQ(journals_of(paths[0]).size(), 1u);
    ASSERT_TRUE(commit(more, files_of(all)) && complete(more)) << ato_errormsg();
    all.clear();
    expect_no_journals();
}

TEST_F(SeveralFiles, ExitOfTheProcessRemovesTheirJournal)
{
    auto *kept = new All;
    EXPECT_EQ(in_exiting_child([&] {
                  *kept = map(3);
                  Commit c;
                  return kept->size() == 3 && commit(c, files_of(*kept)) && complete(c) ? 0 : 1;
              }),
              0);
    delete kept;
    expect_no_journals();
}

// ---- files of one commit ------------------------------------------------------------------------

void expect_not_alike(const struct file *a, const struct file *b)
{
    EXPECT_EQ(journals_alike(a, b), -1);
    EXPECT_EQ(errno, EXDEV);
    for (const struct file *f : {a, b})
        EXPECT_NE(std::string(ato_errormsg()).find(f->pairing.path), std::string::npos)
            << ato_errormsg();
}

TEST_F(SeveralFiles, AreAlikeWithOneFolderOneDomainAndTheSameWriters)
{
    ASSERT_EQ(chmod(paths[1].c_str(), 0640), 0); // more readers
    ASSERT_EQ(chmod(paths[2].c_str(), 0664), 0); // more writers
    Mapped a(paths[0], options(ATO_DOMAIN_PMEM)), b(paths[1], options(ATO_DOMAIN_PMEM)),
        c(paths[2], options(ATO_DOMAIN_PMEM));
    ASSERT_EQ(chmod(paths[0].c_str(), 0600), 0);
    EXPECT_EQ(journals_alike(file_of(a), file_of(b)), 0) << ato_errormsg();
    expect_not_alike(file_of(a), file_of(c));
    add("other");
    Mapped d(paths.back(), options(ATO_DOMAIN_MSYNC));
    expect_not_alike(file_of(a), file_of(d));
    ASSERT_EQ(mkdir((dir / "sub").c_str(), 0755), 0);
    add("sub/file");
    Mapped e(paths.back(), options(ATO_DOMAIN_PMEM));
    expect_not_alike(file_of(b), file_of(e));
    for (const std::string &folder : {folder_of(paths[1]), folder_of(paths.back())})
        EXPECT_NE(std::string(ato_errormsg()).find(folder), std::string::npos) << ato_errormsg();
}

// The two paths of the folder are compared by what they lead to.
TEST_F(SeveralFiles, AreAlikeIfTwoPathsLeadToTheirFolder)
{
    ASSERT_EQ(mkdir((dir / "sub").c_str(), 0755), 0);
    ASSERT_EQ(symlink((dir / ".").c_str(), (dir / "sub/up").c_str()), 0);
    const std::string folder = folder_of(paths[0]), other = dir / "sub/up/.ato";
    ato_options first = wish(), second = wish();
    first.reflection_dir = folder.c_str();
    second.reflection_dir = other.c_str();
    Mapped a(paths[0], first), b(paths[1], second);
    ASSERT_TRUE(a && b) << a.sentence << b.sentence;
    EXPECT_EQ(journals_alike(file_of(a), file_of(b)), 0) << ato_errormsg();
    Commit c;
    ASSERT_TRUE(commit(c, {file_of(a), file_of(b)}) && complete(c)) << ato_errormsg();
    EXPECT_EQ(journals_of(paths[0]).size(), 1u);
}

TEST_F(SeveralFiles, GroupsMustMatchOnlyIfTheyMayWrite)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to change the owner of a file";
    for (mode_t mode : {0644, 0664}) {
        TempDir other;
        const std::string x = other / "x", y = other / "y";
        for (const std::string &path : {x, y}) {
            write_file(path, pattern(SIZE, 1));
            ASSERT_EQ(chmod(path.c_str(), mode), 0);
        }
        ASSERT_EQ(chown(y.c_str(), 0, 12345), 0);
        Mapped a(x, wish()), b(y, wish());
        ASSERT_TRUE(a && b);
        if (mode & S_IWGRP)
            expect_not_alike(file_of(a), file_of(b));
        else
            EXPECT_EQ(journals_alike(file_of(a), file_of(b)), 0) << ato_errormsg();
    }
    ASSERT_EQ(chown(paths[1].c_str(), 12345, 0), 0);
    Mapped a(paths[0], wish()), b(paths[1], wish());
    expect_not_alike(file_of(a), file_of(b));
}

} // namespace
