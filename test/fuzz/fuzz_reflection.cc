// SPDX-License-Identifier: BSD-3-Clause
//
// What may a reflection be like? Of any length, with any words, of pages too that the file has not; or no
// file.
//
// Input: the world (world.cc), uses (life.cc), u8 kind of length, u64 value:
//   kind % 4: 0 as it should be; 1 that, and value as i16 more; 2 a power of two; 3 value
//   kind & 4: in 1 and 2, chunks, not bytes
// then words, each u16 place (those behind the 520th are of the third chunk on), if the reflection is sparse a page
// (u8; from 0xf0 on a u64 follows it), u64 value.
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
    auto sparse = [&all](const char *name, uint64_t kind = 0, uint64_t value = 0,
                         uint64_t shape = 0) -> Seed & {
        all.push_back(with(name, SPARSE_FILE | shape, 0x10, kind, value));
        return all.back();
    };
    for (unsigned state = 0; state < 4; state++)
        sparse(("sparse-state-" + std::to_string(state)).c_str(), 0, 0, state);
    sparse("sparse-new").bytes[2] = 0x90;
    sparse("sparse-journal", 0, 0, BOTH_SPARSE).bytes[2] = 0xf0;
    sparse("sparse-short", 1 | 4, 0xffff);
    sparse("sparse-short-by-one", 1, 0xffff);
    sparse("sparse-part-of-a-chunk", 1, 4096);
    sparse("sparse-longer", 1 | 4, 5);
    sparse("sparse-longest", 2 | 4, 40);
    sparse("sparse-two-bitmaps").u16(30).u8(0).u64(1);
    sparse("sparse-two-places").u16(30).u8(0).u64(0);
    sparse("sparse-place-for-a-page-without").u16(30).u8(2).u64(~0ull);
    sparse("sparse-bitmap-of-0").u16(3).u8(0).u64(0).u16(30).u8(0).u64(6);
    sparse("sparse-no-number").u16(5).u8(0).u64(0).u16(3).u8(1).u64(0);
    sparse("sparse-page-beyond").u16(30).u8(7).u64(1);
    sparse("sparse-page-beyond-of-0").u16(30).u8(7).u64(0);
    sparse("sparse-page-far").u16(30).u8(0xff).u64(1ull << 52).u64(1);
    sparse("sparse-page-last").u16(30).u8(0xff).u64(~0ull).u64(1);
    sparse("sparse-page-far-of-0").u16(30).u8(0xff).u64(~0ull).u64(0);
    sparse("sparse-last-chunk", 1 | 4, 3).u16(523).u8(2).u64(1);
    sparse("sparse-growth-cut", 0, 0, 16).u16(30).u8(7).u64(1);
    sparse("sparse-no-slice", 0, 0, 64).u16(30).u8(0xff).u64(~0ull).u64(1);
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
    const Format format = world.file.format;
    const uint8_t told = in.u8();
    const unsigned kind = told % 4;
    uint64_t value = in.u64(), unit = told & 4 ? chunk_bytes(format) : 1;
    if (kind == 1)
        r.size = (r.size + static_cast<uint64_t>(static_cast<int16_t>(value)) * unit) & INT64_MAX;
    else if (kind == 2)
        r.size = (1ull << value % (told & 4 ? 40 : 63)) * unit;
    else if (kind == 3)
        r.size = value & INT64_MAX;
    for (int i = 0; in.more() && i < 64; i++) {
        uint64_t place = in.u16(), page = format == SPARSE ? in.u8() : 0;
        if (place > 520)
            place = (place - 519) * entries_of(format);
        const uint64_t at = word_at(format, place);
        if (format == SPARSE)
            r.set_word(at - 8, page < 0xf0 ? page : in.u64());
        r.set_word(at, in.u64());
    }
    world.lay_out();
    r = image_at(world.folder_fd, world.file.name()); // as far as the file system takes it
    live(world, uses);
    return 0;
}
