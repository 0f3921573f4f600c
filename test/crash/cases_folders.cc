// SPDX-License-Identifier: BSD-3-Clause
//
// A commit of files whose reflections lie in two folders. It is built here from the library's parts
// of a commit: it restores older bytes of slices in both files at once.
#include "scenes.h"

#define _Thread_local __thread // C++ has another word for this
extern "C" {
#include "lib/commit/journals.h"
#include "lib/file/table.h"
}

#include <cstring>

namespace crash
{

namespace
{

const char FAR[] = ".far"; // where the second file's reflection lies

void before_folders(Actor &a)
{
    mapped(a, ATO_NO_RTM);
    a.world.reflect_in(1, FAR);
    Mapping *m = a.map(1, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 1, FAR);
    a.scatter(m, 6);
}

// A page of a file, with slices that change homes.
struct Change {
    struct file *file;
    uint64_t page, word;
};

Change choose(Actor &a, int n)
{
    struct file *f = table_find(the(a, static_cast<size_t>(n))->base)->file;
    Change c = {f, a.random.below(4), 0};
    const uint64_t mask = a.random.next() | 1ull << a.random.below(64);
    Bytes &content = a.contents[static_cast<size_t>(n)];
    c.word = *file_word(f, c.page) ^ mask;
    for (unsigned slice = 0; slice < 64; slice++) {
        const char *home = c.word >> slice & 1 ? file_r(f, c.page) : file_o(f, c.page);
        if (mask >> slice & 1)
            memcpy(&content[c.page * PAGE + slice * LINE], home + slice * LINE, LINE);
    }
    return c;
}

void must(bool ok, const char *what)
{
    if (!ok)
        throw Violation(std::string(what) + ": " + ato_errormsg());
}

// Its calls are not named as places: they are not places of the library.
void commit(const std::vector<Change> &changes)
{
    const struct persist *p = &changes[0].file->persist;
    std::vector<struct file *> files;
    std::vector<journal_file> in_lane;
    journal_lane lane;
    journal_writer w;
    for (const Change &c : changes)
        files.push_back(c.file);
    const auto n = static_cast<unsigned>(files.size());
    must(journals_take_lane(files.data(), n, n, &lane) == 0, "journals_take_lane");
    for (struct file *f : files) {
        journal_file is = {};
        memcpy(is.id, f->pairing.record.id, sizeof(is.id));
        is.inode = f->pairing.record.inode;
        is.folder = journals_folder_of(&lane, f);
        in_lane.push_back(is);
    }
    journal_begin(&w, lane.journal, p, lane.lane, in_lane.data(), n, n);
    for (unsigned i = 0; i < n; i++)
        journal_add(&w, i, layout_word(changes[i].page), changes[i].word);
    must(journal_finish(&w) == 0, "journal_finish");
    PERSIST_CALL(fence)(p, "");
    must(journal_commit(&w) == 0, "journal_commit");
    for (const Change &c : changes) {
        uint64_t *word = file_word(c.file, c.page);
        PERSIST_CALL(store_word)(p, word, c.word, "");
        must(PERSIST_CALL(flush_word)(p, word, "") == 0, "flush_word");
    }
    PERSIST_CALL(fence)(p, "");
    must(journal_retire(&w) == 0, "journal_retire");
    journals_give_lane(&lane);
}

// The page states in memory are out of date now: the run ends here.
void commit_in_folders(Actor &a)
{
    for (int turn = 0; turn < 2; turn++) {
        const uint64_t before = hash_of(a.contents);
        const int first = static_cast<int>(a.random.below(2));
        std::vector<Change> changes = {choose(a, first), choose(a, 1 - first)};
        const uint64_t after = hash_of(a.contents);
        a.allow({before, after});
        commit(changes);
        a.allow({after});
    }
}

void commit_and_unmap(Actor &a)
{
    commit_in_folders(a);
    a.unmap(the(a, a.random.below(2)), ATO_UNMAP_FAST);
    a.unmap(the(a, 0), ATO_UNMAP_FAST);
    Mapping *m = a.map(1, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
}

} // namespace

const std::vector<Case> &folder_cases()
{
    static const std::vector<Case> cases = {
        {"journal of two folders", ALL, {SIZE, SIZE}, before_folders, commit_in_folders},
        {"journal of two folders, unmap", ALL, {SIZE, SIZE}, before_folders, commit_and_unmap},
    };
    return cases;
}

} // namespace crash
