// SPDX-License-Identifier: BSD-3-Clause
#include "verdict.h"

#include <algorithm>
#include <set>

#include "ato.h"

namespace fuzz
{

namespace
{

bool births_agree(const Paired &p, const Holding &h)
{
    uint64_t known = h.field(KNOWN, 4);
    if (p.has_birth && (known & KNOWS_BIRTH) &&
        (static_cast<uint64_t>(p.birth_sec) != h.field(BIRTH_SEC, 8) ||
         p.birth_nsec != h.field(BIRTH_NSEC, 4)))
        return false;
    return !(p.has_generation && (known & KNOWS_GENERATION)) ||
           p.generation == h.field(GENERATION, 4);
}

Holding manifest_of(const World &w)
{
    switch (w.file.manifest_kind) {
    case Kind::FILE:
        return holding(w.file.manifest);
    case Kind::HARDLINK:
        return holding(w.other.manifest);
    case Kind::NONE:
    case Kind::EMPTY:
        return holding({});
    default: {
        Holding none;
        none.record.resize(512);
        return none;
    }
    }
}

// The guarded bytes, put back as far as possible.
void put_back(const Holding &h, Bytes &content)
{
    uint64_t at = h.field(GUARD_OFFSET, 8), n = h.field(GUARD_BYTES, 4);
    if (at > content.size() || n > content.size() - at)
        return;
    for (uint64_t i = 0; i < n; i++)
        if (content[at + i] != h.record[GUARD_PLAIN + i] &&
            content[at + i] != h.record[GUARDED + i])
            return;
    std::copy_n(&h.record[GUARD_PLAIN], n, content.begin() + static_cast<long>(at));
}

bool was_cut(const Paired &p, uint64_t size, uint64_t growth, uint64_t shrunk)
{
    uint64_t longest = std::max(size, shrunk);
    if (p.content.size() > size && p.content.size() <= longest)
        return true;
    if (p.content.size() <= longest || p.content.size() > growth)
        return false;
    uint64_t from = std::min<uint64_t>((longest + 63) / 64 * 64, p.content.size());
    return std::all_of(p.content.begin() + static_cast<long>(from), p.content.end(),
                       [](auto x) { return x == 0; });
}

// The state after a finished shrink: no bits of bytes behind the end. A sparse reflection keeps its length.
void cut_behind(Image &reflection, uint64_t size, Format format)
{
    for (const Entry &e : entries_in(reflection, format)) {
        uint64_t word = e.page < pages_of(size) ? e.word : 0;
        for (uint64_t slice = 0; word && slice < PAGE / SLICE; slice++)
            if (e.page * PAGE + slice * SLICE >= size)
                word &= ~(uint64_t{1} << slice);
        reflection.set_word(word_at(format, e.place), word);
    }
    if (format == DENSE) {
        reflection.size = std::min(reflection.size, reflection_bytes(DENSE, size));
        reflection.pages.erase(reflection.pages.lower_bound(reflection.size),
                               reflection.pages.end());
        return;
    }
    if (format == LOG)
        return;
    // RefPages of pages behind the end give their space back. Page 0 may be that of an entry that was never used.
    std::vector<uint64_t> unused;
    for (const auto &[at, bytes] : reflection.pages)
        for (uint64_t i = 0; at % chunk_bytes(SPARSE) == 0 && i < entries_of(SPARSE); i++) {
            const uint64_t page = get(bytes, i * 16, 8);
            if (page && page >= pages_of(size))
                unused.push_back(at + (i + 1) * PAGE);
        }
    for (uint64_t at : unused)
        reflection.pages.erase(at);
}

// Do its bitmaps have a slice? A log: has it a record that may not be home?
bool holds_slices(const Image &reflection, Format format)
{
    return format == LOG ? !read_log(reflection).is_empty : !entries_in(reflection, format).empty();
}

// Does it name a slice beyond the end of the file?
bool is_beyond(const Entry &e, uint64_t size)
{
    if (e.page >= pages_of(size))
        return true;
    const uint64_t slices = (size - e.page * PAGE + SLICE - 1) / SLICE; // within
    return slices < PAGE / SLICE && e.word >> slices;
}

// Is it as long as it must be, and does each page have one bitmap at most, if the file reaches so far?
bool is_in_order(const Image &reflection, uint64_t size, Format format)
{
    if (format == LOG)
        return read_log(reflection).in_order;
    if (reflection.size < reflection_bytes(format, size))
        return false;
    if (format == DENSE)
        return true;
    std::set<uint64_t> pages;
    for (const Entry &e : entries_in(reflection, SPARSE))
        if (e.place < PLACES && (is_beyond(e, size) || !pages.insert(e.page).second))
            return false;
    return reflection.size % chunk_bytes(SPARSE) == 0;
}

// Have pages that get places reason to find none? Entries are taken in order, behind the last that has a page.
bool is_full(const Image &reflection)
{
    uint64_t next = 0;
    for (const auto &[at, bytes] : reflection.pages)
        for (uint64_t i = 0; at % chunk_bytes(SPARSE) == 0 && i < entries_of(SPARSE); i++)
            if (get(bytes, i * 16, 8) || get(bytes, i * 16 + 8, 8))
                next = at / chunk_bytes(SPARSE) * entries_of(SPARSE) + i + 1;
    return next + 16 > std::min(reflection.size / chunk_bytes(SPARSE) * entries_of(SPARSE), PLACES);
}

} // namespace

Verdict judge(const World &w, const Uses &uses, const Replay &replay, bool must_be_refused)
{
    const Paired &p = w.file;
    Verdict v;
    Attribute a;
    const Holding &h = v.held = manifest_of(w);
    v.format = static_cast<Format>(h.found == Holding::VALID ? h.field(FORMAT, 4) : 0);
    bool carries = !p.attribute.empty() && parse(p.attribute, a);
    bool unclear = !p.attribute.empty() && !carries; // refused
    v.drop = carries && a.inode != p.inode;
    carries = carries && !v.drop;
    v.prefer_file = uses.flags & ATO_PREFER_FILE;
    uint64_t state = h.field(STATE, 4), size = 0, growth = 0, shrunk = 0;
    const bool numbered = h.found == Holding::VALID && h.field(INODE, 8) == p.inode;
    const bool same = numbered && births_agree(p, h), copy = h.field(OWN_INODE, 8) != 0;
    const bool match = carries && numbered && std::equal(a.id.begin(), a.id.end(), &h.record[ID]);
    // A restored file, and a reunion that was cut before its last step.
    const bool chosen = uses.flags & ATO_PREFER_REFLECTION;
    const bool joined =
        p.attribute.empty() && numbered && !same && copy && state != DEPLOYED && chosen;
    const bool begun = v.drop && same;
    v.own = same || match || joined;
    bool never_had = !carries && !(h.field(KNOWN, 4) & KNOWS_ATTRIBUTE);
    v.content = v.tolerated = p.content;
    v.reflection = p.reflection;
    auto lanes = replay.find(p.name());
    if (lanes != replay.end())
        for (const auto &[at, value] : lanes->second)
            v.reflection.set_word(at, value);
    if (p.reflection_kind == Kind::HARDLINK) // never accepted, but looked at
        v.reflection = w.other.reflection;
    if (p.reflection_kind == Kind::NONE || p.reflection_kind == Kind::EMPTY)
        v.reflection.pages.clear();
    if (v.format == LOG)
        v.log = read_log(v.reflection);
    if (unclear)
        return v;
    v.anew = h.found == Holding::UNBORN &&
             (!carries || (v.prefer_file && !holds_slices(v.reflection, v.format)));
    if (!v.own)
        return v;
    if (state == DEPLOYED && (match || !carries))
        v.anew = true;
    if (state == DEPLOYED) {
        if (match || begun || never_had)
            put_back(h, v.content);
        return v;
    }
    uint64_t growth_word = get(p.manifest, GROWTH_WORD, 8), is = get(p.manifest, SIZE_WORD, 8);
    uint64_t shrink_word = get(p.manifest, SHRINK_WORD, 8);
    lanes = replay.find(p.name() + ".manifest");
    if (lanes != replay.end())
        for (const auto &[at, value] : lanes->second)
            is = at == SIZE_WORD ? value : is;
    bool sizes = size_of(is, &size) && (growth_word == 0 || size_of(growth_word, &growth)) &&
                 (shrink_word == 0 || size_of(shrink_word, &shrunk));
    bool times = h.field(CLEAN_SIZE, 8) == p.content.size() &&
                 h.field(CLEAN_SEC, 8) == static_cast<uint64_t>(p.mtime.tv_sec) &&
                 h.field(CLEAN_NSEC, 8) == static_cast<uint64_t>(p.mtime.tv_nsec);
    const bool replaced = match && !same && state == IN_USE && !copy && !chosen;
    // Chosen: an attribute that was taken away.
    bool ours = begun || match ||
                (!carries && (never_had || chosen || !holds_slices(v.reflection, v.format)) &&
                 (p.has_birth || p.has_generation));
    bool cut = sizes && was_cut(p, size, growth, shrunk);
    const uint64_t guard = h.field(GUARD_OFFSET, 8);
    const bool off = h.field(GUARD_BYTES, 4) == 0 || guard >= p.content.size() ||
                     p.content[guard] == h.record[GUARD_PLAIN];
    // Another program may write to a file of which no slice is in the reflection.
    const bool unfinished = ours && !match && !never_had; // its birth
    v.anew |= ours && (sizes ? shrunk <= size : unfinished) && off &&
              p.reflection_kind == Kind::FILE && !holds_slices(v.reflection, v.format);
    if ((!ours && !joined) || replaced || !sizes || (state == CLEAN && !times && !chosen))
        return v;
    const bool taken = (cut || size == p.content.size()) && p.reflection_kind == Kind::FILE;
    const std::vector<Entry> entries = entries_in(v.reflection, v.format);
    const bool beyond = v.format == DENSE &&
                        std::any_of(entries.begin(), entries.end(),
                                    [&](auto &e) { return is_beyond(e, std::max(size, shrunk)); });
    if (taken && !beyond && shrunk > size && v.reflection.size >= reflection_bytes(v.format, size))
        cut_behind(v.reflection, size, v.format);
    v.adopt = taken && !beyond && is_in_order(v.reflection, size, v.format) && !must_be_refused;
    // A growth is cut off in any case; a map that accepts the reflection finishes a shrink.
    v.gone = cut && !v.adopt && v.prefer_file;
    if (cut) {
        const uint64_t longest = std::min(p.content.size(), std::max(size, shrunk));
        v.tolerated.resize(longest);
        v.content.resize(v.gone ? longest : size);
    }
    v.full = v.adopt && v.format == SPARSE && is_full(v.reflection);
    return v;
}

} // namespace fuzz
