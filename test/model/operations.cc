/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of a step: each is a call of the library, and its effect on the model. Their table is in
 * steps.cc.
 */
#include "steps.h"

#include "../support/copied.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>

namespace model
{

static constexpr size_t MOST_OPEN = 3;

/* ---- transactions ---- */

void Steps::begin()
{
    if (open.size() == MOST_OPEN)
        return;
    ato_tx_options o = {};
    o.struct_size = sizeof(o);
    o.flags = random.chance(50) ? ATO_TX_READ_COMMITTED : 0;
    size_t limit = random.chance(40) ? random.within(1, 4) : 1u << 20;
    if (limit < 10)
        o.max_bytes = limit * PAGE - random.below(PAGE);
    ato_tx *tx = ato_tx_begin_opt(&o);
    ASSERT_TRUE(tx) << ato_errormsg();
    size_t file = random.below(2);
    size_t pages = std::min<size_t>((files[file].bytes.size() + PAGE - 1) / PAGE, 4);
    open.push_back({tx, !o.flags, limit, {}, {}, {}, {file, random.below(pages)}});
}

/* A range to write to, mostly in the file that the transaction has written to. */
Steps::Range Steps::range_for(const Transaction &t)
{
    if (setup.commit == Commit::Single)
        return range_in(t.only);
    Range r = any_range();
    while (is_elsewhere(t, r) && random.chance(80))
        r = any_range();
    return r;
}

void Steps::write_in(Transaction &t)
{
    Range r = range_for(t);
    const rig::Map &m = map_for(r, false);
    std::vector<unsigned char> bytes = some(r, &t.draft);
    std::set<Page> pages = t.draft.pages;
    int expected = claim(t, r, &pages);
    unsigned flags = static_cast<unsigned>(random.below(4));
    if (!went(ato_tx_memcpy(t.tx, address(m, r), bytes.data(), r.n, flags) != nullptr, expected))
        return;
    t.draft.pages = std::move(pages);
    t.draft.puts.push_back({r, std::move(bytes)});
    t.maps.insert(&m);
}

void Steps::read_in(Transaction &t)
{
    Range r = range_to_read();
    const rig::Map &m = map_for(r, false);
    Notes noted = t.noted;
    int expected = note(t, r, &noted);
    if (!went(ato_tx_memcpy(t.tx, scratch.data(), address(m, r), r.n, 0) != nullptr, expected,
              moved(t.noted)))
        return;
    t.noted = std::move(noted);
    t.maps.insert(&m);
    expect_bytes(scratch.data(), r, &t.draft, "a transaction");
}

/* From mapping to mapping; ranges may overlap. */
void Steps::copy_in(Transaction &t)
{
    Range to = range_for(t);
    Range from = within(random.chance(50) ? to.file : random.below(2), 0, ~size_t{0}, to.n);
    if (random.chance(50))
        from = within(to.file, to.offset - std::min<size_t>(to.offset, 100), to.offset + to.n + 100,
                      to.n);
    to.n = from.n;
    const rig::Map &m = map_for(to, false), &source = map_for(from, false);
    std::set<Page> pages = t.draft.pages;
    Notes noted = t.noted;
    int expected = is_elsewhere(t, to) ? EXDEV : note(t, from, &noted);
    if (!expected)
        expected = claim(t, to, &pages);
    std::vector<unsigned char> bytes = seen(from, &t.draft);
    if (!went(ato_tx_memcpy(t.tx, address(m, to), address(source, from), to.n, 0) != nullptr,
              expected, moved(t.noted)))
        return;
    t.draft.pages = std::move(pages);
    t.noted = std::move(noted);
    t.draft.puts.push_back({to, std::move(bytes)});
    t.maps.insert(&m);
    t.maps.insert(&source);
}

/* Calls that are refused with any transaction. */
void Steps::fail_in(Transaction &t)
{
    Range r = any_range();
    const rig::Map &m = files[r.file].whole;
    size_t beyond = files[r.file].bytes.size() - r.offset + 1;
    Range most = within(r.file, 0, ~size_t{0}, (t.limit + 1) * PAGE);
    std::set<Page> pages = t.draft.pages;
    int expected = claim(t, most, &pages);
    if (expected == E2BIG) {
        const std::vector<unsigned char> bytes(most.n);
        went(ato_tx_memcpy(t.tx, address(m, most), bytes.data(), most.n, 0) != nullptr, E2BIG);
        return;
    }
    switch (random.below(4)) {
    case 0:
        went(ato_tx_memcpy(t.tx, address(m, r), scratch.data(), 1u << 30, 0) != nullptr, EFAULT,
             moved(t.noted));
        break;
    case 1:
        went(ato_tx_memcpy(t.tx, address(m, r), files[1 - r.file].whole.base, beyond, 0) != nullptr,
             EFAULT, moved(t.noted));
        break;
    case 2:
        went(ato_tx_memcpy(t.tx, address(m, r), scratch.data(), r.n, 0x100) != nullptr, EINVAL);
        break;
    default:
        went(ato_tx_memcpy(t.tx, scratch.data(), scratch.data() + 64, 1, 0) != nullptr, EINVAL);
    }
}

void Steps::commit(std::list<Transaction>::iterator t)
{
    const bool writes = !t->draft.puts.empty();
    const Refused refusal = writes ? std::max(moved(t->noted), kept(*t)) : Refused::No;
    if (!went(ato_tx_commit(t->tx) == 0, 0, refusal)) {
        abort(t);
        return;
    }
    commits++;
    apply(t->draft);
    went(ato_tx_commit(t->tx) == 0, EINVAL);
    open.erase(t);
}

void Steps::abort(std::list<Transaction>::iterator t)
{
    ASSERT_EQ(ato_tx_abort(t->tx), 0) << ato_errormsg();
    aborts++;
    went(ato_tx_memcpy(t->tx, files[0].whole.base, scratch.data(), 1, 0) != nullptr, EINVAL);
    open.erase(t);
}

/* All calls on them fail; then they are aborted. The next one of the thread would go first after too many of
 * these, if none ended in another way. */
void Steps::end_refused()
{
    const auto ended = [](const Transaction &t) {
        return ato_tx_ftruncate(t.tx, nullptr, 0) < 0 && errno == EAGAIN;
    };
    for (auto t = open.begin(); t != open.end();) {
        auto next = std::next(t);
        if (ended(*t)) {
            went(ato_tx_commit(t->tx) == 0, EAGAIN);
            abort(t);
        }
        t = next;
    }
    ASSERT_EQ(ato_tx_commit(ato_tx_begin(0)), 0) << ato_errormsg();
}

void Steps::in_some_transaction()
{
    const uint64_t before = refused;
    if (open.empty() || random.chance(20)) {
        begin();
        return;
    }
    auto t = std::next(open.begin(), static_cast<long>(random.below(open.size())));
    uint64_t dice = random.below(100);
    if (dice < 40)
        write_in(*t);
    else if (dice < 60)
        read_in(*t);
    else if (dice < 75)
        copy_in(*t);
    else if (dice < 80)
        fail_in(*t);
    else if (dice < 94)
        commit(t);
    else
        abort(t);
    if (refused != before)
        end_refused();
}

/* ---- ato_writev() ---- */

void Steps::write_ranges()
{
    bool epoch = random.chance(25), single = setup.commit == Commit::Single;
    Range first = any_range();
    if (epoch && single && !files[first.file].epoch.pages.empty())
        first = range_in(*files[first.file].epoch.pages.begin());
    Page only = {first.file, first.offset / PAGE};
    Draft own;
    Draft *draft = epoch ? &files[first.file].epoch : &own;
    std::vector<ato_iovec> ranges;
    std::list<std::vector<unsigned char>> sources;
    std::vector<Put> puts;
    std::set<Page> pages;
    int expected = 0;
    bool two_files = false;
    Draft as_it_goes = *draft; /* with the ranges before it applied */
    for (uint64_t n = random.within(1, 4); n; n--) {
        Range r = single && !puts.empty() ? range_in(only) : puts.empty() ? first : any_range();
        const bool elsewhere = r.file != first.file;
        if (elsewhere && (epoch || random.chance(80)))
            continue;
        two_files |= elsewhere;
        const rig::Map &m = map_for(r, epoch);
        bool copies = !epoch && random.chance(30);
        Range from = copies ? within(random.below(2), 0, ~size_t{0}, r.n) : r;
        r.n = from.n;
        const rig::Map *source = copies ? &map_for(from, false) : nullptr;
        Put p = {r, copies ? seen(from, &as_it_goes) : some(r, &as_it_goes)};
        sources.push_back(p.bytes);
        ranges.push_back(
            {address(m, r), copies ? address(*source, from) : sources.back().data(), r.n});
        expected = expected ? expected : conflict(r, epoch ? draft : nullptr);
        if (copies && !expected)
            expected = conflict(from, nullptr);
        for (const Page &page : pages_of(r))
            pages.insert(page);
        as_it_goes.puts.push_back(p);
        puts.push_back(std::move(p));
    }
    if (two_files) /* which is told before a page is reserved */
        expected = EXDEV;
    if (random.chance(5)) {
        ranges.push_back({scratch.data(), scratch.data() + 64, 1}); /* the last of them is wrong */
        expected = EINVAL;
    }
    unsigned flags = static_cast<unsigned>(random.below(4));
    if (!went(ato_writev(ranges.data(), static_cast<int>(ranges.size()), flags) == 0, expected))
        return;
    draft->puts.insert(draft->puts.end(), puts.begin(), puts.end());
    draft->pages.insert(pages.begin(), pages.end());
    if (!epoch)
        apply(own);
}

/* ---- epochs ---- */

void Steps::write_epoch()
{
    Range r = any_range();
    Draft &d = files[r.file].epoch;
    if (setup.commit != Commit::Journal && !d.pages.empty())
        r = range_in(*d.pages.begin());
    std::vector<unsigned char> bytes = some(r, &d);
    unsigned char *to = files[r.file].epochs.base + r.offset;
    unsigned flags = static_cast<unsigned>(random.below(4));
    if (random.chance(10)) {
        std::fill(bytes.begin(), bytes.end(), bytes[0]);
        if (!went(ato_memset(to, bytes[0], r.n) != nullptr, conflict(r, &d)))
            return;
    } else if (!went(ato_memcpy_opt(to, bytes.data(), r.n, flags) != nullptr, conflict(r, &d))) {
        return;
    }
    for (const Page &page : pages_of(r))
        d.pages.insert(page);
    d.puts.push_back({r, std::move(bytes)});
}

void Steps::read_epoch()
{
    Range r = range_to_read();
    const File &f = files[r.file];
    ASSERT_TRUE(ato_memcpy(scratch.data(), f.epochs.base + r.offset, r.n)) << ato_errormsg();
    expect_bytes(scratch.data(), r, &f.epoch, "an epoch");
}

void Steps::sync_epoch(File &f)
{
    bool done = false;
    for (int tries = 0; tries < 1000 && !done && !testing::Test::HasFailure(); tries++)
        done = went(ato_msync(f.epochs.base, f.epochs.n, MS_SYNC) == 0, 0);
    ASSERT_TRUE(done) << "an epoch that cannot be committed";
    syncs += !f.epoch.puts.empty();
    apply(f.epoch);
    f.epoch = Draft();
}

void Steps::sync_some_epoch()
{
    sync_epoch(files[random.below(2)]);
}

/* ---- plain operations ---- */

void Steps::write_plainly()
{
    Range r = any_range();
    const rig::Map &m = map_for(r, false);
    std::vector<unsigned char> bytes = some(r, nullptr);
    unsigned flags = static_cast<unsigned>(random.below(4));
    if (went(ato_memcpy_opt(address(m, r), bytes.data(), r.n, flags) != nullptr,
             conflict(r, nullptr)))
        store(r, bytes.data());
}

void Steps::read_plainly()
{
    Range r = range_to_read();
    ASSERT_TRUE(ato_memcpy(scratch.data(), address(map_for(r, false), r), r.n)) << ato_errormsg();
    expect_bytes(scratch.data(), r, nullptr, "what is committed");
}

/* Also out of an epoch and into one: from there it is read as the epoch sees it. */
void Steps::copy_plainly()
{
    bool from_epoch = random.chance(20), to_epoch = random.chance(20);
    Range to = any_range(), from = within(random.below(2), 0, ~size_t{0}, to.n);
    to.n = from.n;
    Draft *d = to_epoch ? &files[to.file].epoch : nullptr;
    if (to_epoch && setup.commit != Commit::Journal)
        return;
    const Draft *source = from_epoch ? &files[from.file].epoch : nullptr;
    int expected = conflict(to, d);
    if (!from_epoch && !to_epoch && !expected)
        expected = conflict(from, nullptr);
    std::vector<unsigned char> bytes = seen(from, source);
    if (!went(ato_memcpy(address(map_for(to, to_epoch), to),
                         address(map_for(from, from_epoch), from), to.n) != nullptr,
              expected))
        return;
    if (!d) {
        store(to, bytes.data());
        return;
    }
    for (const Page &page : pages_of(to))
        d->pages.insert(page);
    d->puts.push_back({to, std::move(bytes)});
}

void Steps::deploy()
{
    Range r = any_range();
    /* With a log all slices are home, and it waits for no page. */
    const bool waits = setup.domain != ATO_DOMAIN_DISK;
    went(ato_deploy(address(map_for(r, false), r), r.n) == 0, waits ? conflict(r, nullptr) : 0);
}

/* Neither open transactions nor epochs are in it. */
void Steps::take_snapshot()
{
    const size_t i = random.below(2);
    std::vector<unsigned char> now;
    ASSERT_EQ(support::copy_now(files[i].epochs.base, now),
              static_cast<off_t>(files[i].bytes.size()))
        << ato_errormsg();
    expect_bytes(now.data(), {i, 0, now.size()}, nullptr, "what is committed");
}

/* Skips the pages of transactions. */
void Steps::reclaim()
{
    Range r = any_range();
    went(ato_reclaim(address(map_for(r, false), r), r.n) == 0, 0);
}

/* Not while a transaction uses the mapping. */
void Steps::map_part_again()
{
    File &f = files[random.below(2)];
    for (const Transaction &t : open)
        if (t.maps.count(&f.part)) {
            busy++;
            went(ato_munmap(f.part.base, f.part.n, ATO_UNMAP_FAST) == 0, EBUSY);
            return;
        }
    if (!f.epoch.puts.empty()) {
        busy++;
        went(ato_munmap(f.epochs.base, f.epochs.n, ATO_UNMAP_FAST) == 0, EBUSY);
    }
    count(f.part);
    ASSERT_EQ(f.part.unmap(static_cast<int>(random.below(2))), 0) << ato_errormsg();
    map_part(f);
}

void Steps::change_policy()
{
    const File &f = files[random.below(2)];
    int policy = static_cast<int>(random.below(6)) - 1;
    went(ato_set_read_policy(f.part.base, policy) == 0,
         policy < ATO_READ_DEFAULT || policy > ATO_READ_EAGER ? EINVAL : 0);
    EXPECT_EQ(ato_size(f.part.base), static_cast<off_t>(f.bytes.size()));
}

} // namespace model
