// SPDX-License-Identifier: BSD-3-Clause
//
// What may a log be like? Headers and records of any kind, sealed or not, any bytes over them, any length; beside a file
// and a manifest that are in order, or that a growth or a shrink has left.
//
// Input: the world (world.cc; no slices, no formats, no kinds of manifest), uses (life.cc), u8 pages of the ring - 1, u64 salt,
// u16 origin and u16 start - origin, in units of 64 bytes, u8 repairs:
//   1, 2: seal header A, B; 4: B is the older one; 8: positions are beyond all; 16: a shrink was begun; 32: cut off to a u16 more
// then, each behind the last one,
//   u8 kind % 4
//   0, 1  a record: u8 faults (1 magic, 2 salt, 4 position, 8 u64 bytes, 16 u64 pages, 32 not sealed, 64 a size: i16 to be added
//         to that of the file, or with 128 a u64), u8 pages % 8, for each u8 (from 0xf0 on a u64 follows) and u64 slices
//   2     u16 offset (in the headers; from 4096 on in the ring), u8 n, n bytes; later, over all
//   3     u8 header, u8 field, u64 value; sealed if told
#include "life.h"
#include "log.h"

#include <algorithm>

#include "ato.h"

namespace fuzz
{

namespace
{

enum Fault : uint8_t {
    NO_MAGIC = 1,
    NO_SALT = 2,
    NO_POSITION = 4,
    BYTES = 8,
    PAGES = 16,
    UNSEALED = 32,
    SIZED = 64,
    ANY_SIZE = 128
};
enum Told : uint8_t {
    SEAL_HEADER_A = 1,
    SEAL_HEADER_B = 2,
    B_OLDER = 4,
    FAR = 8,
    SHRUNK = 16,
    CUT = 32
};
constexpr uint8_t IN_ORDER = SEAL_HEADER_A | SEAL_HEADER_B;

struct Edit {
    uint64_t at;
    Bytes bytes;
};

// A log as the input describes it, in a file of `size` bytes.
class Draft
{
  public:
    Draft(Input &in, uint64_t size) : size_(size)
    {
        ring_.resize((1 + in.u8() % 64) * PAGE);
        salt_ = in.u64();
        origin_ = in.u16() * 64ull;
        start_ = origin_ + in.u16() * 64ull;
        told = in.u8();
        if (told & FAR)
            start_ += 1ull << 62;
        length_ = RING + ring_.size();
        if (told & CUT)
            length_ = in.u16() * 5ull;
        header(0, 4, start_);
        header(HEADER_B, told & B_OLDER ? 3 : 5, start_);
        uint64_t position = start_;
        std::vector<Edit> edits;
        for (int i = 0; in.more() && i < 24; i++)
            switch (in.u8() % 4) {
            case 2: {
                const uint64_t at = in.u16();
                edits.push_back({at, in.bytes(in.u8() % 80)});
                break;
            }
            case 3: {
                const uint64_t copy = in.u8() & 1 ? HEADER_B : 0, field = in.u8() % 7;
                put(head_, copy + field * 8, 8, in.u64());
                break;
            }
            default:
                position = record(in, position);
            }
        for (uint64_t copy : {uint64_t{0}, HEADER_B})
            if (told & (copy ? SEAL_HEADER_B : SEAL_HEADER_A))
                seal_log(head_, copy, HEADER, 12);
        for (const Edit &e : edits)
            for (size_t i = 0; i < e.bytes.size(); i++) {
                const uint64_t at = e.at + i;
                (at < RING ? head_[at] : ring_[(at - RING) % ring_.size()]) = e.bytes[i];
            }
    }

    Image image() const
    {
        Image image;
        image.type = S_IFREG;
        image.size = length_;
        image.write(0, head_.data(), head_.size());
        image.write(RING, ring_.data(), ring_.size());
        image.pages.erase(image.pages.lower_bound((length_ + PAGE - 1) / PAGE * PAGE),
                          image.pages.end());
        auto last = image.pages.find(length_ / PAGE * PAGE);
        if (last != image.pages.end())
            std::fill(last->second.begin() + static_cast<long>(length_ % PAGE), last->second.end(),
                      0);
        for (auto at = image.pages.begin(); at != image.pages.end();)
            at = at->second == Bytes(PAGE) ? image.pages.erase(at) : std::next(at);
        return image;
    }

    uint8_t told;

  private:
    void header(uint64_t copy, uint64_t edition, uint64_t start)
    {
        put(head_, copy, 8, LOG_MAGIC_WORD);
        put(head_, copy + 8, 4, 1);
        put(head_, copy + 16, 8, edition);
        put(head_, copy + 24, 8, salt_);
        put(head_, copy + 32, 8, ring_.size());
        put(head_, copy + 40, 8, origin_);
        put(head_, copy + 48, 8, start);
    }
    uint64_t record(Input &in, uint64_t position)
    {
        const uint8_t faults = in.u8();
        const uint64_t pages = in.u8() % 8;
        Bytes r(RECORD + (16 * pages + 63) / 64 * 64);
        uint64_t size = NO_SIZE;
        if (faults & SIZED)
            size = faults & ANY_SIZE
                       ? in.u64()
                       : size_ + static_cast<uint64_t>(static_cast<int16_t>(in.u16()));
        const uint64_t bytes = faults & BYTES ? in.u64() : 0,
                       many = faults & PAGES ? in.u64() : pages;
        for (uint64_t i = 0; i < pages; i++) {
            const uint8_t page = in.u8();
            put(r, RECORD + 16 * i, 8, page < 0xf0 ? page : in.u64());
            const uint64_t mask = in.u64();
            put(r, RECORD + 16 * i + 8, 8, mask);
            for (int n = __builtin_popcountll(mask) * 64; n; n--)
                r.push_back(
                    static_cast<unsigned char>(1 + (r.size() * 11 + position / 64 * 3) % 255));
        }
        put(r, 0, 8, RECORD_MAGIC ^ (faults & NO_MAGIC));
        put(r, 8, 8, salt_ ^ (faults & NO_SALT));
        put(r, 16, 8, position ^ (faults & NO_POSITION));
        put(r, 24, 8, faults & BYTES ? bytes : r.size());
        put(r, 32, 8, many);
        put(r, 40, 8, size);
        // Of what it says it has.
        const uint64_t said = std::min<uint64_t>(get(r, 24, 8), r.size());
        if (!(faults & UNSEALED) && said >= RECORD)
            seal_log(r, 0, said, 48);
        for (size_t i = 0; i < r.size(); i++)
            ring_[(position - origin_ + i) % ring_.size()] = r[i];
        return position + r.size();
    }

    Bytes head_ = Bytes(RING), ring_;
    uint64_t salt_, origin_, start_, size_, length_;
};

Seed with(const char *name, uint64_t shape = 0, uint64_t told = IN_ORDER, uint64_t pages = 16,
          uint64_t start = 0, uint64_t uses = 0x10)
{
    return Seed(name).u16(shape).u8(uses).u8(pages - 1).u64(0x5a17).u16(3).u16(start).u8(told);
}

// A record of one page.
Seed record(Seed s, uint64_t faults, uint64_t page, uint64_t slices)
{
    return s.u8(0).u8(faults).u8(1).u8(page).u64(slices);
}

} // namespace

std::vector<Seed> seeds()
{
    std::vector<Seed> all;
    auto add = [&all](const char *name, Seed s) {
        s.name = name;
        all.push_back(std::move(s));
    };
    for (unsigned state = 0; state < 4; state++)
        add(("state-" + std::to_string(state)).c_str(), record(with("", state), 0, 1, 0xff));
    for (unsigned kind = 1; kind < 7; kind++)
        add(("kind-" + std::to_string(kind)).c_str(), with("", kind << 11));
    add("empty", with(""));
    add("bare", record(with("", 32), 0, 1, 0xff));
    add("bare-empty", with("", 32));
    add("guarded", record(with("", 8), 0, 0, 1));
    add("unborn", with("", 128));
    add("header-a", record(with("", 0, SEAL_HEADER_A), 0, 1, 3));
    add("header-b", record(with("", 0, SEAL_HEADER_B), 0, 1, 3));
    add("b-older", record(with("", 0, IN_ORDER | B_OLDER), 0, 1, 3));
    add("no-header", record(with("", 0, 0), 0, 1, 3));
    add("no-header-unused", with("", 0, 0));
    add("no-header-file-preferred", record(with("", 0, 0, 16, 0, 4), 0, 1, 3));
    add("far", record(with("", 0, IN_ORDER | FAR), 0, 1, 3));
    add("cut", record(with("", 0, IN_ORDER | CUT), 0, 1, 3));
    add("around", record(record(with("", 0, IN_ORDER, 1, 60), 0, 1, ~0ull >> 40), 0, 2, 15));
    add("whole-ring", record(with("", 0, IN_ORDER, 2, 5), 0, 1, ~0ull));
    add("longer-than-the-ring", record(with("", 0, IN_ORDER, 1), 0, 1, ~0ull));
    add("same-slices", record(record(record(with(""), 0, 2, 6), 0, 2, 12), 0, 2, 24));
    add("torn", record(record(record(with(""), 0, 1, 1), UNSEALED, 2, 1), 0, 3, 1));
    add("magic", record(with(""), NO_MAGIC, 1, 1));
    add("salt", record(record(with(""), 0, 1, 1), NO_SALT, 2, 1));
    add("position", record(record(with(""), 0, 1, 1), NO_POSITION, 2, 1));
    add("no-slices", record(with(""), 0, 1, 0));
    add("beyond-the-end", record(with(""), 0, 6, ~0ull));
    add("page-beyond", record(with(""), 0, 200, 1));
    add("page-far", record(with("").u8(0).u8(0).u8(1).u8(0xf0).u64(1ull << 40).u64(1), 0, 1, 1));
    add("page-of-none", record(with("").u8(0).u8(0).u8(1).u8(0xf0).u64(~0ull).u64(1), 0, 1, 1));
    for (uint64_t bytes : {uint64_t{0}, uint64_t{64}, uint64_t{1} << 20, ~uint64_t{63}})
        add(("bytes-" + std::to_string(bytes)).c_str(),
            with("").u8(0).u8(BYTES).u8(1).u64(bytes).u8(1).u64(3));
    for (uint64_t pages : {uint64_t{0}, uint64_t{2}, uint64_t{1} << 60, ~uint64_t{0}})
        add(("pages-" + std::to_string(pages)).c_str(),
            with("").u8(0).u8(PAGES).u8(1).u64(pages).u8(1).u64(3));
    add("no-pages", with("").u8(0).u8(0).u8(0));
    add("many-pages", with("")
                          .u8(0)
                          .u8(0)
                          .u8(7)
                          .u8(0)
                          .u64(1)
                          .u8(1)
                          .u64(3)
                          .u8(2)
                          .u64(5)
                          .u8(3)
                          .u64(9)
                          .u8(4)
                          .u64(17)
                          .u8(5)
                          .u64(33)
                          .u8(6)
                          .u64(1));
    add("size", with("").u8(0).u8(SIZED).u8(0).u16(0));
    add("size-less", with("").u8(0).u8(SIZED).u8(0).u16(0xff00));
    add("size-most", with("").u8(0).u8(SIZED | ANY_SIZE).u8(0).u64(MOST_BYTES));
    add("size-too-much", with("").u8(0).u8(SIZED | ANY_SIZE).u8(0).u64(MOST_BYTES + 1));
    add("growth-cut", with("", 16));
    add("growth-committed", with("", 16).u8(0).u8(SIZED).u8(1).u16(0).u8(7).u64(~0ull));
    add("growth-committed-in-part",
        with("", 16).u8(0).u8(SIZED).u8(1).u16(0xff00).u8(7).u64(~0ull));
    add("shrink-cut", record(with("", 0, IN_ORDER | SHRUNK), 0, 6, 1));
    add("shrink-committed",
        record(with("", 0, IN_ORDER | SHRUNK), 0, 6, 1).u8(0).u8(SIZED).u8(0).u16(0xf000));
    add("raw-header", with("").u8(2).u16(20).u8(4).text("abcd"));
    add("raw-record", record(with(""), 0, 1, 3).u8(2).u16(4096 + 300).u8(4).text("abcd"));
    add("capacity-too-large", with("").u8(3).u8(1).u8(4).u64(17 * PAGE));
    add("capacity-odd", with("").u8(3).u8(1).u8(4).u64(PAGE + 64));
    add("no-capacity", with("").u8(3).u8(1).u8(4).u64(0));
    add("start-odd", with("").u8(3).u8(1).u8(6).u64(65));
    add("start-before-origin", with("").u8(3).u8(1).u8(6).u64(64));
    add("last-start", with("").u8(3).u8(1).u8(6).u64(~63ull));
    add("last-edition", with("").u8(3).u8(1).u8(2).u64(~0ull));
    add("version", with("").u8(3).u8(1).u8(1).u64(2).u8(3).u8(0).u8(1).u64(2));
    return all;
}

} // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    using namespace fuzz;
    static World world;
    Bytes input(bytes, bytes + n);
    input.resize(std::max<size_t>(n, 2));
    input[0] |= 64;
    input[1] &= 0x38;
    Input in(input.data(), input.size());
    world.begin(in);
    Uses uses = uses_from(in);
    uses.domain = ATO_DOMAIN_DISK;
    Paired &file = world.file;
    const Draft draft(in, file.content.size());
    file.log(draft.image());
    if (draft.told & SHRUNK)
        put(file.manifest, SHRINK_WORD, 8, size_word(file.content.size()));
    world.lay_out();
    // A process that used the log last has left the size to it.
    const LogSays says = read_log(file.reflection_kind == Kind::FILE ? file.reflection : Image());
    Replay replay;
    const Holding held = holding(file.manifest);
    if (says.size != NO_SIZE && held.field(STATE, 4) == IN_USE)
        replay[file.name() + ".manifest"] = {{SIZE_WORD, size_word(says.size)}};
    live(world, uses, replay);
    return 0;
}
