// SPDX-License-Identifier: BSD-3-Clause
//
// What may lie in the lanes of dead processes? In the areas of a manifest's slots, and in its long lane: they are replayed when
// the file is mapped.
//
// Input: the world (world.cc), uses (life.cc), then
//   u8 kind     1: there is a long lane; 2 and 4: how long it is; 8: it is not sealed; with 1, a commit follows:
//     u8 lane, u8 ahead (sequence - retired - 1), u64 retired, u16 count of words, the first 8 of them told, each u16 page (or,
//     from 16 on, place, as in fuzz_reflection.cc; with bit 15 an offset; 0x7fff the size), u64 value; the rest like the last one
//   u8 n, then n commits of slots: u8 slot, and as above; bit 7 of the slot: not sealed
#include "life.h"

#include <algorithm>

namespace fuzz
{

namespace
{

constexpr uint64_t USED_SLOTS = 3;
constexpr uint16_t SIZE_PAGE = 0x7fff;
constexpr uint64_t IS_SIZE = 1ull << 49;

// The content of a lane.
struct Lane {
    bool damaged = false; // nothing of its slot is replayed
    bool unfit = false;   // it is not replayed, and neither are later lanes
    std::vector<std::pair<uint64_t, uint64_t>> words, sizes;
};

// What recovery does.
struct Expected {
    bool refused = false; // the file may not be mapped
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

// The lanes begin at `at`.
void put_commit(const World &w, Image &image, uint64_t at, uint64_t lanes, bool sealed, Input &in)
{
    uint64_t lane = at + in.u8() % lanes * SLOT_LANE_BYTES;
    uint64_t ahead = in.u8(), retired = in.u64();
    Bytes line(128), body;
    unsigned words = in.u16() % 5000;
    Bytes word(16);
    for (unsigned i = 0; i < words; i++) {
        if (i < 8) {
            uint16_t page = in.u16();
            uint64_t value = in.u64();
            if (page == SIZE_PAGE) { // the size word, with its check if the file is to have any
                put(word, 0, 8, IS_SIZE);
                put(word, 8, 8, value >> 63 ? value : size_word(value));
            } else {
                put(word, 0, 8, word_offset(w.file, page));
                put(word, 8, 8, value);
            }
        }
        body.insert(body.end(), word.begin(), word.end());
    }
    put(line, 0, 8, retired + 1 + ahead);
    put(line, 8, 8, words);
    if (sealed)
        put(line, 56, 8, checksum(body.data(), body.size(), checksum(line.data(), 56)));
    put(line, 64, 8, retired);
    body.insert(body.begin(), line.begin(), line.end());
    image.write(lane, body.data(), body.size());
}

// ---- expected result, by FORMAT.md ----

void read_word(const Paired &p, uint64_t word, uint64_t value, Lane &lane)
{
    uint64_t size;
    const uint64_t length = p.reflection_kind == Kind::FILE ? p.reflection.size : 0;
    if (word == IS_SIZE) {
        lane.damaged |= !size_of(value, &size);
        lane.unfit |= !size_of(value, &size) || reflection_bytes(p.format, size) > length;
        lane.sizes.emplace_back(SIZE_WORD, value);
    } else {
        lane.damaged |= word > IS_SIZE || word % 8 != 0;
        lane.unfit |= !has_word(p.format, word, length);
        lane.words.emplace_back(word, value);
    }
}

Lane read_lane(const World &w, const Image &image, uint64_t at, uint64_t room)
{
    Lane lane;
    uint64_t sequence = image.word(at), retired = image.word(at + 64), words = image.word(at + 8);
    const bool fits = words <= (room - 128) / 16;
    lane.damaged = sequence > retired + 1 || (sequence == retired + 1 && !fits);
    if (sequence != retired + 1 || !fits || !words)
        return lane;
    Bytes line = image.bytes(at, 56), body = image.bytes(at + 128, 16 * words);
    if (checksum(body.data(), body.size(), checksum(line.data(), 56)) != image.word(at + 56))
        return lane;
    for (uint64_t i = 0; i < words && !lane.damaged; i++)
        read_word(w.file, get(body, 16 * i, 8), get(body, 16 * i + 8, 8), lane);
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
        const uint64_t at = area_at(slot) + i * SLOT_LANE_BYTES;
        lanes.push_back(read_lane(w, manifest, at, SLOT_LANE_BYTES));
    }
    return replay(w, lanes, e);
}

// The lane ends with the file. Behind the end, up to a page's end, are zeros.
bool replay_long(const World &w, const Image &manifest, Expected &e)
{
    const uint64_t there = manifest.size > LONG_LANE ? manifest.size - LONG_LANE : 0;
    return !there || replay(w, {read_lane(w, manifest, LONG_LANE, pages_of(there) * PAGE)}, e);
}

Expected expect(const World &w)
{
    Expected e;
    Holding h = holding(w.file.manifest);
    const Image manifest = w.file.manifest_image();
    if (w.file.manifest_kind != Kind::FILE || h.found != Holding::VALID ||
        h.field(STATE, 4) != IN_USE)
        return e;
    bool good = w.file.reflection_kind == Kind::FILE || w.file.reflection_kind == Kind::EMPTY;
    for (uint64_t slot = 0; good && slot < USED_SLOTS; slot++)
        good = replay_slot(w, manifest, slot, e);
    e.refused = !good || !replay_long(w, manifest, e);
    return e;
}

// ---- seeds ----

// Without a long lane.
Seed with(const char *name, uint64_t commits, uint64_t shape = 0, uint64_t uses = 0)
{
    return Seed(name).u16(shape).u8(uses).u8(0).u8(commits);
}

Seed &commit(Seed &s, uint64_t lane, uint64_t page, uint64_t value, uint64_t words = 1)
{
    return s.u8(lane).u8(0).u64(3).u16(words).u16(page).u64(value);
}

} // namespace

std::vector<Seed> seeds()
{
    std::vector<Seed> all;
    auto slot = [&all](const char *name, uint64_t which, uint64_t page, uint64_t words = 1,
                       uint64_t shape = 0) {
        Seed s = with(name, 1, shape);
        s.u8(which);
        all.push_back(commit(s, 2, page, 0xf0, words));
    };
    auto large = [&all](const char *name, uint64_t kind, uint64_t page, uint64_t words = 1,
                        uint64_t shape = 0) {
        Seed s = Seed(name).u16(shape).u8(0).u8(1 | kind);
        all.push_back(commit(s, 0, page, 0xf0, words).u8(0));
    };
    all.push_back(with("empty", 0));
    slot("commit", 0, 2);
    slot("commit-clean", 0, 2, 1, 1);
    slot("commit-deployed", 0, 2, 1, 2);
    slot("commit-two-chunks", 0, 512, 1, TWO_CHUNKS);
    slot("commit-last-slot", 2, 2);
    slot("commit-unsealed", 128, 2);
    slot("full", 1, 2, 248);
    slot("too-full", 1, 2, 249);
    slot("word-behind", 1, 7);
    slot("word-of-another-chunk", 0, 600);
    slot("word-in-no-meta-page", 0, 0x8000 | 4096);
    slot("odd-word", 0, 0x8000 | 3);
    slot("manifest-gone", 0, 1, 1, 1 << 8);
    slot("manifest-a-pipe", 0, 1, 1, 3 << 8);
    slot("manifest-a-link", 0, 1, 1, 5 << 8);
    slot("reflection-gone", 0, 1, 1, 1 << 11);
    slot("reflection-a-folder", 0, 1, 1, 2 << 11);
    slot("reflection-empty", 0, 1, 1, 6 << 11);
    slot("size", 1, SIZE_PAGE);
    Seed size = with("size-of-the-file", 1);
    size.u8(0);
    all.push_back(commit(size, 2, SIZE_PAGE, 20000));
    Seed no_size = with("size-without-its-check", 1);
    no_size.u8(0);
    all.push_back(commit(no_size, 2, SIZE_PAGE, 1ull << 63));
    Seed ahead = with("ahead", 1);
    all.push_back(ahead.u8(0).u8(0).u8(1).u64(0));
    slot("sparse-commit", 0, 1, 1, SPARSE_FILE);
    slot("sparse-commit-of-a-second-place", 0, 20, 1, SPARSE_FILE);
    slot("sparse-commit-of-a-far-page", 0, 21, 1, SPARSE_FILE);
    slot("sparse-page-number", 0, 0x8000 | 16, 1, SPARSE_FILE);
    slot("sparse-word-behind", 0, 522, 1, SPARSE_FILE);
    slot("sparse-size", 1, SIZE_PAGE, 1, SPARSE_FILE);
    Seed both = with("slot-after-slot", 2);
    both.u8(1);
    commit(both, 1, 1, 1).u8(0);
    all.push_back(commit(both, 1, 1, 2));
    Seed order = with("lane-after-lane", 2);
    order.u8(0);
    commit(order, 2, 1, 2).u8(0);
    all.push_back(commit(order, 1, 1, 1));
    large("long", 0, 2);
    large("long-many-words", 0, 3, 4900);
    large("long-of-two-mib", 2, 3, 4900);
    large("long-cut-to-a-page", 4, 2, 248);
    large("long-cut-off", 4, 2, 249);
    large("long-cut-in-its-line", 6, 2);
    large("long-unsealed", 8, 2);
    large("long-word-behind", 0, 7);
    large("long-clean", 0, 2, 1, 1);
    large("long-reflection-gone", 0, 2, 1, 1 << 11);
    large("long-sparse", 0, 1, 1, SPARSE_FILE);
    Seed after = Seed("long-after-a-slot").u16(0).u8(0).u8(1);
    commit(after, 0, 1, 2).u8(1).u8(1);
    all.push_back(commit(after, 0, 1, 1));
    return all;
}

} // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    using namespace fuzz;
    static const uint64_t lengths[] = {1 << 20, 2 << 20, PAGE, 100};
    static World world;
    Input in(bytes, n);
    world.begin(in);
    Uses uses = uses_from(in);
    Image manifest = image_of(world.file.manifest);
    manifest.size = area_at(USED_SLOTS);
    const unsigned kind = in.u8();
    if (kind & 1) {
        Image &behind = world.file.long_lane;
        behind.size = LONG_LANE + lengths[kind >> 1 & 3];
        put_commit(world, behind, LONG_LANE, 1, !(kind & 8), in);
        behind.pages.erase(behind.pages.lower_bound(behind.size), behind.pages.end());
        const Bytes last = behind.bytes(LONG_LANE, std::min(PAGE, behind.size - LONG_LANE));
        if (behind.size < LONG_LANE + PAGE) { // nothing of it is behind the end
            behind.pages.clear();
            behind.write(LONG_LANE, last.data(), last.size());
        }
    }
    for (unsigned i = in.u8() % 20; i; i--) {
        const unsigned which = in.u8();
        put_commit(world, manifest, area_at((which & 127) % USED_SLOTS), SLOT_LANES, !(which & 128),
                   in);
    }
    world.file.manifest = manifest.bytes(0, manifest.size);
    world.lay_out();
    const Expected e = expect(world);
    live(world, uses, e.replay, e.refused);
    return 0;
}
