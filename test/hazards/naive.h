// SPDX-License-Identifier: BSD-3-Clause
//
// A file that was used before, and two views of it. A naive program knows the format and none of the rules:
// it pairs the file with whatever lies under its inode number, and trusts every bit. Tests of hazards first
// look at the naive result, then at the library's.
#ifndef ATO_TEST_HAZARDS_NAIVE_H
#define ATO_TEST_HAZARDS_NAIVE_H

#include "support/mapped.h"

extern "C" {
#include "reflection/format/checksum.h"
#include "reflection/format/layout.h"
#include "reflection/format/log.h"
#include "reflection/format/manifest.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

namespace fs = std::filesystem;
using namespace support;

constexpr size_t SIZE = 4 * 4096 + 1000;

// Each slice from the home that its bit names. Slices beyond the reflection's end count as valid in O.
inline Bytes overlay(const Bytes &original, const Bytes &reflection)
{
    Bytes all = original;
    if (sparse()) {
        for (uint64_t place = 0; layout_word(LAYOUT_SPARSE, place) < reflection.size(); place++) {
            layout_entry e;
            memcpy(&e, &reflection[layout_word(LAYOUT_SPARSE, place) - 8], sizeof(e));
            for (size_t slice = 0; slice < PAGE_SLICES; slice++) {
                const size_t at = e.page * PAGE_BYTES + slice * SLICE_BYTES;
                if (e.bitmap >> slice & 1 && at < all.size())
                    memcpy(&all[at],
                           &reflection[layout_refpage(LAYOUT_SPARSE, place) + slice * SLICE_BYTES],
                           std::min<size_t>(SLICE_BYTES, all.size() - at));
            }
        }
        return all;
    }
    for (size_t at = 0; at < all.size(); at += SLICE_BYTES) {
        size_t n = std::min<size_t>(SLICE_BYTES, all.size() - at);
        uint64_t word = 0, home = layout_refpage(LAYOUT_DENSE, at / PAGE_BYTES) + at % PAGE_BYTES;
        if (layout_word(LAYOUT_DENSE, at / PAGE_BYTES) + 8 <= reflection.size())
            memcpy(&word, &reflection[layout_word(LAYOUT_DENSE, at / PAGE_BYTES)], 8);
        if ((word >> at % PAGE_BYTES / SLICE_BYTES & 1) && home + n <= reflection.size())
            memcpy(&all[at], &reflection[home], n);
    }
    return all;
}

// Copies the slices of a record to where they are in the file, which is a Bytes.
inline int apply_record(const log_file *log, const log_view *v, uint64_t from, void *file)
{
    Bytes &all = *static_cast<Bytes *>(file);
    for (uint64_t i = 0; i < v->record.pages; i++)
        for (size_t slice = 0; slice < PAGE_SLICES; slice++) {
            const size_t at = v->pages[i].page * PAGE_BYTES + slice * SLICE_BYTES;
            if (!(v->pages[i].slices >> slice & 1))
                continue;
            if (at < all.size() &&
                log_read(log, from, &all[at], std::min<size_t>(SLICE_BYTES, all.size() - at)) < 0)
                return -1;
            from += SLICE_BYTES;
        }
    return 0;
}

// The file, paired with the reflection or the log under its inode number in a folder; unchanged if there is none.
inline Bytes by_number(const std::string &path, const std::string &folder)
{
    const std::string reflection = folder + "/" + std::to_string(inode_of(path));
    Bytes all = read_file(path);
    if (!exists(reflection))
        return all;
    log_file log;
    Fd fd(reflection, O_RDONLY);
    if (log_open(&log, fd) != 1)
        return overlay(all, read_file(reflection));
    uint64_t position = log.header.start;
    EXPECT_EQ(log_walk(&log, &position, UINT64_MAX, apply_record, &all), 0);
    return all;
}

inline Bytes by_number(const std::string &path)
{
    return by_number(path, folder_of(path));
}

inline std::pair<time_t, long> ctime_of(const std::string &path)
{
    struct timespec t = stat_of(path).st_ctim;
    return {t.tv_sec, t.tv_nsec};
}

// Returns when a new file gets another birth time than the one at `path`, and a changed file another ctime:
// the kernel's clock for files is coarse.
inline void wait_for_clock(const std::string &path, const std::string &scratch)
{
    do {
        fs::remove(scratch);
        write_file(scratch, {});
    } while (ctime_of(scratch) <= ctime_of(path));
    fs::remove(scratch);
}

// All files below a folder, by name.
using Snapshot = std::map<std::string, Bytes>;

inline Snapshot snapshot(const std::string &folder)
{
    Snapshot all;
    for (const auto &entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file())
            all[entry.path()] = read_file(entry.path());
    return all;
}

// Everything below a folder: contents of files, all names, all attributes.
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
    std::map<std::string, std::string> names; // and attributes
};

class Hazard : public testing::Test
{
  public:
    Hazard()
    {
        write_file(path, content);
    }

    // Maps, writes over several pages, leaves slices in the reflection.
    void leave_slices(const ato_options &o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER))
    {
        Mapped m(path, o);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(m.write(3000, pattern(6000, 2))) << m.sentence;
        std::copy_n(pattern(6000, 2).begin(), 6000, content.begin() + 3000);
        ASSERT_GT(m.stat().slices_in_reflection, 0u);
    }

    // Mapped once, everything at home, fast-unmapped.
    void leave_nothing()
    {
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
    }

    // Changes valid copies of the manifest at `manifest`, with new checksums.
    template <class Change> void patch_manifest(const std::string &manifest, Change change)
    {
        Bytes bytes = read_file(manifest);
        for (size_t at : {0, MANIFEST_COPY_BYTES}) {
            manifest_record r;
            memcpy(&r, &bytes[at], sizeof(r));
            if (r.magic != MANIFEST_MAGIC)
                continue;
            change(r);
            r.checksum = checksum(&r, offsetof(manifest_record, checksum));
            memcpy(&bytes[at], &r, sizeof(r));
        }
        write_file(manifest, bytes);
    }

    // ato_mmap() fails, with that error and a sentence that contains all these words.
    static void expect_error(const std::string &p, int err, const std::vector<std::string> &words,
                             const ato_options &opt = options())
    {
        Mapped m(p, opt);
        ASSERT_FALSE(m) << "mapped";
        EXPECT_EQ(m.error, err) << m.sentence;
        for (const std::string &word : words)
            EXPECT_NE(m.sentence.find(word), std::string::npos) << word << " in: " << m.sentence;
    }

    // And nothing in the folder changes.
    void expect_no(const std::string &p, int err, const std::vector<std::string> &words,
                   const ato_options &opt = options())
    {
        Everything before(dir.path());
        expect_error(p, err, words, opt);
        EXPECT_TRUE(before == Everything(dir.path())) << "a file was changed, made or removed";
    }

    // The library reads it correctly, and leaves slices where they are.
    void expect_maps(const std::string &p,
                     const ato_options &o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER))
    {
        Mapped m(p, o);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
    }

    // The naive result is a content that the file never had.
    void expect_garbage(const Bytes &seen)
    {
        EXPECT_NE(seen, old);
        EXPECT_NE(seen, content);
    }

    // Or the content before the acknowledged write.
    void expect_stale(const Bytes &seen)
    {
        EXPECT_NE(seen, content) << "the naive way shows no hazard";
    }

    TempDir dir;
    std::string path = dir / "file";
    const Bytes old = pattern(SIZE, 1);
    Bytes content = old;
};

#endif
