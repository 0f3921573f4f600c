/* SPDX-License-Identifier: BSD-3-Clause */
#include "steps.h"

#include <algorithm>
#include <cerrno>
#include <sys/stat.h>

namespace model
{

static constexpr size_t LONGEST = 1u << 20;

Steps::Steps(const Setup &s, rig::Random &r, size_t bytes) : setup(s), random(r), folder(s.medium)
{
    for (size_t i = 0; i < 2; i++) {
        File &f = files[i];
        f.path = folder / (i ? "second" : "first");
        f.bytes.resize(i ? bytes - bytes / 3 : bytes);
        random.fill(f.bytes.data(), f.bytes.size());
        EXPECT_TRUE(rig::write_file(f.path, f.bytes));
        ato_options o = options_of(setup, setup.policy);
        f.whole = rig::Map(f.path, f.bytes.size(), o);
        o.flags |= ATO_EPOCHS;
        f.epochs = rig::Map(f.path, f.bytes.size(), o);
        EXPECT_TRUE(f.whole.base && f.epochs.base) << ato_errormsg();
        map_part(f);
    }
    scratch.resize(LONGEST + 128);
}

void Steps::map_part(File &f)
{
    size_t pages = (f.bytes.size() + PAGE - 1) / PAGE;
    f.part_begin = random.below(pages) * PAGE;
    size_t n = random.within(1, f.bytes.size() - f.part_begin);
    int policy = ATO_READ_LAZY + static_cast<int>(random.below(3));
    f.part = rig::Map(f.path, n, options_of(setup, policy), static_cast<off_t>(f.part_begin));
    ASSERT_TRUE(f.part.base) << ato_errormsg();
}

void Steps::count(const rig::Map &m)
{
    struct ato_stat st = m.stat();
    tally.single += st.commits_single;
    tally.rtm += st.commits_rtm;
    tally.journal += st.commits_journal;
    tally.deployed += st.deployed_slices;
}

/* ---- places ---- */

/* n bytes, or as many as there are, between two offsets of a file. */
Steps::Range Steps::within(size_t file, size_t begin, size_t end, size_t n)
{
    end = std::min(end, files[file].bytes.size());
    n = std::min(n, end - begin);
    size_t at = random.within(begin, end - n);
    if (random.chance(30)) /* a slice or a page may begin there */
        at = std::max(begin, random.chance(50) ? at / 64 * 64 : at / PAGE * PAGE);
    return {file, at, n};
}

Steps::Range Steps::range_in(Page page)
{
    return within(page.first, page.second * PAGE, page.second * PAGE + PAGE,
                  random.log_uniform(PAGE));
}

Steps::Range Steps::range_to_read()
{
    size_t file = random.below(2), size = files[file].bytes.size();
    /* Near the begin of the file most of them meet. */
    size_t end = random.chance(60) ? std::min(size, 8 * PAGE) : size;
    return within(file, 0, end, random.log_uniform(random.chance(80) ? 3 * PAGE : LONGEST));
}

Steps::Range Steps::any_range()
{
    Range r = range_to_read();
    return setup.commit == Commit::Single ? range_in({r.file, r.offset / PAGE}) : r;
}

const rig::Map &Steps::map_for(const Range &r, bool with_epoch)
{
    const File &f = files[r.file];
    if (with_epoch)
        return f.epochs;
    bool in_part = r.offset >= f.part_begin && r.offset + r.n <= f.part_begin + f.part.n;
    return in_part && random.chance(50) ? f.part : f.whole;
}

unsigned char *Steps::address(const rig::Map &m, const Range &r) const
{
    const File &f = files[r.file];
    return m.base + r.offset - (&m == &f.part ? f.part_begin : 0);
}

/* ---- expected results ---- */

std::set<Steps::Page> Steps::pages_of(const Range &r)
{
    std::set<Page> pages;
    for (size_t page = r.offset / PAGE; page <= (r.offset + r.n - 1) / PAGE; page++)
        pages.insert({r.file, page});
    return pages;
}

const Steps::Draft *Steps::keeper(Page page) const
{
    for (const Transaction &t : open)
        if (t.draft.pages.count(page))
            return &t.draft;
    const Draft &epoch = files[page.first].epoch;
    return epoch.pages.count(page) ? &epoch : nullptr;
}

int Steps::conflict(const Range &r, const Draft *own) const
{
    for (const Page &page : pages_of(r)) {
        const Draft *d = keeper(page);
        if (d && d != own)
            return EDEADLK;
    }
    return 0;
}

/* In another file than that which the transaction has written to? */
bool Steps::is_elsewhere(const Transaction &t, const Range &r)
{
    return !t.draft.puts.empty() && t.draft.puts[0].to.file != r.file;
}

/* Adds to `all`, the pages that the transaction has now, those that it has after the call. */
int Steps::claim(Transaction &t, const Range &r, std::set<Page> *all) const
{
    std::set<Page> more = *all;
    for (const Page &page : pages_of(r))
        more.insert(page);
    if (is_elsewhere(t, r))
        return EXDEV;
    if (more.size() > t.limit)
        return E2BIG;
    if (conflict(r, &t.draft))
        return EDEADLK;
    *all = std::move(more);
    return 0;
}

/* The same for pages to read, which are only noted. */
int Steps::note(const Transaction &t, const Range &r, Notes *all) const
{
    for (const Page &page : pages_of(r)) {
        const auto at = writes.find(page);
        const size_t begin = page.second * PAGE, end = files[page.first].bytes.size();
        const Range whole = {page.first, begin, std::min(PAGE, end - begin)};
        if (t.checks && !t.draft.pages.count(page))
            all->insert({page, {at == writes.end() ? 0 : at->second, seen(whole, nullptr)}});
    }
    return all->size() > t.limit ? E2BIG : 0;
}

Steps::Refused Steps::moved(const Notes &noted) const
{
    Refused refusal = Refused::No;
    for (const auto &n : noted) {
        const auto at = writes.find(n.first);
        if (at == writes.end() || at->second == n.second.writes)
            continue;
        const unsigned char *now = files[n.first.first].bytes.data() + n.first.second * PAGE;
        if (std::memcmp(now, n.second.bytes.data(), n.second.bytes.size()) != 0)
            return Refused::Yes;
        refusal = Refused::Perhaps;
    }
    return refusal;
}

/* Do others keep what it has read? */
Steps::Refused Steps::kept(const Transaction &t) const
{
    for (const auto &n : t.noted) {
        const Draft *d = keeper(n.first);
        if (d && d != &t.draft)
            return Refused::Yes;
    }
    return Refused::No;
}

/* ---- comparing ---- */

std::vector<unsigned char> Steps::seen(const Range &r, const Draft *draft) const
{
    const unsigned char *at = files[r.file].bytes.data() + r.offset;
    std::vector<unsigned char> bytes(at, at + r.n);
    if (!draft)
        return bytes;
    for (const Put &p : draft->puts) {
        size_t begin = std::max(r.offset, p.to.offset),
               end = std::min(r.offset + r.n, p.to.offset + p.to.n);
        if (p.to.file == r.file && begin < end)
            std::memcpy(&bytes[begin - r.offset], &p.bytes[begin - p.to.offset], end - begin);
    }
    return bytes;
}

/* Bytes to write: random, or similar to those in the file. */
std::vector<unsigned char> Steps::some(const Range &r, const Draft *draft)
{
    std::vector<unsigned char> bytes(r.n);
    if (random.chance(30)) {
        bytes = seen(r, draft);
        for (uint64_t changes = random.below(4); changes; changes--)
            bytes[random.below(r.n)] ^= static_cast<unsigned char>(random.within(1, 255));
    } else {
        random.fill(bytes.data(), r.n);
    }
    return bytes;
}

void Steps::store(const Range &to, const unsigned char *bytes)
{
    std::memcpy(files[to.file].bytes.data() + to.offset, bytes, to.n);
    for (const Page &page : pages_of(to))
        writes[page]++;
}

void Steps::apply(const Draft &d)
{
    for (const Put &p : d.puts)
        store(p.to, p.bytes.data());
}

void Steps::expect_bytes(const unsigned char *bytes, const Range &r, const Draft *draft,
                         const char *whose)
{
    long at = rig::first_difference(bytes, seen(r, draft).data(), r.n);
    EXPECT_EQ(at, -1) << "a read of " << whose << ": " << files[r.file].path
                      << " differs first at byte " << static_cast<long>(r.offset) + at;
}

/* Is the result of a call the expected one? True: it was done. */
bool Steps::went(bool done, int expected, Refused refusal)
{
    int error = errno;
    if (!done && error == EAGAIN && refusal != Refused::No) {
        refused++;
        return false;
    }
    EXPECT_FALSE(done && refusal == Refused::Yes) << "done, and should have been refused";
    too_big += expected == E2BIG;
    kept_by_others += expected == EDEADLK;
    elsewhere += expected == EXDEV;
    if (done) {
        EXPECT_EQ(expected, 0) << "done, and should have failed";
        return expected == 0;
    }
    EXPECT_EQ(error, expected) << ato_errormsg();
    return false;
}

/* ---- steps ---- */

void Steps::compare_all()
{
    std::vector<unsigned char> now;
    for (size_t i = 0; i < 2; i++) {
        Range all = {i, 0, files[i].bytes.size()};
        now.resize(all.n);
        ASSERT_TRUE(ato_memcpy(now.data(), files[i].whole.base, all.n)) << ato_errormsg();
        expect_bytes(now.data(), all, nullptr, "what is committed");
        ASSERT_TRUE(ato_memcpy(now.data(), files[i].epochs.base, all.n)) << ato_errormsg();
        expect_bytes(now.data(), all, &files[i].epoch, "an epoch");
    }
}

void Steps::step()
{
    static const struct {
        unsigned weight;
        const char *name;
        void (Steps::*run)();
    } operations[] = {
        {50, "in a transaction", &Steps::in_some_transaction},
        {8, "ato_writev", &Steps::write_ranges},
        {8, "write in an epoch", &Steps::write_epoch},
        {5, "read of an epoch", &Steps::read_epoch},
        {4, "msync of an epoch", &Steps::sync_some_epoch},
        {8, "write", &Steps::write_plainly},
        {7, "read", &Steps::read_plainly},
        {5, "copy", &Steps::copy_plainly},
        {3, "deploy", &Steps::deploy},
        {2, "reclaim", &Steps::reclaim},
        {1, "snapshot", &Steps::take_snapshot},
        {2, "map again", &Steps::map_part_again},
        {2, "another policy", &Steps::change_policy},
    };
    const auto &op = random.weighted(operations);
    doing = "step " + std::to_string(++steps) + ": " + op.name;
    SCOPED_TRACE(doing);
    (this->*op.run)();
}

void Steps::finish()
{
    compare_all();
    while (!open.empty() && !testing::Test::HasFailure())
        commit(open.begin());
    for (File &f : files)
        sync_epoch(f);
    if (testing::Test::HasFailure())
        return;
    compare_all();
    for (File &f : files) {
        for (rig::Map *m : {&f.epochs, &f.part, &f.whole}) {
            count(*m);
            EXPECT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
        }
        EXPECT_TRUE(rig::read_file(f.path) == f.bytes) << f.path << ": read(2) sees something else";
    }
    EXPECT_EQ(rig::names_in(folder / ".ato"), std::vector<std::string>{});
}

} // namespace model
