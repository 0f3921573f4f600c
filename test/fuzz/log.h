// SPDX-License-Identifier: BSD-3-Clause
//
// What does a log say? By reflection/FORMAT.md; shares no code with the library.
#ifndef ATO_TEST_FUZZ_LOG_H
#define ATO_TEST_FUZZ_LOG_H

#include "world.h"

namespace fuzz
{

constexpr uint64_t LOG_MAGIC_WORD = 0x474f4c4f5441, RECORD_MAGIC = 0x4345524f5441, RING = 4096,
                   HEADER_B = 512, HEADER = 56, RECORD = 64, NO_SIZE = ~0ull;
constexpr uint64_t MOST_PAGES = MOST_BYTES / PAGE;

uint32_t crc32c(const unsigned char *bytes, size_t n);

// Puts the checksum of a header, or of a record, into its place.
void seal_log(Bytes &b, size_t at, size_t n, size_t checksum);

struct LogSays {
    bool in_order = false;   // a header is valid
    bool is_empty = true;    // nothing was appended, as far as the first record and the ring tell
    uint64_t size = NO_SIZE; // of the last record that says one
    struct Slice {
        uint64_t at; // in the file
        Bytes bytes;
    };
    std::vector<Slice> slices; // in their order

    void apply(Bytes &content) const;
};
LogSays read_log(const Image &log);

} // namespace fuzz

#endif
