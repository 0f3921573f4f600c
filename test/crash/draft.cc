// SPDX-License-Identifier: BSD-3-Clause
#include "draft.h"

#include <algorithm>
#include <exception>
#include <thread>

#include <sys/mman.h>

namespace crash
{

namespace
{

void put_into(Bytes &content, uint64_t at, const Bytes &bytes)
{
    check(at + bytes.size() <= content.size(), "a case writes beyond the end of its file");
    std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<long>(at));
}

Bytes part_of(const Bytes &content, uint64_t at, uint64_t n)
{
    return Bytes(content.begin() + static_cast<long>(at),
                 content.begin() + static_cast<long>(at + n));
}

} // namespace

Draft::Draft(Actor &a, unsigned flags) : actor(a), tx(ato_tx_begin(flags)), seen(a.contents)
{
    must(tx != nullptr, "ato_tx_begin");
    actor.world.opened(tx);
}

Draft::Draft(Actor &a, Mapping *m) : actor(a), epoch(m), seen(a.contents)
{
    seen_of(m) = a.read(m, 0, m->bytes);
}

void *Draft::move(void *dst, const void *src, uint64_t n, unsigned flags)
{
    return tx ? ato_tx_memcpy(tx, dst, src, n, flags) : ato_memcpy_opt(dst, src, n, flags);
}

void Draft::put(Mapping *m, uint64_t at, const Bytes &bytes, unsigned flags)
{
    must(move(m->base + at, bytes.data(), bytes.size(), flags) != nullptr, "a write in a draft");
    put_into(seen_of(m), at, bytes);
}

void Draft::write(Mapping *m, uint64_t at, uint64_t n, unsigned flags)
{
    put(m, at, actor.some(n), flags);
}

void Draft::write_like(Mapping *m, uint64_t at, uint64_t n, unsigned flags)
{
    put(m, at, actor.some_like(seen_of(m), at, n), flags);
}

void Draft::write_ranges(Mapping *m, const std::vector<uint64_t> &at, uint64_t n)
{
    std::vector<Bytes> bytes;
    std::vector<ato_iovec> ranges;
    bytes.reserve(at.size());
    for (uint64_t each : at) {
        bytes.push_back(actor.some(n));
        ranges.push_back({m->base + each, bytes.back().data(), n});
        put_into(seen_of(m), each, bytes.back());
    }
    must(ato_writev(ranges.data(), static_cast<int>(ranges.size()), 0) == 0, "ato_writev");
}

void Draft::copy(Mapping *to, uint64_t at, const Mapping *from, uint64_t from_at, uint64_t n)
{
    Bytes bytes = part_of(seen_of(from), from_at, n);
    must(move(to->base + at, from->base + from_at, n, 0) != nullptr, "a copy in a draft");
    put_into(seen_of(to), at, bytes);
}

void Draft::resize(Mapping *m, uint64_t to)
{
    must(ato_tx_ftruncate(tx, m->base, static_cast<off_t>(to)) == 0, "ato_tx_ftruncate");
    seen_of(m).resize(to);
    resized.push_back(m);
}

void Draft::check(const Mapping *m, uint64_t at, uint64_t n)
{
    Bytes bytes(n);
    must(move(bytes.data(), m->base + at, n, 0) != nullptr, "a read in a draft");
    if (bytes != part_of(seen_of(m), at, n))
        throw Violation("a read within a draft differs from its writes and the older bytes");
}

void Draft::commit()
{
    commit_as(
        [&] { return tx ? ato_tx_commit(tx) : ato_msync(epoch->base, epoch->bytes, MS_SYNC); });
}

void Draft::commit_as(const std::function<int()> &call)
{
    uint64_t before = hash_of(actor.contents), after = hash_of(seen);
    actor.allow({before, after});
    actor.contents = seen;
    must(call() == 0, "the commit of a draft");
    actor.allow({after});
    for (Mapping *m : resized)
        m->bytes = size(m);
}

void Draft::abort()
{
    must(ato_tx_abort(tx) == 0, "ato_tx_abort");
    actor.allow_this();
}

void write_ranges(Actor &a, const std::vector<Put> &puts, unsigned flags)
{
    std::vector<Bytes> after = a.contents, bytes;
    std::vector<ato_iovec> ranges;
    bytes.reserve(puts.size());
    for (const Put &p : puts) {
        bytes.push_back(p.from ? part_of(after[static_cast<size_t>(p.from->file)], p.from_at, p.n)
                               : a.some(p.n));
        put_into(after[static_cast<size_t>(p.to->file)], p.at, bytes.back());
        const void *from = bytes.back().data();
        ranges.push_back({p.to->base + p.at, p.from ? p.from->base + p.from_at : from, p.n});
    }
    a.allow({hash_of(a.contents), hash_of(after)});
    must(ato_writev(ranges.data(), static_cast<int>(ranges.size()), flags) == 0, "ato_writev");
    a.contents = std::move(after);
    a.allow_this();
}

void in_thread(int n, const std::function<void()> &what)
{
    int number = get_thread_number() * 100 + n;
    std::exception_ptr thrown;
    std::thread([&] {
        set_thread_number(number);
        try {
            what();
        } catch (...) {
            thrown = std::current_exception();
        }
    }).join();
    if (thrown)
        std::rethrow_exception(thrown);
}

} // namespace crash
