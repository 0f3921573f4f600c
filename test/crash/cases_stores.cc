// SPDX-License-Identifier: BSD-3-Clause
//
// Plain stores: a commit of several pages, alone, beside calls, and beside another process that is killed in a commit of its own, or in a
// takeover. A crash leaves all of a commit or nothing; stores that are not committed are gone. Whole slices are stored to, so that
// commits of others to the rest of a page do not matter.
#include "scenes.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <sys/mman.h>

namespace crash
{

namespace
{

constexpr uint64_t LONGER = SIZE + 2 * PAGE + 300;

// A view, and what its process has stored.
class Stores
{
  public:
    explicit Stores(Actor &a) : a_(a), m_(a.map(0, ATO_READ_GATHER, ATO_NO_RTM | ATO_PLAIN_STORES))
    {
    }
    void store(uint64_t pieces)
    {
        for (; pieces; pieces--) {
            const uint64_t at = a_.random.below(m_->bytes / LINE) * LINE,
                           n = LINE * (1 + a_.random.below(a_.random.one_in(3) ? 80 : 3));
            store(at, std::min(n, m_->bytes - at));
        }
    }
    void commit(bool relaxed = false)
    {
        const uint64_t before = hash_of(a_.contents);
        apply(a_.contents[0]);
        a_.allow({before, hash_of(a_.contents)});
        sync(relaxed);
        a_.allow_this();
    }
    // While the content is undecided.
    void commit_blindly()
    {
        a_.change_blindly(
            0, [this](Bytes &to) { apply(to); }, [this] { sync(false); });
    }
    void discard()
    {
        must(ato_plain_discard(m_->base, m_->bytes) == 0, "ato_plain_discard");
        pieces_.clear();
        before_.clear();
    }
    // The last unmapping of the file. It commits.
    void unmap(int mode)
    {
        const uint64_t before = hash_of(a_.contents);
        apply(a_.contents[0]);
        a_.allow({before, hash_of(a_.contents)});
        a_.world.unmap(m_, mode);
        a_.allow_this();
    }
    // Belongs to the next commit.
    void grow(uint64_t to)
    {
        const uint64_t before = hash_of(a_.contents);
        std::vector<Bytes> longer = a_.contents;
        longer[0].resize(to);
        a_.allow({before, hash_of(longer)});
        must(ato_ftruncate(m_->base, static_cast<off_t>(to)) == 0, "ato_ftruncate");
        m_->bytes = to;
        store(to - 700, 700 - 50);
        store(2);
        std::vector<Bytes> after = longer;
        apply(after[0]);
        a_.allow({before, hash_of(longer), hash_of(after)});
        sync(false);
        a_.contents = after;
        a_.allow_this();
        the(a_)->bytes = to;
    }
    // What loads see: what is committed, and at home, and what is stored.
    void check() const
    {
        Bytes shown = a_.contents[0];
        apply(shown);
        for (uint64_t at = 0; at < shown.size(); at += PAGE) {
            const uint64_t n = std::min<uint64_t>(PAGE, shown.size() - at);
            const bool has_stores =
                std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece &p) {
                    return p.at < at + PAGE && p.at + p.bytes.size() > at;
                });
            if (!has_stores && memcmp(m_->base + at, &shown[at], n) != 0)
                throw Violation("a view does not show what is committed");
        }
        for (const Piece &p : pieces_)
            if (memcmp(m_->base + p.at, &shown[p.at], p.bytes.size()) != 0)
                throw Violation("a view has lost what was stored");
    }

  private:
    struct Piece {
        uint64_t at;
        Bytes bytes;
    };
    // Each byte is another one than before: one that is stored and stays the same is not stored.
    void store(uint64_t at, uint64_t n)
    {
        at -= at % LINE;
        pieces_.push_back({at, a_.some(n)});
        for (uint64_t i = 0; i < n; i++) {
            unsigned char &byte = pieces_.back().bytes[i];
            const Bytes &was = page_before((at + i) / PAGE);
            const Bytes &committed = a_.contents[0];
            while (byte == was[(at + i) % PAGE] ||
                   (at + i < committed.size() && byte == committed[at + i]))
                byte++;
        }
        memcpy(m_->base + at, pieces_.back().bytes.data(), n);
    }
    // What the page's copy was made from.
    const Bytes &page_before(uint64_t page)
    {
        const auto it = before_.find(page);
        if (it != before_.end())
            return it->second;
        const char *now = m_->base + page * PAGE;
        Bytes bytes(now, now + std::min<uint64_t>(PAGE, m_->bytes - page * PAGE));
        return before_.emplace(page, std::move(bytes)).first->second;
    }
    void apply(Bytes &to) const
    {
        for (const Piece &p : pieces_)
            std::copy(p.bytes.begin(), p.bytes.end(), to.begin() + static_cast<long>(p.at));
    }
    void sync(bool relaxed)
    {
        must(ato_msync(m_->base, m_->bytes, relaxed ? MS_ASYNC : MS_SYNC) == 0, "ato_msync");
        pieces_.clear();
        before_.clear();
    }

    Actor &a_;
    Mapping *m_;
    std::vector<Piece> pieces_;
    std::map<uint64_t, Bytes> before_;
};

void alone(Actor &a)
{
    Stores s(a);
    for (int i = 0; i < 4; i++) {
        s.store(1 + a.random.below(3));
        switch (a.random.below(6)) {
        case 0:
        case 1:
            a.write(the(a), a.random.below(3 * PAGE), 1 + a.random.below(PAGE + 700),
                    a.random.one_in(2) ? ATO_EAGER : 0);
            break;
        case 2:
            s.discard();
            break;
        case 3:
            a.deploy_all(the(a));
            break;
        default:
            break;
        }
        s.check();
        s.commit(a.domain != ATO_DOMAIN_DISK && a.random.one_in(3)); // elsewhere it is durable
        s.check();
        a.check(the(a));
    }
    if (a.random.one_in(3))
        return;
    a.unmap(the(a), ATO_UNMAP_FAST);
    s.store(2);
    s.unmap(a.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
}

void growing(Actor &a)
{
    Stores s(a);
    s.store(1);
    s.grow(LONGER);
    s.check();
    s.grow(LONGER + 200);
    s.store(2);
    s.commit();
    s.check();
    a.check(the(a));
}

// ---- several processes ----

void change_by_stores(Actor &a)
{
    Stores own(a);
    own.store(1 + a.random.below(3));
    own.commit();
}

void change_by_calls(Actor &a)
{
    a.write(a.map(0, ATO_READ_GATHER, ATO_NO_RTM), PAGE - 1 - a.random.below(200),
            200 + a.random.below(3 * PAGE), a.random.one_in(3) ? ATO_EAGER : 0);
}

template <void (*change)(Actor &)> void beside(Actor &a)
{
    Stores s(a);
    const uint64_t most[] = {30, 70, 150};
    const uint64_t first = a.random.below(most[a.random.below(3)]),
                   second = a.random.below(most[a.random.below(3)]);
    s.store(1 + a.random.below(3));
    a.beside([&] {
        Peer::die_within(a.random.one_in(8) ? ~0ull : first);
        change(a);
    });
    if (a.random.one_in(3)) // another one dies while it takes over
        a.beside([&] {
            Peer::die_within(second);
            a.read_all(a.map(0, ATO_READ_GATHER, ATO_NO_RTM));
        });
    if (a.random.one_in(2))
        s.store(1);
    if (a.random.one_in(2))
        s.commit_blindly();
    a.look();
    s.check();
    s.commit();
    a.write(the(a), a_page(a), 1 + a.random.below(300));
    s.store(1);
    s.commit();
    s.check();
    a.check(the(a));
}

} // namespace

const std::vector<Case> &stores_cases()
{
    constexpr uint64_t DEATHS = 16;
    static const std::vector<Case> cases = {
        {"plain stores", ALL, {SIZE}, before_plain, alone},
        {"plain stores, growing", ALL, {SIZE}, before_plain, growing},
        {"plain stores, peers", COSTLY, {SIZE}, before_plain, beside<change_by_stores>, DEATHS},
        {"plain stores, beside calls of peers",
         COSTLY,
         {SIZE},
         before_plain,
         beside<change_by_calls>,
         DEATHS},
    };
    return cases;
}

} // namespace crash
