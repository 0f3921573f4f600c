// SPDX-License-Identifier: BSD-3-Clause
#include "steps.h"

#include "model/rig.h"

extern "C" {
#include "lib/commit/sync.h"
#include "lib/file/table.h"
}

#include <algorithm>
#include <stdexcept>

namespace powercut
{

using namespace support;

constexpr size_t PAGE = 4096, LONGEST = 48 * PAGE;

std::vector<Step> steps_of(const Part &part, uint64_t seed)
{
    static const struct Kind {
        What what;
        unsigned weight, ranges;
        size_t longest;
        bool of_file;
    } by_calls[] = {{What::Write, 40, 1, PAGE, false},
                    {What::Write, 10, 1, 5 * PAGE, false},
                    {What::Write, 2, 1, LONGEST, false},
                    {What::Ranges, 10, 6, PAGE, false},
                    {What::Transaction, 15, 8, 2 * PAGE, false},
                    {What::Eager, 5, 1, 2 * PAGE, true},
                    {What::Sync, 12, 0, 0, false},
                    {What::Resize, 12, 0, 0, true},
                    {What::Deploy, 4, 0, 0, true},
                    {What::MapAgain, 4, 0, 0, true},
                    {What::MakePlain, 4, 0, 0, true}};
    static const Kind by_stores[] = {
        {What::Sync, 30, 8, PAGE, true},    {What::Sync, 6, 3, 5 * PAGE, true},
        {What::Sync, 2, 1, LONGEST, true},  {What::Async, 20, 8, PAGE, true},
        {What::Wait, 4, 8, PAGE, true},     {What::Discard, 8, 8, PAGE, true},
        {What::Resize, 20, 8, PAGE, true},  {What::Deploy, 4, 0, 0, true},
        {What::MapAgain, 4, 8, PAGE, true}, {What::MakePlain, 4, 8, PAGE, true}};
    rig::Random random(seed);
    std::vector<Step> all;
    size_t size = part.n, longest = size;
    while (all.size() < MOST_STEPS) {
        const bool stores = part.way == Way::Stores;
        const Kind &kind = stores ? random.weighted(by_stores) : random.weighted(by_calls);
        if (kind.of_file && !part.has_end())
            continue;
        Step step = {kind.what, static_cast<unsigned>(random.next()), {}, 0, false};
        const bool resizes = kind.what == What::Transaction && part.way == Way::File;
        if (kind.what == What::Resize || (resizes && random.chance(30))) {
            step.size = random.within(PAGE / 2, LONGEST);
            if (stores) // mostly a growth to what it never was
                step.size = random.chance(20)
                                ? random.within(size / 2, size)
                                : std::min(LONGEST, size + random.log_uniform(3 * PAGE));
            step.shrinks = step.size < size;
            // Where the file was longer before, a growth does not wait for the commit of stores.
            if (stores && !step.shrinks && size < longest)
                all.push_back({What::Grow, 0, {}, step.size, false});
            size = step.size;
            longest = std::max(longest, size);
        }
        const unsigned most = stores && step.shrinks ? 0 : kind.ranges; // nor does a shrink
        for (uint64_t n = most ? random.within(1, most) : 0; n; n--) {
            const size_t bytes = random.log_uniform(std::min(kind.longest, size));
            step.ranges.emplace_back(part.at + random.below(size - bytes + 1), bytes);
        }
        all.push_back(step);
    }
    return all;
}

Bytes content_after(const Part &part, const std::vector<Step> &steps, unsigned n)
{
    Bytes all = pattern(part.n, 0);
    for (unsigned i = 0; i < n; i++) {
        if (steps[i].what == What::Discard)
            continue;
        if (steps[i].size)
            all.resize(steps[i].size);
        for (size_t r = 0; r < steps[i].ranges.size(); r++) {
            const Bytes bytes = steps[i].bytes(r);
            std::copy(bytes.begin(), bytes.end(),
                      all.begin() + static_cast<long>(steps[i].ranges[r].first - part.at));
        }
    }
    return all;
}

void must(bool good, const std::string &what)
{
    if (!good)
        throw std::runtime_error(what + ": " + ato_errormsg());
}

Hand::Hand(const std::string &path, const Part &part, bool relaxed)
    : path_(path), part_(part), relaxed_(relaxed)
{
    map();
}

void Hand::map()
{
    ato_options how = options(ATO_DOMAIN_DISK);
    how.flags |= relaxed_ ? ATO_RELAXED : 0;
    if (part_.way == Way::Stores) {
        how.flags |= ATO_PLAIN_STORES;
        how.relaxed_ms = 50;
    }
    m_ = std::make_unique<Mapped>(path_, how, part_.at + LONGEST);
    must(!!*m_, "map " + path_);
}

void Hand::unmap(int mode)
{
    must(m_->unmap(mode) == 0, "unmap " + path_);
}

void Hand::act(const Step &step)
{
    if (part_.way == Way::Stores)
        act_by_stores(step);
    else
        act_by_calls(step);
}

Bytes Hand::read()
{
    const size_t n = m_->stat().size;
    const Bytes all = m_->read(0, n);
    must(all.size() == n, "read " + path_);
    if (part_.way == Way::Stores && memcmp(all.data(), m_->base, n) != 0)
        throw std::runtime_error("loads see other bytes in " + path_ + " than ato_memcpy()");
    return all;
}

void Hand::leave()
{
    m_.release();
}

void Hand::act_by_calls(const Step &step)
{
    std::vector<Bytes> bytes;
    std::vector<ato_iovec> ranges;
    for (size_t r = 0; r < step.ranges.size(); r++) {
        bytes.push_back(step.bytes(r));
        ranges.push_back({m_->base + step.ranges[r].first, bytes[r].data(), bytes[r].size()});
    }
    switch (step.what) {
    case What::Write:
        must(ato_memcpy(ranges[0].dst, ranges[0].src, ranges[0].n), "ato_memcpy");
        break;
    case What::Eager:
        must(ato_memcpy_opt(ranges[0].dst, ranges[0].src, ranges[0].n, ATO_EAGER), "eager");
        break;
    case What::Sync:
        sync(MS_SYNC);
        break;
    case What::Ranges:
        must(ato_writev(ranges.data(), static_cast<int>(ranges.size()), 0) == 0, "ato_writev");
        break;
    case What::Transaction: {
        ato_tx *tx = ato_tx_begin(0);
        must(tx &&
                 (!step.size || ato_tx_ftruncate(tx, m_->base, static_cast<off_t>(step.size)) == 0),
             "ato_tx_ftruncate");
        for (const ato_iovec &r : ranges)
            must(ato_tx_memcpy(tx, r.dst, r.src, r.n, 0), "ato_tx_memcpy");
        must(ato_tx_commit(tx) == 0, "ato_tx_commit");
        break;
    }
    case What::Resize:
        resize(step);
        break;
    default:
        act_as_a_whole(step.what);
        break;
    }
}

void Hand::act_by_stores(const Step &step)
{
    if (step.size)
        resize(step);
    for (size_t r = 0; r < step.ranges.size(); r++)
        memcpy(m_->base + step.ranges[r].first, step.bytes(r).data(), step.ranges[r].second);
    switch (step.what) {
    case What::Sync:
    case What::Resize:
        sync(MS_SYNC);
        break;
    case What::Async:
        sync(MS_ASYNC);
        break;
    case What::Wait: {
        sync(MS_ASYNC);
        const struct file *file = table_find(m_->base)->file;
        for (const uint64_t end = sync_tail(file); !sync_reaches(file, end);)
            usleep(1000);
        break;
    }
    case What::Grow:
        break;
    case What::Discard:
        must(ato_plain_discard(m_->base, m_->length) == 0, "ato_plain_discard");
        break;
    default:
        act_as_a_whole(step.what);
        break;
    }
}

void Hand::act_as_a_whole(What what)
{
    if (what == What::Deploy) {
        must(ato_deploy(m_->base, 1) == 0, "ato_deploy");
        return;
    }
    unmap(what == What::MapAgain ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
    map();
}

void Hand::resize(const Step &step)
{
    const auto size = static_cast<off_t>(part_.at + step.size);
    must(ato_ftruncate(m_->base, size) == 0, "ato_ftruncate");
}

void Hand::sync(int flags)
{
    must(ato_msync(m_->base, m_->length, flags) == 0, "ato_msync");
}

} // namespace powercut
