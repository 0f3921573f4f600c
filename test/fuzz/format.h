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
constexpr uint64_t MOST_BYTES = (1ull << 48) - PAGE;

uint64_t get(const Bytes &b, size_t at, unsigned width);
void put(Bytes &b, size_t at, unsigned width, uint64_t value);

constexpr uint64_t CHECKSUM_START = 0x61746f2d73756d31ull;
uint64_t checksum(const unsigned char *bytes, size_t n, uint64_t h = CHECKSUM_START);

// ---- reflection ----

constexpr uint64_t home_r(uint64_t o)
{
    return o + (o / PAGE / CHUNK_PAGES + 1) * PAGE;
}
constexpr uint64_t word_at(uint64_t page)
{
    return page / CHUNK_PAGES * (CHUNK_PAGES + 1) * PAGE + page % CHUNK_PAGES * 8;
}
constexpr uint64_t pages_of(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE;
}
constexpr uint64_t reflection_bytes(uint64_t original)
{
    return (pages_of(original) + (pages_of(original) + CHUNK_PAGES - 1) / CHUNK_PAGES) * PAGE;
}

// ---- manifest ----

constexpr size_t MANIFEST = 12288, BORN_MANIFEST = 28672, COPY_B = 4096, SIZE_WORD = 8192,
                 GROWTH_WORD = 8200, SHRINK_WORD = 8208;
constexpr uint64_t AREA = 16384, SLOT_LANES = 4, SLOT_LANE_BYTES = 4032; // of a slot
constexpr uint64_t area_at(uint64_t slot)
{
    return MANIFEST + slot * AREA;
}
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

// ---- journal ----

constexpr uint64_t JOURNAL_MAGIC_WORD = 0x4c414e52554f4a41ull;
constexpr uint64_t JOURNAL = 2 << 20, JOURNAL_MOST = 8ull << 30;

} // namespace fuzz

#endif
