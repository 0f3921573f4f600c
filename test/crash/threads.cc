// SPDX-License-Identifier: BSD-3-Clause
#include "threads.h"

#include "schedule.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

namespace crash
{

namespace
{

using Content = std::shared_ptr<const Bytes>;

uint64_t hash_range(const Bytes &b, uint64_t at, uint64_t n)
{
    return hash_bytes(&b[at], n);
}

class Worlds
{
  public:
    Worlds(Actor &a, int f) : actor(a), file(f)
    {
        World first = {std::make_shared<Bytes>(actor.contents[static_cast<size_t>(f)]), {}, {}};
        add(first);
        tell();
    }

    void begin_write(int op, uint64_t at, Bytes bytes)
    {
        writes[op] = {at, std::move(bytes)};
        close();
    }

    void end_write(int op)
    {
        keep([op](World &w) { return w.applied.erase(op) > 0; });
        writes.erase(op);
        if (worlds.empty())
            throw Violation("a read saw the file without a write that had returned");
        tell();
    }

    void begin_read(int op, uint64_t at, uint64_t n)
    {
        reads[op] = {at, n};
        std::map<Key, World> before = std::move(worlds);
        worlds.clear();
        for (auto &w : before)
            add(w.second);
        close(); // what is written from here on, this read has seen the world before it
    }

    void end_read(int op, const Bytes &value)
    {
        uint64_t h = hash_bytes(value.data(), value.size());
        reads.erase(op);
        keep([op, h](World &w) {
            bool was = w.seen[op].count(h) > 0;
            w.seen.erase(op);
            return was;
        });
        if (worlds.empty())
            throw Violation("a read returned what the file held at no moment while it ran");
        tell();
    }

    // All is quiet, and this is what there is.
    void found(const Bytes &content)
    {
        keep([&content](World &w) { return *w.content == content; });
        if (worlds.empty())
            throw Violation("what the threads left is the outcome of no order of their writes");
        tell();
    }

  private:
    struct World {
        Content content;
        std::set<int> applied;                  // of the writes under way
        std::map<int, std::set<uint64_t>> seen; // by each read under way
    };
    using Key = std::pair<uint64_t, uint64_t>;

    Actor &actor;
    int file;
    std::map<Key, World> worlds;
    std::map<int, std::pair<uint64_t, Bytes>> writes;
    std::map<int, std::pair<uint64_t, uint64_t>> reads;

    // Whoever reads right now may see it.
    bool add(World &w)
    {
        for (const auto &r : reads)
            w.seen[r.first].insert(hash_range(*w.content, r.second.first, r.second.second));
        uint64_t rest = 0;
        for (int op : w.applied)
            rest = mix(rest ^ (static_cast<uint64_t>(op) + 1));
        for (const auto &s : w.seen)
            for (uint64_t h : s.second)
                rest = mix(rest ^ h ^ mix(static_cast<uint64_t>(s.first) + 1));
        Key key = {hash_bytes(w.content->data(), w.content->size()), rest};
        return worlds.try_emplace(key, w).second;
    }

    // Every write under way may have happened, in any order.
    void close()
    {
        std::vector<World> fresh;
        for (const auto &w : worlds)
            fresh.push_back(w.second);
        while (!fresh.empty()) {
            World w = std::move(fresh.back());
            fresh.pop_back();
            for (const auto &op : writes) {
                if (w.applied.count(op.first))
                    continue;
                World next = w;
                auto content = std::make_shared<Bytes>(*w.content);
                std::copy(op.second.second.begin(), op.second.second.end(),
                          content->begin() + static_cast<long>(op.second.first));
                next.content = content;
                next.applied.insert(op.first);
                if (add(next))
                    fresh.push_back(std::move(next));
            }
        }
        tell();
    }

    template <typename F> void keep(F wanted)
    {
        std::map<Key, World> before = std::move(worlds);
        worlds.clear();
        for (auto &w : before)
            if (wanted(w.second))
                add(w.second);
    }

    void tell()
    {
        std::set<uint64_t> hashes;
        std::vector<Bytes> contents = actor.contents;
        for (const auto &w : worlds) {
            contents[static_cast<size_t>(file)] = *w.second.content;
            hashes.insert(hash_of(contents));
        }
        actor.allow({hashes.begin(), hashes.end()});
    }
};

} // namespace

void run_threads(Actor &actor, Mapping *m, const std::vector<std::vector<Step>> &threads)
{
    Worlds worlds(actor, m->file);
    int ops = 0;
    std::vector<std::function<void()>> bodies;
    for (const auto &steps : threads) {
        uint64_t seed = actor.random.next();
        // One thread runs at a time, and hands over only within calls of the library: what is done
        // here in between is done alone.
        bodies.push_back([&, seed] {
            Random random(seed);
            for (const Step &s : steps) {
                int op = ops++;
                if (s.what == Step::Write) {
                    Bytes bytes(s.n);
                    for (unsigned char &b : bytes)
                        b = static_cast<unsigned char>(random.next());
                    worlds.begin_write(op, s.at, bytes);
                    if (!ato_memcpy(m->base + s.at, bytes.data(), s.n))
                        throw Violation(std::string("ato_memcpy: ") + ato_errormsg());
                    worlds.end_write(op);
                } else if (s.what == Step::Read) {
                    worlds.begin_read(op, s.at, s.n);
                    Bytes bytes = actor.read(m, s.at, s.n);
                    worlds.end_read(op, bytes);
                } else {
                    actor.deploy(m, s.at, s.n);
                }
            }
        });
    }
    run_scheduled(actor.world, bodies, actor.random.next());
    Bytes all = actor.read(m, 0, m->bytes);
    worlds.found(all);
    actor.contents[static_cast<size_t>(m->file)] = std::move(all);
}

} // namespace crash
