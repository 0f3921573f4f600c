// SPDX-License-Identifier: BSD-3-Clause
#include "format.h"

#include <algorithm>

namespace fuzz
{

uint64_t get(const Bytes &b, size_t at, unsigned width)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < width && at + i < b.size(); i++)
        value |= static_cast<uint64_t>(b[at + i]) << 8 * i;
    return value;
}

void put(Bytes &b, size_t at, unsigned width, uint64_t value)
{
    for (unsigned i = 0; i < width && at + i < b.size(); i++)
        b[at + i] = static_cast<unsigned char>(value >> 8 * i);
}

uint64_t checksum(const unsigned char *bytes, size_t n, uint64_t h)
{
    for (size_t at = 0; at + 8 <= n; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, 8);
        h = (h ^ word) * 0x9fb21c651e98df25ull;
        h ^= h >> 29;
    }
    return h;
}

uint64_t size_word(uint64_t size)
{
    unsigned crc = 0xffff;
    size &= (1ull << 48) - 1;
    for (int bit = 47; bit >= 0; bit--) {
        bool out = (crc >> 15 & 1) != (size >> bit & 1);
        crc = (crc << 1 & 0xffff) ^ (out ? 0x1021 : 0);
    }
    return size | static_cast<uint64_t>(crc) << 48;
}

bool size_of(uint64_t word, uint64_t *size)
{
    *size = word & ((1ull << 48) - 1);
    return size_word(*size) == word && *size <= MOST_BYTES;
}

void seal(Bytes &manifest, size_t copy)
{
    if (copy + 512 <= manifest.size())
        put(manifest, copy + CHECKSUM, 8, checksum(&manifest[copy], CHECKSUM));
}

Holding holding(const Bytes &manifest)
{
    Bytes whole = manifest;
    whole.resize(MANIFEST);
    Holding result;
    result.record.resize(512);
    bool foreign = false;
    for (size_t at : {size_t{0}, COPY_B}) {
        const Bytes copy(&whole[at], &whole[at] + 512);
        auto field = [&copy](Field f, unsigned width) { return get(copy, f, width); };
        if (field(MAGIC, 8) != MANIFEST_MAGIC_WORD ||
            field(CHECKSUM, 8) != checksum(copy.data(), CHECKSUM))
            continue;
        foreign |= field(VERSION, 4) != 3;
        if (field(VERSION, 4) != 3 || (field(FORMAT, 4) > SPARSE && field(FORMAT, 4) != LOG) ||
            field(DOMAIN, 4) - 1 > 3 || field(STATE, 4) - 2 > 2 || field(GUARD_BYTES, 4) > 16 ||
            field(GUARD_OFFSET, 8) > MOST_BYTES || field(CLEAN_SIZE, 8) > MOST_BYTES)
            continue;
        uint64_t later = field(SEQUENCE, 8) - result.field(SEQUENCE, 8); // than A
        if (result.found == Holding::VALID && (later == 0 || later >> 63))
            continue;
        result.found = Holding::VALID;
        result.at = at;
        result.record = copy;
    }
    auto zeros = [&whole](size_t from, size_t to) {
        return std::all_of(&whole[from], &whole[0] + to, [](auto x) { return x == 0; });
    };
    bool unused = manifest.size() == MANIFEST || manifest.size() == BORN_MANIFEST
                      ? zeros(512, SIZE_WORD) && zeros(SIZE_WORD + 24, MANIFEST)
                      : manifest.size() < MANIFEST && zeros(0, MANIFEST);
    if (foreign)
        result.found = Holding::FOREIGN;
    else if (result.found != Holding::VALID && unused)
        result.found = Holding::UNBORN;
    return result;
}

bool parse(const std::string &value, Attribute &a)
{
    static const std::string hex = "0123456789abcdef", digits = "0123456789";
    if (value.size() < 38 || value.compare(0, 5, "ato1 ") != 0 || value[37] != ' ')
        return false;
    a.id.assign(16, 0);
    for (size_t i = 0; i < 32; i++) {
        size_t digit = value[5 + i] ? hex.find(value[5 + i]) : std::string::npos;
        if (digit == std::string::npos)
            return false;
        a.id[i / 2] = static_cast<unsigned char>(a.id[i / 2] << 4 | digit);
    }
    size_t end = value.find_first_not_of(digits, 38);
    if (end == std::string::npos || end == 38 || value[end] != ' ')
        return false;
    if (value[38] == '0' && end != 39) // nobody writes it so
        return false;
    __extension__ unsigned __int128 inode = 0;
    for (size_t i = 38; i < end; i++) {
        inode = inode * 10 + static_cast<unsigned>(value[i] - '0');
        if (inode > UINT64_MAX)
            return false;
    }
    a.inode = static_cast<uint64_t>(inode);
    a.folder = value.substr(end + 1);
    return !a.folder.empty() && a.folder.size() < 4096 && a.folder.find('\0') == std::string::npos;
}

} // namespace fuzz
