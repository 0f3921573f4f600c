// SPDX-License-Identifier: BSD-3-Clause
#include "actor.h"

#include "ato_engine.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

namespace crash
{

uint64_t hash_of(const std::vector<Bytes> &contents)
{
    uint64_t h = 0;
    for (const Bytes &masked : contents) {
        const Bytes b = unmasked(masked);
        h = mix(h ^ hash_bytes(b.data(), b.size()));
    }
    return h;
}

static std::vector<uint64_t> hashes_of(const std::vector<std::vector<Bytes>> &all)
{
    std::vector<uint64_t> hashes;
    for (const auto &c : all)
        hashes.push_back(hash_of(c));
    return hashes;
}

Actor::Actor(World &w, int d, uint64_t seed, std::vector<Bytes> c)
    : world(w), domain(d), random(seed), contents(std::move(c))
{
}

static std::vector<Bytes> contents_of(const std::vector<Found> &found)
{
    std::vector<Bytes> contents;
    for (const Found &f : found)
        contents.push_back(f.content);
    return contents;
}

Actor::Actor(World &w, int d, uint64_t seed, const std::vector<Found> &found)
    : Actor(w, d, seed, contents_of(found))
{
    for (size_t i = 0; i < found.size(); i++)
        know_guard(static_cast<int>(i), found[i].guard);
}

void Actor::know_guard(int file, const Guard &guard)
{
    guards.erase(file);
    if (!guard.plain.empty())
        guards[file] = guard;
}

void Actor::allow(std::vector<uint64_t> hashes)
{
    if (!mute)
        world.allow(std::move(hashes), demand);
}

Mapping *Actor::map(int file, int policy, unsigned flags)
{
    return world.map(file, domain, policy, flags);
}

Bytes Actor::read(const Mapping *m, uint64_t at, uint64_t n)
{
    Bytes bytes(n);
    must(n == 0 || ato_memcpy(bytes.data(), m->base + at, n) != nullptr,
         "ato_memcpy out of a mapping");
    return bytes;
}

static void look_at_size(Mapping *m)
{
    struct ato_stat st = {};
    st.struct_size = sizeof(st);
    must(ato_stat(m->base, &st) == 0, "ato_stat");
    m->bytes = st.size;
}

Bytes Actor::read_all(Mapping *m)
{
    Bytes bytes;
    for (;;) {
        look_at_size(m);
        const uint64_t size = m->bytes;
        bytes.resize(size);
        // Reading the pages of a dead process may finish its change of the size.
        must(ato_memcpy(bytes.data(), m->base, size) || errno == EFAULT,
             "ato_memcpy out of a mapping");
        look_at_size(m);
        if (m->bytes == size)
            return bytes;
    }
}

void Actor::deploy_all(Mapping *m)
{
    for (;;) {
        look_at_size(m);
        if (ato_deploy(m->base, m->bytes) == 0)
            return;
        must(errno == EFAULT, "ato_deploy");
    }
}

void Actor::check(const Mapping *m)
{
    if (unmasked(read(m, 0, m->bytes)) != unmasked(contents[static_cast<size_t>(m->file)]))
        throw Violation("a read of the whole file differs from the bytes written");
}

template <typename F> void Actor::change(int file, uint64_t at, const Bytes &bytes, F call)
{
    uint64_t before = hash_of(contents);
    std::copy(bytes.begin(), bytes.end(),
              contents[static_cast<size_t>(file)].begin() + static_cast<long>(at));
    uint64_t after = hash_of(contents);
    allow({before, after});
    call();
    allow({after});
}

Bytes Actor::some(uint64_t n)
{
    Bytes bytes(n);
    for (unsigned char &b : bytes)
        b = static_cast<unsigned char>(random.next());
    return bytes;
}

// When a file becomes plain, its guarded bytes change in the same step as all else.
void Actor::unmap(Mapping *m, int mode)
{
    auto guarded = guards.find(m->file);
    if (mode != ATO_UNMAP_SPATIAL || guarded == guards.end()) {
        world.unmap(m, mode);
        return;
    }
    Guard g = guarded->second;
    guards.erase(guarded);
    // If the first byte is plain, as a write may have made it by chance, there is no mask, and nothing is put back.
    if (contents[static_cast<size_t>(m->file)][g.at] == g.plain[0])
        g.plain.clear();
    change(m->file, g.at, g.plain, [&] { world.unmap(m, mode); });
}

void Actor::guard(Mapping *m, uint64_t at, uint64_t n)
{
    const Bytes &now = contents[static_cast<size_t>(m->file)];
    Guard g = {at,
               Bytes(now.begin() + static_cast<long>(at), now.begin() + static_cast<long>(at + n))};
    must(ato_set_guard(m->base, static_cast<off_t>(at), g.plain.data(), n) == 0, "ato_set_guard");
    guards[m->file] = g;
    write(m, at, n, ATO_EAGER);
}

void Actor::write(Mapping *m, uint64_t at, uint64_t n, unsigned flags)
{
    Bytes bytes = some(n);
    change(m->file, at, bytes, [&] {
        must(ato_memcpy_opt(m->base + at, bytes.data(), n, flags) != nullptr, "ato_memcpy_opt");
    });
}

Bytes Actor::some_like(const Bytes &now, uint64_t at, uint64_t n)
{
    Bytes bytes(now.begin() + static_cast<long>(at), now.begin() + static_cast<long>(at + n));
    for (uint64_t i = 0; i < n;) {
        uint64_t run = std::min(n - i, 32 + random.below(200));
        if (random.one_in(2))
            for (uint64_t k = i; k < i + run; k++)
                bytes[k] = static_cast<unsigned char>(random.next());
        i += run;
    }
    return bytes;
}

void Actor::write_like(Mapping *m, uint64_t at, uint64_t n, unsigned flags)
{
    Bytes bytes = some_like(contents[static_cast<size_t>(m->file)], at, n);
    change(m->file, at, bytes, [&] {
        must(ato_memcpy_opt(m->base + at, bytes.data(), n, flags) != nullptr, "ato_memcpy_opt");
    });
}

void Actor::write_sparsely(Mapping *m, uint64_t at, uint64_t n)
{
    const Bytes &current = contents[static_cast<size_t>(m->file)];
    Bytes bytes(current.begin() + static_cast<long>(at),
                current.begin() + static_cast<long>(at + n));
    for (uint64_t i = random.below(30) * 64; i < n; i += PAGE)
        for (uint64_t k = i; k < std::min(i + 64, n); k++)
            bytes[k] = static_cast<unsigned char>(random.next());
    change(m->file, at, bytes, [&] {
        must(ato_memcpy_opt(m->base + at, bytes.data(), n, ATO_SKIP_EQUAL) != nullptr,
             "ato_memcpy_opt");
    });
}

void Actor::fill(Mapping *m, uint64_t at, uint64_t n)
{
    int byte = static_cast<int>(random.below(256));
    change(m->file, at, Bytes(n, static_cast<unsigned char>(byte)),
           [&] { must(ato_memset(m->base + at, byte, n) != nullptr, "ato_memset"); });
}

void Actor::copy(Mapping *to, uint64_t at, Mapping *from, uint64_t from_at, uint64_t n)
{
    const Bytes &source = contents[static_cast<size_t>(from->file)];
    Bytes bytes(source.begin() + static_cast<long>(from_at),
                source.begin() + static_cast<long>(from_at + n));
    change(to->file, at, bytes, [&] {
        must(ato_memcpy(to->base + at, from->base + from_at, n) != nullptr, "ato_memcpy");
    });
}

void Actor::deploy(Mapping *m, uint64_t at, uint64_t n)
{
    must(ato_deploy(m->base + at, n) == 0, "ato_deploy");
}

void Actor::reclaim(Mapping *m, uint64_t at, uint64_t n)
{
    must(ato_reclaim(m->base + at, n) == 0, "ato_reclaim");
}

void Actor::resize(Mapping *m, uint64_t to)
{
    uint64_t before = hash_of(contents);
    contents[static_cast<size_t>(m->file)].resize(to);
    uint64_t after = hash_of(contents);
    allow({before, after});
    must(ato_ftruncate(m->base, static_cast<off_t>(to)) == 0, "ato_ftruncate");
    allow({after});
    m->bytes = to;
}

// ---- another process ----

void Actor::beside(const std::function<void()> &what)
{
    World::Beside done = world.beside(what, [this](Pack &p) {
        for (const Bytes &b : contents)
            p.word(std::string(b.begin(), b.end()));
    });
    std::vector<Bytes> other;
    Unpack u(done.words);
    for (size_t i = 0; i < contents.size(); i++) {
        std::string bytes = u.word();
        other.emplace_back(bytes.begin(), bytes.end());
    }
    if (!may_be.empty()) {
        if (!done.allowed.empty())
            throw std::logic_error("the content is undecided, and is changed again");
        return;
    }
    for (const auto &c : {contents, other})
        if (done.allowed.empty() ||
            std::count(done.allowed.begin(), done.allowed.end(), hash_of(c)))
            may_be.push_back(c);
    if (done.allowed.empty()) // the process died before its change
        may_be.pop_back();
    if (may_be.empty())
        throw std::logic_error("a process beside the run may change the content only once");
    allow(hashes_of(may_be));
}

// The change of a dead process may be completed until its pages are taken over: the first read may
// return the old content, a later one the new content.
void Actor::look_once()
{
    for (size_t i = 0; i < world.mapped(); i++) {
        Mapping *m = world.mapping(i);
        const Bytes seen = read_all(m);
        auto is_seen = [&](const auto &c) { return c[static_cast<size_t>(m->file)] == seen; };
        auto first = std::find_if(may_be.begin(), may_be.end(), is_seen);
        if (first == may_be.end())
            throw Violation(
                "after the death of a process a file has neither its old content nor the "
                "content that the process wrote");
        may_be.erase(may_be.begin(), first);
        allow(hashes_of(may_be));
    }
}

void Actor::look()
{
    std::set<int> files;
    for (size_t i = 0; i < world.mapped(); i++)
        files.insert(world.mapping(i)->file);
    for (int i = 0; i < static_cast<int>(contents.size()); i++)
        if (!files.count(i))
            map(i, ATO_READ_GATHER, ATO_NO_RTM);
    look_once();
    for (size_t i = 0; i < world.mapped(); i++)
        deploy_all(world.mapping(i));
    // Now the outcome is decided.
    std::vector<Bytes> seen(contents.size());
    for (size_t i = 0; i < world.mapped(); i++)
        seen[static_cast<size_t>(world.mapping(i)->file)] = read_all(world.mapping(i));
    if (std::find(may_be.begin(), may_be.end(), seen) == may_be.end())
        throw Violation("a dead process left a mixture of the old content and the content that it "
                        "wrote");
    contents = std::move(seen);
    may_be.clear();
    allow_this();
}

void Actor::write_blindly(Mapping *m, uint64_t at, uint64_t n)
{
    write_ranges_blindly(m, {at}, n);
}

void Actor::write_slices_blindly(Mapping *m, uint64_t at, uint64_t pages)
{
    std::vector<uint64_t> all;
    for (uint64_t i = 0; i < pages; i++)
        all.push_back(at + i * PAGE);
    write_ranges_blindly(m, all, LINE);
}

void Actor::change_blindly(int file, const std::function<void(Bytes &)> &to,
                           const std::function<void()> &act)
{
    std::vector<std::vector<Bytes>> both = may_be;
    for (auto &c : may_be)
        to(c[static_cast<size_t>(file)]);
    both.insert(both.end(), may_be.begin(), may_be.end());
    allow(hashes_of(both));
    act();
    allow(hashes_of(may_be));
}

void Actor::write_ranges_blindly(Mapping *m, const std::vector<uint64_t> &places, uint64_t n)
{
    const Bytes bytes = some(places.size() * n);
    std::vector<ato_iovec> ranges;
    for (size_t i = 0; i < places.size(); i++)
        ranges.push_back({m->base + places[i], &bytes[i * n], n});
    const auto to = [&](Bytes &content) {
        for (size_t i = 0; i < places.size(); i++)
            memcpy(&content[places[i]], &bytes[i * n], n);
    };
    change_blindly(m->file, to, [&] {
        must(ranges.size() == 1
                 ? ato_memcpy(ranges[0].dst, bytes.data(), n) != nullptr
                 : ato_writev(ranges.data(), static_cast<int>(ranges.size()), 0) == 0,
             "a blind write");
    });
}

void Actor::scatter(Mapping *m, unsigned writes)
{
    for (unsigned i = 0; i < writes; i++) {
        uint64_t n = 1 + random.below(random.one_in(3) ? 2 * PAGE : 700);
        n = std::min(n, m->bytes);
        write(m, random.below(m->bytes - n + 1), n);
    }
}

} // namespace crash
