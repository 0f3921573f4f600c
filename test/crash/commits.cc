// SPDX-License-Identifier: BSD-3-Clause
#include "commits.h"

#include "scenes.h"

#include <algorithm>
#include <cstring>

#include <sys/mman.h>

namespace crash
{

Mapping *map_relaxed(Actor &a)
{
    return a.map(0, ATO_READ_GATHER, ATO_NO_RTM | ATO_RELAXED);
}

Mapping *map_stores(Actor &a)
{
    return a.map(0, ATO_READ_GATHER, ATO_NO_RTM | ATO_PLAIN_STORES);
}

Commits::Commits(Actor &a, Mapping *m, Mapping *relaxed, Mapping *stores)
    : a_(a), m_(m), relaxed_(relaxed), stores_(stores), states_({{a.contents[0]}})
{
}

void Commits::early()
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

void Commits::ordinary(unsigned flags)
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

void Commits::relaxed()
{
    prepare();
    const uint64_t how = a_.random.below(6);
    relaxed(some(how < 2 ? 1 : 1 + a_.random.below(3)), how);
}

void Commits::relaxed_at_once()
{
    const uint64_t syncs = a_.world.syncs();
    relaxed({{a_.random.below(4 * PAGE), a_.some(100)}}, a_.random.below(6));
    if (a_.world.syncs() != syncs)
        throw Violation("a relaxed commit waits for the disk");
}

void Commits::by_stores(bool is_relaxed)
{
    prepare();
    std::vector<Piece> all = some(1 + a_.random.below(3));
    const Bytes shown_before(stores_->base, stores_->base + states_.back().content.size());
    for (Piece &p : all) {
        p.at -= p.at % LINE;
        p.bytes.resize(p.bytes.size() - p.bytes.size() % LINE + (p.bytes.size() < LINE ? LINE : 0));
        // A byte that is stored and stays the same is not stored.
        for (size_t i = 0; i < p.bytes.size(); i++)
            while (p.bytes[i] == shown_before[p.at + i] ||
                   p.bytes[i] == states_.back().content[p.at + i])
                p.bytes[i]++;
        memcpy(stores_->base + p.at, p.bytes.data(), p.bytes.size());
    }
    begin(all, is_relaxed);
    must(ato_msync(stores_->base, states_.back().content.size(), is_relaxed ? MS_ASYNC : MS_SYNC) ==
             0,
         "ato_msync");
    end({});
    states_.back().own = is_relaxed;
    if (is_relaxed)
        shown(states_.size() - 1);
    else
        are_durable(states_.size() - 1);
}

void Commits::nothing(unsigned flags)
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

void Commits::show()
{
    ato_promise promise;
    prepare();
    states_.back().open = true;
    must(ato_visible(m_->base, &promise) == 0, "ato_visible");
    promise.end = 0;
    must(ato_await(m_->base, &promise) == 0, "ato_await");
    shown(states_.size() - 1);
}

void Commits::sync()
{
    prepare();
    must(ato_msync(m_->base, 1, MS_SYNC) == 0, "ato_msync"); // makes all durable
    are_durable(states_.size() - 1);
}

void Commits::unmap(int mode)
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

void Commits::resize()
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

void Commits::append()
{
    prepare();
    const uint64_t was = states_.back().content.size(), to = was + 1 + a_.random.below(2 * PAGE);
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

void Commits::await()
{
    const size_t n = a_.random.below(states_.size());
    const bool one = states_[n].promise.number;
    ato_promise promise = states_[n].promise;
    must(one || ato_visible(m_->base, &promise) == 0, "ato_visible");
    must(ato_await(m_->base, &promise) == 0, "ato_await");
    are_durable(one ? n : states_.size() - 1);
}

void Commits::deploy()
{
    a_.deploy_all(m_);
    look();
    flight_.clear();
    are_durable(states_.size() - 1);
}

void Commits::look()
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

void Commits::read()
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

void Commits::snapshot()
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

void Commits::beside(uint64_t moments, unsigned steps)
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

void Commits::steps(unsigned n)
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

const Bytes &Commits::newest() const
{
    return states_.back().content;
}

void Commits::finish()
{
    if (relaxed_ && a_.random.one_in(2)) {
        unmap(a_.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
        m_ = a_.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    }
    deploy();
    a_.contents[0] = newest();
    a_.allow_this();
}

std::vector<State> Commits::unpack(Unpack &u)
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

ato_tx *Commits::transaction(const std::vector<Piece> &all, const Mapping *m, unsigned flags)
{
    ato_tx *tx = ato_tx_begin(flags);
    must(tx, "ato_tx_begin");
    a_.world.opened(tx);
    for (const Piece &p : all)
        must(ato_tx_memcpy(tx, m->base + p.at, p.bytes.data(), p.bytes.size(), 0), "ato_tx_memcpy");
    return tx;
}

void Commits::relaxed(const std::vector<Piece> &all, uint64_t how)
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
        must(ato_memcpy(relaxed_->base + one.at, one.bytes.data(), one.bytes.size()), "ato_memcpy");
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

std::vector<Piece> Commits::some(uint64_t n)
{
    std::vector<Piece> all;
    for (; n; n--) {
        const uint64_t bytes = 8 + a_.random.below(a_.random.one_in(3) ? PAGE + 300 : 300);
        all.push_back({a_.random.below(states_.back().content.size() - bytes), a_.some(bytes)});
    }
    return all;
}

void Commits::tell()
{
    std::vector<uint64_t> hashes;
    for (const std::vector<State> *all : {&states_, &flight_})
        for (const State &each : *all)
            hashes.push_back(hash_of({each.content}));
    a_.allow(hashes);
}

void Commits::prepare()
{
    if (flight_.empty())
        return;
    must(ato_settle(m_->base) == 0, "ato_settle");
    look();
    flight_.clear();
    tell();
}

void Commits::begin(const std::vector<Piece> &all, bool relaxed)
{
    flight_ = {{states_.back().content}};
    flight_[0].open = relaxed;
    for (const Piece &p : all)
        std::copy(p.bytes.begin(), p.bytes.end(),
                  flight_[0].content.begin() + static_cast<long>(p.at));
    tell();
}

void Commits::end(const ato_promise &promise)
{
    look();
    if (!flight_.empty())
        throw Violation("a commit is not visible");
    states_.back().promise = promise;
    tell();
}

void Commits::are_durable(size_t n)
{
    states_.erase(states_.begin(), states_.begin() + static_cast<long>(n));
    states_[0].seen = true;
    tell();
}

void Commits::shown(size_t n)
{
    states_[n].seen = true;
    if (!states_[n].open)
        are_durable(n);
}
} // namespace crash
