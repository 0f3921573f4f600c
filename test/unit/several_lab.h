// SPDX-License-Identifier: BSD-3-Clause
//
// Several files of one folder, and commits of words of all of them in one lane.
#ifndef ATO_TEST_UNIT_SEVERAL_LAB_H
#define ATO_TEST_UNIT_SEVERAL_LAB_H

#include "support/child.h"
#include "support/dying.h"
#include "support/faults.h"
#include "support/mapped.h"

#define _Thread_local __thread // C++ has no _Thread_local
extern "C" {
#include "lib/commit/journals.h"
#include "lib/file/table.h"
#include "reflection/format/layout.h"
#include "reflection/format/manifest.h"
#include "reflection/pairing/length.h"
#include "reflection/recovery/redo.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include <sys/stat.h>
#include <unistd.h>

using namespace support;
namespace fs = std::filesystem;

// What these files are to a commit that changes all of them.
struct Parts {
    std::vector<mapping> mappings;
    std::vector<part> parts;
    explicit Parts(const std::vector<struct file *> &files)
        : mappings(files.size()), parts(files.size())
    {
        for (size_t i = 0; i < files.size(); i++) {
            mappings[i].file = files[i];
            parts[i].mapping = &mappings[i];
            parts[i].next = i + 1 < files.size() ? &parts[i + 1] : nullptr;
        }
    }
};

inline int take_lane(const std::vector<struct file *> &files, uint64_t words, journal_lane *lane)
{
    return journals_take_lane(Parts(files).parts.data(), words, lane);
}

// Files x, y and z of 8 pages each. A commit changes a word of each.
class Several : public testing::Test
{
  protected:
    void SetUp() override
    {
        DENSE_ONLY("stores words of a dense reflection");
    }

    static constexpr size_t SIZE = 8 * 4096;
    static constexpr uint64_t PAGE = 3, VALUE = 0x5500;

    explicit Several(int domain_of_all = ATO_DOMAIN_PMEM) : domain(domain_of_all)
    {
        for (const char *name : {"x", "y", "z"})
            add(name);
    }

    void add(const std::string &name)
    {
        paths.push_back(dir / name);
        write_file(paths.back(), pattern(SIZE, 1));
    }

    ato_options wish() const
    {
        ato_options o = options(domain, ATO_READ_GATHER, ATO_NO_RTM);
        o.reflection_dir = reflection_dir.empty() ? nullptr : reflection_dir.c_str();
        return o;
    }

    static struct file *file_of(const Mapped &m)
    {
        return table_find(m.base)->file;
    }

    // The first `n` files, mapped.
    using All = std::vector<std::unique_ptr<Mapped>>;
    All map(size_t n) const
    {
        All all;
        for (size_t i = 0; i < n; i++) {
            all.push_back(std::make_unique<Mapped>(paths[i], wish()));
            if (!*all.back())
                return {};
        }
        return all;
    }

    static std::vector<struct file *> files_of(const All &all)
    {
        std::vector<struct file *> files;
        for (const auto &m : all)
            files.push_back(file_of(*m));
        return files;
    }

    // Up to the commit point. `size`: the new logical size of the last file; 0: unchanged.
    struct Commit {
        journal_lane lane = {};
        journal_writer writer = {};
        std::vector<struct file *> files;
    };
    static bool commit(Commit &c, const std::vector<struct file *> &files, uint64_t size = 0)
    {
        const auto n = static_cast<unsigned>(files.size());
        const uint64_t words = n + (size ? 1 : 0);
        const struct persist *p = &files[0]->persist;
        c.files = files;
        if (take_lane(files, words, &c.lane) < 0)
            return false;
        journal_begin(&c.writer, c.lane.journal, p, c.lane.lane, n, words);
        for (const struct file *f : files) {
            const journal_file name = pairing_in_journals(&f->pairing);
            journal_name(&c.writer, &name);
        }
        for (unsigned i = 0; i < n; i++)
            journal_add(&c.writer, i, layout_word(LAYOUT_DENSE, PAGE), VALUE + i);
        if (size)
            journal_add(&c.writer, n - 1, JOURNAL_SIZE, manifest_encode_size(size));
        persist_fence(p);
        return journal_commit(&c.writer) == 0;
    }

    // The rest of the commit.
    static bool complete(Commit &c)
    {
        const struct persist *p = &c.files[0]->persist;
        for (size_t i = 0; i < c.files.size(); i++) {
            uint64_t *word = file_homes(c.files[i], PAGE).word;
            persist_store_word(p, word, VALUE + i);
            if (persist_flush_word(p, word) < 0)
                return false;
        }
        persist_fence(p);
        if (journal_retire(&c.writer) < 0)
            return false;
        journals_give_lane(&c.lane, false);
        return true;
    }

    // A process dies with a commit of the first `n` files, of which no word is stored yet.
    void die_committed(size_t n, uint64_t size = 0)
    {
        int status = in_child([&] {
            All all = map(n);
            if (all.size() != n)
                return 1;
            auto files = files_of(all);
            if (size && growth_prepare(&files.back()->pairing, size) < 0)
                return 2;
            Commit c;
            if (!commit(c, files, size))
                return 3;
            _exit(CUT);
        });
        ASSERT_EQ(status, CUT);
        ASSERT_EQ(journals_of(paths[0]).size(), 1u);
    }

    static uint64_t word_of(const std::string &path)
    {
        uint64_t word;
        memcpy(&word, read_at(reflection_of(path), layout_word(LAYOUT_DENSE, PAGE), 8).data(), 8);
        return word;
    }

    void expect_words(size_t n) const
    {
        for (size_t i = 0; i < n; i++)
            EXPECT_EQ(word_of(paths[i]), VALUE + i) << paths[i];
    }

    void expect_no_journals() const
    {
        for (const std::string &name : names_in(folder_of(paths[0])))
            EXPECT_FALSE(redo_name_of(name.c_str(), nullptr)) << name;
    }

    // ato_mmap() fails with `err` and a sentence that has all `words`.
    void expect_refused(const std::string &path, int err,
                        const std::vector<std::string> &words) const
    {
        Mapped m(path, wish());
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, err) << m.sentence;
        for (const std::string &word : words)
            EXPECT_NE(m.sentence.find(word), std::string::npos) << word << " in: " << m.sentence;
    }

    void expect_maps(const std::string &path) const
    {
        Mapped m(path, wish());
        EXPECT_TRUE(m) << m.sentence;
    }

    TempDir dir;
    int domain;
    std::string reflection_dir; // "": the default
    std::vector<std::string> paths;
};

#endif
