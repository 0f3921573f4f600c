// SPDX-License-Identifier: BSD-3-Clause
//
// A process dies in a commit of files in several folders; then folders are copied, journals are
// removed, or bytes are damaged. Recovery finishes the commit only in the folders of the commit,
// and fails in cases that it cannot decide.
#include "recover_several_lab.h"

namespace
{

// ---- copies -------------------------------------------------------------------------------------

// The copy has a copy of the pointer, which leads to the same journal, with the same number.
TEST_P(RecoverSeveral, MapInACopyOfAFolderLeavesTheCommitToTheOriginal)
{
    die_committed(3);
    fs::copy(dir / "y", dir / "copy", fs::copy_options::recursive);
    write_file(dir / "copy/new", pattern(SIZE, 2));
    Log log;
    expect_maps(dir / "copy/new");
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, pointers_of(dir / "copy/new")[0]));
    for (const std::string &path : paths)
        EXPECT_EQ(word_of(path), 0u) << path;
    expect_maps(paths[0]);
    expect_words(3);
    expect_nothing_left();
    EXPECT_EQ(pointers_of(dir / "copy/new").size(), 1u);
}

TEST_P(RecoverSeveral, CopyOfAFolderIsNotTakenForTheMovedOriginal)
{
    die_committed(3);
    fs::copy(dir / "y", dir / "copy", fs::copy_options::recursive);
    fs::rename(dir / "y", dir / "away");
    write_file(dir / "copy/new", pattern(SIZE, 2));
    expect_maps(dir / "copy/new");
    EXPECT_EQ(word_of(paths[0]), 0u);
    expect_refused(paths[0], ENOENT, {journal()});
    paths[1] = dir / "away/file";
    expect_maps(paths[1]);
    expect_words(3);
    expect_nothing_left();
}

// The copy names the original folders, whose pointers lead to the original journal.
TEST_P(RecoverSeveral, CopyOfAJournalChangesNothingInTheOtherFolders)
{
    die_committed(3);
    fs::copy(dir / "x", dir / "copy", fs::copy_options::recursive);
    write_file(dir / "copy/new", pattern(SIZE, 2));
    expect_maps(dir / "copy/new");
    EXPECT_EQ(pointers_of(paths[1]).size(), 1u);
    EXPECT_EQ(pointers_of(paths[2]).size(), 1u);
    EXPECT_EQ(journals_of(dir / "copy/new").size(), 1u);
    expect_maps(paths[2]);
    expect_words(3);
    expect_nothing_left();
    expect_maps(dir / "copy/new");
    expect_words(3);
}

TEST_P(RecoverSeveral, CopyOfAllFoldersIsFinishedByItself)
{
    die_committed(3);
    fs::create_directories(dir / "copy");
    for (const char *name : {"x", "y", "z"})
        fs::copy(dir / name, dir / "copy/" + name, fs::copy_options::recursive);
    write_file(dir / "copy/y/new", pattern(SIZE, 2));
    expect_maps(dir / "copy/y/new");
    for (const std::string &path : paths) {
        const std::string folder = fs::path(path).parent_path();
        EXPECT_EQ(word_of(path), 0u) << path;
        EXPECT_TRUE(pointers_of(dir / "copy/" + name_of(folder) + "/file").empty());
    }
    EXPECT_TRUE(journals_of(dir / "copy/x/file").empty());
    expect_maps(paths[1]);
    expect_words(3);
    expect_nothing_left();
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
    expect_nothing_left();
}

// ---- pointers that lead nowhere -----------------------------------------------------------------

TEST_P(RecoverSeveral, PointerWithoutItsJournalStopsAFileThatWasInUse)
{
    die_committed(2);
    const std::string kept = dir / "kept", was = journal(), pointer = pointers_of(paths[1])[0];
    fs::rename(was, kept);
    expect_refused(paths[1], ESTALE, {pointer, folder_of(paths[0]), name_of(was)});
    fs::rename(kept, was);
    expect_maps(paths[1]);
    expect_words(2);
    expect_nothing_left();
}

TEST_P(RecoverSeveral, PointerWithoutItsJournalsFolderStopsAFileThatWasInUse)
{
    die_committed(2);
    fs::rename(dir / "x", dir / "moved");
    expect_refused(paths[1], ESTALE, {pointers_of(paths[1])[0], folder_of(paths[0])});
    fs::rename(dir / "moved", dir / "x");
    expect_maps(paths[1]);
    expect_words(2);
}

TEST_P(RecoverSeveral, PointerThatLeadsNowhereDoesNotStopACleanFile)
{
    write_file(dir / "y/clean", pattern(SIZE, 2));
    expect_maps(dir / "y/clean");
    die_committed(2);
    fs::rename(dir / "x", dir / "moved");
    Log log;
    expect_maps(dir / "y/clean");
    write_file(dir / "y/new", pattern(SIZE, 3));
    expect_maps(dir / "y/new");
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, pointers_of(paths[1])[0]));
    fs::rename(dir / "moved", dir / "x");
}

// ---- damage -------------------------------------------------------------------------------------

TEST_P(RecoverSeveral, InvalidPointerIsAnError)
{
    die_committed(2);
    const std::string pointer = pointers_of(paths[1])[0];
    const Bytes was = read_file(pointer);
    const std::string path = folder_of(paths[0]);
    for (const std::string &text :
         {std::string(), std::string("ato-journal-at 1 1 /"), "ato-journal-at 2 1 " + path + "\n",
          "ato-journal-at 1 0 " + path + "\n", "ato-journal-at 1 -1 " + path + "\n",
          "ato-journal-at 1 4294967296 " + path + "\n", std::string("ato-journal-at 1 1 x/.ato\n"),
          "ato-journal-at 1 1" + std::string(9, ' ') + path + "\n",
          "ato-journal-at 1 1 /" + std::string(5000, 'x') + "\n",
          "ato-journal-at 1 1 " + path + std::string(1, '\0') + "\n"}) {
        write_file(pointer, Bytes(text.begin(), text.end()));
        expect_refused(paths[1], EUCLEAN, {pointer});
    }
    write_file(pointer, was);
    expect_maps(paths[1]);
    expect_words(2);
}

TEST_P(RecoverSeveral, DamagedEntryIsAnErrorIfALaneNamesIt)
{
    die_committed(3);
    const std::string name = journal();
    const uint64_t at = entry_of(name, 2);
    const Bytes was = read_at(name, at, 1);
    write_at(name, at + 3, "?", 1);
    for (size_t first : {0, 1, 2})
        expect_refused(paths[first], EUCLEAN, {name});
    EXPECT_EQ(word_of(paths[0]), 0u);
    // Both paths begin alike.
    write_at(name, at + 3, &read_at(name, entry_of(name, 1) + 3, 1)[0], 1);
    expect_maps(paths[0]);
    expect_words(3);
}

TEST_P(RecoverSeveral, DamagedEntryIsIgnoredIfNoLaneNamesIt)
{
    die_committed(2);
    const std::string name = journal();
    write_at(name, entry_of(name, 2), "/cut", 4);
    write_at(name, entry_of(name, 3), "nonsense", 8);
    expect_maps(paths[0]);
    expect_words(2);
    expect_nothing_left();
}

} // namespace
