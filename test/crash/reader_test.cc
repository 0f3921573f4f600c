// SPDX-License-Identifier: BSD-3-Clause
//
// Does the reader find the content that FORMAT.md describes? Pairings and journals are made by
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
constexpr uint64_t NUMBER = 0x0123456789abull;
const char *const NAME = "journal-0123456789ab";
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
    int original, folder, reflection, manifest, journal = -1;
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
        m.set_word(copy + 8, 2 | format << 32);
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
    static void put_lane(Inode &j, uint64_t l, uint64_t sequence, uint64_t retired, uint64_t at,
                         uint64_t value, uint64_t id = ID[0])
    {
        j.set_word(l, sequence);
        j.set_word(l + 8, 1 | 1ull << 32);
        j.set_word(l + 64, retired);
        j.set_word(l + 128, id);
        j.set_word(l + 136, ID[1]);
        j.set_word(l + 160, at);
        j.set_word(l + 168, value);
        j.set_word(l + 56, sum(j, l + 128, 48, sum(j, l, 56)));
    }

    // In a slot of the manifest.
    void own_lane(uint64_t slot, uint64_t lane, uint64_t at, uint64_t value, uint64_t id = ID[0])
    {
        Inode &m = disk.edit(manifest);
        m.size = std::max(m.size, area(slot + 1));
        put_lane(m, area(slot) + 64 + lane * 4032, 8, 7, at, value, id);
    }

    static uint64_t area(uint64_t slot)
    {
        return 12288 + 16384 * slot;
    }

    // The slot names a journal. The reader does not check the word's checksum.
    void name_journal(uint64_t slot, uint64_t number)
    {
        Inode &m = disk.edit(manifest);
        m.size = std::max(m.size, area(slot + 1));
        m.set_word(area(slot), number | 0xabcdull << 48);
    }

    // A journal with a commit in its second lane. The manifest names it.
    void lane(uint64_t sequence, uint64_t retired, uint64_t at, uint64_t value,
              const std::string &name = NAME, uint64_t id = ID[0])
    {
        Inode j;
        name_journal(3, NUMBER);
        j.size = 5 * PAGE;
        j.set_word(40, NUMBER);
        j.set_word(0, 0x4c414e52554f4a41ull);
        j.set_word(8, 4 | 2ull << 32); // two small lanes
        j.set_word(16, 1024);
        j.set_word(56, sum(j, 0, 56));
        put_lane(j, PAGE + 1024, sequence, retired, at, value, id);
        journal = disk.add(j);
        disk.edit(folder).names[name] = journal;
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
    p.own_lane(0, 0, Paired::entry_at(3) + 8, BIT);
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
    Paired manifest(IN_USE), reflection(IN_USE), size(IN_USE), header(IN_USE), version(IN_USE),
        length(IN_USE);
    manifest.disk.edit(manifest.folder).names.erase("77.manifest");
    reflection.disk.edit(reflection.folder).names.erase("77");
    size.disk.edit(size.original).size--;
    header.lane(1, 0, BIT_AT, BIT);
    header.disk.edit(header.journal).set_word(16, 2048);
    version.lane(1, 0, BIT_AT, BIT);
    Inode &old = version.disk.edit(version.journal);
    old.set_word(8, 3 | 2ull << 32);
    old.set_word(56, sum(old, 0, 56));
    length.lane(1, 0, BIT_AT, BIT);
    length.disk.edit(length.journal).size = PAGE + 2 * 1024 + PAGE - 8;
    for (Paired *p : {&manifest, &reflection, &size, &header, &version, &length})
        EXPECT_EQ(p->text(), "damage");
}

TEST(Reader, ReplaysOnlyCommittedLanes)
{
    struct {
        uint64_t sequence, retired;
        const char *name;
        uint64_t id;
        bool replayed;
    } cases[] = {
        {8, 7, NAME, ID[0], true},
        {7, 7, NAME, ID[0], false},
        {8, 7, NAME, ID[0] + 1, false},
    };
    for (const auto &c : cases) {
        Paired p(IN_USE);
        p.disk.edit(p.reflection).set_word(R, 5);
        p.lane(c.sequence, c.retired, BIT_AT, BIT, c.name, c.id);
        EXPECT_EQ(p.text(), c.replayed ? std::to_string(O) + "=5 " : "") << c.name << c.sequence;
        EXPECT_EQ(p.disk.at(p.reflection).word(BIT_AT), 0u);
    }
}

TEST(Reader, ReplaysTheLanesInTheManifest)
{
    Paired p(IN_USE), others(IN_USE), last(IN_USE);
    for (Paired *q : {&p, &others, &last})
        q->disk.edit(q->reflection).set_word(R, 5);
    p.own_lane(0, 3, BIT_AT, BIT);
    EXPECT_EQ(p.text(), std::to_string(O) + "=5 ");
    others.own_lane(2, 0, BIT_AT, BIT, ID[0] + 1);
    EXPECT_EQ(others.text(), "");
    last.own_lane(1023, 0, BIT_AT, BIT);
    EXPECT_EQ(last.text(), std::to_string(O) + "=5 ");
}

TEST(Reader, OpensOnlyTheJournalsThatTheManifestNames)
{
    Paired none(IN_USE), two(IN_USE), missing(IN_USE), renamed(IN_USE), unfinished(IN_USE);
    for (Paired *p : {&none, &two, &renamed, &unfinished}) {
        p->disk.edit(p->reflection).set_word(R, 5);
        p->lane(8, 7, BIT_AT, BIT);
    }
    none.disk.edit(none.manifest).set_word(Paired::area(3), 0);
    EXPECT_EQ(none.text(), "");
    two.name_journal(7, NUMBER); // which is no error
    EXPECT_EQ(two.text(), std::to_string(O) + "=5 ");
    missing.name_journal(0, NUMBER);
    EXPECT_EQ(missing.text(), "damage");
    renamed.name_journal(3, NUMBER + 1);
    renamed.disk.edit(renamed.folder).names["journal-0123456789ac"] = renamed.journal;
    EXPECT_EQ(renamed.text(), "damage");
    auto &names = unfinished.disk.edit(unfinished.folder).names;
    names.erase(NAME);
    names[std::string(NAME) + ".tmp"] = unfinished.journal; // no name of a journal
    EXPECT_EQ(unfinished.text(), "damage");
}

TEST(Reader, ReportsACleanFileWithACommit)
{
    Paired lane(CLEAN), word(CLEAN), others(CLEAN);
    lane.own_lane(0, 0, BIT_AT, BIT);
    word.name_journal(1, NUMBER);
    others.own_lane(0, 0, BIT_AT, BIT, ID[0] + 1);
    EXPECT_EQ(lane.text(), "damage");
    EXPECT_EQ(word.text(), "damage");
    EXPECT_EQ(others.text(), "");
}

TEST(Reader, ReplaysASize)
{
    Paired p(IN_USE);
    p.disk.edit(p.original).resize(6 << 20); // longer, but the size word has the old size
    EXPECT_EQ(p.text(), "damage");
    p.lane(8, 7, 8192 | 1ull << 49, 6 << 20);
    EXPECT_EQ(p.text(), "");
    EXPECT_EQ(p.read().content.size(), 6u << 20);
    EXPECT_EQ(p.disk.at(p.manifest).word(8192), 5u << 20);
}

TEST(Reader, ReportsALaneWithAWordOfNoFile)
{
    Paired p(IN_USE);
    p.disk.edit(p.reflection).set_word(R, 5);
    p.lane(8, 7, 1ull << 50 | BIT_AT, BIT);
    EXPECT_EQ(p.text(), "damage");
}

TEST(Reader, ReplaysTheSizeThatACommitMade)
{
    Paired p(IN_USE);
    uint64_t grown = p.disk.at(p.original).size;
    p.disk.edit(p.manifest).set_word(8192, grown - 8);
    p.disk.edit(p.manifest).set_word(8200, grown);
    EXPECT_EQ(p.read().content.size(), grown - 8);
    p.lane(8, 7, 1ull << 49 | 8192, grown);
    EXPECT_EQ(p.read().content.size(), grown);
}

TEST(Reader, TellsACutLaneFromADamagedOne)
{
    Paired cut(IN_USE), gap(IN_USE), counts(IN_USE);
    for (Paired *p : {&cut, &gap, &counts}) {
        p->disk.edit(p->reflection).set_word(R, 5);
        p->lane(p == &gap ? 9 : 8, 7, BIT_AT, BIT);
    }
    uint64_t l = PAGE + 1024;
    cut.disk.edit(cut.journal).set_word(l + 168, BIT | 1);
    EXPECT_EQ(cut.text(), "");
    EXPECT_EQ(gap.text(), "damage");
    counts.disk.edit(counts.journal).set_word(l + 8, 1 | 100ull << 32);
    EXPECT_EQ(counts.text(), "damage");
}

} // namespace
