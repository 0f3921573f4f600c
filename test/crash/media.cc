// SPDX-License-Identifier: BSD-3-Clause
#include "media.h"

#include "ato.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace crash
{

namespace
{

constexpr uint64_t ALL = std::numeric_limits<uint64_t>::max();

void do_meta(Disk &disk, const Event &e)
{
    Inode &inode = disk.edit(e.inode);
    if (e.kind == Kind::Resize)
        inode.resize(e.bytes);
    else if (e.kind == Kind::Attribute)
        inode.attribute = e.name;
    else
        inode.mtime = e.time;
}

void do_name(Disk &disk, const Event &e)
{
    auto &names = disk.edit(e.inode).names;
    if (e.kind == Kind::Make) {
        names[e.name] = e.child;
    } else if (e.kind == Kind::Remove) {
        names.erase(e.name);
    } else {
        auto from = names.find(e.name);
        if (from == names.end())
            return;
        int child = from->second;
        names.erase(from);
        names[e.to] = child;
    }
}

// The parts of a put that persist independently.
unsigned parts_of(uint8_t mask, bool torn)
{
    return static_cast<unsigned>(__builtin_popcount(mask)) * (torn ? 2 : 1);
}

} // namespace

Loss loss_of(int domain)
{
    return domain == ATO_DOMAIN_EADR      ? Loss::Cache
           : domain == ATO_DOMAIN_PROCESS ? Loss::Process
                                          : Loss::Power;
}

Media::Media(Disk start, Loss l, bool f, Mutation m)
    : sure(start), seen(std::move(start)), loss(l), faults_sync(f), mutation(std::move(m))
{
}

// ---- events -------------------------------------------------------------------------------------

// Does the mutation hold back, or drop, this event?
bool Media::withhold(const Event &e)
{
    bool orders = e.kind == Kind::Flush || e.kind == Kind::Fence || e.kind == Kind::Sync ||
                  e.kind == Kind::SyncFile;
    if (orders && mutated(e, Fault::Drop))
        return true;
    if ((e.kind == Kind::Fence && mutated(e, Fault::Delay)) ||
        (e.kind == Kind::Store && mutated(e, Fault::Late))) {
        // If a word is late more than once, it gets the last value.
        if (mutation.fault == Fault::Late)
            held.clear();
        else if (held.empty())
            allows = 0;
        held.push_back(e);
        return true;
    }
    return false;
}

void Media::feed(const Event &e)
{
    if (due && (e.kind != Kind::Death || (e.alone && e.thread != due))) {
        std::vector<Event> events = std::move(held);
        held.clear();
        allows = 0;
        for (const Event &h : events)
            if (h.thread == due)
                take(h);
            else
                held.push_back(h);
        due = 0;
    }
    if (withhold(e))
        return;
    take(e);
    if (held.empty())
        return;
    if (e.kind == Kind::Allow)
        allows++;
    for (const Event &h : held)
        if (mutation.fault == Fault::Delay ? is_store(e) && e.thread == h.thread
                                           : allows == 3) // returned; begun; returned
            due = h.thread;
}

void Media::process_died(int thread)
{
    auto is_of_process = [thread](int other) { return thread == EVERY || thread == other; };
    changes++;
    // The process died before these events.
    held.erase(std::remove_if(held.begin(), held.end(),
                              [&](const Event &e) { return is_of_process(e.thread); }),
               held.end());
    if (is_of_process(due))
        due = 0;
    for (auto f = flushed.begin(); f != flushed.end();)
        f = is_of_process(f->first) ? flushed.erase(f) : std::next(f);
    for (auto &line : lines)
        for (Put &p : line.second)
            p.orphan = p.orphan || is_of_process(p.thread);
    if (loss != Loss::Cache)
        return;
    for (auto line = lines.begin(); line != lines.end();) {
        settle(line->first, line->second, thread == EVERY ? ALL : 0, thread);
        line = line->second.empty() ? lines.erase(line) : std::next(line);
    }
}

void Media::take(const Event &e)
{
    // A flush by itself decides nothing, and a fence only if it makes something certain.
    if (e.kind != Kind::Allow && e.kind != Kind::Flush && e.kind != Kind::Fence)
        changes++;
    switch (e.kind) {
    case Kind::Store:
    case Kind::Stream:
        store(e);
        break;
    case Kind::Flush:
        if (!e.bytes)
            break;
        for (uint64_t line = e.at / LINE; line <= (e.at + e.bytes - 1) / LINE; line++)
            if (lines.count({e.inode, line}))
                flushed[e.thread][{e.inode, line}] = serial;
        break;
    case Kind::Fence:
        fence(e.thread);
        break;
    case Kind::Sync:
        if (!e.bytes)
            break;
        settle_meta(e.inode, true);
        settle_range(e.inode, e.at / PAGE * (PAGE / LINE),
                     ((e.at + e.bytes - 1) / PAGE + 1) * (PAGE / LINE) - 1);
        break;
    case Kind::SyncFile:
        settle_meta(e.inode, false);
        settle_names(e.inode);
        settle_range(e.inode, 0, std::numeric_limits<uint64_t>::max());
        break;
    case Kind::Make: {
        Inode inode;
        inode.folder = e.folder;
        seen.add(inode);
        sure.add(std::move(inode));
        change_names(e);
        break;
    }
    case Kind::Rename:
    case Kind::Remove:
        change_names(e);
        break;
    case Kind::Resize:
    case Kind::Attribute:
    case Kind::Times:
        if (loss == Loss::Process) {
            do_meta(sure, e);
        } else {
            metas[e.inode].push_back({++serial, seen.at(e.inode).size, e});
            if (e.kind == Kind::Resize)
                cut_off(e);
        }
        do_meta(seen, e);
        break;
    case Kind::Death:
        process_died(e.alone ? e.thread : EVERY);
        break;
    case Kind::Allow:
        break;
    }
}

// Pending stores behind a new end of the file persist only if the file keeps its old end.
void Media::cut_off(const Event &e)
{
    for (auto line = lines.lower_bound({e.inode, (e.bytes + LINE - 1) / LINE});
         line != lines.end() && line->first.first == e.inode; ++line)
        for (Put &p : line->second)
            if (!p.until)
                p.until = serial;
}

// The last uncertain change of size without which the file does not have this place, or has other
// bytes there.
uint64_t Media::needs_of(const Chunk &c) const
{
    uint64_t needs = 0;
    auto pending = metas.find(c.inode);
    if (pending != metas.end())
        for (const Meta &m : pending->second)
            if (m.e.kind == Kind::Resize && (m.e.bytes < m.size_before || c.at >= m.size_before))
                needs = m.serial;
    return needs;
}

std::map<Media::Key, Media::Put> Media::puts_of(const Event &e) const
{
    std::map<Key, Put> puts;
    bool torn = e.kind == Kind::Store && mutated(e, Fault::Tear);
    for (const Chunk &c : e.chunks) {
        Put fresh = {{}, 0, e.kind == Kind::Stream, torn, e.thread, serial, 0};
        Put &p = puts.try_emplace({c.inode, c.at / LINE}, fresh).first->second;
        p.needs = std::max(p.needs, needs_of(c));
        p.value[c.at % LINE / 8] = c.value;
        p.mask = static_cast<uint8_t>(p.mask | 1u << (c.at % LINE / 8));
    }
    return puts;
}

void Media::store(const Event &e)
{
    serial++;
    if (faults_sync && loss != Loss::Process)
        for (const Chunk &c : e.chunks)
            settle_meta(c.inode, true);
    for (const Chunk &c : e.chunks)
        seen.edit(c.inode).set_word(c.at, c.value);
    bool at_once = loss == Loss::Process || (loss == Loss::Cache && e.kind == Kind::Store);
    if (at_once)
        for (const Chunk &c : e.chunks)
            sure.edit(c.inode).set_word(c.at, c.value);
    for (const auto &p : puts_of(e)) {
        auto line = lines.find(p.first);
        if (line != lines.end() && line->second.back().stream != p.second.stream)
            mixture = "inode " + std::to_string(p.first.first) + " line " +
                      std::to_string(p.first.second) + " by " + e.site;
        if (!at_once)
            lines[p.first].push_back(p.second);
    }
}

void Media::settle(const Key &key, Line &line, uint64_t upto, int streams_of)
{
    Line rest;
    Inode *inode = nullptr;
    for (const Put &p : line) {
        bool captured = p.serial <= upto && (!p.stream || p.orphan || upto == ALL);
        if (!captured && !(p.stream && p.thread == streams_of)) {
            rest.push_back(p);
            continue;
        }
        if (!inode)
            inode = &sure.edit(key.first);
        for (unsigned i = 0; i < 8; i++)
            if (p.mask >> i & 1)
                inode->set_word(key.second * LINE + i * 8, p.value[i]);
        // Stores to one address keep their order: an older one, of any thread, cannot come later.
        for (Put &older : rest)
            older.mask = static_cast<uint8_t>(older.mask & ~p.mask);
    }
    rest.erase(std::remove_if(rest.begin(), rest.end(), [](const Put &p) { return !p.mask; }),
               rest.end());
    line = std::move(rest);
}

void Media::fence(int thread)
{
    auto &captured = flushed[thread];
    for (auto line = lines.begin(); line != lines.end();) {
        auto upto = captured.find(line->first);
        bool streams = std::any_of(line->second.begin(), line->second.end(),
                                   [&](const Put &p) { return p.stream && p.thread == thread; });
        changes += streams || upto != captured.end();
        settle(line->first, line->second, upto == captured.end() ? 0 : upto->second, thread);
        line = line->second.empty() ? lines.erase(line) : std::next(line);
    }
    captured.clear();
}

void Media::settle_range(int inode, uint64_t first, uint64_t last)
{
    for (auto line = lines.lower_bound({inode, first});
         line != lines.end() && line->first <= Key{inode, last};) {
        settle(line->first, line->second, ALL, 0);
        line = lines.erase(line);
    }
}

void Media::settle_meta(int inode, bool size_only)
{
    auto pending = metas.find(inode);
    if (pending == metas.end())
        return;
    std::vector<Meta> rest;
    uint64_t last = 0;
    for (Meta &m : pending->second) {
        if (size_only && m.e.kind != Kind::Resize) {
            rest.push_back(std::move(m));
            continue;
        }
        do_meta(sure, m.e);
        last = m.serial;
    }
    pending->second = std::move(rest);
    if (pending->second.empty())
        metas.erase(pending);
    auto is_gone = [last](const Put &p) { return p.until && p.until <= last; };
    for (auto line = lines.lower_bound({inode, 0});
         line != lines.end() && line->first.first == inode;) {
        Line &puts = line->second;
        puts.erase(std::remove_if(puts.begin(), puts.end(), is_gone), puts.end());
        line = puts.empty() ? lines.erase(line) : std::next(line);
    }
}

void Media::settle_names(int folder)
{
    auto pending = names.find(folder);
    if (pending == names.end())
        return;
    for (const Named &n : pending->second)
        do_name(sure, n.e);
    names.erase(pending);
}

void Media::change_names(const Event &e)
{
    do_name(seen, e);
    if (loss == Loss::Process) {
        do_name(sure, e);
        return;
    }
    auto &pending = names[e.inode];
    uint64_t chain = ++serial;
    auto touches = [&e](const std::string &name) {
        return !name.empty() && (name == e.name || name == e.to);
    };
    for (const Named &n : pending)
        if (touches(n.e.name) || touches(n.e.to)) {
            uint64_t joined = n.chain;
            for (Named &other : pending)
                if (other.chain == joined)
                    other.chain = chain;
        }
    pending.push_back({e, chain});
}

// ---- choices of a crash -------------------------------------------------------------------------

void Media::add_units(const Key &key, const Line &line)
{
    uint64_t group = mix(static_cast<uint64_t>(key.first) << 40 ^ key.second);
    bool any_torn = std::any_of(line.begin(), line.end(), [](const Put &p) { return p.torn; });
    if ((line.size() > 1 && !line[0].stream) || any_torn) {
        uint32_t choices = 1;
        for (const Put &p : line)
            choices += (1u << parts_of(p.mask, p.torn)) - 1;
        now.push_back({choices, group});
        about.push_back({Subject::Prefix, key, 0, line, 0});
        return;
    }
    for (int chunk = 0; chunk < 8; chunk++) {
        std::vector<Put> versions;
        for (const Put &p : line)
            if (p.mask >> chunk & 1)
                versions.push_back(p);
        uint64_t old =
            sure.at(key.first).word(key.second * LINE + static_cast<unsigned>(chunk) * 8);
        bool no_change = versions.size() == 1 && versions[0].value[chunk] == old &&
                         !metas.count(key.first); // a change of size would need one
        if (versions.empty() || no_change)
            continue;
        now.push_back({static_cast<uint32_t>(versions.size()) + 1, group});
        about.push_back({Subject::Versions, key, chunk, std::move(versions), 0});
    }
}

const std::vector<Unit> &Media::units(const Event *next)
{
    now.clear();
    about.clear();
    for (const auto &folder : names) {
        std::map<uint64_t, uint32_t> chains;
        for (const Named &n : folder.second)
            chains[n.chain]++;
        for (const auto &chain : chains) {
            now.push_back({chain.second + 1, mix(chain.first)});
            about.push_back({Subject::Names, {folder.first, 0}, 0, {}, chain.first});
        }
    }
    for (const auto &m : metas) {
        now.push_back(
            {static_cast<uint32_t>(m.second.size()) + 1, mix(~0ull - m.second[0].serial)});
        about.push_back({Subject::Meta, {m.first, 0}, 0, {}, 0});
    }
    for (const auto &line : lines)
        add_units(line.first, line.second);
    // Of a store under way any part may persist; elsewhere it is pending soon, and is cut then.
    bool at_once =
        loss == Loss::Process || (loss == Loss::Cache && next && next->kind == Kind::Store);
    bool whole = next && next->whole && !mutated(*next, Fault::Tear);
    if (next && is_store(*next) && !whole && at_once)
        for (const auto &p : puts_of(*next))
            add_units(p.first, {p.second});
    return now;
}

Disk Media::image(const std::vector<uint32_t> &choice) const
{
    Disk disk = sure;
    std::map<int, uint64_t> lost; // inode: the first change of its metadata that is lost
    for (size_t i = 0; i < about.size(); i++) {
        const Subject &s = about[i];
        uint32_t left = choice[i];
        if (s.kind == Subject::Names) {
            for (const Named &n : names.at(s.key.first))
                if (n.chain == s.chain && left) {
                    do_name(disk, n.e);
                    left--;
                }
        } else if (s.kind == Subject::Meta) {
            for (const Meta &m : metas.at(s.key.first)) {
                if (!left) {
                    lost[s.key.first] = m.serial;
                    break;
                }
                do_meta(disk, m.e);
                left--;
            }
        }
    }
    for (size_t i = 0; i < about.size(); i++) {
        const Subject &s = about[i];
        uint32_t left = choice[i];
        if ((s.kind != Subject::Versions && s.kind != Subject::Prefix) || !left)
            continue;
        auto gone = lost.find(s.key.first);
        uint64_t limit = gone == lost.end() ? std::numeric_limits<uint64_t>::max() : gone->second;
        Inode &inode = disk.edit(s.key.first);
        uint64_t at = s.key.second * LINE;
        if (s.kind == Subject::Versions) {
            const Put &p = s.puts[left - 1];
            if (p.needs < limit && (!p.until || p.until >= limit))
                inode.set_word(at + static_cast<unsigned>(s.chunk) * 8, p.value[s.chunk]);
            continue;
        }
        for (const Put &p : s.puts) {
            uint32_t subsets = (1u << parts_of(p.mask, p.torn)) - 1;
            uint32_t subset = std::min(left, subsets);
            unsigned part = 0;
            bool there = p.needs < limit && (!p.until || p.until >= limit);
            for (unsigned c = 0; c < 8 && there; c++) {
                if (!(p.mask >> c & 1))
                    continue;
                uint64_t keep = 0;
                if (!p.torn) {
                    keep = subset >> part++ & 1 ? ~0ull : 0;
                } else {
                    keep |= subset >> part++ & 1 ? 0xffffffffull : 0;
                    keep |= subset >> part++ & 1 ? ~0xffffffffull : 0;
                }
                inode.set_word(at + c * 8, (inode.word(at + c * 8) & ~keep) | (p.value[c] & keep));
            }
            left -= subset;
            if (!left)
                break;
        }
    }
    return disk;
}

} // namespace crash
