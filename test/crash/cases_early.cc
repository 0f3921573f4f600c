// SPDX-License-Identifier: BSD-3-Clause
//
// Early and relaxed commits, of one process or of several. A crash at any moment leaves what one of the commits has made that came after
// the last durable one, or that itself: all before it, and nothing of a later one. What a snapshot or a read has shown is durable, unless
// it was relaxed; and a relaxed commit is shown from the end of its call on.
#include "scenes.h"
#include "schedule.h"

#include "ato_engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <sys/mman.h>

namespace crash
{

namespace
{

void must(bool ok, const char *call)
{
    if (!ok)
        throw Violation(std::string(call) + ": " + ato_errormsg());
}

struct Piece {
    uint64_t at;
    Bytes bytes;
};

struct State {
    Bytes content;
    ato_promise promise = {}; // zeros: another process has it, or it was none
    bool open = false;        // readers may see it, durable or not
    bool seen = false;        // and see it, or a later one
    bool own = false;         // a relaxed commit of this process
};

Mapping *map_relaxed(Actor &a)
{
    return a.map(0, ATO_READ_GATHER, ATO_NO_RTM | ATO_RELAXED);
}

Mapping *map_stores(Actor &a)
{
    return a.map(0, ATO_READ_GATHER, ATO_NO_RTM | ATO_PLAIN_STORES);
}

// The commits that may not be durable, and who makes more of them.
class Commits
{
  public:
    // `relaxed`: another mapping, whose commits are; NULL: no commits are. `stores`: one with plain stores; NULL: there is none.
    Commits(Actor &a, Mapping *m, Mapping *relaxed, Mapping *stores = nullptr)
        : a_(a), m_(m), relaxed_(relaxed), stores_(stores), states_({{a.contents[0]}})
    {
    }

    void early()
    {
        prepare();
        const std::vector<Piece> all = some(1 + a_.random.below(3));
        ato_promise promise;
        begin(all, false);
        must(ato_tx_commit_early(transaction(all, m_, ATO_TX_EARLY | ATO_TX_READ_COMMITTED),
                                 &promise) == 0,
             "ato_tx_commit_early");
        end(promise);
        if (!promise.number)
            are_durable(states_.size() - 1);
        early_ += promise.number != 0;
    }
    void ordinary(unsigned flags)
    {
        prepare();
        std::vector<Piece> one = some(1);
        if ((flags & ATO_EAGER) && a_.random.one_in(2)) { // a word
            one[0].at &= ~7ull;
            one[0].bytes.resize(8);
        }
        begin(one, false);
        must(ato_memcpy_opt(m_->base + one[0].at, one[0].bytes.data(), one[0].bytes.size(), flags),
             "ato_memcpy_opt");
        end({});
        are_durable(states_.size() - 1);
    }
    void relaxed()
    {
        prepare();
        const uint64_t how = a_.random.below(6);
        relaxed(some(how < 2 ? 1 : 1 + a_.random.below(3)), how);
    }
    // There is room for it in the log, so it waits for nothing.
    void relaxed_at_once()
    {
        const uint64_t syncs = a_.world.syncs();
        relaxed({{a_.random.below(4 * PAGE), a_.some(100)}}, a_.random.below(6));
        if (a_.world.syncs() != syncs)
            throw Violation("a relaxed commit waits for the disk");
    }
    // Of plain stores, of whole slices: of the others their page may show what they were.
    void by_stores(bool is_relaxed)
    {
        prepare();
        std::vector<Piece> all = some(1 + a_.random.below(3));
        const Bytes shown_before(stores_->base, stores_->base + states_.back().content.size());
        for (Piece &p : all) {
            p.at -= p.at % LINE;
            p.bytes.resize(p.bytes.size() - p.bytes.size() % LINE +
                           (p.bytes.size() < LINE ? LINE : 0));
            // A byte that is stored and stays the same is not stored.
            for (size_t i = 0; i < p.bytes.size(); i++)
                while (p.bytes[i] == shown_before[p.at + i] ||
                       p.bytes[i] == states_.back().content[p.at + i])
                    p.bytes[i]++;
            memcpy(stores_->base + p.at, p.bytes.data(), p.bytes.size());
        }
        begin(all, is_relaxed);
        must(ato_msync(stores_->base, states_.back().content.size(),
                       is_relaxed ? MS_ASYNC : MS_SYNC) == 0,
             "ato_msync");
        end({});
        states_.back().own = is_relaxed;
        if (is_relaxed)
            shown(states_.size() - 1);
        else
            are_durable(states_.size() - 1);
    }
    // Writes what is there.
    void nothing(unsigned flags)
    {
        prepare();
        const Bytes &now = states_.back().content;
        const uint64_t n = 1 + a_.random.below(300), at = a_.random.below(now.size() - n);
        const bool is_relaxed = flags & ATO_RELAXED;
        states_.back().open |= is_relaxed;
        must(ato_memcpy_opt(m_->base + at, &now[at], n, ATO_SKIP_EQUAL | flags), "ato_memcpy_opt");
        if (is_relaxed)
            shown(states_.size() - 1);
        else
            are_durable(states_.size() - 1);
    }
    // Readers see all that writers see.
    void show()
    {
        ato_promise promise;
        prepare();
        states_.back().open = true;
        must(ato_visible(m_->base, &promise) == 0, "ato_visible");
        promise.end = 0;
        must(ato_await(m_->base, &promise) == 0, "ato_await");
        shown(states_.size() - 1);
    }
    void sync()
    {
        prepare();
        must(ato_msync(m_->base, 1, MS_SYNC) == 0, "ato_msync"); // makes all durable
        are_durable(states_.size() - 1);
    }
    // The last unmapping of the process.
    void unmap(int mode)
    {
        if (stores_)
            a_.world.unmap(stores_, mode);
        stores_ = nullptr;
        a_.world.unmap(relaxed_, mode);
        a_.world.unmap(m_, mode);
        for (size_t n = states_.size(); n-- > 0;)
            if (states_[n].own)
                return are_durable(n);
    }
    void resize()
    {
        prepare();
        const uint64_t to = 2 * PAGE + a_.random.below(2 * SIZE);
        if (to == states_.back().content.size())
            return;
        flight_ = {{states_.back().content}};
        flight_[0].content.resize(to);
        tell();
        must(ato_ftruncate(m_->base, static_cast<off_t>(to)) == 0, "ato_ftruncate");
        m_->bytes = to;
        end({});
        are_durable(states_.size() - 1);
    }
    // A relaxed commit makes the file longer.
    void append()
    {
        prepare();
        const uint64_t was = states_.back().content.size(),
                       to = was + 1 + a_.random.below(2 * PAGE);
        if (to > 3 * SIZE)
            return;
        const uint64_t way = a_.random.below(4);
        std::vector<Piece> all = some(a_.random.below(3));
        flight_ = {{states_.back().content}};
        flight_[0].open = true;
        flight_[0].content.resize(to);
        if (way)
            all.push_back({was - a_.random.below(90), a_.some(1)});
        if (way)
            all.push_back({to - 1, a_.some(1)});
        for (const Piece &p : all)
            if (way)
                std::copy(p.bytes.begin(), p.bytes.end(),
                          flight_[0].content.begin() + static_cast<long>(p.at));
        tell();
        if (!way) {
            must(ato_ftruncate(relaxed_->base, static_cast<off_t>(to)) == 0, "ato_ftruncate");
        } else {
            ato_tx *tx = transaction({}, m_, ATO_RELAXED);
            must(ato_tx_ftruncate(tx, m_->base, static_cast<off_t>(to)) == 0, "ato_tx_ftruncate");
            for (const Piece &p : all)
                must(ato_tx_memcpy(tx, m_->base + p.at, p.bytes.data(), p.bytes.size(), 0),
                     "ato_tx_memcpy");
            must(ato_tx_commit(tx) == 0, "ato_tx_commit");
        }
        m_->bytes = to;
        end({});
        states_.back().own = true;
        shown(states_.size() - 1);
    }
    // Waits for any of them, or for all.
    void await()
    {
        const size_t n = a_.random.below(states_.size());
        const bool one = states_[n].promise.number;
        ato_promise promise = states_[n].promise;
        must(one || ato_visible(m_->base, &promise) == 0, "ato_visible");
        must(ato_await(m_->base, &promise) == 0, "ato_await");
        are_durable(one ? n : states_.size() - 1);
    }
    void deploy()
    {
        a_.deploy_all(m_);
        look();
        flight_.clear();
        are_durable(states_.size() - 1);
    }
    // Reads what is newest. The commit of a process that died may become visible later.
    void look()
    {
        Bytes now;
        do {
            m_->bytes = static_cast<uint64_t>(ato_size(m_->base));
            now.resize(m_->bytes);
            // Which may finish the change of the size of a dead process.
            must(ato_read_newest(now.data(), m_->base, now.size()) || errno == EFAULT,
                 "ato_read_newest");
        } while (m_->bytes != static_cast<uint64_t>(ato_size(m_->base)));
        if (!flight_.empty() && now == flight_[0].content) {
            states_.push_back(flight_[0]);
            flight_.clear();
        }
        if (now != states_.back().content)
            throw Violation("what is newest is not what the last commit has made");
    }
    void read()
    {
        const Bytes now = a_.read_all(m_);
        const size_t was = states_.size();
        look();
        for (size_t i = was; i <= states_.size();
             i++) // what a dead process has made may become visible between
            if (now == states_[i - 1].content)
                return shown(i - 1);
        throw Violation("a read has not returned what is newest");
    }
    void snapshot()
    {
        ato_snapshot *s = ato_snapshot_begin(m_->base);
        must(s, "ato_snapshot_begin");
        Bytes now(4 * SIZE); // more than the file has
        const ssize_t n = ato_snapshot_read(s, now.data(), 0, now.size());
        const std::string why = ato_errormsg();
        (void)ato_snapshot_end(s);
        if (n < 0)
            throw Violation("ato_snapshot_read: " + why);
        now.resize(static_cast<size_t>(n));
        look();
        size_t i = states_.size() - 1;
        while (i && !states_[i].seen)
            i--;
        for (; i < states_.size(); i++)
            if (states_[i].content == now)
                return shown(i);
        throw Violation("a snapshot is not what one of the last commits has made");
    }
    // Another process goes on from here, and dies within so many moments.
    void beside(uint64_t moments, unsigned steps)
    {
        Commits own = *this;
        own.early_ = 0;
        const World::Beside done = a_.world.beside(
            [&] {
                own.m_ = a_.map(0, ATO_READ_GATHER, ATO_NO_RTM);
                own.relaxed_ = relaxed_ ? map_relaxed(a_) : nullptr;
                own.stores_ = stores_ ? map_stores(a_) : nullptr;
                for (State &each : own.states_) {
                    each.promise = {};
                    each.own = false;
                }
                Peer::die_within(moments);
                own.steps(steps);
                if (relaxed_ && a_.random.one_in(2))
                    own.unmap(ATO_UNMAP_FAST);
            },
            [&](Pack &p) {
                for (const std::vector<State> *all : {&own.states_, &own.flight_}) {
                    p.number(all->size());
                    for (const State &each : *all) {
                        p.word(std::string(each.content.begin(), each.content.end()));
                        p.number(each.open);
                        p.number(each.seen);
                    }
                }
            });
        Unpack u(done.words);
        const std::vector<State> before = std::move(states_);
        states_ = unpack(u);
        flight_ = unpack(u);
        for (State &each : states_) // this process's own ones
            for (const State &was : before)
                if (was.content == each.content) {
                    each.promise = was.promise;
                    each.own = was.own;
                }
        tell();
    }
    void steps(unsigned n)
    {
        while (n--) {
            if (stores_ && a_.random.one_in(2)) {
                by_stores(!a_.random.one_in(4));
                continue;
            }
            switch (std::min<uint64_t>(a_.random.below(relaxed_ ? 29 : 13), 20)) {
            case 0:
                await();
                break;
            case 1:
                deploy();
                break;
            case 2:
                ordinary(0);
                break;
            case 3:
                ordinary(ATO_EAGER);
                break;
            case 4:
                snapshot();
                break;
            case 5:
                read();
                break;
            case 6:
                resize();
                break;
            case 13:
                sync();
                break;
            case 14:
                nothing(0);
                break;
            case 15:
                ordinary(ATO_EAGER | ATO_RELAXED);
                break;
            case 16:
                nothing(ATO_RELAXED);
                snapshot();
                break;
            case 17:
                show();
                snapshot();
                break;
            case 18:
            case 19:
                append();
                break;
            case 20:
                relaxed();
                break;
            default:
                early();
                break;
            }
        }
    }
    const Bytes &newest() const
    {
        return states_.back().content;
    }
    void finish()
    {
        if (relaxed_ && a_.random.one_in(2)) {
            unmap(a_.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
            m_ = a_.map(0, ATO_READ_GATHER, ATO_NO_RTM);
        }
        deploy();
        a_.contents[0] = newest();
        a_.allow_this();
    }

  private:
    static std::vector<State> unpack(Unpack &u)
    {
        std::vector<State> all;
        for (uint64_t n = u.number(); n; n--) {
            const std::string word = u.word();
            all.push_back({Bytes(word.begin(), word.end())});
            all.back().open = u.number();
            all.back().seen = u.number();
        }
        return all;
    }
    ato_tx *transaction(const std::vector<Piece> &all, const Mapping *m, unsigned flags)
    {
        ato_tx *tx = ato_tx_begin(flags);
        must(tx, "ato_tx_begin");
        a_.world.opened(tx);
        for (const Piece &p : all)
            must(ato_tx_memcpy(tx, m->base + p.at, p.bytes.data(), p.bytes.size(), 0),
                 "ato_tx_memcpy");
        return tx;
    }
    // The first two ways are for a single piece.
    void relaxed(const std::vector<Piece> &all, uint64_t how)
    {
        const Piece &one = all[0];
        std::vector<ato_iovec> ranges;
        for (const Piece &p : all)
            ranges.push_back({m_->base + p.at, p.bytes.data(), p.bytes.size()});
        begin(all, true);
        switch (how) {
        case 0:
            must(ato_memcpy_opt(m_->base + one.at, one.bytes.data(), one.bytes.size(), ATO_RELAXED),
                 "ato_memcpy_opt");
            break;
        case 1:
            must(ato_memcpy(relaxed_->base + one.at, one.bytes.data(), one.bytes.size()),
                 "ato_memcpy");
            break;
        case 2:
            must(ato_writev(ranges.data(), static_cast<int>(all.size()), ATO_RELAXED) == 0,
                 "ato_writev");
            break;
        case 3:
            must(ato_tx_commit(transaction(all, m_, ATO_RELAXED)) == 0, "ato_tx_commit");
            break;
        case 4:
            must(ato_tx_commit(transaction(all, relaxed_, 0)) == 0, "ato_tx_commit");
            break;
        default:
            must(ato_tx_commit_early(transaction(all, m_, ATO_TX_EARLY | ATO_TX_READ_COMMITTED),
                                     nullptr) == 0,
                 "ato_tx_commit_early");
            break;
        }
        end({});
        states_.back().own = true;
        shown(states_.size() - 1);
    }
    std::vector<Piece> some(uint64_t n)
    {
        std::vector<Piece> all;
        for (; n; n--) {
            const uint64_t bytes = 8 + a_.random.below(a_.random.one_in(3) ? PAGE + 300 : 300);
            all.push_back({a_.random.below(states_.back().content.size() - bytes), a_.some(bytes)});
        }
        return all;
    }
    // Tells what a crash may leave from now on.
    void tell()
    {
        std::vector<uint64_t> hashes;
        for (const std::vector<State> *all : {&states_, &flight_})
            for (const State &each : *all)
                hashes.push_back(hash_of({each.content}));
        a_.allow(hashes);
    }
    // With a lock, as it were, that keeps others out. A process that had it may be dead.
    void prepare()
    {
        if (flight_.empty())
            return;
        must(ato_settle(m_->base) == 0, "ato_settle");
        look();
        flight_.clear();
        tell();
    }
    // A commit is about to begin.
    void begin(const std::vector<Piece> &all, bool relaxed)
    {
        flight_ = {{states_.back().content}};
        flight_[0].open = relaxed;
        for (const Piece &p : all)
            std::copy(p.bytes.begin(), p.bytes.end(),
                      flight_[0].content.begin() + static_cast<long>(p.at));
        tell();
    }
    void end(const ato_promise &promise)
    {
        look();
        if (!flight_.empty())
            throw Violation("a commit is not visible");
        states_.back().promise = promise;
        tell();
    }
    void are_durable(size_t n)
    {
        states_.erase(states_.begin(), states_.begin() + static_cast<long>(n));
        states_[0].seen = true;
        tell();
    }
    // A reader has seen it, or may rely on that.
    void shown(size_t n)
    {
        states_[n].seen = true;
        if (!states_[n].open)
            are_durable(n);
    }

    Actor &a_;
    Mapping *m_, *relaxed_, *stores_;
    std::vector<State> states_; // of the last durable commit, and of all after it
    std::vector<State> flight_; // of a commit that is under way, or was in a process that died

  public:
    unsigned early_ = 0;
};

// The content before all, which a snapshot sees.
class First
{
  public:
    explicit First(Actor &a) : content_(a.contents[0]), snapshot_(ato_snapshot_begin(the(a)->base))
    {
        must(snapshot_, "ato_snapshot_begin");
    }
    ~First()
    {
        (void)ato_snapshot_end(snapshot_);
    }
    First(const First &) = delete;
    First &operator=(const First &) = delete;
    void check() const
    {
        Bytes seen(content_.size());
        must(ato_snapshot_read(snapshot_, seen.data(), 0, seen.size()) ==
                 static_cast<ssize_t>(seen.size()),
             "ato_snapshot_read");
        if (seen != content_)
            throw Violation("a snapshot is not what the file was");
    }

  private:
    const Bytes content_;
    ato_snapshot *snapshot_;
};

void alone(Actor &a)
{
    const First first(a);
    Commits c(a, the(a), nullptr);
    c.early();
    if (!c.early_)
        throw Violation("no commit is early");
    c.steps(6);
    first.check();
    c.finish();
}

// The log may not grow, and has little room.
void before_full(Actor &a)
{
    setenv("ATO_LOG_BYTES", "65536", 1);
    before_plain(a);
    unsetenv("ATO_LOG_BYTES");
    a.deploy_all(the(a));
    for (int i = 0; i < 15; i++)
        a.write(the(a), a_page(a), PAGE);
}

void relaxed(Actor &a)
{
    Commits c(a, the(a), map_relaxed(a));
    c.relaxed_at_once(); // which lets commits be early, as the first snapshot does
    a.contents[0] = c.newest();
    std::optional<First> first(std::in_place, a);
    c.steps(6);
    first->check();
    first.reset();
    c.finish();
}

void relaxed_stores(Actor &a)
{
    Commits c(a, the(a), map_relaxed(a), map_stores(a));
    c.by_stores(true);
    c.steps(6);
    c.finish();
}

// A thread commits, and another one brings home what is in the log.
void relaxed_threads(Actor &a)
{
    Commits c(a, the(a), map_relaxed(a));
    Mapping *other = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    auto commit = [&] {
        for (int i = 0; i < 8; i++)
            c.relaxed();
    };
    auto deploy = [&] {
        for (int i = 0; i < 8; i++)
            a.deploy_all(other);
    };
    run_scheduled(a.world, {commit, deploy}, a.random.next());
    a.world.unmap(other, ATO_UNMAP_FAST);
    c.finish();
}

template <bool is_relaxed, bool has_stores = false> void beside(Actor &a)
{
    std::optional<First> first(std::in_place, a);
    Commits c(a, the(a), is_relaxed ? map_relaxed(a) : nullptr,
              has_stores ? map_stores(a) : nullptr);
    const uint64_t most[] = {12, 40, 150};
    for (int i = 0; i < 2; i++) {
        c.steps(1 + static_cast<unsigned>(a.random.below(3)));
        c.beside(a.random.one_in(6) ? ~0ull : a.random.below(most[a.random.below(3)]),
                 1 + static_cast<unsigned>(a.random.below(2)));
        if (a.random.one_in(2))
            c.look();
        first->check();
    }
    c.steps(2);
    first.reset();
    c.finish();
}

} // namespace

const std::vector<Case> &early_cases()
{
    static const std::vector<Case> cases = {
        {"early", DISK, {SIZE}, before_plain, alone},
        {"early, peers", DISK, {SIZE}, before_plain, beside<false>, 8},
        {"relaxed", DISK, {SIZE}, before_full, relaxed, 2},
        {"relaxed, threads", DISK, {SIZE}, before_plain, relaxed_threads, 4},
        {"relaxed, peers", DISK, {SIZE}, before_plain, beside<true>, 6},
        {"relaxed, plain stores", DISK, {SIZE}, before_full, relaxed_stores, 2},
        {"relaxed, plain stores, peers", DISK, {SIZE}, before_plain, beside<true, true>, 6},
    };
    return cases;
}

} // namespace crash
