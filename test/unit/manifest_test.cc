// SPDX-License-Identifier: BSD-3-Clause
//
// Which record of a manifest is read? After any sequence of updates, torn at any word, damaged in
// any byte, of other versions, never used.
#include "support/faults.h"
#include "support/temp.h"

extern "C" {
#include "reflection/format/checksum.h"
#include "reflection/format/manifest.h"
}

#include <gtest/gtest.h>

#include <cstring>

using support::Bytes;

namespace
{

class Manifest : public testing::Test
{
  protected:
    Manifest() : words(MANIFEST_BYTES / 8)
    {
        persist_init(&p, PERSIST_PMEM);
        memset(&record, 0, sizeof(record));
        record.domain = PERSIST_DISK;
        record.state = MANIFEST_IN_USE;
        record.inode = 1234;
    }

    char *bytes()
    {
        return reinterpret_cast<char *>(words.data());
    }

    void write(uint64_t inode)
    {
        record.inode = inode;
        ASSERT_EQ(manifest_write(&p, bytes(), &record, &which), 0);
    }

    manifest_finding read(uint64_t *inode = nullptr)
    {
        manifest_record r;
        int copy;
        manifest_finding found = manifest_read(bytes(), &r, &copy);
        if (inode)
            *inode = r.inode;
        found_copy = copy;
        return found;
    }

    // Changes a field of a copy, with a checksum that fits.
    template <class Change> void patch(int copy, Change change)
    {
        manifest_record r;
        memcpy(&r, bytes() + copy * MANIFEST_COPY_BYTES, sizeof(r));
        change(r);
        r.checksum = checksum(&r, offsetof(manifest_record, checksum));
        memcpy(bytes() + copy * MANIFEST_COPY_BYTES, &r, sizeof(r));
    }

    struct persist p;
    std::vector<uint64_t> words;
    manifest_record record;
    int which = 1, found_copy = -1;
};

TEST_F(Manifest, OfZerosIsUnbornAndItsFirstRecordGoesToCopyA)
{
    EXPECT_EQ(read(), MANIFEST_UNBORN);
    EXPECT_EQ(found_copy, 1);
    write(1);
    EXPECT_EQ(which, 0);
    EXPECT_EQ(read(), MANIFEST_VALID);
    EXPECT_EQ(found_copy, 0);
    for (size_t i = MANIFEST_COPY_BYTES / 8; i < words.size(); i++)
        EXPECT_EQ(words[i], 0u) << "copy B is of zeros until the first use";
}

TEST_F(Manifest, UpdatesAlternateAndTheLastIsRead)
{
    for (uint64_t i = 1; i <= 10; i++) {
        uint64_t inode;
        write(i);
        EXPECT_EQ(read(&inode), MANIFEST_VALID);
        EXPECT_EQ(inode, i);
        EXPECT_EQ(found_copy, which);
        EXPECT_EQ(record.sequence, i);
        EXPECT_EQ(which, i % 2 ? 0 : 1);
    }
}

// The media may hold any sequence number; the next record is newer in any case.
TEST_F(Manifest, UpdateAfterTheHighestSequenceIsRead)
{
    for (uint64_t first : {UINT64_MAX, UINT64_MAX - 1, uint64_t{INT64_MAX}}) {
        std::fill(words.begin(), words.end(), 0);
        which = 1;
        record.sequence = first - 1;
        for (uint64_t i = 1; i <= 4; i++) {
            uint64_t inode;
            write(i);
            EXPECT_EQ(read(&inode), MANIFEST_VALID);
            EXPECT_EQ(inode, i) << "sequence " << record.sequence;
            EXPECT_EQ(found_copy, which);
        }
    }
}

TEST_F(Manifest, EveryFieldIsReadAsWritten)
{
    Bytes filled = support::pattern(sizeof(record), 5);
    memcpy(&record, filled.data(), sizeof(record));
    record.format = 0;
    record.domain = PERSIST_EADR;
    record.state = MANIFEST_CLEAN;
    record.clean_size = 1 << 20;
    record.guard.bytes = 16;
    record.guard.offset = 18;
    write(99);
    manifest_record r;
    int copy;
    ASSERT_EQ(manifest_read(bytes(), &r, &copy), MANIFEST_VALID);
    EXPECT_EQ(memcmp(&r, &record, sizeof(r)), 0);
    EXPECT_EQ(r.magic, MANIFEST_MAGIC);
}

// A crash cuts an update: any prefix of the record is new, any suffix, or all words but one.
TEST_F(Manifest, TornUpdateLeavesTheOlderRecord)
{
    for (uint64_t turns : {1, 2, 3}) {
        for (uint64_t i = 1; i <= turns; i++)
            write(i);
        std::vector<uint64_t> before = words;
        write(77);
        std::vector<uint64_t> after = words;
        constexpr size_t N = sizeof(manifest_record) / 8;
        size_t at = static_cast<size_t>(which) * MANIFEST_COPY_BYTES / 8;
        for (size_t cut = 0; cut <= N; cut++) {
            for (int kind = 0; kind < 3; kind++) {
                words = before;
                for (size_t i = 0; i < N; i++)
                    if (kind == 0 ? i < cut : kind == 1 ? i >= cut : i != cut)
                        words[at + i] = after[at + i];
                bool whole = words == after;
                uint64_t inode;
                ASSERT_EQ(read(&inode), MANIFEST_VALID) << cut;
                ASSERT_EQ(inode, whole ? 77 : turns) << "cut " << cut << " kind " << kind;
            }
        }
        words = after;
    }
}

TEST_F(Manifest, TornFirstRecordIsUnborn)
{
    write(5);
    std::vector<uint64_t> after = words;
    for (size_t cut = 0; cut < sizeof(manifest_record) / 8; cut++) {
        std::fill(words.begin(), words.end(), 0);
        std::copy_n(after.begin(), cut, words.begin());
        EXPECT_EQ(read(), MANIFEST_UNBORN) << cut;
        EXPECT_EQ(found_copy, 1);
    }
}

TEST_F(Manifest, AnyByteDamagedInOneCopyLeavesTheOther)
{
    write(1);
    write(2);
    for (int copy : {0, 1}) {
        for (size_t i = 0; i < sizeof(manifest_record); i++) {
            char *at = bytes() + copy * MANIFEST_COPY_BYTES + i;
            *at = static_cast<char>(*at ^ 0x40);
            uint64_t inode;
            ASSERT_EQ(read(&inode), MANIFEST_VALID) << i;
            ASSERT_EQ(inode, copy == 0 ? 2u : 1u) << i;
            *at = static_cast<char>(*at ^ 0x40);
        }
    }
}

// The library must not write over bytes that are not its own.
TEST_F(Manifest, BytesThatNoBirthWritesAreDamage)
{
    for (size_t at : {size_t(512), size_t(4095), size_t(4096), size_t(8191), size_t(8216),
                      size_t(MANIFEST_BYTES - 1)}) {
        memset(bytes(), 0, MANIFEST_BYTES);
        bytes()[at] = 1;
        EXPECT_EQ(read(), MANIFEST_DAMAGED) << at;
    }
    for (size_t at : {size_t(0), size_t(511), size_t(8192), size_t(8207), size_t(8215)}) {
        memset(bytes(), 0, MANIFEST_BYTES);
        bytes()[at] = 1;
        EXPECT_EQ(read(), MANIFEST_UNBORN) << at;
    }
}

TEST_F(Manifest, BothCopiesDamagedIsDamageAndNotUnborn)
{
    write(1);
    write(2);
    bytes()[40] ^= 1;
    bytes()[MANIFEST_COPY_BYTES + 40] ^= 1;
    EXPECT_EQ(read(), MANIFEST_DAMAGED);
    memset(bytes(), 0, MANIFEST_COPY_BYTES); // A is zeros, B is damaged: the manifest was in use
    EXPECT_EQ(read(), MANIFEST_DAMAGED);
}

TEST_F(Manifest, IsForeignIfEitherCopyHasAnotherVersionOrFormat)
{
    write(1);
    write(2);
    for (int copy : {0, 1})
        for (unsigned format : {0, 2, 4}) {
            const unsigned version = format ? MANIFEST_VERSION : 9;
            std::vector<uint64_t> kept = words;
            patch(copy, [&](manifest_record &r) {
                r.version = version;
                r.format = format;
            });
            manifest_record r;
            int which_copy;
            EXPECT_EQ(manifest_read(bytes(), &r, &which_copy), MANIFEST_FOREIGN);
            EXPECT_EQ(r.format, format);
            EXPECT_EQ(r.version, version);
            words = kept;
        }
}

TEST_F(Manifest, OfVersion1IsForeign)
{
    write(1);
    patch(0, [](manifest_record &r) { r.version = 1; });
    EXPECT_EQ(read(), MANIFEST_FOREIGN);
}

TEST(ManifestArea, OfEachSlotLiesBehindTheOneBefore)
{
    EXPECT_EQ(manifest_area(0), 12288u);
    EXPECT_EQ(manifest_area(1), 28672u);
    EXPECT_EQ(manifest_area(MANIFEST_SLOTS - 1), 12288u + 1023 * 16384);
}

TEST_F(Manifest, RecordWithInvalidFieldsIsRefusedDespiteItsChecksum)
{
    using Change = void (*)(manifest_record &);
    for (Change change : {Change([](manifest_record &r) { r.domain = 0; }),
                          Change([](manifest_record &r) { r.domain = 5; }),
                          Change([](manifest_record &r) { r.state = 0; }),
                          Change([](manifest_record &r) { r.state = 5; }),
                          Change([](manifest_record &r) { r.guard.bytes = 17; }),
                          Change([](manifest_record &r) { r.guard.offset = ~0ull; }),
                          Change([](manifest_record &r) { r.clean_size = ~0ull; })}) {
        std::fill(words.begin(), words.end(), 0);
        which = 1;
        write(1);
        write(2);
        patch(1, change);
        uint64_t inode;
        EXPECT_EQ(read(&inode), MANIFEST_VALID);
        EXPECT_EQ(inode, 1u) << "the other copy";
        patch(0, change);
        EXPECT_EQ(read(), MANIFEST_DAMAGED);
    }
}

TEST_F(Manifest, UpdateIsDurableWhenItReturnsAndFailsWithTheMedium)
{
    persist_init(&p, PERSIST_DISK);
    support::PersistFaults faults;
    faults.before = [](const support::PersistCall &c) {
        return std::string(c.op) == "flush_data" ? EIO : support::GO_ON;
    };
    int before = which;
    EXPECT_EQ(manifest_write(&p, bytes(), &record, &which), -1);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(which, before) << "the next try goes to the same copy";
    faults.before = nullptr;
    persist_init(&p, PERSIST_PMEM);
    faults.take();
    EXPECT_EQ(manifest_write(&p, bytes(), &record, &which), 0);
    EXPECT_EQ(faults.counts.copy, 1);
    EXPECT_EQ(faults.take().fence, 1);
}

TEST(ManifestSize, EverySizeIsDecoded)
{
    for (uint64_t size : {0ull, 1ull, 4095ull, 4096ull, 123456789ull, (1ull << 48) - 4096}) {
        uint64_t back;
        EXPECT_TRUE(manifest_decode_size(manifest_encode_size(size), &back));
        EXPECT_EQ(back, size);
    }
}

TEST(ManifestSize, InvalidWordsAreRefused)
{
    uint64_t size;
    EXPECT_FALSE(manifest_decode_size(0, &size)) << "never written";
    EXPECT_FALSE(manifest_decode_size(~0ull, &size));
    EXPECT_FALSE(manifest_decode_size(manifest_encode_size((1ull << 48) - 1), &size))
        << "too large";
    uint64_t word = manifest_encode_size(987654321);
    for (int bit = 0; bit < 64; bit++)
        EXPECT_FALSE(manifest_decode_size(word ^ 1ull << bit, &size)) << bit;
    for (int a = 0; a < 64; a++)
        for (int b = a + 1; b < 64; b++)
            EXPECT_FALSE(manifest_decode_size(word ^ 1ull << a ^ 1ull << b, &size));
}

} // namespace
