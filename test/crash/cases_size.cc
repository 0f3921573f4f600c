// SPDX-License-Identifier: BSD-3-Clause
#include "choices.h"
#include "draft.h"
#include "reader.h"
#include "scenes.h"

#include <algorithm>

namespace crash
{

namespace
{

void grow(Actor &a)
{
    Mapping *m = the(a);
    uint64_t end = m->bytes;
    if (a.random.one_in(2)) // puts its last slice into the reflection
        a.write(m, end - 1 - a.random.below(80), 1);
    a.resize(m, end + 1 + a.random.below(3000)); // within the page
    a.write(m, end - 30, 31);
    end = m->bytes;
    a.resize(m, end + PAGE + a.random.below(2 * PAGE));
    a.write(m, end - 20, 300);
    a.write(m, m->bytes - 200 - a.random.below(PAGE), 200);
    a.resize(m, (m->bytes / PAGE + 1) * PAGE);
    a.resize(m, m->bytes + 64);
    a.write(m, m->bytes - 90, 90);
}

void grow_and_unmap(Actor &a)
{
    a.resize(the(a), SIZE + 1 + a.random.below(3 * PAGE));
    a.write(the(a), SIZE - 100, 101);
    bool fast = a.random.one_in(2);
    a.unmap(the(a), fast ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
    if (!fast) {
        a.demand.plain = true;
        a.allow_this();
        a.demand = Demand();
        a.allow_this();
    }
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.resize(m, m->bytes + 100);
}

// Before: the power failed, or the process died, at any moment of a change of size; more often
// right after the first event of some kind.
void cut_in(Actor &a, void (*changes)(Actor &a), bool (*matters)(const Event &e, int original))
{
    Mapping *m = mapped(a, ATO_NO_RTM);
    if (a.random.one_in(2))
        a.deploy(m, 0,
                 m->bytes); // the original has no stores after this, and is durable
    Loss loss = loss_of(a.domain);
    Media media(a.world.look(), loss, a.domain != ATO_DOMAIN_DISK);
    Trace t;
    a.world.record(&t);
    changes(a);
    a.world.record(nullptr);
    a.world.die();
    bool killed = loss == Loss::Process || a.random.one_in(2);
    size_t first = 0;
    while (!matters(t[first], a.world.inode_of(0)))
        first++;
    size_t cut = a.random.below(t.size());
    if (a.random.one_in(2))
        cut = first + 1 + a.random.below(t.size() - first - 1);
    for (size_t i = 0; i < cut; i++)
        media.feed(t[i]);
    Disk image = media.visible();
    if (!killed || loss == Loss::Process) {
        Choices choices(media.units(&t[cut]), a.random.next());
        std::vector<uint64_t> numbers = choices.numbers(16);
        image = media.image(choices.pick(numbers[a.random.below(numbers.size())]));
    }
    a.world.stage(image, killed ? After::Kill : After::PowerCut);
    Found f = read_file(image, a.world.inode_of(0), a.world.number_of(0));
    if (!f.damage.empty())
        throw Violation("after a cut in a change of size: " + f.damage);
    a.contents[0] = f.content;
}

void before_cut_growth(Actor &a)
{
    cut_in(
        a, [](Actor &b) { b.resize(the(b), SIZE + PAGE + b.random.below(PAGE)); },
        [](const Event &e, int original) { // from here on there is something to cut off
            return e.kind == Kind::Resize && e.inode == original;
        });
}

// Shorter; perhaps longer again, to less or to more than the first size.
void before_cut_shrink(Actor &a)
{
    cut_in(
        a,
        [](Actor &b) {
            Mapping *m = the(b);
            b.resize(m, 1 + b.random.below(4 * PAGE));
            if (b.random.one_in(2))
                b.write(m, m->bytes - 1 - b.random.below(std::min<uint64_t>(m->bytes, 100)), 1);
            if (b.random.one_in(2))
                b.resize(m, m->bytes + 1 + b.random.below(SIZE + PAGE - m->bytes));
            else if (b.random.one_in(2))
                b.resize(m, 1 + b.random.below(m->bytes));
        },
        [](const Event &e, int) { return e.kind == Kind::Store; });
}

// The file is cut to its size before it grows to another one.
void grow_after_cut(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.resize(m, m->bytes + 2 * PAGE + a.random.below(PAGE));
    a.write(m, m->bytes - 500, 500);
}

// Or before it is unmapped; the process that maps it next may die, too.
void unmap_after_cut(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    if (a.random.one_in(3)) {
        a.world.die();
        set_thread_number(get_thread_number() + 1);
        m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    }
    if (a.random.one_in(2)) {
        a.unmap(m, ATO_UNMAP_FAST);
        return;
    }
    a.unmap(m, ATO_UNMAP_SPATIAL);
    a.demand.plain = true;
    a.allow_this();
}

void shrink(Actor &a)
{
    Mapping *m = the(a);
    a.resize(m, m->bytes - 1 - a.random.below(900)); // within the page
    a.deploy(m, 0, m->bytes);
    a.write(m, m->bytes - 70, 70);
    a.resize(m, PAGE + 1 + a.random.below(3 * PAGE));
    a.write(m, m->bytes - 100, 100);
    a.resize(m, m->bytes / PAGE * PAGE);
    a.resize(m, a.random.one_in(3) ? 0 : 1 + a.random.below(PAGE));
}

// Longer again, to less or to more than the first size; the new part is written to, or not.
void shrink_and_grow(Actor &a)
{
    Mapping *m = the(a);
    a.resize(m, 1 + a.random.below(2 * PAGE));
    a.resize(m, m->bytes + 1 + a.random.below(2 * PAGE));
    if (a.random.one_in(2))
        a.write(m, m->bytes - 1 - a.random.below(std::min<uint64_t>(m->bytes, PAGE)), 1);
    a.resize(m, 1 + a.random.below(m->bytes));
    a.resize(m, SIZE);
    a.write(m, SIZE - 700, 600);
    a.resize(m, 3 * PAGE + a.random.below(PAGE));
    a.resize(m, SIZE + 1 + a.random.below(2 * PAGE));
}

void shrink_and_unmap(Actor &a)
{
    Mapping *m = the(a);
    a.resize(m, 200 + a.random.below(4 * PAGE));
    a.write(m, m->bytes - 101, 101);
    if (a.random.one_in(3))
        a.resize(m, m->bytes + a.random.below(PAGE));
    bool fast = a.random.one_in(2);
    a.unmap(m, fast ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
    if (!fast) {
        a.demand.plain = true;
        a.allow_this();
        a.demand = Demand();
        a.allow_this();
    }
    m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.resize(m, SIZE + 100);
}

// Each time the shrink leaves only a record, and a word that has to be durable before it.
void shrink_and_close(Actor &a)
{
    Mapping *m = the(a);
    for (int i = 0; i < 3; i++) {
        a.resize(m, m->bytes - 1 - a.random.below(PAGE));
        a.unmap(m, ATO_UNMAP_FAST);
        m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    }
}

// The rest of the shrink goes first; then the file grows over its old end.
void grow_after_cut_shrink(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.resize(m, m->bytes + 1 + a.random.below(SIZE + 2 * PAGE - m->bytes));
    a.write(m, m->bytes - 1, 1);
    a.resize(m, 1 + a.random.below(m->bytes));
}

void shrink_over_chunks(Actor &a)
{
    Mapping *m = the(a);
    if (a.random.one_in(2)) {
        a.resize(m, CHUNK + 1 + a.random.below(PAGE));
        a.write(m, m->bytes - 1, 1);
    }
    a.resize(m, a.random.one_in(2) ? CHUNK : CHUNK - PAGE - a.random.below(2 * PAGE));
    a.resize(m, m->bytes + 1 + a.random.below(2 * PAGE));
    a.unmap(m, ATO_UNMAP_FAST);
}

// Transactions that append, one after the other: the length is ahead of the size, until something cuts it back.
void append(Actor &a)
{
    Mapping *m = the(a);
    for (int i = 0; i < 4; i++) {
        Draft t(a);
        const uint64_t end = t.size(m);
        t.resize(m, end + 1 + a.random.below(2 * PAGE));
        t.write(m, end - 1 - a.random.below(70), 1);
        t.write(m, t.size(m) - 1, 1);
        if (a.random.one_in(8))
            t.abort();
        else
            t.commit();
        if (a.random.one_in(4))
            a.deploy_all(m);
        if (a.random.one_in(8))
            a.resize(m, m->bytes - a.random.below(PAGE));
    }
    if (a.random.one_in(3))
        a.unmap(m, a.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
}

// The same by relaxed commits: a power cut leaves what one of them has made since all were durable.
class Appends
{
  public:
    explicit Appends(Actor &a) : a_(a), m_(the(a)), now_(a.contents[0]), may_{hash_of(a.contents)}
    {
    }

    void append(bool commits)
    {
        const uint64_t end = now_.size(), to = end + 1 + a_.random.below(2 * PAGE);
        ato_tx *tx = ato_tx_begin(ATO_RELAXED);
        a_.world.opened(tx);
        must(ato_tx_ftruncate(tx, m_->base, static_cast<off_t>(to)) == 0, "ato_tx_ftruncate");
        Bytes then = now_;
        then.resize(to);
        for (uint64_t at : {end - 1 - a_.random.below(70), to - 1}) {
            const Bytes one = a_.some(1);
            then[at] = one[0];
            must(ato_tx_memcpy(tx, m_->base + at, one.data(), 1, 0), "ato_tx_memcpy");
        }
        if (!commits) {
            must(ato_tx_abort(tx) == 0, "ato_tx_abort");
            return;
        }
        become(then);
        must(ato_tx_commit(tx) == 0, "ato_tx_commit");
        m_->bytes = to;
    }
    void resize(uint64_t to)
    {
        Bytes then = now_;
        then.resize(to);
        become(then);
        must(ato_ftruncate(m_->base, static_cast<off_t>(to)) == 0, "ato_ftruncate");
        m_->bytes = to;
        are_durable();
    }
    void deploy()
    {
        a_.deploy_all(m_);
        are_durable();
    }
    void unmap(int mode)
    {
        a_.world.unmap(m_, mode);
        are_durable();
        m_ = a_.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    }
    void check()
    {
        a_.check(m_);
    }
    uint64_t size() const
    {
        return now_.size();
    }

  private:
    void become(const Bytes &then)
    {
        now_ = then;
        may_.push_back(hash_of(a_.contents));
        a_.allow(may_);
    }
    void are_durable()
    {
        may_ = {hash_of(a_.contents)};
        a_.allow(may_);
    }

    Actor &a_;
    Mapping *m_;
    Bytes &now_;
    std::vector<uint64_t> may_;
};

void before_relaxed(Actor &a)
{
    before_plain(a);
    for (int i = 0; i < 2; i++) { // then the file's length is ahead
        Draft t(a);
        t.resize(the(a), t.size(the(a)) + 1 + a.random.below(PAGE));
        t.commit();
    }
}

void append_relaxed(Actor &a)
{
    Appends f(a);
    for (int i = 0; i < 2; i++) {
        for (uint64_t n = 1 + a.random.below(2); n; n--)
            f.append(true);
        switch (a.random.below(6)) {
        case 0:
            f.append(false);
            break;
        case 1:
            f.resize(f.size());
            break;
        case 2:
            f.resize(1 + a.random.below(f.size() + PAGE));
            break;
        case 3:
            f.deploy();
            break;
        case 4:
            f.unmap(a.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
            break;
        default:
            break;
        }
        f.check();
    }
}

void grow_over_chunks(Actor &a)
{
    a.resize(the(a), CHUNK - PAGE + 1 + a.random.below(PAGE));
    a.resize(the(a), CHUNK + PAGE + a.random.below(PAGE));
    a.write(the(a), CHUNK - 90, 200);
    a.write(the(a), the(a)->bytes - 70, 70);
}

void before_near_chunk(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 0);
    for (int i = 0; i < 4; i++)
        a.write(m, m->bytes - 100 - a.random.below(2 * PAGE), 90);
}

} // namespace

const std::vector<Case> &size_cases()
{
    static const std::vector<Case> cases = {
        {"grow", ALL, {SIZE}, before_plain, grow},
        {"grow, unmap", ALL, {SIZE}, before_plain, grow_and_unmap},
        {"grow after a cut", ALL, {SIZE}, before_cut_growth, grow_after_cut},
        {"growth cut, unmap", ALL, {SIZE}, before_cut_growth, unmap_after_cut},
        {"growth, again and again", DISK, {SIZE}, before_plain, append},
        {"growth, relaxed", DISK, {SIZE}, before_relaxed, append_relaxed},
        {"shrink", ALL, {SIZE}, before_plain, shrink},
        {"shrink, grow", ALL, {SIZE}, before_plain, shrink_and_grow},
        {"shrink, unmap", ALL, {SIZE}, before_plain, shrink_and_unmap},
        {"shrink, close", COSTLY, {SIZE}, before_plain, shrink_and_close},
        {"shrink cut, unmap", ALL, {SIZE}, before_cut_shrink, unmap_after_cut},
        {"shrink cut, grow", ALL, {SIZE}, before_cut_shrink, grow_after_cut_shrink},
        {"shrink, two chunks",
         PMEM,
         {CHUNK + 2 * PAGE + 77},
         before_near_chunk,
         shrink_over_chunks},
        {"grow, two chunks", PMEM, {CHUNK - 2 * PAGE + 77}, before_near_chunk, grow_over_chunks},
    };
    return cases;
}

} // namespace crash
