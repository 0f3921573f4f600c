// SPDX-License-Identifier: BSD-3-Clause
//
// Is a commit of several files finished after its process died? The next map of any file of the
// folder finishes it in all of them, or in none.
#include "several_lab.h"

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
        return found.at(0);
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

TEST_P(RecoverSeveral, CommitIsFinishedByAMapOfAnotherFileOfTheFolder)
{
    die_committed(2);
    write_file(dir / "other", pattern(SIZE, 2));
    expect_maps(dir / "other");
    expect_words(2);
    expect_no_journals();
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
    expect_maps(paths[1]);
    EXPECT_EQ(word_of(paths[0]), VALUE);
    EXPECT_EQ(word_of(paths[1]), VALUE + 1);
    EXPECT_EQ(word_of(paths[2]), VALUE + 1) << "the second file of the second commit";
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
    write_file(dir / "other", pattern(SIZE, 2));
    expect_maps(dir / "other");
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

TEST_P(RecoverSeveral, FileThatWasCleanlyUnmappedIsTakenForACopy)
{
    die_committed(3);
    const std::string manifest = manifest_of(paths[1]);
    const Bytes was = read_file(manifest);
    alignas(64) static char bytes[MANIFEST_BYTES];
    manifest_record record;
    int which;
    memcpy(bytes, was.data(), was.size());
    ASSERT_EQ(manifest_read(bytes, &record, &which), MANIFEST_VALID);
    struct persist p;
    persist_init(&p, PERSIST_PROCESS);
    record.state = MANIFEST_CLEAN;
    ASSERT_EQ(manifest_write(&p, bytes, &record, &which), 0);
    write_file(manifest, Bytes(bytes, bytes + sizeof(bytes)));
    expect_maps(paths[0]);
    EXPECT_EQ(word_of(paths[0]), VALUE);
    EXPECT_EQ(word_of(paths[1]), 0u);
    EXPECT_EQ(word_of(paths[2]), VALUE + 2);
    expect_no_journals();
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

TEST_P(RecoverSeveral, CopyOfTheFolderIsFinishedByItself)
{
    ASSERT_EQ(mkdir((dir / "from").c_str(), 0755), 0);
    paths.clear();
    for (const char *name : {"from/x", "from/y", "from/z"})
        add(name);
    die_committed(3);
    const std::string copy = dir / "copy";
    fs::copy(dir / "from", copy, fs::copy_options::recursive);
    write_file(copy + "/new", pattern(SIZE, 2));
    expect_maps(copy + "/new");
    EXPECT_TRUE(journals_of(copy + "/new").empty());
    for (size_t i = 0; i < 3; i++) {
        const std::string reflection = copy + "/.ato/" + std::to_string(inode_of(paths[i]));
        uint64_t word;
        memcpy(&word, read_at(reflection, layout_word(PAGE), 8).data(), 8);
        EXPECT_EQ(word, VALUE + i) << paths[i];
        EXPECT_EQ(word_of(paths[i]), 0u) << paths[i];
    }
    expect_maps(paths[1]);
    expect_words(3);
    expect_no_journals();
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
            memcpy(&word, read_at(reflection, layout_word(PAGE), 8).data(), 8);
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

// ---- commits that cannot be finished ------------------------------------------------------------

TEST_P(RecoverSeveral, JournalThatCannotBeFinishedStopsNoOtherFile)
{
    write_file(dir / "other", pattern(SIZE, 2));
    die_committed(2);
    const std::string reflection = reflection_of(paths[1]), away = dir / "away";
    fs::rename(reflection, away);
    for (int turn = 0; turn < 2; turn++) {
        expect_maps(dir / "other");
        expect_maps(paths[2]);
    }
    expect_refused(paths[0], ENOENT, {reflection, fs::path(journal()).filename()});
    EXPECT_EQ(word_of(paths[0]), 0u);
    fs::rename(away, reflection);
    expect_maps(dir / "other");
    expect_words(2);
    expect_no_journals();
}

TEST_P(RecoverSeveral, CommitIsNotFinishedIfAFileBelongsToAnotherUserNow)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to change the owner of a file";
    die_committed(2);
    const std::string theirs[] = {paths[1], manifest_of(paths[1]), reflection_of(paths[1])};
    ASSERT_EQ(chown(journal().c_str(), 4242, 4242), 0); // as if its process was not root
    for (const std::string &path : {paths[0], manifest_of(paths[0]), reflection_of(paths[0])})
        ASSERT_EQ(chown(path.c_str(), 4242, 4242), 0);
    for (const std::string &path : theirs)
        ASSERT_EQ(chown(path.c_str(), 4343, 4343), 0);
    expect_refused(paths[0], EACCES, {journal(), "4343"});
    EXPECT_EQ(word_of(paths[0]), 0u);
    EXPECT_EQ(word_of(paths[1]), 0u);
    for (const std::string &path : theirs)
        ASSERT_EQ(chown(path.c_str(), 4242, 4242), 0);
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
