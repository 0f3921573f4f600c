// SPDX-License-Identifier: BSD-3-Clause
//
// What may a journal hold? The reader of lanes by itself, on blocks that end where the journal and the
// reflection do, so that each access behind them is seen.
//
// Input: u8 repairs (1: seal the header, 2: magic and version), u8 domain, u16 lanes, u32 lane_bytes,
// u32 bytes of the large lane, u8 reserved, i8 how much longer than that the block is, u32 bytes of the reflection, bit 31: it is
// sparse; then commits:
//   u16 lane, u8 repairs (1: sequence follows retired, 2: seal), u64 sequence, u64 retired, u32 files,
//   u32 words, u8 reserved of the first file, u8 n, then n words: u64 word, u64 value
#include "format.h"
#include "world.h"

#include <algorithm>
#include <cstdlib>

extern "C" {
#include "lib/recovery/replay.h"
#include "reflection/format/journal.h"
#include "reflection/media/report.h"
}

namespace fuzz
{

namespace
{

class Block
{
  public:
    explicit Block(size_t bytes) : n(bytes)
    {
        void *at;
        if (posix_memalign(&at, PAGE, n ? n : 1) != 0)
            wrong("no memory");
        begin = static_cast<char *>(at);
        memset(begin, 0, n);
    }
    ~Block()
    {
        free(begin);
    }
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;

    void put(uint64_t at, const void *bytes, size_t many) const
    {
        if (at <= n && many <= n - at)
            memcpy(begin + at, bytes, many);
    }
    uint64_t word(uint64_t at) const
    {
        uint64_t w = 0;
        if (at <= n && 8 <= n - at)
            memcpy(&w, begin + at, 8);
        return w;
    }

    char *begin;
    size_t n;
};

struct Header {
    uint8_t repairs, domain;
    uint64_t lanes, small, large, reserved;
};

void put_header(const Block &j, const Header &h)
{
    Bytes b(64);
    if (h.repairs & 2) {
        put(b, 0, 8, JOURNAL_MAGIC_WORD);
        put(b, 8, 4, 4);
    }
    put(b, 12, 4, h.lanes);
    put(b, 16, 8, h.small);
    put(b, 24, 8, h.reserved);
    put(b, 32, 4, h.reserved);
    put(b, 36, 4, h.domain);
    if (h.repairs & 1)
        put(b, 56, 8, checksum(b.data(), 56));
    j.put(0, b.data(), b.size());
}

void put_commit(const Block &j, const Header &h, Input &in)
{
    uint64_t lane = in.u16() % (h.lanes + 1), at = PAGE + lane * h.small;
    uint8_t repairs = in.u8();
    uint64_t sequence = in.u64(), retired = in.u64();
    uint32_t files = in.u32(), words = in.u32();
    if (repairs & 1)
        sequence = retired + 1;
    Bytes line(128);
    put(line, 0, 8, sequence);
    put(line, 8, 4, files);
    put(line, 12, 4, words);
    put(line, 64, 8, retired);
    uint64_t list = at + 128 + 32ull * files;
    uint64_t reserved = in.u8();
    j.put(at + 128 + 24, &reserved, 8);
    for (unsigned i = in.u8(), k = 0; k < i && k < words; k++) {
        uint64_t word[2] = {in.u64(), in.u64()};
        j.put(list + 16 * k, word, 16);
    }
    uint64_t end = list + 16ull * words;
    if ((repairs & 2) && at + 128 <= j.n && end <= j.n) {
        uint64_t sum = checksum(line.data(), 56);
        sum = checksum(reinterpret_cast<unsigned char *>(j.begin) + at + 128, end - at - 128, sum);
        put(line, 56, 8, sum);
    }
    j.put(at, line.data(), line.size());
}

// By FORMAT.md.
journal_finding lane_state(const Block &j, uint64_t at, uint64_t room)
{
    uint64_t sequence = j.word(at), retired = j.word(at + 64), next = retired + 1;
    uint64_t files = j.word(at + 8) & 0xffffffff, words = j.word(at + 8) >> 32;
    bool fits = files <= 16384 && 128 + 32 * files + 16 * words <= room;
    if (sequence > next || (sequence == next && !fits))
        return JOURNAL_DAMAGED;
    if (!sequence && !j.word(at + 56))
        return JOURNAL_IDLE;
    const auto *bytes = reinterpret_cast<unsigned char *>(j.begin) + at;
    if (!fits || !files || !words ||
        j.word(at + 56) != checksum(bytes + 128, 32 * files + 16 * words, checksum(bytes, 56)))
        return JOURNAL_CUT;
    if (sequence != next)
        return sequence == retired ? JOURNAL_IDLE : JOURNAL_CUT;
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word = j.word(at + 128 + 32 * files + 16 * i), size;
        bool is_size = word >> 49 & 1;
        if (word >> 50 >= files || (is_size ? (word & ((1ull << 49) - 1)) != SIZE_WORD : word % 8))
            return JOURNAL_DAMAGED;
        if (is_size && !size_of(j.word(at + 128 + 32 * files + 16 * i + 8), &size))
            return JOURNAL_DAMAGED;
    }
    return JOURNAL_COMMITTED;
}

void apply(const struct journal &j, const journal_view &v, unsigned file, const Block &r,
           Format format)
{
    std::vector<uint64_t> manifest(MANIFEST_BYTES / 8);
    uint64_t &size = manifest[MANIFEST_SIZE_WORD / 8], expected_size = 0, bytes;
    participant target = {};
    // In domain msync all of the file is synced, and these bytes are in no file.
    persist_init(&target.persist, j.domain == PERSIST_MSYNC ? PERSIST_PROCESS : j.domain);
    target.record.format = format;
    target.map = r.begin;
    target.bytes = r.n;
    target.manifest = reinterpret_cast<char *>(manifest.data());
    snprintf(target.path, sizeof(target.path), "the reflection");
    target.file = v.files[file];
    participants n = {};
    n.files = &target;
    n.nfiles = 1;
    Bytes expected(r.begin, r.begin + r.n);
    bool good = true;
    for (uint64_t i = 0; i < v.nwords; i++) {
        uint64_t offset = v.words[i].word & ((1ull << 49) - 1), value = v.words[i].value;
        const journal_file &its = v.files[v.words[i].word >> 50]; // a file may be named twice
        if (memcmp(its.id, target.file.id, sizeof(its.id)) != 0 || its.inode != target.file.inode)
            continue;
        if (v.words[i].word >> 49 & 1) {
            good = good && size_of(value, &bytes) && reflection_bytes(format, bytes) <= r.n;
            expected_size = value;
            continue;
        }
        good = good && has_word(format, offset, r.n);
        if (good)
            put(expected, offset, 8, value);
    }
    Bytes before(r.begin, r.begin + r.n);
    int answer = replay_apply(&v, &n);
    if ((answer == 0) != good)
        wrong("replay_apply answers %d", answer);
    if (answer < 0 && strstr(report_sentence(), "the reflection") == nullptr)
        wrong("replay_apply says '%s'", report_sentence());
    if (memcmp(r.begin, good ? expected.data() : before.data(), r.n) != 0 ||
        size != (good ? expected_size : 0))
        wrong("replay_apply stored something else");
}

int retire(const struct persist &p, const journal_view &v)
{
    journal_writer w = {};
    w.persist = &p;
    w.lane = v.lane;
    w.line.sequence = v.sequence;
    return journal_retire(&w);
}

void look_at(const struct journal &j, const Block &block, const Header &h, const Block &r,
             Format format)
{
    struct persist p;
    persist_init(&p, j.domain);
    for (unsigned lane = 0; lane < j.lanes; lane++) {
        journal_view v;
        const uint64_t at = PAGE + lane * h.small;
        if (journal_settle(&j, &p, lane) < 0)
            wrong("journal_settle fails in memory");
        int found = journal_look(&j, lane, &v),
            is = lane_state(block, at, lane < h.lanes ? h.small : block.n - at);
        if (found != is)
            wrong("lane %u: journal_look answers %d, the bytes say %d", lane, found, is);
        // Behind the last sequence all is damage.
        const bool last = block.word(at + 64) == UINT64_MAX - 1;
        if (found == JOURNAL_CUT &&
            (retire(p, v) < 0 || (found = journal_look(&j, lane, &v)) == JOURNAL_COMMITTED ||
             (found == JOURNAL_DAMAGED && !last)))
            wrong("lane %u: a commit that was cut is not retired", lane);
        if (found != JOURNAL_COMMITTED)
            continue;
        for (unsigned file = 0; file < v.nfiles; file++)
            if (file < 3 || file + 1 == v.nfiles)
                apply(j, v, file, r, format);
        if (retire(p, v) < 0 ||
            journal_look(&j, lane, &v) != (last ? JOURNAL_DAMAGED : JOURNAL_IDLE))
            wrong("lane %u: not retired", lane);
    }
}

Seed with(const char *name, uint64_t lanes, uint64_t small, uint64_t large, uint64_t more = 0,
          uint64_t reflection = 8192, uint64_t repairs = 3, uint64_t domain = 4,
          uint64_t reserved = 0)
{
    Seed s(name);
    return s.u8(repairs).u8(domain).u16(lanes).u32(small).u32(large).u8(reserved).u8(more).u32(
        reflection);
}

Seed commit(Seed s, uint64_t lane, uint64_t files, uint64_t words, uint64_t word = 0,
            uint64_t repairs = 3, uint64_t sequence = 1, uint64_t retired = 0,
            uint64_t reserved = 0, uint64_t value = 0x55)
{
    return s.u16(lane)
        .u8(repairs)
        .u64(sequence)
        .u64(retired)
        .u32(files)
        .u32(words)
        .u8(reserved)
        .u8(1)
        .u64(word)
        .u64(value);
}

} // namespace

std::vector<Seed> seeds()
{
    std::vector<Seed> all;
    Seed plain = with("", 2, 4096, 4096);
    auto add = [&all](const char *name, Seed s) {
        s.name = name;
        all.push_back(std::move(s));
    };
    add("empty", plain);
    add("unsealed", with("", 2, 4096, 4096, 0, 8192, 2));
    add("no-magic", with("", 2, 4096, 4096, 0, 8192, 1));
    add("one-byte-short", with("", 2, 4096, 4096, 0xff));
    add("longer", with("", 2, 4096, 4096, 100));
    add("no-lane", with("", 0, 4096, 4096));
    add("many-lanes", with("", 40, 4096, 4096));
    add("too-many-lanes", with("", 0xffff, 4096, 4096));
    add("odd-lanes", with("", 2, 4100, 4096));
    add("small-lanes", with("", 2, 64, 4096));
    add("odd-large", with("", 2, 4096, 5004));
    add("eights-large", with("", 2, 4096, 5000));
    add("huge-large", with("", 2, 4096, 0xfffffff8));
    add("no-domain", with("", 2, 4096, 4096, 0, 8192, 3, 0));
    for (uint64_t domain = 1; domain < 4; domain++)
        add(("domain-" + std::to_string(domain)).c_str(),
            commit(with("", 2, 4096, 4096, 0, 8192, 3, domain), 0, 1, 1));
    add("commit", commit(plain, 1, 1, 1));
    add("commit-large", commit(plain, 2, 1, 1));
    add("two-commits", commit(commit(plain, 0, 1, 1), 1, 2, 5));
    add("unsealed-commit", commit(plain, 0, 1, 1, 0, 1));
    add("no-next", commit(plain, 0, 1, 1, 0, 2, 7, 5));
    add("last-sequence-cut", commit(plain, 0, 1, 1, 0, 0, 5, UINT64_MAX - 1));
    add("around", commit(plain, 0, 1, 1, 0, 3, 0, UINT64_MAX));
    add("no-file", commit(plain, 0, 0, 1));
    add("no-word", commit(plain, 0, 1, 0));
    add("most-files", commit(plain, 0, 123, 1));
    add("too-many-files", commit(plain, 0, 124, 1));
    add("files-alone", commit(plain, 0, 125, 0));
    Seed room = with("", 1, 4096, 128 + 32 * 16384 + 160);
    add("most-files-of-all", commit(room, 1, 16384, 1));
    add("too-many-files-of-all", commit(room, 1, 16385, 1));
    add("all-files", commit(plain, 0, 0xffffffff, 1));
    add("most-words", commit(plain, 0, 1, 246));
    add("too-many-words", commit(plain, 2, 1, 247));
    add("all-words", commit(plain, 2, 1, 0xffffffff));
    add("words-around", commit(plain, 0, 64, 0x10000000));
    add("word-of-no-file", commit(plain, 0, 1, 1, 1ull << 50));
    const uint64_t size = 1ull << 49 | SIZE_WORD;
    add("size", commit(plain, 0, 1, 1, size, 3, 1, 0, 0, size_word(4096)));
    add("size-of-the-second", commit(plain, 0, 2, 1, size | 1ull << 50, 3, 1, 0, 0, size_word(1)));
    add("size-too-large", commit(plain, 0, 1, 1, size, 3, 1, 0, 0, size_word(4097)));
    add("size-that-is-none", commit(plain, 0, 1, 1, size, 3, 1, 0, 0, 4096));
    add("size-elsewhere", commit(plain, 0, 1, 1, size + 8, 3, 1, 0, 0, size_word(4096)));
    add("reserved", commit(with("", 2, 4096, 4096, 0, 8192, 3, 4, 0xff), 0, 1, 1));
    add("file-with-reserved-bits", commit(plain, 0, 1, 1, 0, 3, 1, 0, 0xff));
    add("odd-word", commit(plain, 0, 1, 1, 4));
    add("word-behind", commit(plain, 0, 1, 1, 8));
    add("word-in-a-page", commit(plain, 0, 1, 1, 4096));
    // A lane counts as a whole, or not at all.
    Seed good_then_bad = plain;
    good_then_bad.u16(0).u8(3).u64(1).u64(0).u32(1).u32(2).u8(0).u8(2);
    add("word-then-one-far", good_then_bad.u64(0).u64(0x55).u64((1ull << 49) - 8).u64(0x55));
    add("word-far", commit(plain, 0, 1, 1, (1ull << 49) - 8));
    add("last-word", commit(with("", 2, 4096, 4096, 0, 513 * 4096), 0, 1, 1, 4088));
    add("last-word-cut", commit(with("", 2, 4096, 4096, 0, 513 * 4096 - 1), 0, 1, 1, 4088));
    add("second-chunk", commit(with("", 2, 4096, 4096, 0, 515 * 4096), 0, 1, 1, 513 * 4096));
    const Seed sparse = with("", 2, 4096, 4096, 0, 1u << 31 | 514 * 4096);
    add("sparse", commit(sparse, 0, 1, 1, 8));
    add("sparse-page-number", commit(sparse, 0, 1, 1, 16));
    add("sparse-last-word", commit(sparse, 0, 1, 1, 257 * 4096 + 4088));
    add("sparse-word-in-a-page", commit(sparse, 0, 1, 1, 4096 + 8));
    add("sparse-size", commit(sparse, 0, 1, 1, size, 3, 1, 0, 0, size_word(256 * 4096)));
    add("sparse-size-too-large",
        commit(sparse, 0, 1, 1, size, 3, 1, 0, 0, size_word(256 * 4096 + 1)));
    add("sparse-last-word-cut", commit(with("", 2, 4096, 4096, 0, 1u << 31 | (514 * 4096 - 1)), 0,
                                       1, 1, 257 * 4096 + 4088));
    add("empty-reflection", commit(with("", 2, 4096, 4096, 0, 0), 0, 1, 1));
    return all;
}

} // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    using namespace fuzz;
    constexpr uint64_t MOST = 256 * PAGE;
    Input in(bytes, n);
    Header h = {in.u8(), in.u8(), in.u16(), in.u32(), in.u32(), in.u8()};
    auto more = static_cast<int8_t>(in.u8());
    const uint64_t whole = PAGE + h.lanes * h.small + h.large;
    uint64_t wanted = whole + static_cast<uint64_t>(more);
    Block block(std::min(wanted, MOST));
    const uint32_t told = in.u32();
    const Format format = told >> 31 ? SPARSE : DENSE;
    Block reflection((told & 0x7fffffff) % (516 * PAGE));
    put_header(block, h);
    for (int i = 0; in.more() && i < 16; i++)
        put_commit(block, h, in);
    struct journal j;
    bool makes_sense = (h.repairs & 3) == 3 && block.n >= PAGE && h.domain - 1u < 4 && h.lanes &&
                       h.lanes <= 4096 && h.small % 64 == 0 && h.small >= 4096 &&
                       h.lanes * h.small + 2 * PAGE <= block.n;
    int taken = journal_take(&j, block.begin, block.n, 0, "the journal");
    if ((taken == 0) != makes_sense)
        wrong("journal_take answers %d", taken);
    if (taken < 0 && strstr(report_sentence(), "the journal") == nullptr)
        wrong("journal_take says '%s'", report_sentence());
    if (taken == 0)
        look_at(j, block, h, reflection, format);
    return 0;
}
