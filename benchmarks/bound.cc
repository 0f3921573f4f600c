/* SPDX-License-Identifier: BSD-3-Clause */
#include "bound.h"

#include "reflection/media/bitmap.h"

#include <cstring>
#include <emmintrin.h>
#include <libpmem.h>
#include <random>

namespace bench
{

namespace
{

/* Past the caches, as a whole line. */
void stream_line(char *dst, const char *src)
{
    for (size_t i = 0; i < SLICE_BYTES; i += 16)
        _mm_stream_si128(reinterpret_cast<__m128i *>(dst + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i *>(src + i)));
}

/* Offsets in the list's file: the list comes behind, the file's name first. */
constexpr size_t RETIRED = 64, FILES = 128, ENTRIES = 160;

struct Entry {
    uint64_t word, value;
};

} // namespace

Bound::Bound(size_t file_bytes)
    : o_("bound-o", file_bytes), r_("bound-r", layout_reflection_bytes(LAYOUT_DENSE, file_bytes)),
      list_("bound-list", PAGE_BYTES)
{
    o_.populate();
    r_.populate();
    list_.populate();
    /* As the others' bitmaps are: slices of a page go to both homes. */
    std::mt19937_64 random;
    for (uint64_t page = 0; page < file_bytes / PAGE_BYTES; page++)
        *word_of({page * PAGE_BYTES, 0, 0}) = random();
}

uint64_t *Bound::word_of(const Write &w) const
{
    return reinterpret_cast<uint64_t *>(r_.at(layout_word(LAYOUT_DENSE, w.offset / PAGE_BYTES)));
}

void Bound::write_at_once(const char *source, const Write *writes, size_t count)
{
    alignas(64) Entry list[MOST];
    for (size_t i = 0; i < count; i++) {
        const Write &w = writes[i];
        uint64_t *word = word_of(w), bitmap = *word;
        uint64_t in_page = w.offset % PAGE_BYTES, page = w.offset - in_page;
        uint64_t first = in_page / SLICE_BYTES, last = (in_page + w.bytes - 1) / SLICE_BYTES;
        for (uint64_t slice = first; slice <= last; slice++) {
            char *home = bitmap >> slice & 1
                             ? o_.at(page)
                             : r_.at(layout_refpage(LAYOUT_DENSE, page / PAGE_BYTES));
            stream_line(home + slice * SLICE_BYTES,
                        source + w.source + (slice - first) * SLICE_BYTES);
        }
        list[i] = {layout_word(LAYOUT_DENSE, w.offset / PAGE_BYTES),
                   bitmap ^
                       bitmap_slices(static_cast<unsigned>(first), static_cast<unsigned>(last))};
    }
    alignas(64) uint64_t line[SLICE_BYTES / 8] = {++sequence_, count};
    for (size_t i = 0; i < 32; i += 16)
        _mm_stream_si128(reinterpret_cast<__m128i *>(list_.at(FILES + i)), _mm_setzero_si128());
    for (size_t i = 0; i < count; i++)
        _mm_stream_si128(reinterpret_cast<__m128i *>(list_.at(ENTRIES + i * sizeof(Entry))),
                         _mm_load_si128(reinterpret_cast<const __m128i *>(&list[i])));
    pmem_drain(); /* slices and list, before the line that counts on them */
    stream_line(list_.at(0), reinterpret_cast<const char *>(line));
    pmem_drain(); /* the line, before the words */
    for (size_t i = 0; i < count; i++)
        __atomic_store_n(word_of(writes[i]), list[i].value, __ATOMIC_RELEASE);
    for (size_t i = 0; i < count; i++)
        pmem_flush(word_of(writes[i]), 8);
    pmem_drain(); /* the words, before the list is done with */
    __atomic_store_n(reinterpret_cast<uint64_t *>(list_.at(RETIRED)), sequence_, __ATOMIC_RELEASE);
    pmem_flush(list_.at(RETIRED), 8);
    pmem_drain();
}

} // namespace bench
