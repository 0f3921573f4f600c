// SPDX-License-Identifier: BSD-3-Clause
//
// Is a commit of files in several folders finished after its process died? The next map of any of
// the files finishes it in all of them; if one of the folders cannot be found, the commit is not
// lost. (Copies and damage: recover_several_damaged_test.cc.)
#include "recover_several_lab.h"

extern "C" {
#include "reflection/media/locks.h"
}

#include <sys/wait.h>

namespace
{

TEST_P(RecoverSeveral, CommitIsFinishedInAllFilesByAMapOfAnyOfThem)
{
    for (size_t first = 0; first < 3; first++) {
        SCOPED_TRACE(first);
        die_committed(3);
        EXPECT_EQ(pointers_of(paths[1]).size(), 1u);
        EXPECT_EQ(pointers_of(paths[2]).size(), 1u);
        Mapped m(paths[first], wish());
        ASSERT_TRUE(m) << m.sentence;
        expect_words(3);
        expect_nothing_left();
        for (const std::string &path : paths) {
            Mapped back(path, wish());
            EXPECT_EQ(back.unmap(ATO_UNMAP_SPATIAL), 0) << back.sentence;
        }
        ASSERT_FALSE(HasFailure());
    }
}

TEST_P(RecoverSeveral, CommitIsFinishedByAMapOfAnotherFileOfAFolder)
{
    die_committed(2);
    write_file(dir / "y/other", pattern(SIZE, 2));
    expect_maps(dir / "y/other");
    expect_words(2);
    expect_nothing_left();
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
        expect_nothing_left();
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
}

TEST_P(RecoverSeveral, SizeThatDoesNotFitIsAnErrorAndStoresNothing)
{
    die_committed(2, 1000 * 4096);
    ASSERT_EQ(truncate(reflection_of(paths[1]).c_str(),
                       static_cast<off_t>(layout_reflection_bytes(999 * 4096))),
              0);
    for (size_t first : {0, 1})
        expect_refused(paths[first], EUCLEAN, {"size", reflection_of(paths[1])});
    EXPECT_EQ(word_of(paths[0]), 0u);
    EXPECT_EQ(word_of(paths[1]), 0u);
    Bytes word = read_at(manifest_of(paths[1]), MANIFEST_SIZE_WORD, 8);
    uint64_t size = 0;
    memcpy(&size, word.data(), 8);
    EXPECT_EQ(size, manifest_encode_size(SIZE));
    EXPECT_EQ(pointers_of(paths[1]).size(), 1u);
}

TEST_P(RecoverSeveral, JournalThatIsFoundTwiceIsFinishedOnce)
{
    die_committed(2);
    char name[80];
    pointer_name(name_of(journal()).c_str(), name);
    const std::string text = "ato-journal-at 1 2 " + folder_of(paths[0]) + "\n";
    write_file(folder_of(paths[0]) + "/" + name, Bytes(text.begin(), text.end()));
    expect_maps(paths[0]);
    expect_words(2);
    // The second entry of the table is empty, and the library did not make this pointer: it is
    // removed with the journal only if the journal was found through it.
    fs::remove(folder_of(paths[0]) + "/" + name);
    expect_nothing_left();
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
    write_file(dir / "y/other", pattern(SIZE, 2));
    expect_maps(dir / "y/other");
    EXPECT_EQ(journals_of(paths[0]).size(), 1u);
    EXPECT_EQ(pointers_of(paths[1]).size(), 1u);
    ASSERT_TRUE(go.tell());
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    expect_nothing_left();
}

// ---- files and folders that are missing or moved ------------------------------------------------

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
    expect_nothing_left();
}

TEST_P(RecoverSeveral, MovedFolderIsAnErrorForTheOthersAndRecoversByItself)
{
    die_committed(3);
    fs::rename(dir / "y", dir / "moved");
    for (size_t i : {0, 2})
        expect_refused(paths[i], ENOENT, {folder_of(paths[1]), journal()});
    EXPECT_EQ(word_of(paths[0]), 0u);
    EXPECT_EQ(word_of(paths[2]), 0u);
    paths[1] = dir / "moved/file";
    expect_maps(paths[1]); // its pointer has the number of its entry
    expect_words(3);
    expect_nothing_left();
}

TEST_P(RecoverSeveral, FolderThatIsMovedBackIsFinished)
{
    die_committed(3);
    fs::rename(dir / "y", dir / "moved");
    expect_refused(paths[0], ENOENT, {folder_of(paths[1])});
    fs::rename(dir / "moved", dir / "y");
    expect_maps(paths[0]);
    expect_words(3);
    expect_nothing_left();
}

TEST_P(RecoverSeveral, AnotherFolderAtThePathIsNotTakenForTheMovedFolder)
{
    die_committed(2);
    fs::rename(dir / "y", dir / "moved");
    ASSERT_EQ(mkdir((dir / "y").c_str(), 0755), 0);
    write_file(dir / "y/new", pattern(SIZE, 4));
    expect_maps(dir / "y/new");
    expect_refused(paths[0], ESTALE, {dir / "y/.ato", journal()});
    paths[1] = dir / "moved/file";
    expect_maps(paths[1]);
    expect_words(2);
    expect_nothing_left();
}

// A file system that is not mounted leaves an empty folder.
TEST_P(RecoverSeveral, EmptyFolderAtThePathIsNotTakenForTheMovedFolder)
{
    die_committed(3);
    fs::rename(dir / "y", dir / "moved");
    fs::create_directories(dir / "y/.ato");
    expect_refused(paths[0], ESTALE, {dir / "y/.ato", journal(), ".gone"});
    fs::remove_all(dir / "y");
    fs::rename(dir / "moved", dir / "y");
    expect_maps(paths[0]);
    expect_words(3);
    expect_nothing_left();
}

TEST_P(RecoverSeveral, GoneMarkAtThePathSaysThatTheFilesAreGone)
{
    die_committed(3);
    const std::string mark = dir / "y/.ato/" + name_of(journal()) + ".gone";
    fs::rename(dir / "y", dir / "moved");
    fs::create_directories(dir / "y/.ato");
    write_file(mark, {});
    if (geteuid() == 0) { // a mark of another user is ignored
        ASSERT_EQ(chown(mark.c_str(), 4242, 4242), 0);
        expect_refused(paths[0], ESTALE, {journal()});
        ASSERT_EQ(chown(mark.c_str(), 0, 0), 0);
    }
    Log log;
    expect_maps(paths[0]);
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, "gone"));
    EXPECT_EQ(word_of(paths[0]), VALUE);
    EXPECT_EQ(word_of(paths[2]), VALUE + 2);
    EXPECT_TRUE(pointers_of(paths[2]).empty());
    EXPECT_TRUE(journals_of(paths[0]).empty());
    EXPECT_FALSE(exists(mark)) << "the mark is for this journal only";
    paths[1] = dir / "moved/file";
    EXPECT_EQ(pointers_of(paths[1]).size(), 1u) << "the recovery cannot find it";
    fs::remove(pointers_of(paths[1])[0]);
}

TEST_P(RecoverSeveral, CommonParentFolderMayMove)
{
    for (size_t first : {0, 1, 2}) {
        die_committed(3);
        fs::create_directories(dir / "to/there");
        for (std::string &path : paths) {
            const std::string folder = fs::path(path).parent_path(), name = name_of(folder);
            fs::rename(folder, dir / "to/there/" + name);
            path = dir / "to/there/" + name + "/file";
        }
        expect_maps(paths[first]);
        expect_words(3);
        expect_nothing_left();
        for (std::string &path : paths) {
            Mapped back(path, wish());
            EXPECT_EQ(back.unmap(ATO_UNMAP_SPATIAL), 0) << back.sentence;
        }
        for (std::string &path : paths) {
            const std::string folder = fs::path(path).parent_path(), name = name_of(folder);
            fs::rename(folder, dir / name);
            path = dir / name + "/file";
        }
        ASSERT_FALSE(HasFailure());
    }
}

// A process was killed after it removed the pointer and before the sync.
TEST_P(RecoverSeveral, RemovalOfAPointerIsDurableBeforeTheJournalIsRemoved)
{
    die_after_a_commit(2);
    fs::remove(pointers_of(paths[1]).at(0));
    const std::string name = name_of(journal());
    std::string last;
    bool removed = false;
    FsFaults calls;
    calls.before = [&](const FsCall &c) {
        if (std::string(c.op) == "unlinkat" && c.name == name) {
            EXPECT_EQ(last, "fsync") << "of y, where it found no pointer";
            removed = true;
        }
        last = c.op;
        return GO_ON;
    };
    expect_maps(paths[0]);
    EXPECT_TRUE(removed);
}

// The path to y is unchanged, but the pointer in y names the old path of the journal.
TEST_P(RecoverSeveral, JournalStaysWhilePointersLeadToItsOldPath)
{
    die_after_a_commit(3, {0, 2});
    const std::string name = name_of(journal());
    fs::rename(dir / "x", dir / "moved");
    paths[0] = dir / "moved/file";
    for (size_t i : {0, 2}) // it is not known which folder moved
        expect_refused(paths[i], ESTALE, {name});
    EXPECT_EQ(pointers_of(paths[1]).size(), 1u);
    fs::rename(dir / "moved", dir / "x");
    paths[0] = dir / "x/file";
    expect_maps(paths[0]);
    EXPECT_EQ(word_of(paths[2]), VALUE + 1);
    expect_maps(paths[1]);
    expect_nothing_left();
}

TEST_P(RecoverSeveral, MovedFolderDoesNotStopTheOthersIfNoLaneNamesIt)
{
    die_after_a_commit(3, {0, 2});
    fs::rename(dir / "y", dir / "moved");
    expect_maps(paths[0]);
    EXPECT_EQ(word_of(paths[2]), VALUE + 1);
    EXPECT_EQ(journals_of(paths[0]).size(), 1u) << "its pointer in y may still lead to it";
    fs::rename(dir / "moved", dir / "y");
    expect_maps(paths[2]);
    EXPECT_EQ(journals_of(paths[0]).size(), 1u) << "z has no pointer to it any more";
    expect_maps(paths[1]);
    expect_nothing_left();
}

// ---- commits that cannot be finished ------------------------------------------------------------

TEST_P(RecoverSeveral, JournalThatCannotBeFinishedStopsNoOtherFile)
{
    write_file(dir / "x/other", pattern(SIZE, 2));
    die_committed(2);
    fs::rename(dir / "y", dir / "moved");
    for (int turn = 0; turn < 2; turn++)
        expect_maps(dir / "x/other");
    expect_refused(paths[0], ENOENT, {journal()});
    fs::rename(dir / "moved", dir / "y");
    expect_maps(dir / "x/other");
    expect_words(2);
    expect_nothing_left();
}

TEST_P(RecoverSeveral, CommitIsNotFinishedIfAFileBelongsToAnotherUserNow)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to change the owner of a file";
    write_file(dir / "x/other", pattern(SIZE, 2));
    die_committed(2);
    const std::string theirs[] = {paths[1], manifest_of(paths[1]), reflection_of(paths[1])};
    ASSERT_EQ(chown(journal().c_str(), 4242, 4242), 0); // as if its process was not root
    for (const std::string &path : {paths[0], manifest_of(paths[0]), reflection_of(paths[0])})
        ASSERT_EQ(chown(path.c_str(), 4242, 4242), 0);
    for (const std::string &pointer : pointers_of(paths[1]))
        ASSERT_EQ(chown(pointer.c_str(), 4242, 4242), 0);
    for (const std::string &path : theirs)
        ASSERT_EQ(chown(path.c_str(), 4343, 4343), 0);
    expect_refused(paths[0], EACCES, {journal(), "4343"});
    EXPECT_EQ(word_of(paths[0]), 0u);
    for (const std::string &path : theirs)
        ASSERT_EQ(chown(path.c_str(), 4242, 4242), 0);
    expect_maps(paths[0]);
    expect_words(2);
    expect_nothing_left();
}

// ---- unfinished ---------------------------------------------------------------------------------

TEST_P(RecoverSeveral, UnfinishedPointerIsRemovedUnlessItIsLocked)
{
    expect_maps(paths[0]);
    const std::string name =
        folder_of(paths[0]) + "/journal-0123456789abcdef0123456789abcdef.at.tmp";
    write_file(name, Bytes(100));
    {
        Fd maker(name);
        ASSERT_EQ(locks_try(maker, 0, 1), LOCKS_MINE);
        expect_maps(paths[0]);
        EXPECT_TRUE(exists(name));
    }
    expect_maps(paths[0]);
    EXPECT_FALSE(exists(name));
}

INSTANTIATE_TEST_SUITE_P(Domains, RecoverSeveral,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_MSYNC),
                         [](const testing::TestParamInfo<int> &info) {
                             return info.param == ATO_DOMAIN_PMEM ? "pmem" : "msync";
                         });

} // namespace
