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

struct Range {
    size_t file;
    uint64_t at, n;
};

class Worlds
{
  public:
    explicit Worlds(Actor &a) : actor(a)
    {
        World first;
        for (const Bytes &b : actor.contents)
            first.files.push_back(content(b));
        add(first);
        tell();
    }

    void begin_write(int op, const Range &to, Bytes bytes)
    {
        writes[op] = {to, std::move(bytes)};
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

    void begin_read(int op, const Range &of)
    {
        reads[op] = of;
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
    void found(size_t file, const Bytes &bytes)
    {
        keep([&](World &w) { return *w.files[file].bytes == bytes; });
        if (worlds.empty())
            throw Violation("what the threads left is the outcome of no order of their writes");
        tell();
    }

  private:
    struct Content {
        std::shared_ptr<const Bytes> bytes;
        uint64_t hash;
    };
    struct World {
        std::vector<Content> files;
        std::set<int> applied;                  // of the writes under way
        std::map<int, std::set<uint64_t>> seen; // by each read under way
    };
    using Key = std::pair<uint64_t, uint64_t>;

    Actor &actor;
    std::map<Key, World> worlds;
    std::map<int, std::pair<Range, Bytes>> writes;
    std::map<int, Range> reads;

    static Content content(const Bytes &b)
    {
        return {std::make_shared<Bytes>(b), hash_bytes(b.data(), b.size())};
    }

    // As hash_of() of all contents.
    static uint64_t hash_of_files(const World &w)
    {
        uint64_t h = 0;
        for (const Content &c : w.files)
            h = mix(h ^ c.hash);
        return h;
    }

    // Whoever reads right now may see it.
    bool add(World &w)
    {
        for (const auto &r : reads)
            w.seen[r.first].insert(
                hash_bytes(&(*w.files[r.second.file].bytes)[r.second.at], r.second.n));
        uint64_t rest = 0;
        for (int op : w.applied)
            rest = mix(rest ^ (static_cast<uint64_t>(op) + 1));
        for (const auto &s : w.seen)
            for (uint64_t h : s.second)
                rest = mix(rest ^ h ^ mix(static_cast<uint64_t>(s.first) + 1));
        Key key = {hash_of_files(w), rest};
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
                const Range &to = op.second.first;
                Bytes bytes = *w.files[to.file].bytes;
                std::copy(op.second.second.begin(), op.second.second.end(),
                          bytes.begin() + static_cast<long>(to.at));
                next.files[to.file] = content(bytes);
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
        for (const auto &w : worlds)
            hashes.insert(hash_of_files(w.second));
        actor.allow({hashes.begin(), hashes.end()});
    }
};

} // namespace

void run_threads(Actor &actor, const std::vector<std::vector<Step>> &threads)
{
    Worlds worlds(actor);
    std::vector<Mapping *> mappings;
    for (size_t i = 0; i < actor.world.mapped(); i++)
        mappings.push_back(actor.world.mapping(i));
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
                Mapping *&m = mappings[s.mapping];
                Range range = {static_cast<size_t>(m->file), s.at, s.n};
                if (s.what == Step::Write) {
                    Bytes bytes(s.n);
                    for (unsigned char &b : bytes)
                        b = static_cast<unsigned char>(random.next());
                    worlds.begin_write(op, range, bytes);
                    if (!ato_memcpy(m->base + s.at, bytes.data(), s.n))
                        throw Violation(std::string("ato_memcpy: ") + ato_errormsg());
                    worlds.end_write(op);
                } else if (s.what == Step::Read) {
                    worlds.begin_read(op, range);
                    Bytes bytes = actor.read(m, s.at, s.n);
                    worlds.end_read(op, bytes);
                } else if (s.what == Step::Deploy) {
                    actor.deploy(m, s.at, s.n);
                } else {
                    actor.unmap(m, ATO_UNMAP_FAST);
                    m = actor.map(static_cast<int>(range.file), ATO_READ_GATHER, ATO_NO_RTM);
                }
            }
        });
    }
    run_scheduled(actor.world, bodies, actor.random.next());
    for (const Mapping *m : mappings) {
        Bytes all = actor.read(m, 0, m->bytes);
        worlds.found(static_cast<size_t>(m->file), all);
        actor.contents[static_cast<size_t>(m->file)] = std::move(all);
    }
}

} // namespace crash
