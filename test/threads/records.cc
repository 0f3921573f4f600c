/* SPDX-License-Identifier: BSD-3-Clause */
#include "records.h"

#include "chaos.h"

#include <algorithm>

namespace threads
{

static constexpr size_t PAGE = 4096, SECOND_BEGIN = 2 * PAGE;
static constexpr size_t WORDS[Records::RECORDS] = {1301, 100, 5003, 8, 1301, 512, 2011, 601};
static constexpr size_t LONGEST = 5003;

static uint64_t stamp_of(unsigned writer, uint64_t version)
{
    return version << 8 | (writer + 1);
}

Records::Records(const Path &p) : path(p), file(folder / "records")
{
    size_t at = 13;
    for (unsigned i = 0; i < RECORDS; i++) {
        records[i] = {at, WORDS[i]};
        at += WORDS[i] * 8;
    }
    std::vector<unsigned char> bytes(at + 57);
    if (!rig::write_file(file, bytes))
        fail("cannot write " + file);
    map = rig::Map(file, bytes.size(), path.options());
    second = rig::Map(file, bytes.size() - SECOND_BEGIN, path.options(), SECOND_BEGIN);
    if (!map.base || !second.base)
        fail(ato_errormsg());
    Chaos::within(map);
}

unsigned char *Records::address(const Record &r, rig::Random &random) const
{
    if (r.offset >= SECOND_BEGIN && random.chance(30))
        return second.base + r.offset - SECOND_BEGIN;
    return map.base + r.offset;
}

bool Records::owned(unsigned record) const
{
    return record % 4 != 3 && record != COPY;
}

unsigned Records::owner(unsigned record) const
{
    return record % WRITERS;
}

void Records::fail(const std::string &what)
{
    std::lock_guard<std::mutex> guard(lock);
    if (sentence.empty())
        sentence = what;
    over = true;
}

bool Records::failed() const
{
    std::lock_guard<std::mutex> guard(lock);
    return !sentence.empty();
}

/* ---- the threads ---- */

void Records::writer(unsigned self, unsigned writes)
{
    rig::Random random(rig::seed() * 31 + ++born);
    std::vector<uint64_t> words(LONGEST);
    uint64_t versions[RECORDS] = {};
    for (unsigned i = 0; (i < writes || busy) && !over; i++) {
        unsigned k = static_cast<unsigned>(random.below(RECORDS));
        if (k == COPY || (owned(k) && owner(k) != self))
            k = random.chance(50) ? 3 : 7;
        const Record &r = records[k];
        uint64_t version = ++versions[k];
        std::fill_n(words.begin(), r.words, stamp_of(self, version));
        unsigned flags = random.chance(70) ? 0 : static_cast<unsigned>(random.below(4));
        begun[k][self] = version;
        if (!ato_memcpy_opt(address(r, random), words.data(), r.words * 8, flags))
            return fail(std::string("a writer: ") + ato_errormsg());
        told[k][self] = version;
    }
}

void Records::reader()
{
    rig::Random random(rig::seed() * 37 + ++born);
    std::vector<uint64_t> words(LONGEST);
    uint64_t seen[RECORDS][WRITERS] = {}, before[WRITERS];
    while (!over) {
        unsigned k = static_cast<unsigned>(random.below(RECORDS));
        const Record &r = records[k];
        for (unsigned w = 0; w < WRITERS; w++)
            before[w] = told[k == COPY ? COPY_OF : k][w];
        if (!ato_memcpy(words.data(), address(r, random), r.words * 8))
            return fail(std::string("a reader: ") + ato_errormsg());
        std::string where = "record " + std::to_string(k);
        for (size_t i = 1; i < r.words; i++)
            if (words[i] != words[0])
                return fail(where + ": a mix of two writes, first at word " + std::to_string(i));
        uint64_t version = words[0] >> 8, writer = (words[0] & 255) - 1;
        if (words[0] == 0) {
            if (k != COPY && std::any_of(before, before + WRITERS, [](uint64_t v) { return v; }))
                return fail(where + ": a write that was told to be done is not to be seen");
            continue;
        }
        if (writer >= WRITERS || version > begun[k == COPY ? COPY_OF : k][writer])
            return fail(where + ": a stamp that no writer has written yet");
        if (version < seen[k][writer])
            return fail(where + ": version " + std::to_string(version) + " after " +
                        std::to_string(seen[k][writer]) + " was seen");
        if (k != COPY && version < before[writer])
            return fail(where + ": version " + std::to_string(version) + ", though " +
                        std::to_string(before[writer]) + " was told to be done");
        seen[k][writer] = version;
    }
}

void Records::deployer()
{
    rig::Random random(rig::seed() * 41 + ++born);
    while (!over) {
        size_t from = random.below(map.n), n = random.within(1, map.n - from);
        if (ato_deploy(map.base + from, std::min(n, 6 * PAGE)) < 0 ||
            ato_msync(map.base, map.n, MS_SYNC) < 0 || map.stat().size != map.n)
            return fail(std::string("a deployer: ") + ato_errormsg());
        std::this_thread::yield();
    }
}

void Records::copier()
{
    rig::Random random(rig::seed() * 43 + ++born);
    const Record &from = records[COPY_OF], &to = records[COPY];
    while (!over) {
        if (!ato_memcpy(address(to, random), address(from, random), to.words * 8))
            return fail(std::string("a copier: ") + ato_errormsg());
        std::this_thread::yield();
    }
}

/* ---- the whole ---- */

std::string Records::work(unsigned writes, unsigned readers, unsigned besides,
                          const std::function<std::string()> &beside)
{
    std::vector<std::thread> others, writers;
    if (failed())
        return sentence;
    for (unsigned i = 0; i < readers; i++)
        others.emplace_back([this] { reader(); });
    others.emplace_back([this] { deployer(); });
    others.emplace_back([this] { copier(); });
    if (beside) {
        busy++;
        others.emplace_back([&] {
            for (unsigned n = 1; !over; n++) {
                std::string wrong = beside();
                if (!wrong.empty())
                    fail(wrong);
                if (n == besides)
                    busy--;
            }
        });
    }
    for (unsigned i = 0; i < WRITERS; i++)
        writers.emplace_back([this, i, writes] { writer(i, writes); });
    for (std::thread &t : writers)
        t.join();
    over = true;
    for (std::thread &t : others)
        t.join();
    return sentence;
}

std::string Records::end()
{
    std::vector<unsigned char> last(map.n);
    if (!ato_memcpy(last.data(), map.base, map.n))
        return ato_errormsg();
    for (unsigned k = 0; k < RECORDS; k++) {
        uint64_t word;
        std::memcpy(&word, last.data() + records[k].offset, 8);
        uint64_t want = told[k][owner(k)];
        if (owned(k) && want && word != stamp_of(owner(k), want))
            return "record " + std::to_string(k) + " does not hold its owner's last write";
    }
    if (second.unmap(ATO_UNMAP_FAST) < 0 || map.unmap(ATO_UNMAP_SPATIAL) < 0)
        return ato_errormsg();
    if (rig::read_file(file) != last)
        return "read(2) sees something else than the last reader";
    if (!rig::names_in(folder / ".ato").empty())
        return "something is left in .ato";
    return "";
}

} // namespace threads
