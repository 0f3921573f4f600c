// SPDX-License-Identifier: BSD-3-Clause
//
// The bytes of the format, by reflection/FORMAT.md: shares no code with the library, so that a check that the
// library lacks is noticed.
#ifndef ATO_TEST_FUZZ_FORMAT_H
#define ATO_TEST_FUZZ_FORMAT_H

#include "input.h"

namespace fuzz
{

constexpr uint64_t PAGE = 4096, SLICE = 64, CHUNK_PAGES = 512;
enum Format : uint32_t { DENSE, SPARSE, LOG = 3 };
constexpr uint64_t MOST_BYTES = (1ull << 48) - PAGE;

uint64_t get(const Bytes &b, size_t at, unsigned width);
void put(Bytes &b, size_t at, unsigned width, uint64_t value);

constexpr uint64_t CHECKSUM_START = 0x61746f2d73756d31ull;
uint64_t checksum(const unsigned char *bytes, size_t n, uint64_t h = CHECKSUM_START);

// ---- reflection ----

// Entries of a meta page, and bytes of each. The word is in the last 8.
constexpr uint64_t entries_of(Format f)
{
    return f == DENSE ? CHUNK_PAGES : 256;
}
constexpr uint64_t entry_bytes(Format f)
{
    return PAGE / entries_of(f);
}
constexpr uint64_t chunk_bytes(Format f)
{
    return (1 + entries_of(f)) * PAGE;
}
constexpr uint64_t PLACES = 1ull << 26; // of a sparse reflection
constexpr uint64_t ref_page(Format f, uint64_t place)
{
    return place / entries_of(f) * chunk_bytes(f) + (1 + place % entries_of(f)) * PAGE;
}
constexpr uint64_t word_at(Format f, uint64_t place)
{
    return place / entries_of(f) * chunk_bytes(f) + (place % entries_of(f) + 1) * entry_bytes(f) -
           8;
}
constexpr uint64_t pages_of(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE;
}
constexpr uint64_t reflection_bytes(Format f, uint64_t original)
{
    const uint64_t pages = pages_of(original), chunks = (pages + entries_of(f) - 1) / entries_of(f);
    if (f == DENSE)
        return (pages + chunks) * PAGE;
    return pages ? (chunks + 1) * chunk_bytes(f) : 0;
}
// Is the offset, a multiple of 8, that of a word whose RefPage lies in a reflection of `bytes` bytes?
constexpr bool has_word(Format f, uint64_t offset, uint64_t bytes)
{
    const uint64_t in = offset % chunk_bytes(f);
    return in < PAGE && in % entry_bytes(f) == entry_bytes(f) - 8 &&
           offset - in + (in / entry_bytes(f) + 2) * PAGE <= bytes;
}

// ---- manifest ----

constexpr size_t MANIFEST = 12288, BORN_MANIFEST = 28672, COPY_B = 4096, SIZE_WORD = 8192,
                 GROWTH_WORD = 8200, SHRINK_WORD = 8208;
constexpr uint64_t AREA = 16384, SLOT_LANES = 4, SLOT_LANE_BYTES = 4096; // of a slot
constexpr uint64_t area_at(uint64_t slot)
{
    return MANIFEST + slot * AREA;
}
constexpr uint64_t LONG_LANE = MANIFEST + 1024 * AREA;
constexpr uint64_t MANIFEST_MAGIC_WORD = 0x545345464e414d41ull;
enum State : uint32_t { IN_USE = 2, CLEAN, DEPLOYED };
enum Known : uint32_t { KNOWS_BIRTH = 1, KNOWS_GENERATION = 2, KNOWS_ATTRIBUTE = 4 };

// Offsets of the fields of a record.
enum Field : size_t {
    MAGIC = 0,
    VERSION = 8,
    FORMAT = 12,
    DOMAIN = 16,
    STATE = 20,
    SEQUENCE = 24,
    ID = 32,
    INODE = 48,
    DEVICE = 56,
    BIRTH_SEC = 64,
    BIRTH_NSEC = 72,
    GENERATION = 76,
    KNOWN = 80,
    SLOTS = 84,
    CLEAN_SIZE = 88,
    CLEAN_SEC = 96,
    CLEAN_NSEC = 104,
    BOOT = 112,
    SHM_GENERATION = 128,
    GUARD_OFFSET = 136,
    GUARD_BYTES = 144,
    GUARD_PLAIN = 152,
    GUARDED = 168,
    OWN_INODE = 184,
    CHECKSUM = 504,
};

// The size in the manifest: the word; false if it has none.
uint64_t size_word(uint64_t size);
bool size_of(uint64_t word, uint64_t *size);

void seal(Bytes &manifest, size_t copy); // its checksum

struct Holding {
    enum { VALID, UNBORN, DAMAGED, FOREIGN } found = DAMAGED;
    size_t at = 0; // the valid copy, when VALID
    Bytes record;  // its 512 bytes, zeros otherwise
    uint64_t field(Field f, unsigned width) const
    {
        return get(record, f, width);
    }
};

Holding holding(const Bytes &manifest);

// ---- attribute ----

struct Attribute {
    Bytes id;
    uint64_t inode = 0;
    std::string folder;
};
bool parse(const std::string &value, Attribute &a);

} // namespace fuzz

#endif
