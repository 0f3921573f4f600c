// SPDX-License-Identifier: BSD-3-Clause
//
// A file with a past, for the tests of what belongs to it.
#ifndef ATO_TEST_UNIT_PAIRING_LAB_H
#define ATO_TEST_UNIT_PAIRING_LAB_H

#include "support/mapped.h"

extern "C" {
#include "reflection/checksum.h"
#include "reflection/manifest.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

namespace fs = std::filesystem;
using namespace support;

constexpr size_t SIZE = 4 * 4096 + 1000;

using Snapshot = std::map<std::string, Bytes>;

// All files below a folder, by name.
inline Snapshot snapshot(const std::string &folder)
{
    Snapshot all;
    for (const auto &entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file())
            all[entry.path()] = read_file(entry.path());
    return all;
}

class Pairing : public testing::Test
{
  protected:
    Pairing() : path(dir / "file"), content(pattern(SIZE, 1))
    {
        write_file(path, content);
    }

    // Maps, writes over several pages, leaves slices in the reflection.
    void leave_slices()
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        Bytes record = pattern(6000, 2);
        ASSERT_TRUE(m.write(3000, record)) << m.sentence;
        std::copy(record.begin(), record.end(), content.begin() + 3000);
        ASSERT_GT(m.stat().slices_in_reflection, 0u);
    }

    // Mapped once, everything at home, fast-unmapped.
    void leave_nothing()
    {
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
    }

    void expect_maps(const std::string &p)
    {
        Mapped m(p);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
    }

    // ato_mmap() says no, and leaves everything as it was.
    void expect_refused(const std::string &p, int err, const std::string &words)
    {
        Snapshot before = snapshot(dir.path());
        std::string attribute = attribute_of(p);
        Mapped m(p);
        ASSERT_FALSE(m);
        EXPECT_EQ(m.error, err) << m.sentence;
        EXPECT_NE(m.sentence.find(words), std::string::npos) << m.sentence;
        EXPECT_TRUE(before == snapshot(dir.path())) << "a file was changed, made or removed";
        EXPECT_EQ(attribute_of(p), attribute);
    }

    // Changes valid copies of the manifest at `path_of_manifest`, with new checksums.
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

    TempDir dir;
    std::string path;
    Bytes content;
};

#endif
