// SPDX-License-Identifier: BSD-3-Clause
#include "log.h"

#include <algorithm>

namespace fuzz
{

uint32_t crc32c(const unsigned char *bytes, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0); // 0x1edc6f41, reflected
    }
    return ~crc;
}

void seal_log(Bytes &b, size_t at, size_t n, size_t checksum)
{
    put(b, at + checksum, 4, 0);
    put(b, at + checksum, 4, crc32c(&b[at], n));
}

static bool is_sealed(Bytes b, size_t checksum)
{
    const uint64_t is = get(b, checksum, 4);
    seal_log(b, 0, b.size(), checksum);
    return is == get(b, checksum, 4);
}

namespace
{

struct Header {
    uint64_t edition, salt, capacity, origin, start;
};

bool header_at(const Image &log, uint64_t at, Header &h)
{
    const Bytes b = log.bytes(at, HEADER);
    h = {get(b, 16, 8), get(b, 24, 8), get(b, 32, 8), get(b, 40, 8), get(b, 48, 8)};
    return get(b, 0, 8) == LOG_MAGIC_WORD && get(b, 8, 4) == 1 && is_sealed(b, 12) && h.capacity &&
           h.capacity % RING == 0 && log.size > RING && h.capacity <= log.size - RING &&
           h.origin % 64 == 0 && h.start % 64 == 0 && h.start >= h.origin && h.start < 1ull << 62;
}

struct Ring {
    const Image &log;
    const Header &h;
    Bytes bytes(uint64_t position, uint64_t n) const
    {
        const uint64_t in = (position - h.origin) % h.capacity,
                       first = std::min(n, h.capacity - in);
        Bytes b = log.bytes(RING + in, first), rest = log.bytes(RING, n - first);
        b.insert(b.end(), rest.begin(), rest.end());
        return b;
    }
    bool begins(uint64_t position, const Bytes &r) const
    {
        return get(r, 0, 8) == RECORD_MAGIC && get(r, 8, 8) == h.salt && get(r, 16, 8) == position;
    }
};

// Returns the bytes of the record at a position, of at most `most`; 0 if none is valid.
uint64_t take(const Ring &ring, uint64_t position, uint64_t most, LogSays &says)
{
    const Bytes head = ring.bytes(position, RECORD);
    const uint64_t n = get(head, 24, 8), pages = get(head, 32, 8), size = get(head, 40, 8);
    if (most < RECORD || !ring.begins(position, head) || n > most || n < RECORD || pages > n / 16 ||
        (size != NO_SIZE && size > MOST_BYTES))
        return 0;
    const Bytes all = ring.bytes(position, n);
    std::vector<LogSays::Slice> slices;
    uint64_t at = RECORD + (16 * pages + 63) / 64 * 64;
    for (uint64_t i = 0; i < pages; i++) {
        const uint64_t page = get(all, RECORD + 16 * i, 8), mask = get(all, RECORD + 16 * i + 8, 8);
        if (page >= MOST_PAGES)
            return 0;
        for (uint64_t slice = 0; slice < 64; slice++)
            if (mask >> slice & 1) {
                if (at + SLICE > n)
                    return 0;
                const auto from = all.begin() + static_cast<long>(at);
                slices.push_back({page * PAGE + slice * SLICE, Bytes(from, from + SLICE)});
                at += SLICE;
            }
    }
    if (at != n || !is_sealed(all, 48))
        return 0;
    says.slices.insert(says.slices.end(), slices.begin(), slices.end());
    says.size = size == NO_SIZE ? says.size : size;
    return n;
}

} // namespace

LogSays read_log(const Image &log)
{
    LogSays says;
    Header a, b;
    const bool a_counts = header_at(log, 0, a), b_counts = header_at(log, HEADER_B, b);
    says.in_order = log.size >= HEADER_B * 2 && (a_counts || b_counts);
    if (!says.in_order) {
        says.is_empty = log.pages.lower_bound(RING) == log.pages.end();
        return says;
    }
    const Header &h = b_counts && (!a_counts || b.edition > a.edition) ? b : a;
    const Ring ring = {log, h};
    says.is_empty = !ring.begins(h.start, ring.bytes(h.start, RECORD));
    for (uint64_t n, done = 0; (n = take(ring, h.start + done, h.capacity - done, says)); done += n)
        ;
    return says;
}

void LogSays::apply(Bytes &content) const
{
    for (const Slice &s : slices)
        if (s.at < content.size())
            std::copy_n(s.bytes.begin(), std::min<uint64_t>(SLICE, content.size() - s.at),
                        content.begin() + static_cast<long>(s.at));
}

} // namespace fuzz
