// SPDX-License-Identifier: BSD-3-Clause
//
// What may a lane hold? Its reader, and the replay, by themselves, on blocks that end where the lane and the reflection do, so
// that each access behind them is seen.
//
// Input: u8 domain, u8 pages of the lane - 1, u32 bytes of the reflection, bit 31: it is sparse; then commits, each over the one
// before:
//   u8 repairs (1: sequence follows retired, 2: seal), u64 sequence, u64 retired, u64 words, u8 reserved,
//   u8 n, then n words: u64 word, u64 value
#include "format.h"
#include "world.h"

#include <algorithm>
#include <cstdlib>

extern "C" {
#include "reflection/format/lane.h"
#include "reflection/media/report.h"
#include "reflection/recovery/replay.h"
}

namespace fuzz
{

namespace
{

constexpr uint64_t HEAD = 128;

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
    bool fits(uint64_t words) const
    {
        return words <= (n - HEAD) / 16;
    }
    const unsigned char *bytes() const
    {
        return reinterpret_cast<const unsigned char *>(begin);
    }

    char *begin;
    size_t n;
};

void put_commit(const Block &lane, Input &in)
{
    uint8_t repairs = in.u8();
    uint64_t sequence = in.u64(), retired = in.u64(), words = in.u64();
    if (repairs & 1)
        sequence = retired + 1;
    Bytes line(HEAD);
    put(line, 0, 8, sequence);
    put(line, 8, 8, words);
    put(line, 16, 1, in.u8());
    put(line, 64, 8, retired);
    for (unsigned i = in.u8(), k = 0; k < i && k < words; k++) {
        uint64_t word[2] = {in.u64(), in.u64()};
        lane.put(HEAD + 16 * k, word, 16);
    }
    if ((repairs & 2) && lane.fits(words))
        put(line, 56, 8, checksum(lane.bytes() + HEAD, 16 * words, checksum(line.data(), 56)));
    lane.put(0, line.data(), line.size());
}

// By FORMAT.md.
lane_finding state_of(const Block &lane)
{
    uint64_t sequence = lane.word(0), words = lane.word(8), retired = lane.word(64);
    const uint64_t next = retired + 1;
    if (sequence > next || (sequence == next && !lane.fits(words)))
        return LANE_DAMAGED;
    if (!sequence && !lane.word(56))
        return LANE_IDLE;
    if (!lane.fits(words) || !words ||
        lane.word(56) != checksum(lane.bytes() + HEAD, 16 * words, checksum(lane.bytes(), 56)))
        return LANE_CUT;
    if (sequence != next)
        return sequence == retired ? LANE_IDLE : LANE_CUT;
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word = lane.word(HEAD + 16 * i), size;
        if (word == 1ull << 49 ? !size_of(lane.word(HEAD + 16 * i + 8), &size)
                               : word > 1ull << 49 || word % 8)
            return LANE_DAMAGED;
    }
    return LANE_COMMITTED;
}

void apply(const lane_view &v, int domain, const Block &r, Format format)
{
    static pairing own;
    Block manifest(MANIFEST);
    uint64_t expected_size = 0, bytes;
    replay to = {};
    // In domain disk all of the file is synced, and these bytes are in no file.
    persist_init(&to.persist,
                 static_cast<persist_domain>(domain == PERSIST_DISK ? +PERSIST_PROCESS : domain));
    own.record.format = format;
    snprintf(own.path, sizeof(own.path), "the file");
    to.own = &own;
    to.fd = -1;
    to.map = r.begin;
    to.bytes = r.n;
    to.manifest = manifest.begin;
    const Bytes before(r.begin, r.begin + r.n);
    Bytes expected = before;
    bool good = true;
    for (uint64_t i = 0; i < v.nwords && good; i++) {
        const uint64_t at = v.words[i].word, value = v.words[i].value;
        if (at == 1ull << 49) {
            good = size_of(value, &bytes) && reflection_bytes(format, bytes) <= r.n;
            expected_size = value;
        } else {
            good = has_word(format, at, r.n);
            if (good)
                put(expected, at, 8, value);
        }
    }
    const int answer = replay_apply(&v, &to);
    if ((answer == 0) != good)
        wrong("replay_apply answers %d", answer);
    if (answer < 0 && strstr(report_sentence(), "the file") == nullptr)
        wrong("replay_apply says '%s'", report_sentence());
    if (memcmp(r.begin, good ? expected.data() : before.data(), r.n) != 0 ||
        manifest.word(SIZE_WORD) != (good ? expected_size : 0))
        wrong("replay_apply stored something else");
}

int retire(const persist &p, const Block &block, const lane_view &v)
{
    lane_writer w = {};
    w.persist = &p;
    w.lane = block.begin;
    w.line.sequence = v.sequence;
    return lane_retire(&w);
}

void look_at(const Block &block, int domain, const Block &r, Format format)
{
    persist p;
    lane_view v;
    const lane lane = {block.begin, block.n};
    persist_init(&p, static_cast<persist_domain>(domain));
    if (lane_settle(&lane, &p) < 0)
        wrong("lane_settle fails in memory");
    const lane_finding is = state_of(block);
    lane_finding found = lane_look(&lane, &v);
    if (found != is)
        wrong("lane_look answers %d, the bytes say %d", found, is);
    // Nothing is promised behind the last sequence: the next one is 0.
    const bool last = block.word(64) == UINT64_MAX - 1;
    if (found == LANE_COMMITTED) {
        apply(v, domain, r, format);
        if (retire(p, block, v) < 0 || (!last && lane_look(&lane, &v) != LANE_IDLE))
            wrong("not retired");
    } else if (found == LANE_CUT) {
        const int retired = retire(p, block, v);
        found = lane_look(&lane, &v);
        if (retired < 0 || (!last && (found == LANE_COMMITTED || found == LANE_DAMAGED)))
            wrong("a commit that was cut is not retired");
    }
}

Seed with(const char *name, uint64_t pages = 1, uint64_t reflection = 8192, uint64_t domain = 4)
{
    return Seed(name).u8(domain).u8(pages - 1).u32(reflection);
}

Seed commit(Seed s, uint64_t words, uint64_t word = 0, uint64_t repairs = 3, uint64_t sequence = 1,
            uint64_t retired = 0, uint64_t value = 0x55, uint64_t reserved = 0)
{
    return s.u8(repairs).u64(sequence).u64(retired).u64(words).u8(reserved).u8(1).u64(word).u64(
        value);
}

} // namespace

std::vector<Seed> seeds()
{
    std::vector<Seed> all;
    const Seed plain = with("");
    auto add = [&all](const char *name, Seed s) {
        s.name = name;
        all.push_back(std::move(s));
    };
    add("empty", plain);
    for (uint64_t domain = 1; domain < 4; domain++)
        add(("domain-" + std::to_string(domain)).c_str(), commit(with("", 1, 8192, domain), 1));
    add("commit", commit(plain, 1));
    add("commit-of-a-long-lane", commit(with("", 4), 1));
    add("two-commits", commit(commit(plain, 1), 5, 0, 3, 0, 1));
    add("shorter-after-longer", commit(commit(plain, 100), 1, 0, 1, 0, 1));
    add("unsealed-commit", commit(plain, 1, 0, 1));
    add("no-next", commit(plain, 1, 0, 2, 7, 5));
    add("older", commit(plain, 1, 0, 2, 3, 5));
    add("retired", commit(plain, 1, 0, 2, 5, 5));
    add("last-sequence-cut", commit(plain, 1, 0, 0, 5, UINT64_MAX - 1));
    add("last-sequence", commit(plain, 1, 0, 3, 0, UINT64_MAX - 1));
    add("around", commit(plain, 1, 0, 3, 0, UINT64_MAX));
    add("no-word", commit(plain, 0));
    add("most-words", commit(plain, 248));
    add("too-many-words", commit(plain, 249));
    add("most-words-of-a-long-lane", commit(with("", 3), 760));
    add("too-many-words-of-a-long-lane", commit(with("", 3), 761));
    add("all-words", commit(plain, UINT64_MAX));
    add("words-around", commit(plain, 1ull << 60));
    add("too-many-words-of-a-retired", commit(plain, 249, 0, 2, 5, 5));
    const uint64_t size = 1ull << 49;
    add("size", commit(plain, 1, size, 3, 1, 0, size_word(4096)));
    add("size-too-large", commit(plain, 1, size, 3, 1, 0, size_word(4097)));
    add("size-that-is-none", commit(plain, 1, size, 3, 1, 0, 4096));
    add("size-elsewhere", commit(plain, 1, size + 8, 3, 1, 0, size_word(4096)));
    add("reserved", commit(plain, 1, 0, 3, 1, 0, 0x55, 0xff));
    add("odd-word", commit(plain, 1, 4));
    add("word-behind", commit(plain, 1, 8));
    add("word-in-a-page", commit(plain, 1, 4096));
    // A lane counts as a whole, or not at all.
    Seed good_then_bad = plain;
    good_then_bad.u8(3).u64(1).u64(0).u64(2).u8(0).u8(2);
    add("word-then-one-far", good_then_bad.u64(0).u64(0x55).u64(size - 8).u64(0x55));
    add("word-far", commit(plain, 1, size - 8));
    add("last-word", commit(with("", 1, 513 * 4096), 1, 4088));
    add("last-word-cut", commit(with("", 1, 513 * 4096 - 1), 1, 4088));
    add("second-chunk", commit(with("", 1, 515 * 4096), 1, 513 * 4096));
    const Seed sparse = with("", 1, 1u << 31 | 514 * 4096);
    add("sparse", commit(sparse, 1, 8));
    add("sparse-page-number", commit(sparse, 1, 16));
    add("sparse-last-word", commit(sparse, 1, 257 * 4096 + 4088));
    add("sparse-word-in-a-page", commit(sparse, 1, 4096 + 8));
    add("sparse-size", commit(sparse, 1, size, 3, 1, 0, size_word(256 * 4096)));
    add("sparse-size-too-large", commit(sparse, 1, size, 3, 1, 0, size_word(256 * 4096 + 1)));
    add("sparse-last-word-cut",
        commit(with("", 1, 1u << 31 | (514 * 4096 - 1)), 1, 257 * 4096 + 4088));
    add("empty-reflection", commit(with("", 1, 0), 1));
    return all;
}

} // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    using namespace fuzz;
    Input in(bytes, n);
    const int domain = 1 + (in.u8() + 3) % 4;
    Block block((1 + in.u8() % 64) * PAGE);
    const uint32_t told = in.u32();
    const Format format = told >> 31 ? SPARSE : DENSE;
    Block reflection((told & 0x7fffffff) % (516 * PAGE));
    for (int i = 0; in.more() && i < 16; i++) {
        put_commit(block, in);
        look_at(block, domain, reflection, format);
    }
    return 0;
}
