// SPDX-License-Identifier: BSD-3-Clause
#include "reader.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <map>

namespace crash
{

namespace
{

constexpr uint64_t MANIFEST = 0x545345464e414d41ull;
enum State : uint32_t { IN_USE = 2, CLEAN, DEPLOYED };

uint64_t checksum(const Inode &file, uint64_t at, uint64_t bytes,
                  uint64_t h = 0x61746f2d73756d31ull)
{
    for (uint64_t end = at + bytes; at < end; at += 8) {
        h = (h ^ file.word(at)) * 0x9fb21c651e98df25ull;
        h ^= h >> 29;
    }
    return h;
}

uint32_t half(const Inode &file, uint64_t at)
{
    return static_cast<uint32_t>(file.word(at / 8 * 8) >> at % 8 * 8);
}

struct Record {
    bool valid = false;
    uint32_t format = 0, state = 0;
    uint64_t sequence = 0, id[2] = {};
};

Record look_at(const Inode &manifest, uint64_t copy)
{
    Record r;
    r.format = half(manifest, copy + 12);
    r.state = half(manifest, copy + 20);
    r.valid = manifest.size >= copy + 512 && manifest.word(copy) == MANIFEST &&
              half(manifest, copy + 8) == 3 &&
              manifest.word(copy + 504) == checksum(manifest, copy, 504) && r.state >= IN_USE &&
              r.state <= DEPLOYED;
    r.sequence = manifest.word(copy + 24);
    r.id[0] = manifest.word(copy + 32);
    r.id[1] = manifest.word(copy + 40);
    return r;
}

bool zeros(const Inode &file, uint64_t at, uint64_t bytes)
{
    for (uint64_t end = at + bytes; at < end; at += 8)
        if (file.word(at))
            return false;
    return true;
}

Bytes bytes_of(const Inode &file, uint64_t at, uint64_t n)
{
    Bytes bytes(n);
    file.read(at, bytes.data(), n);
    return bytes;
}

// Puts the guarded bytes back into a file with an interrupted removal.
void put_back(const Guard &guard, const Bytes &guarded, Bytes &content)
{
    if (guard.plain.empty() || content.size() < guard.at + guard.plain.size() ||
        guarded[0] == guard.plain[0]) // there was no mask
        return;
    for (size_t i = 0; i < guard.plain.size(); i++)
        if (content[guard.at + i] != guard.plain[i] && content[guard.at + i] != guarded[i])
            return; // written by other programs
    std::copy(guard.plain.begin(), guard.plain.end(),
              content.begin() + static_cast<long>(guard.at));
}

// The content of a pairing: as its files say, or after a replay of the lanes.
struct Pairing {
    Record record;
    Inode manifest, reflection;
    bool changed = false; // a lane had a commit
};

constexpr uint64_t AREAS = 12288, AREA = 16384, SLOTS = 1024, LANE = 4096,
                   LONG_LANE = AREAS + SLOTS * AREA, IS_SIZE = 1ull << 49;

// The words that a lane sets in the reflection and the manifest, if it holds a commit.
std::string replay_lane(const Inode &j, uint64_t lane, uint64_t bytes, Pairing &p)
{
    uint64_t sequence = j.word(lane), retired = j.word(lane + 64), words = j.word(lane + 8);
    if (sequence <= retired)
        return "";
    if (sequence != retired + 1)
        return "a lane whose sequence is later than the next one";
    if (bytes < 128 || words > (bytes - 128) / 16)
        return "a lane whose count does not fit";
    if (!words)
        return "";
    uint64_t list = lane + 128;
    if (checksum(j, list, 16 * words, checksum(j, lane, 56)) != j.word(lane + 56))
        return "";
    for (uint64_t i = 0; i < words; i++) {
        uint64_t what = j.word(list + 16 * i), value = j.word(list + 16 * i + 8);
        if (what > IS_SIZE || what % 8)
            return "a lane with a word that is none";
        if (what == IS_SIZE)
            p.manifest.set_word(8192, value);
        else
            p.reflection.set_word(what, value);
    }
    p.changed = true;
    return "";
}

// All lanes are in the manifest.
std::string replay_all(Pairing &p)
{
    const Inode manifest = p.manifest;
    std::string wrong;
    for (uint64_t lane = AREAS; wrong.empty() && lane < LONG_LANE && lane < manifest.size;
         lane += LANE)
        wrong = replay_lane(manifest, lane, LANE, p);
    if (wrong.empty() && manifest.size > LONG_LANE)
        wrong = replay_lane(manifest, LONG_LANE, manifest.size - LONG_LANE, p);
    return wrong;
}

bool has_unfinished(const Pairing &p)
{
    Pairing after = p;
    return !replay_all(after).empty() || after.changed;
}

// The reflection folder that an attribute names: here, one beside the file. What is before a double slash is the folder
// around it.
std::string folder_in(const std::string &attribute)
{
    size_t blank = attribute.size() > 38 ? attribute.find(' ', 38) : std::string::npos;
    size_t slashes = attribute.find("//");
    return blank == std::string::npos
               ? ".ato"
               : attribute.substr(slashes == std::string::npos ? blank + 1 : slashes + 2);
}

// The number of the manifest of a restored file that is to be reunited with its reflection, or is not completely: the one that
// its attribute has, or without one any number that no file has; `number` if there is none.
uint64_t orphan_of(const Disk &disk, int folder, const std::string &attribute, uint64_t number)
{
    const uint64_t told = attribute.size() > 38 ? std::stoull(attribute.substr(38)) : 0;
    if (told)
        return disk.find(folder, std::to_string(told) + ".manifest") < 0 ? number : told;
    for (const auto &name : disk.at(folder).names)
        if (std::isdigit(name.first[0]) && name.first.find(".manifest") != std::string::npos &&
            std::stoull(name.first) >= ORPHAN)
            return std::stoull(name.first);
    return number;
}

enum Format : uint32_t { DENSE, SPARSE, LOG = 3 };

// CRC-32C, one bit after the other.
uint32_t crc(uint32_t before, const Bytes &bytes)
{
    static const auto table = [] {
        std::array<uint32_t, 256> t{};
        for (uint32_t i = 0; i < 256; i++) {
            t[i] = i;
            for (int k = 0; k < 8; k++)
                t[i] = t[i] >> 1 ^ (t[i] & 1 ? 0x82f63b78u : 0);
        }
        return t;
    }();
    uint32_t c = ~before;
    for (uint8_t byte : bytes)
        c = c >> 8 ^ table[(c ^ byte) & 0xff];
    return ~c;
}

uint64_t word_of(const Bytes &bytes, size_t at)
{
    uint64_t word;
    memcpy(&word, bytes.data() + at, 8);
    return word;
}

// A file in domain disk: its log has the slices that may not be home, in records.
struct Log {
    const Inode &file;
    uint64_t salt = 0, capacity = 0, origin = 0, start = 0;

    bool find_header()
    {
        uint64_t edition = 0;
        bool valid = false;
        for (uint64_t at : {0, 512}) {
            Bytes h = bytes_of(file, at, 56);
            const auto told = static_cast<uint32_t>(word_of(h, 8) >> 32);
            memset(h.data() + 12, 0, 4);
            if (word_of(h, 0) != 0x474f4c4f5441 || (word_of(h, 8) & 0xffffffff) != 1 ||
                crc(0, h) != told || (valid && word_of(h, 16) < edition))
                continue;
            valid = true;
            edition = word_of(h, 16);
            salt = word_of(h, 24);
            capacity = word_of(h, 32);
            origin = word_of(h, 40);
            start = word_of(h, 48);
        }
        return valid;
    }

    Bytes at(uint64_t position, uint64_t n) const
    {
        Bytes bytes;
        while (n) {
            const uint64_t in_ring = (position - origin) % capacity,
                           some = std::min(n, capacity - in_ring);
            const Bytes part = bytes_of(file, 4096 + in_ring, some);
            bytes.insert(bytes.end(), part.begin(), part.end());
            position += some;
            n -= some;
        }
        return bytes;
    }

    // Calls `use` with each slice of the valid records, in order. Sets *size if one says it.
    template <class Use> void replay(uint64_t *size, const Use &use) const
    {
        for (uint64_t position = start; position - start + 64 <= capacity;) {
            Bytes r = at(position, 64);
            const uint64_t bytes = word_of(r, 24), pages = word_of(r, 32), told = word_of(r, 40);
            if (word_of(r, 0) != 0x4345524f5441 || word_of(r, 8) != salt ||
                word_of(r, 16) != position || bytes > capacity - (position - start) || bytes < 64 ||
                pages > bytes / 16)
                return;
            const auto sum = static_cast<uint32_t>(word_of(r, 48));
            memset(r.data() + 48, 0, 4);
            const Bytes rest = at(position + 64, bytes - 64);
            if (crc(crc(0, r), rest) != sum)
                return;
            size_t slice = (pages * 16 + 63) / 64 * 64;
            for (uint64_t i = 0; i < pages; i++)
                for (uint64_t k = 0; k < 64; k++)
                    if (word_of(rest, i * 16 + 8) >> k & 1) {
                        use(word_of(rest, i * 16) * PAGE + k * LINE, rest.data() + slice);
                        slice += LINE;
                    }
            if (told != ~0ull)
                *size = told;
            position += bytes;
        }
    }
};

// The word of a page, and where its RefPage is.
struct Word {
    uint64_t bits, refpage;
};

// Finds the words that are not 0, by the number of their page. A chunk is a meta page, and the RefPages of its entries: dense, the
// words of 512 pages in order; sparse, 256 pairs of a page number and a word, which counts only if it is not 0.
std::string find_words(const Inode &reflection, uint32_t format, std::map<uint64_t, Word> &words)
{
    const uint64_t each = format == SPARSE ? 256 : 512;
    if (format > SPARSE)
        return "an unknown format";
    for (uint64_t chunk = 0; chunk * (each + 1) * PAGE < reflection.size; chunk++) {
        const uint64_t meta = chunk * (each + 1) * PAGE;
        if (!reflection.pages.count(meta / PAGE))
            continue;
        for (uint64_t i = 0; i < each; i++) {
            const uint64_t at = meta + i * (PAGE / each),
                           page = format == SPARSE ? reflection.word(at) : chunk * each + i,
                           bits = reflection.word(format == SPARSE ? at + 8 : at);
            if (bits && !words.insert({page, {bits, meta + (i + 1) * PAGE}}).second)
                return "two words of one page";
        }
    }
    return "";
}

// Does a bit name a slice behind the end?
bool has_bits_behind(const std::map<uint64_t, Word> &words, uint64_t size)
{
    for (auto w = words.lower_bound(size / PAGE); w != words.end(); ++w) {
        uint64_t slices = w->first == size / PAGE ? (size % PAGE + LINE - 1) / LINE : 0;
        if (slices < 64 && w->second.bits >> slices)
            return true;
    }
    return false;
}

} // namespace

Found read_file(const Disk &disk, int id, uint64_t number, bool prefer_file)
{
    const Inode &original = disk.at(id);
    Found found = {original.content(), ""};
    int folder = disk.find(Disk::ROOT, folder_in(original.attribute));
    const uint64_t own = number;
    if (folder >= 0)
        number = orphan_of(disk, folder, original.attribute, number);
    int manifest = folder < 0 ? -1 : disk.find(folder, std::to_string(number) + ".manifest");
    if (manifest < 0) {
        if (!original.attribute.empty())
            found.damage = "an attribute without a manifest";
        return found;
    }
    const Inode &m = disk.at(manifest);
    Record a = look_at(m, 0), b = look_at(m, 4096);
    if (!a.valid && !b.valid) {
        if (!zeros(m, 4096, 4096))
            found.damage = "a manifest of which no copy is valid";
        return found;
    }
    Record r = b.valid && (!a.valid || b.sequence > a.sequence) ? b : a;
    // Without the attribute, or with that of another pairing: the reflection belongs to another
    // file.
    char hex[33];
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", static_cast<unsigned>(r.id[i / 8] >> i % 8 * 8 & 0xff));
    // Or the reunion is decided, and the attribute is still that of the source.
    const bool apart = number != own || (original.attribute.size() > 38 &&
                                         std::stoull(original.attribute.substr(38)) != own);
    bool ours = apart || original.attribute.compare(0, 37, std::string("ato1 ") + hex) == 0;
    uint64_t copy_at = r.sequence == b.sequence && b.valid ? 4096 : 0;
    Guard guard = {m.word(copy_at + 136), bytes_of(m, copy_at + 152, half(m, copy_at + 144))};
    // After a power cut only the removal of the attribute may be durable.
    if (r.state == DEPLOYED && (ours || original.attribute.empty()))
        put_back(guard, bytes_of(m, copy_at + 168, guard.plain.size()), found.content);
    if (!ours || r.state == DEPLOYED)
        return found;
    bool times = m.word(copy_at + 88) == original.size &&
                 m.word(copy_at + 96) == static_cast<uint64_t>(original.mtime.sec) &&
                 m.word(copy_at + 104) == static_cast<uint64_t>(original.mtime.nsec);
    if (prefer_file && r.state == CLEAN && !times)
        return found;
    found.guard = std::move(guard);
    int reflection = disk.find(folder, std::to_string(number));
    if (reflection < 0 &&
        m.word(copy_at + 48) == own) // the record names the file: it has its new name
        reflection = disk.find(folder, std::to_string(own));
    if (reflection < 0) {
        found.damage = "a manifest without a reflection";
        return found;
    }
    Pairing p = {r, m, disk.at(reflection), false};
    Log log{p.reflection};
    if (r.format == LOG && !log.find_header()) {
        found.damage = "a log without a header";
        return found;
    }
    if (r.state == CLEAN && has_unfinished(p))
        found.damage = "a clean file with a commit";
    else if (r.state == IN_USE)
        found.damage = replay_all(p);
    if (!found.damage.empty())
        return found;
    uint64_t size = p.manifest.word(8192) & 0xffffffffffffull,
             growth = p.manifest.word(8200) & 0xffffffffffffull;
    uint64_t shrunk = p.manifest.word(8208) & 0xffffffffffffull; // if the file was made shorter
    if (r.format == LOG)
        log.replay(&size, [](uint64_t, const uint8_t *) {});
    uint64_t longest = std::max(size, shrunk);
    if (original.size < size || (original.size > longest && original.size > growth)) {
        found.damage = "a logical size that is not the file's";
        return found;
    }
    if (shrunk > size && r.state == CLEAN) {
        found.damage = "a clean file that is yet to be cut";
        return found;
    }
    std::map<uint64_t, Word> words;
    if (r.format == LOG) {
        found.content.resize(size);
        uint64_t told;
        log.replay(&told, [&](uint64_t at, const uint8_t *slice) {
            if (at < size)
                std::copy_n(slice, std::min<uint64_t>(LINE, size - at), found.content.data() + at);
        });
        return found;
    }
    found.damage = find_words(p.reflection, r.format, words);
    if (!found.damage.empty())
        return found;
    if (shrunk <= size && has_bits_behind(words, size)) {
        found.damage = "bits of slices behind the end, which no change of size will clear";
        return found;
    }
    found.content.resize(size); // or an interrupted growth or shrink
    for (const auto &w : words)
        for (uint64_t i = 0; i < 64; i++) {
            const uint64_t at = w.first * PAGE + i * LINE;
            if (w.first <= size / PAGE && at < size && w.second.bits >> i & 1)
                p.reflection.read(w.second.refpage + i * LINE, found.content.data() + at,
                                  std::min<uint64_t>(LINE, size - at));
        }
    return found;
}

static bool is_database(const Bytes &content)
{
    static const char magic[] = "SQLite format 3";
    return content.size() >= 100 && memcmp(content.data(), magic, sizeof(magic)) == 0;
}

// As lib/sqlite/mask.h describes it.
Bytes unmasked(Bytes content)
{
    if (is_database(content) && content[21] == 191) {
        if (content[22] == 33)
            content[18] = content[19] = 2;
        content[21] = 64;
        content[22] = 32;
    }
    // The change counter, which bytes 92 to 95 repeat, rises when a mask is completed, and gets
    // another value where libato makes the file plain.
    if (is_database(content) && content[21] == 64) {
        memset(content.data() + 24, 0, 4);
        memset(content.data() + 92, 0, 4);
    }
    // A switch to WAL mode makes a database as long as its file, if that was yet to be cut: with zeros, behind the pages that
    // the header counts.
    if (is_database(content)) {
        const size_t page = content[16] * 256u + content[17],
                     pages = content[28] * 0x1000000u + content[29] * 0x10000u +
                             content[30] * 256u + content[31],
                     end = page == 1 ? pages * 65536 : pages * page;
        if (pages && end < content.size() &&
            std::all_of(content.begin() + static_cast<std::ptrdiff_t>(end), content.end(),
                        [](uint8_t byte) { return byte == 0; }))
            content.resize(end);
    }
    return content;
}

bool is_open_to_others(const Bytes &original)
{
    return is_database(original) && original[21] == 64;
}

} // namespace crash
