// SPDX-License-Identifier: BSD-3-Clause
//
// What may lie in a manifest? Any bytes of any length, in records that are sealed or not; or no file.
//
// Input: the world (world.cc), uses (life.cc), u8 repairs, u16 length (0: 12288), then edits:
//   u8 kind, and by kind % 4
//   0, 3  u8 field, u64 value   a field of copy A, or of B where bit 7 of `field` is set
//   1     u16 offset, u8 n, n bytes
//   2     u8 which              one copy over the other (0, 1), or zeros over one (2, 3)
#include "life.h"

namespace fuzz
{

namespace
{

struct Named {
    size_t at;
    unsigned width;
};
const Named fields[] = {{MAGIC, 8},
                        {VERSION, 4},
                        {FORMAT, 4},
                        {DOMAIN, 4},
                        {STATE, 4},
                        {SEQUENCE, 8},
                        {ID, 8},
                        {ID + 8, 8},
                        {INODE, 8},
                        {DEVICE, 8},
                        {BIRTH_SEC, 8},
                        {BIRTH_NSEC, 4},
                        {GENERATION, 4},
                        {KNOWN, 4},
                        {SLOTS, 4},
                        {CLEAN_SIZE, 8},
                        {CLEAN_SEC, 8},
                        {CLEAN_NSEC, 8},
                        {BOOT, 8},
                        {SHM_GENERATION, 8},
                        {GUARD_OFFSET, 8},
                        {GUARD_BYTES, 4},
                        {GUARD_BYTES + 4, 4},
                        {GUARD_PLAIN, 8},
                        {GUARD_PLAIN + 8, 8},
                        {GUARDED, 8},
                        {GUARDED + 8, 8},
                        {OWN_INODE, 8},
                        {CHECKSUM, 8},
                        {SIZE_WORD, 8},
                        {GROWTH_WORD, 8},
                        {SHRINK_WORD, 8}};
constexpr size_t FIELDS = sizeof(fields) / sizeof(fields[0]);

uint64_t index_of(size_t at)
{
    uint64_t i = 0;
    while (fields[i].at != at)
        i++;
    return i;
}

void edit(Bytes &m, Input &in)
{
    switch (in.u8() % 4) {
    default: {
        uint8_t which = in.u8();
        const Named &f = fields[(which & 127) % FIELDS];
        put(m, f.at + (which & 128 && f.at < COPY_B ? COPY_B : 0), f.width, in.u64());
        return;
    }
    case 1: {
        size_t at = in.u16() % MANIFEST;
        Bytes bytes = in.bytes(in.u8() % 64);
        for (size_t i = 0; i < bytes.size() && at + i < m.size(); i++)
            m[at + i] = bytes[i];
        return;
    }
    case 2: {
        unsigned which = in.u8() & 3;
        size_t to = which & 1 ? COPY_B : 0;
        Bytes from(&m[COPY_B - to], &m[COPY_B - to] + 512);
        if (which & 2)
            from.assign(512, 0);
        std::copy(from.begin(), from.end(), m.begin() + static_cast<long>(to));
    }
    }
}

constexpr uint8_t ALL = SEAL_A | SEAL_B | DOOR;

Seed with(const char *name, uint64_t shape, uint64_t uses, uint64_t repairs = ALL,
          uint64_t length = 0)
{
    return Seed(name).u16(shape).u8(uses).u8(repairs).u16(length);
}

Seed field(const char *name, uint64_t shape, size_t at, uint64_t value, uint64_t repairs = ALL)
{
    return with(name, shape, 0, repairs).u8(0).u8(index_of(at) | 128).u64(value);
}

} // namespace

std::vector<Seed> seeds()
{
    std::vector<Seed> all;
    for (unsigned state = 0; state < 4; state++) {
        std::string s = std::to_string(state);
        all.push_back(with(("state-" + s).c_str(), state, 0x10));
        all.push_back(with(("guard-" + s).c_str(), state | 8, 0x01));
        all.push_back(with(("bare-" + s).c_str(), state | 32, 0x02));
        all.push_back(with(("growth-cut-" + s).c_str(), state | 16, 0x11));
    }
    for (unsigned kind = 1; kind < 7; kind++)
        all.push_back(with(("kind-" + std::to_string(kind)).c_str(), kind << 8, 0));
    all.push_back(with("two-chunks", TWO_CHUNKS, 0x10));
    all.push_back(with("growth-cut-two-chunks", TWO_CHUNKS | 16, 0x10));
    all.push_back(with("bare-growth-cut-reflection-of-the-other", 5 << 11 | 64 | 32 | 16, 4));
    all.push_back(with("unborn", 128 | 32, 0));
    all.push_back(with("unborn-with-attribute", 128, 0));
    all.push_back(with("unborn-preferred", 128, 4));
    all.push_back(with("preferred-file", 1, 4, ALL).u8(0).u8(index_of(CLEAN_SEC) | 128).u64(1));
    all.push_back(
        with("preferred-reflection", 1, 8, ALL).u8(0).u8(index_of(CLEAN_SEC) | 128).u64(1));
    all.push_back(with("journal", 0, 0xe0));
    all.push_back(with("short", 0, 0, ALL, 8192));
    all.push_back(with("half-a-record", 0, 0, ALL, 300));
    all.push_back(with("long", 0, 0, ALL, 60000));
    all.push_back(with("born-bytes", 0, 0, ALL, BORN_MANIFEST));
    all.push_back(
        with("long-of-another-boot", 0, 0, ALL, 60000).u8(0).u8(index_of(BOOT) | 128).u64(1));
    all.push_back(field("unsealed", 0, STATE, CLEAN, 0));
    all.push_back(field("version", 0, VERSION, 3, SEAL_B));
    all.push_back(field("version-1", 0, VERSION, 1, SEAL_B));
    all.push_back(field("sparse", 0, FORMAT, 1)); // and the reflection is not
    all.push_back(field("sparse-without-slices", 64, FORMAT, 1));
    all.push_back(field("dense-and-it-is-sparse", SPARSE_FILE, FORMAT, 0));
    all.push_back(field("no-format", SPARSE_FILE, FORMAT, 2));
    for (unsigned state = 0; state < 4; state++)
        all.push_back(
            with(("sparse-state-" + std::to_string(state)).c_str(), SPARSE_FILE | state, 0x10));
    all.push_back(with("sparse-growth-cut", SPARSE_FILE | 16, 0x11));
    all.push_back(with("sparse-unborn", SPARSE_FILE | 128, 4));
    all.push_back(field("domain", 0, DOMAIN, 3));
    all.push_back(field("no-domain", 0, DOMAIN, 5));
    all.push_back(field("last-sequence", 0, SEQUENCE, UINT64_MAX));
    all.push_back(field("last-sequence-clean", 1, SEQUENCE, UINT64_MAX));
    all.push_back(field("last-sequence-but-one", 1, SEQUENCE, UINT64_MAX - 1));
    all.push_back(field("other-id", 0, ID, 1));
    all.push_back(field("other-inode", 32, INODE, 1));
    all.push_back(field("other-birth", 32, BIRTH_SEC, 1));
    all.push_back(field("knows-nothing", 32, KNOWN, 0));
    for (unsigned uses : {0, 4, 8}) // a restored file, with and without its attribute
        for (unsigned shape : {0, 1, 32, 33})
            all.push_back(
                with(("restored-" + std::to_string(shape) + "-" + std::to_string(uses)).c_str(),
                     shape, uses)
                    .u8(0)
                    .u8(index_of(BIRTH_SEC) | 128)
                    .u64(1)
                    .u8(0)
                    .u8(index_of(OWN_INODE) | 128)
                    .u64(1));
    for (unsigned uses : {0, 4, 8}) // overwritten, where the file has the plain byte
        for (unsigned shape : {0, 1})
            all.push_back(
                with(("mask-first-" + std::to_string(shape) + "-" + std::to_string(uses)).c_str(),
                     shape | 8, uses)
                    .u8(0)
                    .u8(index_of(GUARD_BYTES + 4) | 128)
                    .u64(1));
    all.push_back(with("mask-first-of-another-plain-byte", 1 | 8, 4)
                      .u8(0)
                      .u8(index_of(GUARD_BYTES + 4) | 128)
                      .u64(1)
                      .u8(0)
                      .u8(index_of(GUARD_PLAIN) | 128)
                      .u64(0x92));
    all.push_back(field("guard-too-long", 2 | 8, GUARD_BYTES, 17));
    all.push_back(field("guard-huge", 2 | 8, GUARD_BYTES, 0xffffffff));
    all.push_back(field("guard-far", 2 | 8, GUARD_OFFSET, MOST_BYTES));
    all.push_back(field("guard-at-a-page", 2 | 8, GUARD_OFFSET, 4095));
    all.push_back(field("guard-at-the-end", 8, GUARD_OFFSET, 6 * PAGE + 99));
    all.push_back(field("not-guarded", 2 | 8, GUARDED, 0x4242));
    all.push_back(field("size", 0, SIZE_WORD, 100, ALL | SIZES));
    all.push_back(field("no-size", 0, SIZE_WORD, 100));
    all.push_back(field("size-most", 0, SIZE_WORD, MOST_BYTES, ALL | SIZES));
    all.push_back(field("size-too-much", 0, SIZE_WORD, MOST_BYTES + 1, ALL | SIZES));
    all.push_back(field("growth", 16, GROWTH_WORD, 1, ALL | SIZES));
    for (uint64_t size : {uint64_t(0), uint64_t(100), 6 * PAGE}) {
        // The file is cut to this or not: it has 6 pages and 100 bytes.
        auto shrunk = [size](const char *name, uint64_t shape, uint64_t from) {
            return field((name + std::to_string(size)).c_str(), shape, SIZE_WORD, size, ALL | SIZES)
                .u8(0)
                .u8(index_of(SHRINK_WORD))
                .u64(from);
        };
        all.push_back(shrunk("shrink-cut-to-", 0, 6 * PAGE + 100));
        all.push_back(shrunk("sparse-shrink-cut-to-", SPARSE_FILE, 6 * PAGE + 100));
        all.push_back(shrunk("shrink-clean-to-", 1, 6 * PAGE + 100));
        all.push_back(shrunk("shrink-from-less-to-", 0, 6 * PAGE + 99));
        all.push_back(shrunk("shrink-from-most-to-", 0, MOST_BYTES));
        all.push_back(shrunk("shrink-and-growth-cut-to-", 16, 6 * PAGE + 100));
        all.push_back(shrunk("shrink-born-and-alone-to-", 3 | 1 << 11, 6 * PAGE + 100));
    }
    all.push_back(field("no-shrink", 0, SHRINK_WORD, 100));
    all.push_back(field("cut-to-nothing", 16, SIZE_WORD, 0, ALL | SIZES));
    all.push_back(with("raw", 0, 0).u8(1).u16(600).u8(4).text("abcd"));
    all.push_back(with("swapped", 0, 0).u8(2).u8(0));
    all.push_back(with("copy-b-gone", 0, 0, SEAL_A).u8(2).u8(3));
    all.push_back(with("nothing", 0, 0, 0).u8(2).u8(3).u8(2).u8(2));
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
    uint8_t repairs = in.u8();
    uint16_t length = in.u16();
    for (int i = 0; in.more() && i < 32; i++)
        edit(world.file.manifest, in);
    world.file.repair(repairs);
    if (length)
        world.file.manifest.resize(length);
    world.lay_out();
    live(world, uses);
    return 0;
}
