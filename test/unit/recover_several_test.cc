// SPDX-License-Identifier: BSD-3-Clause
//
// Is a commit of several files finished after its process died? The next map of any of them finishes
// it in all, or in none.
#include "several_lab.h"

extern "C" {
#include "lib/recovery/replay.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
}

#include <algorithm>

#include <sys/wait.h>

namespace
{

class RecoverSeveral : public Several, public testing::WithParamInterface<int>
{
  protected:
    RecoverSeveral() : Several(GetParam())
    {
    }

    std::string journal() const
    {
        auto found = journals_of(paths[0]);
        EXPECT_EQ(found.size(), 1u);
        return found.empty() ? "" : found[0];
    }
};

TEST_P(RecoverSeveral, CommitIsFinishedInAllFilesByAMapOfAnyOfThem)
{
    for (size_t first = 0; first < 3; first++) {
        SCOPED_TRACE(first);
        die_committed(3);
        Mapped m(paths[first], wish());
        ASSERT_TRUE(m) << m.sentence;
        expect_words(3);
        expect_no_journals();
        for (const std::string &path : paths) {
            Mapped back(path, wish());
            EXPECT_EQ(back.unmap(ATO_UNMAP_SPATIAL), 0) << back.sentence;
        }
        ASSERT_FALSE(HasFailure());
    }
}

TEST_P(RecoverSeveral, MapOfAnotherFileOfTheFolderLeavesTheCommit)
{
    die_committed(2);
    expect_maps(paths[2]);
    EXPECT_EQ(word_of(paths[0]), 0u);
    EXPECT_EQ(journals_of(paths[0]).size(), 1u);
    expect_maps(paths[1]);
    expect_words(2);
    expect_no_journals();
}

// Its process made it, or a part of it, and died before any manifest named it.
TEST_P(RecoverSeveral, JournalsThatNoManifestNamesAreSweptUpWhenOneIsMade)
{
    expect_maps(paths[0]); // makes the folder
    const std::string left = dir / ".ato/journal-0123456789ab",
                      half = dir / ".ato/journal-0123456789ad",
                      locked = dir / ".ato/journal-0123456789ac";
    for (const std::string &path : {left, locked})
        write_file(path, Bytes(100));
    write_file(half, {});
    Fd maker(locked);
    ASSERT_EQ(locks_try(maker, F_WRLCK, 0, 1), LOCKS_MINE);
    int status = in_child([&] {
        All all = map(3);
        Commit c;
        return all.size() == 3 && commit(c, {file_of(*all[1]), file_of(*all[2])}) && complete(c)
                   ? 0
                   : 1;
    });
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(exists(left));
    EXPECT_FALSE(exists(half));
    EXPECT_TRUE(exists(locked)) << "a living process makes it";
    fs::remove(locked);
}

// A complete commit of all, and then one of x and z: y has used the journal, too.
TEST_P(RecoverSeveral, CommitIsFinishedOnlyInItsFiles)
{
    int status = in_child([&]() -> int {
        All all = map(3);
        Commit first, second;
        if (all.size() != 3 || !commit(first, files_of(all)) || !complete(first))
            return 1;
        _exit(commit(second, {file_of(*all[0]), file_of(*all[2])}) ? CUT : 2);
    });
    ASSERT_EQ(status, CUT);
    EXPECT_EQ(word_of(paths[2]), VALUE + 2);
    expect_maps(paths[2]);
    EXPECT_EQ(word_of(paths[0]), VALUE);
    EXPECT_EQ(word_of(paths[1]), VALUE + 1);
    EXPECT_EQ(word_of(paths[2]), VALUE + 1) << "the second file of the second commit";
    EXPECT_EQ(journals_of(paths[0]).size(), 1u) << "the second file's manifest names it";
    expect_maps(paths[1]);
    expect_no_journals();
}

TEST_P(RecoverSeveral, SizeIsFinishedWithTheRest)
{
    constexpr uint64_t MORE = SIZE + 5 * 4096 + 10;
    for (size_t first : {0, 1}) {
        write_file(paths[1], pattern(SIZE, 1));
        die_committed(2, MORE);
        {
            Mapped m(paths[first], wish());
            ASSERT_TRUE(m) << m.sentence;
            expect_words(2);
        }
        Mapped m(paths[1], wish());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.stat().size, MORE);
        EXPECT_EQ(size_of(paths[1]), MORE);
        expect_no_journals();
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
}

TEST_P(RecoverSeveral, SizeThatDoesNotFitIsAnErrorAndStoresNothing)
{
    die_committed(2, 1000 * 4096);
    ASSERT_EQ(truncate(reflection_of(paths[1]).c_str(),
                       static_cast<off_t>(layout_reflection_bytes(LAYOUT_DENSE, 999 * 4096))),
              0);
    for (size_t first : {0, 1})
        expect_refused(paths[first], EUCLEAN, {"size", reflection_of(paths[1])});
    EXPECT_EQ(word_of(paths[0]), 0u);
    EXPECT_EQ(word_of(paths[1]), 0u);
    Bytes word = read_at(manifest_of(paths[1]), MANIFEST_SIZE_WORD, 8);
    uint64_t size = 0;
    memcpy(&size, word.data(), 8);
    EXPECT_EQ(size, manifest_encode_size(SIZE));
    EXPECT_EQ(journals_of(paths[0]).size(), 1u);
}

TEST_P(RecoverSeveral, JournalOfALivingProcessIsLeftAlone)
{
    Pipe go, ready;
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        All all = map(2);
        Commit c;
        bool good =
            all.size() == 2 && commit(c, files_of(all)) && complete(c) && ready.tell() && go.hear();
        all.clear();
        _exit(good ? 0 : 1);
    }
    ASSERT_TRUE(ready.hear());
    expect_maps(paths[2]);
    EXPECT_EQ(journals_of(paths[0]).size(), 1u);
    ASSERT_TRUE(go.tell());
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    expect_no_journals();
}

// ---- files that are gone, folders that are moved or copied --------------------------------------

TEST_P(RecoverSeveral, FileThatIsGoneIsSkippedWithAWarning)
{
    die_committed(3);
    const std::string manifest = manifest_of(paths[1]);
    fs::remove(reflection_of(paths[1]));
    fs::rename(manifest, dir / "gone.manifest"); // TempDir needs it: it names the shared memory
    Log log;
    expect_maps(paths[0]);
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, "gone"));
    EXPECT_EQ(word_of(paths[2]), VALUE + 2);
    expect_no_journals();
}

// The pairing that the lane names is removed, and a crash cuts a birth in its place right after the
// manifest is made: there is no file to replay to, and no reason to stop another file.
TEST_P(RecoverSeveral, UnfinishedBirthInPlaceOfTheFileIsSkipped)
{
    die_committed(2);
    std::string manifest = manifest_of(paths[1]);
    fs::remove(reflection_of(paths[1]));
    fs::rename(manifest, dir / "gone.manifest"); // TempDir needs it: it names the shared memory
    write_file(manifest, Bytes());
    expect_maps(paths[0]);
    EXPECT_EQ(word_of(paths[0]), VALUE);
    expect_no_journals();
}

// One of them is gone, and the lock of both is in one manifest: a process that kept the lock for
// the first would wait for itself at the second. (SIGALRM would end that wait.)
TEST_P(RecoverSeveral, TwoPairingsOfOneInodeInAJournalAreDistinguished)
{
    die_committed(2);
    auto own = std::make_unique<pairing>();
    ASSERT_EQ(folder_open(&own->folder, folder_of(paths[0]).c_str(), false), 0);
    own->identity.trust = {0, 0, 0666};
    uint64_t number;
    ASSERT_TRUE(redo_name_of(fs::path(journal()).filename().c_str(), &number));
    Bytes id = read_at(manifest_of(paths[0]), 32, 16);
    alarm(60);
    for (int gone : {-1, 1}) { // the missing pairing's id is smaller, then larger
        participants n = {};
        n.own = own.get();
        n.journal = number;
        journal_file there = {{}, inode_of(paths[0]), 0}, missing;
        memcpy(there.id, id.data(), 16);
        missing = there;
        missing.id[0] = static_cast<uint8_t>(missing.id[0] + gone);
        ASSERT_EQ(participants_add(&n, &there) | participants_add(&n, &missing), 0);
        EXPECT_EQ(participants_acquire(&n), 0) << report_sentence();
        EXPECT_TRUE(participants_find(&n, &there));
        EXPECT_FALSE(participants_find(&n, &missing));
        participants_end(&n);
    }
    alarm(0);
    folder_close(&own->folder);
    expect_maps(paths[0]);
}

// A user that may write to one file can name any other in a journal of that one.
TEST_P(RecoverSeveral, FileWhoseManifestDoesNotNameTheJournalIsNotTouched)
{
    die_committed(3);
    const uint64_t none = 0;
    write_at(manifest_of(paths[1]), manifest_area(0), &none, 8);
    Log log;
    expect_maps(paths[0]);
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, "does not name the journal"));
    EXPECT_EQ(word_of(paths[0]), VALUE);
    EXPECT_EQ(word_of(paths[1]), 0u);
    EXPECT_EQ(word_of(paths[2]), VALUE + 2);
    expect_no_journals();
}

TEST_P(RecoverSeveral, DamagedJournalIsAnErrorAndNoSignal)
{
    die_committed(2);
    const std::string at = journal();
    const Bytes was = read_file(at);
    for (const Bytes &damaged : {Bytes(&was[0], &was[0] + (1 << 20)), Bytes(was.size()), Bytes()}) {
        fs::remove(at);
        if (!damaged.empty())
            write_file(at, damaged);
        int status = in_child([&] {
            expect_refused(paths[0], EUCLEAN, {at});
            return HasFailure();
        });
        EXPECT_EQ(status, 0);
        EXPECT_EQ(word_of(paths[0]), 0u);
    }
    write_file(at, was);
    expect_maps(paths[0]);
    expect_words(2);
}

TEST_P(RecoverSeveral, FileThatWasCleanlyUnmappedIsTakenForACopy)
{
    die_committed(3);
    edit_manifest(paths[1], [](manifest_record &record) { record.state = MANIFEST_CLEAN; });
    expect_maps(paths[0]);
    EXPECT_EQ(word_of(paths[0]), VALUE);
    EXPECT_EQ(word_of(paths[1]), 0u);
    EXPECT_EQ(word_of(paths[2]), VALUE + 2);
}

TEST_P(RecoverSeveral, FolderOfTheFilesMayMove)
{
    ASSERT_EQ(mkdir((dir / "from").c_str(), 0755), 0);
    paths.clear();
    for (const char *name : {"from/x", "from/y", "from/z"})
        add(name);
    for (size_t first : {0, 1, 2}) {
        const std::string to = dir / "to" + std::to_string(first);
        die_committed(3);
        fs::rename(fs::path(paths[0]).parent_path(), to);
        paths = {to + "/x", to + "/y", to + "/z"};
        expect_maps(paths[first]);
        expect_words(3);
        expect_no_journals();
        for (const std::string &path : paths) {
            Mapped back(path, wish());
            EXPECT_EQ(back.unmap(ATO_UNMAP_SPATIAL), 0) << back.sentence;
        }
        ASSERT_FALSE(HasFailure());
    }
}

// The files are in two folders, their reflections in the folder of the first.
TEST_P(RecoverSeveral, CommitOfFilesWithOneReflectionDirIsFinishedByAMapOfEither)
{
    ASSERT_EQ(mkdir((dir / "sub").c_str(), 0755), 0);
    paths = {dir / "x"};
    add("sub/y");
    expect_maps(paths[0]); // makes the folder
    reflection_dir = folder_of(paths[0]);
    for (size_t first : {0, 1}) {
        die_committed(2);
        EXPECT_FALSE(exists(folder_of(paths[1])));
        Mapped m(paths[first], wish());
        ASSERT_TRUE(m) << m.sentence;
        for (size_t i : {0, 1}) {
            const std::string reflection =
                reflection_dir + "/" + std::to_string(inode_of(paths[i]));
            uint64_t word;
            memcpy(&word, read_at(reflection, layout_word(LAYOUT_DENSE, PAGE), 8).data(), 8);
            EXPECT_EQ(word, VALUE + i) << paths[i];
        }
        expect_no_journals();
        for (const std::string &path : paths) {
            Mapped back(path, wish());
            EXPECT_EQ(back.unmap(ATO_UNMAP_SPATIAL), 0) << back.sentence;
        }
        ASSERT_FALSE(HasFailure());
    }
}

// ---- orders --------------------------------------------------------------------------------------

// Otherwise the recoveries of two dead processes' commits to the same files, which begin with different files, could wait for
// each other.
TEST_P(RecoverSeveral, WaitsForAnAttachLockWithoutOneOfAHigherId)
{
    die_committed(3);
    std::sort(paths.begin(), paths.end(), [](const std::string &a, const std::string &b) {
        return read_at(manifest_of(a), 32, 16) < read_at(manifest_of(b), 32, 16);
    });
    Fd lowest(manifest_of(paths[0])), pool(journal());
    ASSERT_EQ(locks_try(lowest, F_WRLCK, 0, 1), LOCKS_MINE);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0)
        _exit(Mapped(paths[2], wish()) ? 0 : 1);
    for (int ms = 0; ms < 10000 && locks_ask(pool, 1, 1) == LOCKS_FREE; ms++)
        usleep(1000); // before it has this lock, it looks at its file alone
    for (int ms = 0; ms < 50; ms++, usleep(1000))
        for (size_t i : {1, 2})
            EXPECT_EQ(locks_ask(Fd(manifest_of(paths[i])), 0, 1), LOCKS_FREE);
    ASSERT_EQ(locks_drop(lowest, 0, 1), 0);
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    expect_no_journals();
}

// ---- commits that cannot be finished ------------------------------------------------------------

// Of two lanes the second one cannot be replayed yet. The first must not be retired alone: nothing would tell any more
// that its files belong together.
TEST_P(RecoverSeveral, NoLaneIsRetiredBeforeAllAreReplayed)
{
    int status = in_child([&]() -> int {
        All all = map(3);
        Commit first, second;
        if (all.size() != 3 || !commit(first, {file_of(*all[0]), file_of(*all[1])}))
            return 1;
        _exit(commit(second, {file_of(*all[0]), file_of(*all[2])}) ? CUT : 2);
    });
    ASSERT_EQ(status, CUT);
    const Bytes reflection = read_file(reflection_of(paths[2]));
    ASSERT_EQ(truncate(reflection_of(paths[2]).c_str(), 1), 0);
    const Bytes before = read_file(journal());
    expect_refused(paths[0], EUCLEAN, {reflection_of(paths[2])});
    EXPECT_TRUE(read_file(journal()) == before) << "a lane was retired";
    write_file(reflection_of(paths[2]), reflection);
    expect_maps(paths[0]);
    EXPECT_EQ(word_of(paths[1]), VALUE + 1);
    EXPECT_EQ(word_of(paths[2]), VALUE + 1);
}

TEST_P(RecoverSeveral, JournalThatCannotBeFinishedStopsNoOtherFile)
{
    die_committed(2);
    const std::string reflection = reflection_of(paths[1]), away = dir / "away";
    fs::rename(reflection, away);
    for (int turn = 0; turn < 2; turn++)
        expect_maps(paths[2]);
    expect_refused(paths[0], ESTALE, {reflection});
    EXPECT_EQ(word_of(paths[0]), 0u);
    fs::rename(away, reflection);
    expect_maps(paths[0]);
    expect_words(2);
    expect_no_journals();
}

TEST_P(RecoverSeveral, CommitIsNotFinishedIfAFileBelongsToAnotherUserNow)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to change the owner of a file";
    die_committed(2);
    auto give = [&](size_t i, uid_t owner) {
        for (const std::string &path : {paths[i], manifest_of(paths[i]), reflection_of(paths[i])})
            ASSERT_EQ(chown(path.c_str(), owner, owner), 0);
    };
    ASSERT_EQ(chown(journal().c_str(), 4242, 4242), 0); // as if its process was not root
    give(0, 4242);
    give(1, 4343);
    expect_refused(paths[0], EACCES, {manifest_of(paths[1]), "4343"});
    EXPECT_EQ(word_of(paths[0]), 0u);
    EXPECT_EQ(word_of(paths[1]), 0u);
    give(1, 4242);
    expect_maps(paths[0]);
    expect_words(2);
    expect_no_journals();
}

INSTANTIATE_TEST_SUITE_P(Domains, RecoverSeveral,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_MSYNC),
                         [](const testing::TestParamInfo<int> &info) {
                             return info.param == ATO_DOMAIN_PMEM ? "pmem" : "msync";
                         });

} // namespace
