// SPDX-License-Identifier: BSD-3-Clause
//
// Does the reader find the content that FORMAT.md describes? Pairings and lanes are made by
// hand, word by word, without the library.
#include "reader.h"
#include "rules_lab.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

using namespace crash;

namespace
{

constexpr uint64_t ID[2] = {0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};
const char *const ATTRIBUTE = "ato1 000102030405060708090a0b0c0d0e0f 77 .ato";
constexpr uint64_t AREA = 16384, SMALL = 4096, LONG_LANE = 12288 + 1024 * AREA;
enum State : uint64_t { IN_USE = 2, CLEAN, DEPLOYED };
enum Format : uint64_t { DENSE, SPARSE };

uint64_t sum(const Inode &file, uint64_t at, uint64_t bytes, uint64_t h = 0x61746f2d73756d31ull)
{
    for (uint64_t i = at; i < at + bytes; i += 8) {
        h = (h ^ file.word(i)) * 0x9fb21c651e98df25ull;
        h ^= h >> 29;
    }
    return h;
}

// A file of 5 MiB, inode 77, with a pairing.
struct Paired {
    Disk disk;
    int original, folder, reflection, manifest;
    const uint64_t format;

    explicit Paired(uint64_t state, uint64_t of = DENSE) : format(of)
    {
        constexpr uint64_t BYTES = 5 << 20;
        Inode o, r, m, f;
        f.folder = true;
        o.size = BYTES;
        o.attribute = ATTRIBUTE;
        r.size = format == DENSE ? BYTES + 3 * PAGE : 6 * 257 * PAGE;
        m.size = 3 * PAGE;
        for (uint64_t at = 0; at < BYTES; at += PAGE)
            o.set_word(at, 1 + at);
        m.set_word(8192, BYTES); // the reader does not check the checksum above it
        original = disk.add(o);
        folder = disk.add(f);
        reflection = disk.add(r);
        manifest = disk.add(m);
        disk.edit(Disk::ROOT).names = {{"file", original}, {".ato", folder}};
        disk.edit(folder).names = {{"77", reflection}, {"77.manifest", manifest}};
        record(0, IN_USE, 1);
        record(4096, state, 2);
    }

    void record(uint64_t copy, uint64_t state, uint64_t sequence)
    {
        Inode &m = disk.edit(manifest);
        m.set_word(copy, 0x545345464e414d41ull);
        m.set_word(copy + 8, 3 | format << 32);
        m.set_word(copy + 16, 1 | state << 32);
        m.set_word(copy + 24, sequence);
        m.set_word(copy + 32, ID[0]);
        m.set_word(copy + 40, ID[1]);
        m.set_word(copy + 504, sum(m, copy, 504));
    }

    // Entry `place` of a sparse reflection.
    void entry(uint64_t place, uint64_t page, uint64_t bits)
    {
        Inode &r = disk.edit(reflection);
        r.set_word(entry_at(place), page);
        r.set_word(entry_at(place) + 8, bits);
    }

    static uint64_t entry_at(uint64_t place)
    {
        return place / 256 * 257 * PAGE + place % 256 * 16;
    }

    // A lane that sets one word of the reflection.
    void put_lane(uint64_t l, uint64_t sequence, uint64_t retired, uint64_t at, uint64_t value)
    {
        Inode &m = disk.edit(manifest);
        m.set_word(l, sequence);
        m.set_word(l + 8, 1);
        m.set_word(l + 64, retired);
        m.set_word(l + 128, at);
        m.set_word(l + 136, value);
        m.set_word(l + 56, sum(m, l + 128, 16, sum(m, l, 56)));
    }

    void lane(uint64_t slot, uint64_t lane, uint64_t at, uint64_t value, uint64_t sequence = 8,
              uint64_t retired = 7)
    {
        const uint64_t area = 12288 + AREA * slot;
        disk.edit(manifest).size = std::max(disk.at(manifest).size, area + AREA);
        put_lane(area + lane * SMALL, sequence, retired, at, value);
    }

    void long_lane(uint64_t at, uint64_t value, uint64_t bytes = 1 << 20)
    {
        disk.edit(manifest).size = LONG_LANE + bytes;
        put_lane(LONG_LANE, 8, 7, at, value);
    }

    Found read() const
    {
        return read_file(disk, original, 77);
    }
    // Returns the words of the file that differ from the original's.
    std::string text() const
    {
        Found found = read();
        if (!found.damage.empty())
            return "damage";
        std::ostringstream out;
        for (uint64_t at = 0; at < found.content.size(); at += 8) {
            uint64_t w;
            memcpy(&w, found.content.data() + at, 8);
            if (w != disk.at(original).word(at))
                out << at << "=" << w << " ";
        }
        return out.str();
    }
};

// The example of FORMAT.md.
constexpr uint64_t BIT_AT = 2103008, BIT = 1ull << 27, O = 3000000, R = 3008192;

TEST(Reader, TakesEachSliceFromItsValidHome)
{
    Paired p(IN_USE);
    p.disk.edit(p.reflection).set_word(R, 5);
    p.disk.edit(p.reflection).set_word(R + 64, 6); // the next slice is valid in the original
    EXPECT_EQ(p.text(), "");
    p.disk.edit(p.reflection).set_word(BIT_AT, BIT);
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
    p.record(0, CLEAN, 3);
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
}

// O is the first byte of slice 27 of this page.
constexpr uint64_t O_PAGE = 732, IN_PAGE = O - O_PAGE * PAGE;

TEST(Reader, FindsThePlacesOfASparseReflection)
{
    for (uint64_t place : {0, 5, 255, 256, 700}) {
        Paired p(IN_USE, SPARSE);
        p.disk.edit(p.reflection).set_word((place + place / 256 + 1) * PAGE + IN_PAGE, 5);
        p.entry(place, O_PAGE, 0);
        EXPECT_EQ(p.text(), "");
        p.entry(place, O_PAGE, BIT);
        EXPECT_EQ(p.text(), std::to_string(O) + "=5 ") << place;
        p.entry(place == 5 ? 6 : 5, O_PAGE, 0); // says nothing
        EXPECT_EQ(p.text(), std::to_string(O) + "=5 ") << place;
    }
}

TEST(Reader, ReplaysALaneThatNamesASparseWord)
{
    Paired p(IN_USE, SPARSE);
    p.disk.edit(p.reflection).set_word(4 * PAGE + IN_PAGE, 5);
    p.entry(3, O_PAGE, 0);
    p.lane(0, 0, Paired::entry_at(3) + 8, BIT);
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
}

TEST(Reader, ReportsWhatNoSparseReflectionHas)
{
    Paired twice(IN_USE, SPARSE), behind(IN_USE, SPARSE), far(IN_USE, SPARSE), format(IN_USE, 2);
    twice.entry(3, O_PAGE, BIT);
    twice.entry(300, O_PAGE, 1);
    behind.entry(3, (5 << 20) / PAGE, 1);
    far.entry(3, UINT64_MAX, 1);
    for (Paired *p : {&twice, &behind, &far, &format})
        EXPECT_EQ(p->text(), "damage");
}

TEST(Reader, ReadsALastSliceInPart)
{
    Paired p(IN_USE);
    p.disk.edit(p.original).size = O + 8;
    p.disk.edit(p.manifest).set_word(8192, O + 8);
    p.disk.edit(p.reflection).set_word(R, 5);
    p.disk.edit(p.reflection).set_word(BIT_AT, BIT);
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
    EXPECT_EQ(p.read().content.size(), O + 8);
}

TEST(Reader, ReadsAFileWithoutAPairingInUseAsPlain)
{
    Paired cut(IN_USE), deployed(DEPLOYED), another(IN_USE), fresh(IN_USE);
    cut.disk.edit(cut.original).attribute.clear();
    another.disk.edit(another.original).attribute[6]++;
    fresh.disk.edit(fresh.manifest).resize(0);
    fresh.disk.edit(fresh.manifest).resize(3 * PAGE);
    for (Paired *p : {&cut, &deployed, &another, &fresh}) {
        p->disk.edit(p->reflection).set_word(BIT_AT, BIT);
        p->disk.edit(p->reflection).set_word(R, 5);
        EXPECT_EQ(p->text(), "");
    }
    Disk plain = start_disk();
    plain.edit(F).set_word(0, 1);
    EXPECT_EQ(read_file(plain, F, 77).content, plain.at(F).content());
    EXPECT_EQ(read_file(plain, F, 77).damage, "");
}

TEST(Reader, BelievesTheValidCopyWithTheHigherSequence)
{
    Paired p(IN_USE);
    p.disk.edit(p.reflection).set_word(BIT_AT, BIT);
    p.disk.edit(p.reflection).set_word(R, 5);
    p.record(0, DEPLOYED, 3);
    EXPECT_EQ(p.text(), "");
    p.disk.edit(p.manifest).set_word(400, 1); // copy A is not valid
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
    p.disk.edit(p.manifest).set_word(4096 + 400, 1); // and neither is B
    EXPECT_EQ(p.text(), "damage");
}

TEST(Reader, ReportsDamageIfAPartIsMissingOrWrong)
{
    Paired manifest(IN_USE), reflection(IN_USE), size(IN_USE), version(IN_USE);
    manifest.disk.edit(manifest.folder).names.erase("77.manifest");
    reflection.disk.edit(reflection.folder).names.erase("77");
    size.disk.edit(size.original).size--;
    for (uint64_t copy : {0, 4096}) {
        Inode &m = version.disk.edit(version.manifest);
        m.set_word(copy + 8, 2);
        m.set_word(copy + 504, sum(m, copy, 504));
    }
    for (Paired *p : {&manifest, &reflection, &size, &version})
        EXPECT_EQ(p->text(), "damage");
}

TEST(Reader, ReplaysOnlyCommittedLanes)
{
    for (uint64_t sequence : {7, 8}) {
        Paired p(IN_USE);
        p.disk.edit(p.reflection).set_word(R, 5);
        p.lane(3, 1, BIT_AT, BIT, sequence);
        EXPECT_EQ(p.text(), sequence == 8 ? std::to_string(O) + "=5 " : "") << sequence;
        EXPECT_EQ(p.disk.at(p.reflection).word(BIT_AT), 0u);
    }
}

TEST(Reader, ReplaysTheLanesOfEachSlotAndTheLongOne)
{
    Paired first(IN_USE), last(IN_USE), large(IN_USE);
    first.lane(0, 3, BIT_AT, BIT);
    last.lane(1023, 3, BIT_AT, BIT);
    large.long_lane(BIT_AT, BIT);
    for (Paired *p : {&first, &last, &large}) {
        p->disk.edit(p->reflection).set_word(R, 5);
        EXPECT_EQ(p->text(), std::to_string(O) + "=5 ");
    }
}

TEST(Reader, LooksAtALaneWithinTheManifestOnly)
{
    Paired p(IN_USE), cut(IN_USE);
    for (Paired *q : {&p, &cut}) {
        q->disk.edit(q->reflection).set_word(R, 5);
        q->long_lane(BIT_AT, BIT, 144);
    }
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
    cut.disk.edit(cut.manifest).size--;
    EXPECT_EQ(cut.text(), "damage");
    cut.disk.edit(cut.manifest).size = LONG_LANE;
    EXPECT_EQ(cut.text(), "");
}

TEST(Reader, ReportsACleanFileWithACommit)
{
    Paired small(CLEAN), large(CLEAN), retired(CLEAN);
    small.lane(0, 0, BIT_AT, BIT);
    large.long_lane(BIT_AT, BIT);
    retired.lane(0, 0, BIT_AT, BIT, 7);
    EXPECT_EQ(small.text(), "damage");
    EXPECT_EQ(large.text(), "damage");
    EXPECT_EQ(retired.text(), "");
}

TEST(Reader, ReplaysASize)
{
    Paired p(IN_USE);
    p.disk.edit(p.original).resize(6 << 20); // longer, but the size word has the old size
    EXPECT_EQ(p.text(), "damage");
    p.lane(0, 1, 1ull << 49, 6 << 20);
    EXPECT_EQ(p.text(), "");
    EXPECT_EQ(p.read().content.size(), 6u << 20);
    EXPECT_EQ(p.disk.at(p.manifest).word(8192), 5u << 20);
}

TEST(Reader, ReportsALaneWithAWordThatIsNone)
{
    for (uint64_t at : {1ul << 49 | 8, 1ul << 50 | BIT_AT, BIT_AT + 4}) {
        Paired p(IN_USE);
        p.lane(0, 1, at, BIT);
        EXPECT_EQ(p.text(), "damage") << at;
    }
}

TEST(Reader, ReplaysTheSizeThatACommitMade)
{
    Paired p(IN_USE);
    uint64_t grown = p.disk.at(p.original).size;
    p.disk.edit(p.manifest).set_word(8192, grown - 8);
    p.disk.edit(p.manifest).set_word(8200, grown);
    EXPECT_EQ(p.read().content.size(), grown - 8);
    p.lane(0, 1, 1ull << 49, grown);
    EXPECT_EQ(p.read().content.size(), grown);
}

TEST(Reader, TellsACutLaneFromADamagedOne)
{
    Paired cut(IN_USE), gap(IN_USE), counts(IN_USE);
    for (Paired *p : {&cut, &gap, &counts}) {
        p->disk.edit(p->reflection).set_word(R, 5);
        p->lane(0, 1, BIT_AT, BIT, p == &gap ? 9 : 8);
    }
    uint64_t l = 12288 + SMALL;
    cut.disk.edit(cut.manifest).set_word(l + 136, BIT | 1);
    EXPECT_EQ(cut.text(), "");
    EXPECT_EQ(gap.text(), "damage");
    counts.disk.edit(counts.manifest).set_word(l + 8, 249);
    EXPECT_EQ(counts.text(), "damage");
}

} // namespace
