// SPDX-License-Identifier: BSD-3-Clause
//
// Commits of files in several folders whose process died: for the tests of their recovery.
#ifndef ATO_TEST_UNIT_RECOVER_SEVERAL_LAB_H
#define ATO_TEST_UNIT_RECOVER_SEVERAL_LAB_H

#include "several_lab.h"

class RecoverSeveral : public Several, public testing::WithParamInterface<int>
{
  protected:
    RecoverSeveral() : Several(GetParam())
    {
    }

    // A process completes a commit of the first `n` files and dies; if `again` names files, after a
    // second commit, of these files, of which no word is stored yet.
    void die_after_a_commit(size_t n, const std::vector<size_t> &again = {})
    {
        int status = in_child([&]() -> int {
            All all = map(n);
            std::vector<struct file *> files;
            for (size_t i : again)
                files.push_back(file_of(*all.at(i)));
            Commit first, second;
            bool good = commit(first, files_of(all)) && complete(first);
            _exit(good && (again.empty() || commit(second, files)) ? CUT : 1);
        });
        ASSERT_EQ(status, CUT);
    }

    std::string journal() const
    {
        auto found = journals_of(paths[0]);
        EXPECT_EQ(found.size(), 1u);
        return found.at(0);
    }

    static std::string name_of(const std::string &path)
    {
        return path.substr(path.rfind('/') + 1);
    }

    // Where the journal begins in its file.
    static uint64_t begin_of(const std::string &journal)
    {
        Bytes b = read_file(journal);
        for (size_t at = 4096; at + 4096 <= b.size(); at += 4096)
            if (journal_is_at(&b[at]))
                return at;
        return 0;
    }

    // Where entry k of the folder table begins in it.
    static uint64_t entry_of(const std::string &journal, unsigned k)
    {
        return begin_of(journal) + JOURNAL_BYTES - (JOURNAL_FOLDERS + 1 - k) * 4096ull;
    }
};

#endif
