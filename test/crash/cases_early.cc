// SPDX-License-Identifier: BSD-3-Clause
//
// Early commits, of one process or of several. A crash at any moment leaves what one of the commits has made that came after the last
// durable one, or that itself: all before it, and nothing of a later one. What a snapshot or a read has shown is durable.
#include "scenes.h"

#include "ato_engine.h"

#include <algorithm>

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
};

// The commits that may not be durable, and who makes more of them.
class Commits
{
  public:
    Commits(Actor &a, Mapping *m) : a_(a), m_(m), states_({{a.contents[0]}})
    {
    }

    void early()
    {
        prepare();
        const std::vector<Piece> all = some(1 + a_.random.below(3));
        ato_promise promise;
        begin(all);
        ato_tx *tx = ato_tx_begin(ATO_TX_EARLY | ATO_TX_READ_COMMITTED);
        must(tx, "ato_tx_begin");
        a_.world.opened(tx);
        for (const Piece &p : all)
            must(ato_tx_memcpy(tx, m_->base + p.at, p.bytes.data(), p.bytes.size(), 0),
                 "ato_tx_memcpy");
        must(ato_tx_commit_early(tx, &promise) == 0, "ato_tx_commit_early");
        end(promise);
        if (!promise.number)
            are_durable(states_.size() - 1);
        early_ += promise.number != 0;
    }
    void ordinary(unsigned flags)
    {
        prepare();
        std::vector<Piece> one = some(1);
        if (flags & ATO_EAGER) { // a word
            one[0].at &= ~7ull;
            one[0].bytes.resize(8);
        }
        begin(one);
        must(ato_memcpy_opt(m_->base + one[0].at, one[0].bytes.data(), one[0].bytes.size(), flags),
             "ato_memcpy_opt");
        end({});
        are_durable(states_.size() - 1);
    }
    void resize()
    {
        prepare();
        const uint64_t to = 2 * PAGE + a_.random.below(2 * SIZE);
        if (to == states_.back().content.size())
            return;
        flight_ = {states_.back().content};
        flight_[0].resize(to);
        tell();
        must(ato_ftruncate(m_->base, static_cast<off_t>(to)) == 0, "ato_ftruncate");
        m_->bytes = to;
        end({});
        are_durable(states_.size() - 1);
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
        if (!flight_.empty() && now == flight_[0]) {
            states_.push_back({now});
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
            if (now == states_[i - 1].content) {
                are_durable(i - 1);
                return;
            }
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
        const auto found = std::find_if(states_.begin(), states_.end(),
                                        [&](const State &each) { return each.content == now; });
        if (found == states_.end())
            throw Violation("a snapshot is not what one of the last commits has made");
        are_durable(static_cast<size_t>(found - states_.begin()));
    }
    // Another process goes on from here, and dies within so many moments.
    void beside(uint64_t moments, unsigned steps)
    {
        Commits own = *this;
        own.early_ = 0;
        const World::Beside done = a_.world.beside(
            [&] {
                own.m_ = a_.map(0, ATO_READ_GATHER, ATO_NO_RTM);
                for (State &each : own.states_)
                    each.promise = {};
                Peer::die_within(moments);
                own.steps(steps);
            },
            [&](Pack &p) {
                for (const std::vector<Bytes> &all : {own.contents(), own.flight_}) {
                    p.number(all.size());
                    for (const Bytes &each : all)
                        p.word(std::string(each.begin(), each.end()));
                }
            });
        Unpack u(done.words);
        const std::vector<State> before = std::move(states_);
        states_.clear();
        for (const Bytes &each : unpack(u))
            states_.push_back({each});
        flight_ = unpack(u);
        for (State &each : states_) // this process's own ones
            for (const State &was : before)
                if (was.content == each.content)
                    each.promise = was.promise;
        tell();
    }
    void steps(unsigned n)
    {
        while (n--)
            switch (a_.random.below(13)) {
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
            default:
                early();
                break;
            }
    }
    void finish()
    {
        deploy();
        a_.contents[0] = states_.back().content;
        a_.allow_this();
    }

  private:
    static std::vector<Bytes> unpack(Unpack &u)
    {
        std::vector<Bytes> all;
        for (uint64_t n = u.number(); n; n--) {
            const std::string word = u.word();
            all.emplace_back(word.begin(), word.end());
        }
        return all;
    }
    std::vector<Bytes> contents() const
    {
        std::vector<Bytes> all;
        for (const State &each : states_)
            all.push_back(each.content);
        return all;
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
        for (const std::vector<Bytes> &all : {contents(), flight_})
            for (const Bytes &each : all)
                hashes.push_back(hash_of({each}));
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
    void begin(const std::vector<Piece> &all)
    {
        flight_ = {states_.back().content};
        for (const Piece &p : all)
            std::copy(p.bytes.begin(), p.bytes.end(), flight_[0].begin() + static_cast<long>(p.at));
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
        tell();
    }

    Actor &a_;
    Mapping *m_;
    std::vector<State> states_; // of the last durable commit, and of all after it
    std::vector<Bytes> flight_; // of a commit that is under way, or was in a process that died

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
    Commits c(a, the(a));
    c.early();
    if (!c.early_)
        throw Violation("no commit is early");
    c.steps(6);
    first.check();
    c.finish();
}

void beside(Actor &a)
{
    const First first(a);
    Commits c(a, the(a));
    const uint64_t most[] = {12, 40, 150};
    for (int i = 0; i < 2; i++) {
        c.steps(1 + static_cast<unsigned>(a.random.below(3)));
        c.beside(a.random.one_in(6) ? ~0ull : a.random.below(most[a.random.below(3)]),
                 1 + static_cast<unsigned>(a.random.below(2)));
        if (a.random.one_in(2))
            c.look();
        first.check();
    }
    c.steps(2);
    c.finish();
}

} // namespace

const std::vector<Case> &early_cases()
{
    static const std::vector<Case> cases = {
        {"early", DISK, {SIZE}, before_plain, alone},
        {"early, peers", DISK, {SIZE}, before_plain, beside, 16},
    };
    return cases;
}

} // namespace crash
