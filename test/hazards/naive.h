// SPDX-License-Identifier: BSD-3-Clause
//
// What does a program get that knows the format and none of the rules? It pairs a file with
// whatever lies under its inode number and believes every bit. Tests of hazards first look through
// its eyes, then ask the library.
#ifndef ATO_TEST_HAZARDS_NAIVE_H
#define ATO_TEST_HAZARDS_NAIVE_H

#include "unit/pairing_lab.h"

extern "C" {
#include "reflection/layout.h"
}

#include <set>
#include <utility>

// Every slice from where its bit says. What lies beyond the reflection's end counts as valid in O.
inline Bytes overlay(const Bytes &original, const Bytes &reflection)
{
    Bytes all = original;
    for (size_t at = 0; at < all.size(); at += SLICE_BYTES) {
        size_t n = std::min<size_t>(SLICE_BYTES, all.size() - at);
        uint64_t word = 0, home = layout_reflected(at);
        if (layout_word(at / PAGE_BYTES) + 8 <= reflection.size())
            memcpy(&word, &reflection[layout_word(at / PAGE_BYTES)], 8);
        if ((word >> at % PAGE_BYTES / SLICE_BYTES & 1) && home + n <= reflection.size())
            memcpy(&all[at], &reflection[home], n);
    }
    return all;
}

// The file with what lies under its inode number in a folder; as it is, when there is nothing.
inline Bytes by_number(const std::string &path, const std::string &folder)
{
    std::string reflection = folder + "/" + std::to_string(inode_of(path));
    return exists(reflection) ? overlay(read_file(path), read_file(reflection)) : read_file(path);
}

inline Bytes by_number(const std::string &path)
{
    return by_number(path, folder_of(path));
}

// Returns when a file made now gets another birth time than the one at `path` has, and a file
// changed now another ctime: the kernel's clock for files is coarse.
inline void wait_for_clock(const std::string &path, const std::string &scratch)
{
    auto ctime_of = [](const std::string &p) {
        struct timespec t = stat_of(p).st_ctim;
        return std::make_pair(t.tv_sec, t.tv_nsec);
    };
    write_file(scratch, {});
    while (ctime_of(scratch) <= ctime_of(path)) {
        fs::remove(scratch);
        write_file(scratch, {});
    }
    fs::remove(scratch);
}

// Everything below a folder: what the files hold, all names, all attributes.
struct Everything {
    explicit Everything(const std::string &folder) : files(snapshot(folder))
    {
        for (const auto &entry : fs::recursive_directory_iterator(folder))
            names.emplace(entry.path(), entry.is_symlink() ? "" : attribute_of(entry.path()));
    }
    bool operator==(const Everything &o) const
    {
        return files == o.files && names == o.names;
    }
    Snapshot files;
    std::set<std::pair<std::string, std::string>> names;
};

class Hazard : public Pairing
{
  protected:
    // ato_mmap() says no, with that error and a sentence that has all these words in it. Nothing in
    // the folder is another than before.
    void expect_no(const std::string &p, int err, const std::vector<std::string> &words,
                   const ato_options &opt = options())
    {
        Everything before(dir.path());
        Mapped m(p, opt);
        ASSERT_FALSE(m) << "mapped";
        EXPECT_EQ(m.error, err) << m.sentence;
        for (const std::string &word : words)
            EXPECT_NE(m.sentence.find(word), std::string::npos) << word << " in: " << m.sentence;
        EXPECT_TRUE(before == Everything(dir.path())) << "a file was changed, made or removed";
    }

    // The library reads it right, and leaves slices where they are.
    void expect_maps(const std::string &p)
    {
        Mapped m(p, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
    }

    // What a program sees here is no state that the file ever had.
    void expect_garbage(const Bytes &seen)
    {
        EXPECT_NE(seen, old);
        EXPECT_NE(seen, content);
    }

    // Or the one before the write that was acknowledged.
    void expect_stale(const Bytes &seen)
    {
        EXPECT_NE(seen, content) << "no hazard to see";
    }

    const Bytes old = pattern(SIZE, 1);
};

#endif
