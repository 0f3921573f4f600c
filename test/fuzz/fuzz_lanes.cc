// SPDX-License-Identifier: BSD-3-Clause
//
// What may lie in the lanes of dead processes? In the areas of a manifest's slots, and in the journals that they name:
// they are replayed when the file is mapped.
//
// Input: the world (world.cc), uses (life.cc), then journals, the first of slot 0:
//   u8 kind     1: unfinished; 2: it has no large lane; 4: its header is not sealed; 8: nor its
//               lanes; 16: its large lane is longer; 32: another follows; 64: the manifest does not name it;
//               128: the word that names it is damaged
//   u8 n, then n header fields: u8 field, u64 value
//   u8 n, then n commits: u8 lane, u8 ahead (sequence - retired - 1), u64 retired, u8 count of files,
//     each u8 owner, u8 reserved; u16 count of words, the first 8 of them told, each u8 file, u16 page (or, from 16 on, place, as
//     in fuzz_reflection.cc; with bit 15 an offset; 0x7fff the size), u64 value; the rest like the last one
// then u8 n, and n commits in the manifest: u8 slot, and as above; bit 7 of the slot: not sealed
#include "life.h"

#include <algorithm>

namespace fuzz
{

namespace
{

constexpr uint64_t LANE_BYTES = 65536, LANES = 16;
constexpr uint64_t USED_SLOTS = 3;
constexpr uint64_t FIRST_NUMBER = 0xabc000000000;
constexpr uint16_t SIZE_PAGE = 0x7fff;

// The content of a lane, as far as it is about the file.
struct Lane {
    bool damaged = false; // nothing of its journal, or slot, is replayed
    bool unfit = false;   // it is not replayed, and neither are later lanes
    std::vector<std::pair<uint64_t, uint64_t>> words, sizes;
};

// What recovery does.
struct Expected {
    bool refused = false; // the file may not be mapped
    bool named = false;   // the manifest names a journal
    Replay replay;
};

// ---- writing ----

uint64_t word_offset(const Paired &p, uint16_t page)
{
    if (page & 0x8000)
        return page & 0x7fff;
    if (page < 16)
        return word_at(p.format, p.place_of(page));
    return word_at(p.format, page > 520 ? (page - 519) * entries_of(p.format) : page);
}

Bytes named(const World &w, unsigned owner, uint8_t reserved)
{
    Bytes b(32);
    const Bytes *id = &w.file.id;
    uint64_t inode = w.file.inode;
    switch (owner % 8) {
    case 1:
        id = &w.other.id;
        inode = w.other.inode;
        break;
    case 2: // missing
        inode = 1;
        break;
    case 3: // taken over by another pairing
        id = &w.other.id;
        break;
    case 4:
        inode = w.other.inode;
        break;
    case 5:
        inode = UINT64_MAX;
        break;
    default:
        break;
    }
    std::copy(id->begin(), id->end(), b.begin());
    if (owner % 8 == 6) // one more pairing of this inode
        b[0] = static_cast<unsigned char>(owner);
    put(b, 16, 8, inode);
    put(b, 24, 8, reserved);
    return b;
}

// The lanes begin at `at`.
void put_commit(const World &w, Image &image, uint64_t at, uint64_t lanes, uint64_t lane_bytes,
                bool sealed, Input &in)
{
    uint64_t lane = at + in.u8() % lanes * lane_bytes;
    uint64_t ahead = in.u8(), retired = in.u64();
    Bytes line(128), body;
    unsigned files = in.u8();
    for (unsigned i = 0; i < files && i < 70; i++) {
        unsigned owner = in.u8();
        Bytes file = named(w, owner, in.u8());
        body.insert(body.end(), file.begin(), file.end());
    }
    unsigned words = in.u16() % 5000;
    Bytes word(16);
    for (unsigned i = 0; i < words; i++) {
        if (i < 8) {
            uint64_t file = in.u8();
            uint16_t page = in.u16();
            uint64_t value = in.u64();
            if (page == SIZE_PAGE) { // the size word, with its check if the file is to have any
                put(word, 0, 8, SIZE_WORD | 1ull << 49 | file << 50);
                put(word, 8, 8, value >> 63 ? value : size_word(value));
            } else {
                put(word, 0, 8, word_offset(w.file, page) | file << 50);
                put(word, 8, 8, value);
            }
        }
        body.insert(body.end(), word.begin(), word.end());
    }
    put(line, 0, 8, retired + 1 + ahead);
    put(line, 8, 4, files);
    put(line, 12, 4, words);
    if (sealed)
        put(line, 56, 8, checksum(body.data(), body.size(), checksum(line.data(), 56)));
    put(line, 64, 8, retired);
    body.insert(body.begin(), line.begin(), line.end());
    image.write(lane, body.data(), body.size());
}

Image make_journal(const World &w, uint64_t number, uint8_t kind, Input &in)
{
    static const size_t fields[] = {0, 8, 12, 16, 24, 32, 36, 40, 48};
    static const unsigned widths[] = {8, 4, 4, 8, 8, 4, 4, 8, 8};
    Image journal;
    journal.type = S_IFREG;
    journal.size = kind & 2 ? PAGE + LANES * LANE_BYTES : JOURNAL + (kind & 16 ? PAGE + 8 : 0);
    Bytes header(64);
    put(header, 0, 8, JOURNAL_MAGIC_WORD);
    put(header, 8, 4, 4);
    put(header, 12, 4, LANES);
    put(header, 16, 8, LANE_BYTES);
    put(header, 36, 4, 4);
    put(header, 40, 8, number);
    for (unsigned i = in.u8() % 8; i; i--) {
        unsigned field = in.u8() % 9;
        put(header, fields[field], widths[field], in.u64());
    }
    if (!(kind & 4))
        put(header, 56, 8, checksum(header.data(), 56));
    journal.write(0, header.data(), header.size());
    for (unsigned i = in.u8() % 20; i; i--)
        put_commit(w, journal, PAGE, LANES + 1, LANE_BYTES, !(kind & 8), in);
    return journal;
}

// ---- expected result, by FORMAT.md ----

// The effect of one of the file's words.
void read_word(const Paired &p, uint64_t word, uint64_t value, Lane &lane)
{
    uint64_t offset = word & ((1ull << 49) - 1), size;
    const uint64_t length = p.reflection_kind == Kind::FILE ? p.reflection.size : 0;
    if (word >> 49 & 1) {
        lane.unfit |= !size_of(value, &size) || reflection_bytes(p.format, size) > length;
        lane.sizes.emplace_back(SIZE_WORD, value);
    } else {
        lane.unfit |= !has_word(p.format, offset, length);
        lane.words.emplace_back(offset, value);
    }
}

Lane read_lane(const World &w, const Image &image, uint64_t at, uint64_t room)
{
    Lane lane;
    uint64_t sequence = image.word(at), retired = image.word(at + 64), counts = image.word(at + 8);
    uint64_t files = counts & 0xffffffff, words = counts >> 32;
    const bool fits = files <= 16384 && 128 + 32 * files + 16 * words <= room;
    lane.damaged = sequence > retired + 1 || (sequence == retired + 1 && !fits);
    if (sequence != retired + 1 || !fits || !files || !words)
        return lane;
    Bytes line = image.bytes(at, 56), body = image.bytes(at + 128, 32 * files + 16 * words);
    if (checksum(body.data(), body.size(), checksum(line.data(), 56)) != image.word(at + 56))
        return lane;
    for (uint64_t i = 0; i < words && !lane.damaged; i++) {
        uint64_t word = get(body, 32 * files + 16 * i, 8),
                 value = get(body, 32 * files + 16 * i + 8, 8), size;
        uint64_t file = word >> 50, offset = word & ((1ull << 49) - 1);
        bool is_size = word >> 49 & 1;
        lane.damaged = file >= files ||
                       (is_size ? offset != SIZE_WORD || !size_of(value, &size) : offset % 8 != 0);
        if (!lane.damaged && get(body, 32 * file + 16, 8) == w.file.inode &&
            std::equal(w.file.id.begin(), w.file.id.end(), &body[32 * file]))
            read_word(w.file, word, value, lane);
    }
    return lane;
}

// Replays lanes in order: all are checked for damage, then each for words that do not fit. Returns false if the file is
// refused.
bool replay(const World &w, const std::vector<Lane> &lanes, Expected &e)
{
    for (const Lane &lane : lanes)
        e.refused |= lane.damaged;
    for (const Lane &lane : lanes) {
        e.refused |= lane.unfit;
        if (e.refused)
            return false;
        auto &words = e.replay[w.file.name()], &sizes = e.replay[w.file.name() + ".manifest"];
        words.insert(words.end(), lane.words.begin(), lane.words.end());
        sizes.insert(sizes.end(), lane.sizes.begin(), lane.sizes.end());
    }
    return !e.refused;
}

bool replay_slot(const World &w, const Image &manifest, uint64_t slot, Expected &e)
{
    std::vector<Lane> lanes;
    for (uint64_t i = 0; i < SLOT_LANES; i++) {
        const uint64_t at = area_at(slot) + 64 + i * SLOT_LANE_BYTES;
        lanes.push_back(read_lane(w, manifest, at, SLOT_LANE_BYTES));
    }
    return replay(w, lanes, e);
}

// The lanes of a journal. Returns false if it is not one.
bool read_journal(const World &w, const Image &journal, uint64_t number, std::vector<Lane> &found)
{
    const Bytes header = journal.bytes(0, 64);
    const uint64_t lanes = get(header, 12, 4), small = get(header, 16, 8),
                   length = std::min(journal.size, JOURNAL_MOST);
    if (length < PAGE || get(header, 0, 8) != JOURNAL_MAGIC_WORD || get(header, 8, 4) != 4 ||
        get(header, 56, 8) != checksum(header.data(), 56) || get(header, 36, 4) - 1 > 3 ||
        lanes == 0 || lanes > 4096 || small % 64 || small < 4096 || small > length / lanes ||
        lanes * small + 2 * PAGE > length)
        return false;
    for (uint64_t lane = 0; lane <= lanes; lane++) {
        const uint64_t from = PAGE + lane * small;
        found.push_back(read_lane(w, journal, from, lane < lanes ? small : length - from));
    }
    return get(header, 40, 8) == number;
}

bool replay_journal(const World &w, const Image &manifest, uint64_t slot, uint64_t number,
                    Expected &e)
{
    char name[40];
    snprintf(name, sizeof(name), "journal-%012llx", static_cast<unsigned long long>(number));
    std::vector<Lane> lanes;
    auto there = w.journals.find(name);
    e.named = true;
    if (there == w.journals.end() || !read_journal(w, there->second, number, lanes) ||
        std::any_of(lanes.begin(), lanes.end(), [](const Lane &l) { return l.damaged; }) ||
        !replay_slot(w, manifest, slot, e) || !replay(w, lanes, e))
        return false;
    e.replay[w.file.name() + ".manifest"].emplace_back(area_at(slot), 0);
    return true;
}

Expected expect(const World &w)
{
    Expected e;
    Holding h = holding(w.file.manifest);
    const Image manifest = image_of(w.file.manifest);
    if (w.file.manifest_kind != Kind::FILE || h.found != Holding::VALID ||
        h.field(STATE, 4) != IN_USE)
        return e;
    bool good = w.file.reflection_kind == Kind::FILE || w.file.reflection_kind == Kind::EMPTY;
    for (uint64_t slot = 0, number; good && slot < USED_SLOTS; slot++) {
        const uint64_t word = manifest.word(area_at(slot));
        if (word)
            good = size_of(word, &number) && replay_journal(w, manifest, slot, number, e);
    }
    for (uint64_t slot = 0; good && slot < USED_SLOTS; slot++)
        good = replay_slot(w, manifest, slot, e);
    e.refused = !good;
    return e;
}

// ---- seeds ----

Seed with(const char *name, uint64_t kind, uint64_t commits, uint64_t shape = 0, uint64_t uses = 0)
{
    return Seed(name).u16(shape).u8(uses).u8(kind).u8(0).u8(commits);
}

Seed &commit(Seed &s, uint64_t lane, uint64_t owner, uint64_t page, uint64_t value,
             uint64_t words = 1)
{
    s.u8(lane).u8(0).u64(3).u8(1).u8(owner).u8(0).u16(words);
    return s.u8(0).u16(page).u64(value);
}

Seed header(const char *name, uint64_t field, uint64_t value)
{
    return Seed(name).u16(0).u8(0).u8(0).u8(1).u8(field).u64(value).u8(0);
}

} // namespace

std::vector<Seed> seeds()
{
    std::vector<Seed> all;
    auto one = [&all](const char *name, uint64_t owner, uint64_t page, uint64_t kind = 0,
                      uint64_t shape = 0) {
        Seed s = with(name, kind, 1, shape);
        all.push_back(commit(s, 2, owner, page, 0xf0));
    };
    all.push_back(with("empty", 0, 0));
    all.push_back(with("unfinished", 1, 0));
    all.push_back(with("too-short", 2, 0));
    all.push_back(with("unsealed", 4, 0));
    all.push_back(with("longer", 16, 0));
    all.push_back(header("magic", 0, 1));
    all.push_back(header("version", 1, 1));
    all.push_back(header("no-lanes", 2, 0));
    all.push_back(header("lanes", 2, 80));
    all.push_back(header("lane-bytes", 3, 4096));
    all.push_back(header("huge-lane-bytes", 3, UINT64_MAX - 63));
    all.push_back(header("reserved-64", 4, UINT64_MAX - 7));
    all.push_back(header("version-before", 1, 2));
    all.push_back(header("reserved", 5, UINT32_MAX));
    all.push_back(header("domain-msync", 6, 3));
    all.push_back(header("domain", 6, 9));
    one("commit", 0, 2);
    one("commit-clean", 0, 2, 0, 1);
    one("commit-deployed", 0, 2, 0, 2);
    one("commit-two-chunks", 0, 512, 0, TWO_CHUNKS);
    one("commit-unsealed", 0, 2, 8);
    one("commit-of-the-other", 1, 1);
    one("commit-of-a-missing-file", 2, 1);
    one("commit-of-the-one-before", 3, 1);
    one("commit-of-a-far-inode", 5, 1);
    one("word-behind", 0, 7);
    one("word-of-another-chunk", 0, 600);
    one("word-in-no-meta-page", 0, 0x8000 | 4096);
    one("odd-word", 0, 0x8000 | 3);
    one("manifest-gone", 0, 1, 0, 1 << 8);
    one("manifest-a-pipe", 0, 1, 0, 3 << 8);
    one("manifest-a-link", 4, 1, 0, 5 << 8);
    one("reflection-gone", 0, 1, 0, 1 << 11);
    one("reflection-a-folder", 0, 1, 0, 2 << 11);
    one("reflection-empty", 0, 1, 0, 6 << 11);
    Seed two = with("one-inode-twice", 0, 2);
    commit(two, 1, 0, 1, 1);
    all.push_back(commit(two, 2, 3, 1, 2));
    Seed three = with("two-that-are-gone", 0, 2);
    commit(three, 1, 3, 1, 1);
    all.push_back(commit(three, 2, 6, 1, 2));
    Seed link = with("two-names-of-one-manifest", 0, 2, 5 << 8);
    commit(link, 1, 1, 1, 1);
    all.push_back(commit(link, 2, 0, 1, 2));
    Seed many = with("many-words", 0, 1);
    all.push_back(commit(many, 16, 0, 3, 7, 4900));
    Seed order = with("in-order", 0, 2);
    commit(order, 1, 0, 1, 1);
    all.push_back(commit(order, 2, 0, 1, 2));
    Seed too_many = with("too-many-files", 0, 1);
    all.push_back(too_many.u8(0).u8(0).u64(0).u8(65));
    one("size", 0, SIZE_PAGE);
    Seed size = with("size-of-the-file", 0, 1);
    size.u8(2).u8(0).u64(3).u8(1).u8(0).u8(0).u16(1);
    all.push_back(size.u8(0).u16(SIZE_PAGE).u64(20000));
    Seed no_size = with("size-without-its-check", 0, 1);
    no_size.u8(2).u8(0).u64(3).u8(1).u8(0).u8(0).u16(1);
    all.push_back(no_size.u8(0).u16(SIZE_PAGE).u64(1ull << 63));
    Seed reserved = with("file-with-reserved-bits", 0, 1);
    reserved.u8(2).u8(0).u64(3).u8(1).u8(0).u8(0xff).u16(1);
    all.push_back(reserved.u8(0).u16(2).u64(0xf0));
    Seed ahead = with("ahead", 0, 1);
    all.push_back(ahead.u8(0).u8(1).u64(0).u8(1));
    all.push_back(with("word-damaged", 128, 0));
    all.push_back(with("not-named", 64, 0));
    auto slot = [&all](const char *name, uint64_t which, uint64_t owner, uint64_t page,
                       uint64_t kind = 64, uint64_t words = 1, uint64_t shape = 0) {
        Seed s = with(name, kind, 0, shape);
        s.u8(1).u8(which);
        all.push_back(commit(s, 2, owner, page, 0xf0, words));
    };
    slot("slot", 0, 0, 2);
    slot("slot-last", 2, 0, 2);
    slot("slot-and-journal", 0, 0, 2, 0);
    slot("slot-unsealed", 128, 0, 2);
    slot("slot-full", 1, 0, 2, 64, 242);
    slot("slot-too-full", 1, 0, 2, 64, 243);
    slot("slot-of-the-other", 1, 1, 1);
    slot("slot-of-the-one-before", 1, 3, 1);
    slot("slot-word-behind", 1, 0, 7);
    slot("slot-size", 1, 0, SIZE_PAGE);
    slot("slot-clean", 0, 0, 2, 64, 1, 1);
    slot("slot-deployed", 0, 0, 2, 64, 1, 2);
    slot("slot-reflection-gone", 0, 0, 1, 64, 1, 1 << 11);
    slot("slot-reflection-empty", 0, 0, 1, 64, 1, 6 << 11);
    one("sparse-commit", 0, 1, 0, SPARSE_FILE);
    one("sparse-commit-of-a-second-place", 0, 20, 0, SPARSE_FILE);
    one("sparse-commit-of-a-far-page", 0, 21, 0, SPARSE_FILE);
    one("sparse-page-number", 0, 0x8000 | 16, 0, SPARSE_FILE);
    one("sparse-word-behind", 0, 522, 0, SPARSE_FILE);
    one("sparse-commit-of-the-other", 1, 1, 0, BOTH_SPARSE);
    slot("sparse-slot", 0, 0, 2, 64, 1, SPARSE_FILE);
    slot("sparse-slot-size", 1, 0, SIZE_PAGE, 64, 1, SPARSE_FILE);
    Seed both = with("slot-after-slot", 64, 0);
    both.u8(2).u8(1);
    commit(both, 1, 0, 1, 1).u8(0);
    all.push_back(commit(both, 1, 0, 1, 2));
    return all;
}

} // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    using namespace fuzz;
    static World world;
    Input in(bytes, n);
    world.begin(in);
    Uses uses = uses_from(in);
    Image manifest = image_of(world.file.manifest);
    manifest.size = area_at(USED_SLOTS);
    uint8_t kind;
    uint64_t slot = 0;
    do {
        char name[40];
        const uint64_t number = FIRST_NUMBER + slot;
        kind = in.u8();
        snprintf(name, sizeof(name), "journal-%012llx%s", static_cast<unsigned long long>(number),
                 kind & 1 ? ".tmp" : "");
        world.journals[name] = make_journal(world, number, kind, in);
        if (!(kind & 64))
            manifest.set_word(area_at(slot), size_word(number) ^ kind >> 7);
        slot++;
    } while (kind & 32 && slot < USED_SLOTS);
    for (unsigned i = in.u8() % 20; i; i--) {
        const unsigned which = in.u8();
        put_commit(world, manifest, area_at((which & 127) % USED_SLOTS) + 64, SLOT_LANES,
                   SLOT_LANE_BYTES, !(which & 128), in);
    }
    world.file.manifest = manifest.bytes(0, manifest.size);
    world.lay_out();
    const Expected e = expect(world);
    bool adopted = live(world, uses, e.replay, e.refused);
    for (const auto &[name, image] : world.names())
        if (adopted && e.named && name.compare(0, 8, "journal-") == 0 && name.size() == 20)
            wrong("recovered, and %s is still there", name.c_str());
    return 0;
}
