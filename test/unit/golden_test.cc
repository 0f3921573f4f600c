// SPDX-License-Identifier: BSD-3-Clause
//
// Does the library read and write the documented format? Images of a manifest, an area of lanes and a
// reflection made by an independent writer (test/data/make_golden.py): the library reads them, and
// writes the same bytes where they are determined. (Formula (1) and the checksum: layout_test.cc,
// checksum_test.cc.)
#include "golden.h"
#include "lane_lab.h"
#include "support/child.h"
#include "support/mapped.h"

extern "C" {
#include "reflection/format/layout.h"
#include "reflection/format/manifest.h"
#include "reflection/pairing/area.h"
}

#include <gtest/gtest.h>

#include <cstring>
#include <map>

using namespace support;

namespace
{

// ---- manifest -----------------------------------------------------------------------------------

TEST(Golden, ManifestIsReadWithEveryField)
{
    Bytes image = golden_image("manifest.golden");
    ASSERT_EQ(image.size(), size_t(MANIFEST_BYTES));
    manifest_record r;
    int which;
    ASSERT_EQ(manifest_read(image.data(), &r, &which), MANIFEST_VALID);
    EXPECT_EQ(which, 0);
    EXPECT_EQ(r.sequence, 3u);
    EXPECT_EQ(r.format, 3u);
    EXPECT_EQ(r.domain, 3u);
    EXPECT_EQ(r.state, unsigned(MANIFEST_CLEAN));
    for (int i = 0; i < 16; i++) {
        EXPECT_EQ(r.id[i], i);
        EXPECT_EQ(r.boot_id[i], 0xf0 + i);
    }
    EXPECT_EQ(r.inode, 123456789u);
    EXPECT_EQ(r.device, 2049u);
    EXPECT_EQ(r.birth_sec, 1700000000);
    EXPECT_EQ(r.birth_nsec, 987654321u);
    EXPECT_EQ(r.generation, 42u);
    EXPECT_EQ(r.known, 7u);
    EXPECT_EQ(r.slots, 1024u);
    EXPECT_EQ(r.clean_size, 20580u);
    EXPECT_EQ(r.clean_mtime_sec, 1700000001);
    EXPECT_EQ(r.clean_mtime_nsec, 555u);
    EXPECT_EQ(r.shm_generation, 9u);
    EXPECT_EQ(r.guard.offset, 18u);
    EXPECT_EQ(r.guard.bytes, 2u);
    uint64_t word, size;
    memcpy(&word, &image[MANIFEST_SIZE_WORD], 8);
    ASSERT_TRUE(manifest_decode_size(word, &size));
    EXPECT_EQ(size, 20580u);
}

TEST(Golden, ManifestIsWrittenByteForByte)
{
    std::vector<uint64_t> words(MANIFEST_BYTES / 8);
    char *bytes = reinterpret_cast<char *>(words.data());
    struct persist p;
    persist_init(&p, PERSIST_PMEM);
    manifest_record r = {};
    int which = 1;
    r.domain = PERSIST_DISK;
    r.format = LAYOUT_LOG;
    r.state = MANIFEST_IN_USE;
    for (int i = 0; i < 16; i++)
        r.id[i] = static_cast<uint8_t>(i);
    r.inode = 123456789;
    r.device = 2049;
    r.birth_sec = 1700000000;
    r.birth_nsec = 987654321;
    r.generation = 42;
    r.known = MANIFEST_KNOWS_BIRTH | MANIFEST_KNOWS_GENERATION;
    r.slots = MANIFEST_SLOTS;
    r.guard.offset = 18;
    r.guard.bytes = 2;
    r.guard.plain[0] = r.guard.plain[1] = 1;
    const uint64_t word = manifest_encode_size(20580);
    memcpy(bytes + MANIFEST_SIZE_WORD, &word, sizeof(word));
    ASSERT_EQ(manifest_write(&p, bytes, &r, &which), 0);
    r.known |= MANIFEST_KNOWS_ATTRIBUTE;
    for (int i = 0; i < 16; i++)
        r.boot_id[i] = static_cast<uint8_t>(0xf0 + i);
    r.shm_generation = 9;
    ASSERT_EQ(manifest_write(&p, bytes, &r, &which), 0);
    r.state = MANIFEST_CLEAN;
    r.clean_size = 20580;
    r.clean_mtime_sec = 1700000001;
    r.clean_mtime_nsec = 555;
    ASSERT_EQ(manifest_write(&p, bytes, &r, &which), 0);
    EXPECT_TRUE(Bytes(bytes, bytes + MANIFEST_BYTES) == golden_image("manifest.golden"));
}

// ---- the area of a slot -------------------------------------------------------------------------

TEST(Golden, AreaOfASlotIsReadWithEveryLane)
{
    Bytes image = golden_image("area.golden");
    ASSERT_EQ(image.size(), size_t(MANIFEST_AREA_BYTES));
    LaneLab lab;
    memcpy(lab.bytes, image.data(), image.size());
    for (unsigned lane = 0; lane < LANE_SMALL; lane++) {
        lane_view v;
        uint64_t size;
        ASSERT_EQ(lab.look(lane, &v), lane == 2 ? LANE_COMMITTED : LANE_IDLE) << lane;
        if (lane != 2)
            continue;
        ASSERT_EQ(v.nwords, 248u);
        for (unsigned i = 0; i < 247; i++) {
            EXPECT_EQ(v.words[i].word, layout_word(LAYOUT_DENSE, i * 100));
            EXPECT_EQ(v.words[i].value, ~0ull - i);
        }
        EXPECT_EQ(v.words[247].word, uint64_t{LANE_SIZE});
        EXPECT_TRUE(manifest_decode_size(v.words[247].value, &size));
        EXPECT_EQ(size, 20580u);
    }
}

TEST(Golden, AreaOfASlotIsWrittenByteForByte)
{
    LaneLab lab(PERSIST_PMEM);
    lane_writer w = lab.write(0, {{0, 0}, {8, 1}});
    ASSERT_EQ(lane_retire(&w), 0);
    std::vector<std::pair<uint64_t, uint64_t>> words;
    for (unsigned i = 0; i < 247; i++)
        words.emplace_back(layout_word(LAYOUT_DENSE, i * 100), ~0ull - i);
    words.emplace_back(LANE_SIZE, manifest_encode_size(20580));
    lab.write(2, words);
    EXPECT_TRUE(Bytes(lab.bytes, lab.bytes + MANIFEST_AREA_BYTES) == golden_image("area.golden"));
}

// ---- reflection ---------------------------------------------------------------------------------

class GoldenReflection : public testing::TestWithParam<int>
{
  protected:
    GoldenReflection() : sparse(GetParam() == ATO_FORMAT_SPARSE), path(dir / "file")
    {
        before.resize(golden_table("writes.golden", "original").at(0).at(0));
        for (size_t k = 0; k < before.size(); k++)
            before[k] = static_cast<unsigned char>(k % 251 + k / 64 % 7);
        after = before;
        for (const auto &row : golden_table("writes.golden", "write")) {
            Bytes bytes(row[1]);
            for (size_t k = 0; k < bytes.size(); k++)
                bytes[k] = static_cast<unsigned char>(writes.size() * 37 + k * 11 + 5);
            std::copy(bytes.begin(), bytes.end(), after.begin() + static_cast<long>(row[0]));
            writes.emplace_back(row[0], bytes);
        }
        // The original's image holds the bytes that differ from `before`.
        Bytes changed = golden_image("original.golden");
        original = before;
        std::ifstream file = golden_open("original.golden");
        for (std::string line; std::getline(file, line);)
            if (line[0] == '@') {
                size_t at = std::stoull(line.substr(1));
                std::copy_n(changed.begin() + static_cast<long>(at),
                            std::min<size_t>(32, changed.size() - at),
                            original.begin() + static_cast<long>(at));
            }
        reflection = golden_image(sparse                         ? "sparse.golden"
                                  : GetParam() == ATO_FORMAT_LOG ? "log.golden"
                                                                 : "reflection.golden");
        write_file(path, before);
    }

    static ato_options wish(int domain)
    {
        ato_options o = options(domain, ATO_READ_GATHER);
        o.format = GetParam();
        return o;
    }

    // What a sparse reflection holds, whatever the order of its places: by page, the bitmap and the valid slices.
    static std::map<uint64_t, Bytes> held(const Bytes &sparse_reflection)
    {
        std::map<uint64_t, Bytes> pages;
        for (size_t meta = 0; meta < sparse_reflection.size(); meta += size_t{257} * 4096)
            for (size_t i = 0; i < 256; i++) {
                uint64_t entry[2];
                memcpy(entry, &sparse_reflection[meta + i * 16], 16);
                if (!entry[1])
                    continue;
                Bytes &b = pages[entry[0]];
                EXPECT_TRUE(b.empty()) << "two bitmaps of page " << entry[0];
                b.assign(&sparse_reflection[meta + i * 16 + 8],
                         &sparse_reflection[meta + i * 16 + 16]);
                for (size_t slice = 0; slice < 64; slice++)
                    if (entry[1] >> slice & 1) {
                        const size_t at = meta + (i + 1) * 4096 + slice * 64;
                        b.insert(b.end(), &sparse_reflection[at], &sparse_reflection[at] + 64);
                    }
            }
        return pages;
    }

    TempDir dir;
    const bool sparse;
    std::string path;
    Bytes before, after, original, reflection;
    std::vector<std::pair<uint64_t, Bytes>> writes;
};

INSTANTIATE_TEST_SUITE_P(Formats, GoldenReflection,
                         testing::Values(ATO_FORMAT_DENSE, ATO_FORMAT_SPARSE),
                         [](const auto &which) {
                             return which.param == ATO_FORMAT_SPARSE ? "Sparse" : "Dense";
                         });

TEST_P(GoldenReflection, IsWrittenByteForByte)
{
    for (int domain : {ATO_DOMAIN_PMEM, ATO_DOMAIN_PROCESS}) {
        write_file(path, before);
        Mapped m(path, wish(domain));
        ASSERT_TRUE(m) << m.sentence;
        for (const auto &w : writes)
            ASSERT_TRUE(m.write(w.first, w.second)) << m.sentence;
        EXPECT_EQ(m.read(), after);
        const Bytes written = read_file(reflection_of(path));
        EXPECT_EQ(written.size(), reflection.size());
        EXPECT_TRUE(sparse ? held(written) == held(reflection) : written == reflection);
        EXPECT_TRUE(read_file(path) == original);
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
        EXPECT_TRUE(read_file(path) == after);
    }
}

TEST_P(GoldenReflection, OfAnotherWriterIsReadAndWrittenCorrectly)
{
    write_file(path, original);
    {
        Mapped m(path, wish(ATO_DOMAIN_AUTO));
    } // makes the pairing
    write_at(reflection_of(path), 0, reflection.data(), reflection.size());
    Mapped m(path, wish(ATO_DOMAIN_AUTO));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_TRUE(m.read() == after);
    // To all pages that have a bitmap, and to some that have none, in one step each.
    for (uint64_t at : {0, 1, 2, 3, 5, 300, 511, 512, 513, 519, 520}) {
        Bytes bytes(900, static_cast<unsigned char>(at));
        ASSERT_TRUE(m.write(at * 4096 + 70, bytes)) << m.sentence;
        std::copy(bytes.begin(), bytes.end(), after.begin() + static_cast<long>(at * 4096 + 70));
    }
    EXPECT_TRUE(m.read() == after);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_TRUE(read_file(path) == after);
}

class GoldenLog : public GoldenReflection
{
};

INSTANTIATE_TEST_SUITE_P(Format, GoldenLog, testing::Values(ATO_FORMAT_LOG));

TEST_P(GoldenLog, OfAnotherWriterIsBroughtIntoTheFile)
{
    ASSERT_EQ(in_child([&] {
                  Mapped m(path, options(ATO_DOMAIN_DISK));
                  _exit(m ? CUT : 1);
                  return 0;
              }),
              CUT);
    write_file(reflection_of(path), reflection);
    Mapped m(path, options(ATO_DOMAIN_DISK));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_TRUE(m.read() == after);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_TRUE(read_file(path) == after);
}

} // namespace
