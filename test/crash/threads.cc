// SPDX-License-Identifier: BSD-3-Clause
#include "threads.h"

#include "schedule.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include <sys/mman.h>

namespace crash
{

namespace
{

// Of the files, followed by the drafts that mappings with an epoch show.
struct Range {
    size_t file;
    uint64_t at, n;
};

struct Put {
    Range to;
    Bytes bytes;
};

// A range, read by a thread that sees its own uncommitted bytes there.
struct Look {
    Range of;
    std::vector<Put> own;

    uint64_t hash_in(const Bytes &file) const
    {
        Bytes bytes(file.begin() + static_cast<long>(of.at),
                    file.begin() + static_cast<long>(of.at + of.n));
        for (const Put &p : own) {
            uint64_t begin = std::max(of.at, p.to.at),
                     end = std::min(of.at + of.n, p.to.at + p.to.n);
            if (p.to.file == of.file && begin < end)
                memcpy(&bytes[begin - of.at], &p.bytes[begin - p.to.at], end - begin);
        }
        return hash_bytes(bytes.data(), bytes.size());
    }
};

// A change of the files in one step; it is possible only where these looks have these values.
struct Change {
    std::vector<Put> puts;
    std::vector<std::pair<Look, uint64_t>> where;
    long draft = -1; // this draft becomes its file
};

class Worlds
{
  public:
    // `drafts`: the file and the content of each.
    Worlds(Actor &a, const std::vector<std::pair<size_t, Bytes>> &drafts) : actor(a)
    {
        World first;
        for (const Bytes &b : actor.contents)
            first.files.push_back(content(b));
        for (const auto &d : drafts) {
            file_of.push_back(d.first);
            first.files.push_back(content(d.second));
        }
        add(first);
        tell();
    }

    void begin_change(int op, Change change)
    {
        changes[op] = std::move(change);
        close();
    }

    void end_change(int op)
    {
        keep([op](World &w) { return w.applied.erase(op) > 0; });
        changes.erase(op);
        if (worlds.empty())
            throw Violation(
                "a read missed a write that had returned, or a transaction committed writes "
                "that do not fit its reads");
        tell();
    }

    // It was refused.
    void cancel_change(int op)
    {
        keep([op](World &w) { return w.applied.count(op) == 0; });
        changes.erase(op);
        if (worlds.empty())
            throw Violation("a read saw a transaction that was refused");
        tell();
    }

    void begin_read(int op, Look look)
    {
        reads[op] = std::move(look);
        std::map<Key, World> before = std::move(worlds);
        worlds.clear();
        for (auto &w : before)
            add(w.second);
        close(); // this read has seen the world before any later write
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
            throw Violation("a read returned bytes that the file had at no moment during the read");
        tell();
    }

    // The read was given up.
    void cancel_read(int op)
    {
        reads.erase(op);
        keep([op](World &w) {
            w.seen.erase(op);
            return true;
        });
        tell();
    }

    // No operation is under way: this is the content.
    void found(size_t file, const Bytes &bytes)
    {
        keep([&](World &w) { return *w.files[file].bytes == bytes; });
        if (worlds.empty())
            throw Violation("no order of the threads' writes leads to the content that they left");
        tell();
    }

  private:
    struct Content {
        std::shared_ptr<const Bytes> bytes;
        uint64_t hash;
    };
    struct World {
        std::vector<Content> files;
        std::set<int> applied;                  // of the changes under way
        std::map<int, std::set<uint64_t>> seen; // for each read under way
    };
    using Key = std::pair<uint64_t, uint64_t>;

    Actor &actor;
    std::map<Key, World> worlds;
    std::vector<size_t> file_of; // of each draft
    std::map<int, Change> changes;
    std::map<int, Look> reads;

    static Content content(const Bytes &b)
    {
        return {std::make_shared<Bytes>(b), hash_bytes(b.data(), b.size())};
    }

    // The same as hash_of() of all contents.
    uint64_t hash_of_files(const World &w) const
    {
        uint64_t h = 0;
        for (size_t i = 0; i < actor.contents.size(); i++)
            h = mix(h ^ w.files[i].hash);
        return h;
    }

    // Reads under way may see it.
    bool add(World &w)
    {
        for (const auto &r : reads)
            w.seen[r.first].insert(r.second.hash_in(*w.files[r.second.of.file].bytes));
        uint64_t rest = 0;
        for (size_t i = actor.contents.size(); i < w.files.size(); i++)
            rest = mix(rest ^ w.files[i].hash);
        for (int op : w.applied)
            rest = mix(rest ^ (static_cast<uint64_t>(op) + 1));
        for (const auto &s : w.seen)
            for (uint64_t h : s.second)
                rest = mix(rest ^ h ^ mix(static_cast<uint64_t>(s.first) + 1));
        Key key = {hash_of_files(w), rest};
        return worlds.try_emplace(key, w).second;
    }

    // False: impossible in this world.
    bool apply(World &w, const Change &change) const
    {
        for (const auto &l : change.where)
            if (l.first.hash_in(*w.files[l.first.of.file].bytes) != l.second)
                return false;
        std::map<size_t, Bytes> changed;
        for (const Put &p : change.puts) {
            Bytes &bytes = changed.try_emplace(p.to.file, *w.files[p.to.file].bytes).first->second;
            std::copy(p.bytes.begin(), p.bytes.end(), bytes.begin() + static_cast<long>(p.to.at));
        }
        for (const auto &c : changed)
            w.files[c.first] = content(c.second);
        if (change.draft >= 0) {
            auto draft = static_cast<size_t>(change.draft);
            w.files[file_of[draft - actor.contents.size()]] = w.files[draft];
        }
        return true;
    }

    // Every change under way may have happened, in any order.
    void close()
    {
        std::vector<World> fresh;
        for (const auto &w : worlds)
            fresh.push_back(w.second);
        while (!fresh.empty()) {
            World w = std::move(fresh.back());
            fresh.pop_back();
            for (const auto &op : changes) {
                World next = w;
                if (w.applied.count(op.first) || !apply(next, op.second))
                    continue;
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

class Runner
{
  public:
    Runner(Actor &a, Worlds &w, std::vector<Mapping *> &m, std::vector<size_t> f, int &o,
           uint64_t seed)
        : actor(a), worlds(w), mappings(m), files(std::move(f)), ops(o), random(seed)
    {
    }

    // One thread runs at a time, and hands over only within calls of the library: code between the
    // calls is never interrupted.
    void run(const std::vector<Step> &steps)
    {
        for (const Step &s : steps)
            step(s);
    }

  private:
    Actor &actor;
    Worlds &worlds;
    std::vector<Mapping *> &mappings;
    const std::vector<size_t> files; // by mapping: the file that it shows
    int &ops;
    Random random;

    ato_tx *tx = nullptr;
    bool refused = false; // the transaction was aborted early
    bool keeps = false;   // its reads have to stay valid
    Change change;        // the change that its commit will make

    // After a call in the transaction. False: it was aborted.
    bool went(bool done, const char *call)
    {
        if (done)
            return true;
        must(tx && errno == EAGAIN, call);
        must(ato_tx_abort(tx) == 0, "ato_tx_abort");
        tx = nullptr;
        refused = true;
        return false;
    }

    void step(const Step &s)
    {
        Mapping *&m = mappings[s.mapping];
        Range range = {files[s.mapping], s.at, s.n};
        bool ends = s.what == Step::Commit || s.what == Step::Abort;
        if (refused && !ends)
            return;
        switch (s.what) {
        case Step::Write:
            write(m, range);
            break;
        case Step::Read:
            read(m, range);
            break;
        case Step::Deploy:
            actor.deploy(m, s.at, s.n);
            actor.reclaim(m, s.at, s.n);
            break;
        case Step::Remap:
            actor.unmap(m, ATO_UNMAP_FAST);
            m = actor.map(static_cast<int>(range.file), ATO_READ_GATHER, ATO_NO_RTM);
            break;
        case Step::Begin:
            tx = ato_tx_begin(static_cast<unsigned>(s.at));
            must(tx != nullptr, "ato_tx_begin");
            actor.world.opened(tx);
            keeps = !(s.at & ATO_TX_READ_COMMITTED);
            break;
        case Step::Sync:
            in_one_step([range](Change &c) { c.draft = static_cast<long>(range.file); },
                        [m] { return ato_msync(m->base, m->bytes, MS_SYNC); }, "ato_msync");
            break;
        case Step::Commit:
            if (!refused)
                commit();
            break;
        case Step::Abort:
            if (!refused)
                must(ato_tx_abort(tx) == 0, "ato_tx_abort");
            break;
        }
        if (ends) {
            tx = nullptr;
            refused = false;
            change = Change();
        }
    }

    void commit()
    {
        int op = ops++;
        worlds.begin_change(op, change);
        if (went(ato_tx_commit(tx) == 0, "ato_tx_commit"))
            worlds.end_change(op);
        else
            worlds.cancel_change(op);
    }

    void in_one_step(const std::function<void(Change &)> &what, const std::function<int()> &call,
                     const char *name)
    {
        int op = ops++;
        Change c;
        what(c);
        worlds.begin_change(op, std::move(c));
        must(call() == 0, name);
        worlds.end_change(op);
    }

    void write(const Mapping *m, const Range &range)
    {
        Bytes bytes(range.n);
        for (unsigned char &b : bytes)
            b = static_cast<unsigned char>(random.next());
        char *to = m->base + range.at;
        if (!tx)
            in_one_step(
                [&](Change &c) {
                    c.puts.push_back({range, bytes});
                },
                [&] { return ato_memcpy(to, bytes.data(), range.n) ? 0 : -1; }, "ato_memcpy");
        else if (went(ato_tx_memcpy(tx, to, bytes.data(), range.n, 0) != nullptr, "ato_tx_memcpy"))
            change.puts.push_back({range, std::move(bytes)});
    }

    void read(const Mapping *m, const Range &range)
    {
        int op = ops++;
        Look look = {range, change.puts};
        worlds.begin_read(op, look);
        if (!tx) {
            worlds.end_read(op, actor.read(m, range.at, range.n));
            return;
        }
        Bytes bytes(range.n);
        if (!went(ato_tx_memcpy(tx, bytes.data(), m->base + range.at, range.n, 0) != nullptr,
                  "ato_tx_memcpy")) {
            worlds.cancel_read(op);
            return;
        }
        worlds.end_read(op, bytes);
        if (keeps)
            change.where.push_back({look, hash_bytes(bytes.data(), bytes.size())});
    }
};

} // namespace

void run_threads(Actor &actor, const std::vector<std::vector<Step>> &threads)
{
    std::vector<Mapping *> mappings;
    std::vector<size_t> files;
    std::vector<std::pair<size_t, Bytes>> drafts;
    for (size_t i = 0; i < actor.world.mapped(); i++) {
        Mapping *m = actor.world.mapping(i);
        auto file = static_cast<size_t>(m->file);
        mappings.push_back(m);
        files.push_back(m->epochs ? actor.contents.size() + drafts.size() : file);
        if (m->epochs)
            drafts.emplace_back(file, actor.read(m, 0, m->bytes));
    }
    Worlds worlds(actor, drafts);
    int ops = 0;
    std::vector<std::function<void()>> bodies;
    for (const auto &steps : threads) {
        uint64_t seed = actor.random.next();
        bodies.push_back(
            [&, seed] { Runner(actor, worlds, mappings, files, ops, seed).run(steps); });
    }
    run_scheduled(actor.world, bodies, actor.random.next());
    for (size_t i = 0; i < mappings.size(); i++) {
        Bytes all = actor.read(mappings[i], 0, mappings[i]->bytes);
        worlds.found(files[i], all);
        if (!mappings[i]->epochs)
            actor.contents[files[i]] = std::move(all);
    }
}

} // namespace crash
