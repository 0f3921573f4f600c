// SPDX-License-Identifier: BSD-3-Clause
//
// What may lie in a reflection folder under the name of a dead process's journal? It is found when a
// file of the folder is mapped, and replayed on whatever files it names.
//
// Input: the world (world.cc), uses (life.cc), then journals:
//   u8 name     1: unfinished; 2: its length is not a pool's; 4: its header is not sealed; 8: nor its
//               lanes; 16: it begins at another page; 32: another follows
//   u8 n, then n header fields: u8 field, u64 value
//   u8 n, then n commits: u8 lane, u8 ahead (sequence - retired - 1), u64 retired, u8 count of files,
//     each u8 owner, u8 reserved; u16 count of words, the first 8 of them told, each u8 file, u16 page (as in
//     fuzz_reflection.cc; with bit 15 an offset; 0x7fff the size), u64 value; the rest like the last one
#include "life.h"

#include <algorithm>

namespace fuzz
{

namespace
{

constexpr uint64_t LANE_BYTES = 65536, LANES = 16;
constexpr uint16_t SIZE_PAGE = 0x7fff;

// The content of a lane.
struct Lane {
    bool damaged = false;     // it holds no valid commit: nothing of its journal is replayed
    bool unreachable = false; // neither if one of its files cannot be reached
    bool unfit = false;       // it is not replayed, and neither are later lanes
    bool names_file = false;  // the file cannot be mapped before it is replayed
    Replay replay;
};

struct Commits {
    bool refused = false; // the file may not be mapped
    bool stays = false;   // a journal stays
    Replay replay;
};

// ---- writing ----

uint64_t word_offset(uint16_t page)
{
    if (page & 0x8000)
        return page & 0x7fff;
    return word_at(page > 520 ? (page - 519) * CHUNK_PAGES : page);
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

void put_commit(const World &w, Image &pool, uint64_t at, uint8_t kind, Input &in)
{
    uint64_t lane = at + PAGE + in.u8() % (LANES + 1) * LANE_BYTES;
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
                put(word, 0, 8, word_offset(page) | file << 50);
                put(word, 8, 8, value);
            }
        }
        body.insert(body.end(), word.begin(), word.end());
    }
    put(line, 0, 8, retired + 1 + ahead);
    put(line, 8, 4, files);
    put(line, 12, 4, words);
    if (!(kind & 8))
        put(line, 56, 8, checksum(body.data(), body.size(), checksum(line.data(), 56)));
    put(line, 64, 8, retired);
    body.insert(body.begin(), line.begin(), line.end());
    pool.write(lane, body.data(), body.size());
}

Image make_pool(const World &w, uint8_t kind, Input &in)
{
    static const size_t fields[] = {0, 8, 12, 16, 24, 32, 36, 40, 48};
    static const unsigned widths[] = {8, 4, 4, 8, 8, 4, 4, 8, 8};
    Image pool;
    pool.type = S_IFREG;
    pool.size = POOL - (kind & 2 ? PAGE : 0);
    uint64_t at = kind & 16 ? (POOL - JOURNAL) / PAGE * PAGE : 3 * PAGE;
    Bytes header(64);
    put(header, 0, 8, JOURNAL_MAGIC_WORD);
    put(header, 8, 4, 3);
    put(header, 12, 4, LANES);
    put(header, 16, 8, LANE_BYTES);
    put(header, 24, 8, LARGE);
    put(header, 36, 4, 4);
    for (unsigned i = in.u8() % 8; i; i--) {
        unsigned field = in.u8() % 9;
        put(header, fields[field], widths[field], in.u64());
    }
    if (!(kind & 4))
        put(header, 56, 8, checksum(header.data(), 56));
    pool.write(at, header.data(), header.size());
    for (unsigned i = in.u8() % 20; i; i--)
        put_commit(w, pool, at, kind, in);
    return pool;
}

// ---- expected result, by FORMAT.md ----

// The effect of a lane's words on one of the files.
void read_word(const Paired &p, uint64_t word, uint64_t value, Lane &lane)
{
    uint64_t offset = word & ((1ull << 49) - 1), chunk = (CHUNK_PAGES + 1) * PAGE, size;
    if (word >> 49 & 1) {
        if (!size_of(value, &size) || reflection_bytes(size) > p.reflection.size)
            lane.unfit = true;
        else
            lane.replay[p.name() + ".manifest"].emplace_back(SIZE_WORD, value);
    } else if (offset % chunk >= PAGE ||
               offset / chunk * chunk + (offset % chunk / 8 + 2) * PAGE > p.reflection.size) {
        lane.unfit = true;
    } else {
        lane.replay[p.name()].emplace_back(offset, value);
    }
}

// The manifest under a file's name, if it belongs to a file whose process died.
bool in_use(const World &w, const Paired &p, Holding &h)
{
    if (&p == &w.file && p.manifest_kind == Kind::HARDLINK)
        h = holding(w.other.manifest);
    else if (&p != &w.file || p.manifest_kind == Kind::FILE)
        h = holding(p.manifest);
    else
        return false;
    return h.found == Holding::VALID && h.field(STATE, 4) == IN_USE;
}

Lane read_lane(const World &w, const Image &pool, uint64_t at, uint64_t room)
{
    Lane lane;
    uint64_t sequence = pool.word(at), retired = pool.word(at + 64), counts = pool.word(at + 8);
    uint64_t files = counts & 0xffffffff, words = counts >> 32;
    if (sequence == retired)
        return lane;
    if (sequence != retired + 1 || files > 16384 || 128 + 32 * files + 16 * words > room) {
        lane.damaged = true;
        return lane;
    }
    Bytes line = pool.bytes(at, 56), body = pool.bytes(at + 128, 32 * files + 16 * words);
    if (!files || !words ||
        checksum(body.data(), body.size(), checksum(line.data(), 56)) != pool.word(at + 56))
        return lane;
    Holding h;
    const bool matters = in_use(w, w.file, h);
    for (uint64_t i = 0; i < files; i++)
        lane.names_file |= matters && std::equal(&body[32 * i], &body[32 * i] + 16, &h.record[ID]);
    // Words of one lane come before those of the next; their order within a lane does not matter.
    for (uint64_t i = 0; i < words && !lane.damaged; i++) {
        uint64_t word = get(body, 32 * files + 16 * i, 8),
                 value = get(body, 32 * files + 16 * i + 8, 8), size;
        uint64_t file = word >> 50, offset = word & ((1ull << 49) - 1);
        bool is_size = word >> 49 & 1;
        if (file >= files ||
            (is_size ? offset != SIZE_WORD || !size_of(value, &size) : offset % 8)) {
            lane.damaged = true;
            return lane;
        }
        for (const Paired *p : {&w.file, &w.other}) {
            if (!in_use(w, *p, h) || get(body, 32 * file + 16, 8) != p->inode ||
                !std::equal(&body[32 * file], &body[32 * file] + 16, &h.record[ID]))
                continue; // missing, or a copy
            if (p->reflection_kind != Kind::FILE || !p->reflection.size ||
                (is_size && p->manifest.size() < MANIFEST))
                lane.unreachable = true;
            else
                read_word(*p, word, value, lane);
        }
    }
    return lane;
}

// First all lanes of a journal are checked, then their files; then the lanes are replayed in order.
void follow(const World &w, const std::vector<Lane> &lanes, Commits &c)
{
    bool stopped = false;
    Holding h;
    for (const Lane &lane : lanes) {
        stopped |= lane.damaged || lane.unreachable;
        c.refused |= lane.damaged && in_use(w, w.file, h);
    }
    for (const Lane &lane : lanes) {
        stopped |= lane.unfit;
        c.refused |= stopped && lane.names_file;
        for (const auto &[name, words] : lane.replay)
            if (!stopped)
                c.replay[name].insert(c.replay[name].end(), words.begin(), words.end());
    }
    c.stays |= stopped;
}

void read_pool(const World &w, const Image &pool, Commits &c)
{
    Holding h;
    for (uint64_t at = PAGE; pool.size >= POOL && at < 8 << 20; at += PAGE) {
        if (pool.word(at) != JOURNAL_MAGIC_WORD)
            continue;
        Bytes h = pool.bytes(at, 64);
        uint64_t lanes = get(h, 12, 4), small = get(h, 16, 8), large = get(h, 24, 8);
        uint64_t room = pool.size - at - PAGE;
        if (get(h, 56, 8) != checksum(h.data(), 56) || get(h, 8, 4) != 3 || get(h, 36, 4) - 1 > 3 ||
            lanes == 0 || lanes > 4096 || small % 64 || small < 4096 || large % 8 || large < 4096 ||
            small > room / lanes || large > room - lanes * small)
            continue;
        std::vector<Lane> found;
        for (uint64_t lane = 0; lane <= lanes; lane++)
            found.push_back(
                read_lane(w, pool, at + PAGE + lane * small, lane < lanes ? small : large));
        follow(w, found, c);
        return;
    }
    c.stays = true;
    c.refused |= in_use(w, w.file, h);
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
    all.push_back(with("at-the-end", 16, 0));
    all.push_back(header("magic", 0, 1));
    all.push_back(header("version", 1, 1));
    all.push_back(header("no-lanes", 2, 0));
    all.push_back(header("lanes", 2, 80));
    all.push_back(header("lane-bytes", 3, 4096));
    all.push_back(header("huge-lane-bytes", 3, UINT64_MAX - 63));
    all.push_back(header("large-bytes", 4, UINT64_MAX - 7));
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
    Commits commits;
    uint8_t kind;
    char digit = 'a';
    do {
        kind = in.u8();
        std::string name = "journal-" + std::string(32, digit++) + (kind & 1 ? ".tmp" : "");
        world.journals[name] = make_pool(world, kind, in);
        if (!(kind & 1))
            read_pool(world, world.journals[name], commits);
    } while (kind & 32 && digit < 'c');
    world.lay_out();
    bool taken = live(world, uses, commits.replay, commits.refused);
    for (const auto &[name, image] : world.names())
        if (taken && !commits.stays && name.compare(0, 8, "journal-") == 0)
            wrong("taken, and %s is still there", name.c_str());
    return 0;
}
