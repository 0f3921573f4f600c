// SPDX-License-Identifier: BSD-3-Clause
//
// What may a reflection be like? Of any length, with any words, of pages too that the file has not; or no
// file.
//
// Input: the world (world.cc), uses (life.cc), u8 kind of length, u64 value:
//   kind % 4: 0 as it should be; 1 that, and value as i16 more; 2 a power of two; 3 value
// then words, each u16 page (those behind the 520th are of the third chunk on), u64 value.
#include "life.h"

namespace fuzz
{

static Seed with(const char *name, uint64_t shape, uint64_t uses, uint64_t kind = 0,
                 uint64_t value = 0)
{
    return Seed(name).u16(shape).u8(uses).u8(kind).u64(value);
}

std::vector<Seed> seeds()
{
    std::vector<Seed> all;
    for (unsigned kind = 1; kind < 7; kind++)
        all.push_back(with(("kind-" + std::to_string(kind)).c_str(), kind << 11, 0));
    for (unsigned state = 0; state < 4; state++)
        all.push_back(with(("state-" + std::to_string(state)).c_str(), state, 0x10));
    all.push_back(with("short-by-one", 0, 0, 1, 0xffff));
    all.push_back(with("long-by-one", 0, 0x10, 1, 1));
    all.push_back(with("longer", 0, 0x10, 1, 0x7fff));
    all.push_back(with("empty", 0, 0, 3, 0));
    all.push_back(with("one-page", 0, 0, 3, 4096));
    all.push_back(with("huge", 0, 0x10, 2, 50));
    all.push_back(with("longest", 0, 0, 2, 62));
    all.push_back(with("two-chunks", TWO_CHUNKS, 0x10));
    all.push_back(with("two-chunks-short", TWO_CHUNKS, 0, 1, 0xf000));
    all.push_back(with("all-words", 64, 0x01).u16(0).u64(~0ull).u16(5).u64(~0ull).u16(6).u64(3));
    all.push_back(with("beyond-the-last-slice", 0, 0x10).u16(6).u64(~0ull));
    all.push_back(with("beyond-the-last-page", 0, 0x10).u16(7).u64(1));
    all.push_back(with("of-another-chunk", 0, 0x10, 2, 22).u16(513).u64(1));
    all.push_back(with("far-away", 0, 0x10, 2, 40).u16(0xffff).u64(1));
    all.push_back(with("no-refpage", 64, 0).u16(2).u64(0xff));
    all.push_back(with("growth-cut", 16, 0x10).u16(7).u64(1));
    all.push_back(with("no-slice-file-preferred", 6 << 8 | 64, 0x04));
    all.push_back(with("slices-file-preferred", 6 << 8, 0x04));
    all.push_back(with("journal", 0, 0xe0).u16(1).u64(0x55));
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
    Image &r = world.file.reflection;
    unsigned kind = in.u8() % 4;
    uint64_t value = in.u64();
    if (kind == 1)
        r.size += static_cast<uint64_t>(static_cast<int16_t>(value));
    else if (kind == 2)
        r.size = 1ull << value % 63;
    else if (kind == 3)
        r.size = value & INT64_MAX;
    for (int i = 0; in.more() && i < 64; i++) {
        uint64_t page = in.u16();
        if (page > 520)
            page = (page - 519) * CHUNK_PAGES;
        r.set_word(word_at(page), in.u64());
    }
    world.lay_out();
    r = image_at(world.folder_fd, world.file.name()); // as far as the file system takes it
    live(world, uses);
    return 0;
}
