// SPDX-License-Identifier: BSD-3-Clause
#include "choices.h"
#include "reader.h"
#include "scenes.h"

namespace crash
{

namespace
{

void grow(Actor &a)
{
    Mapping *m = the(a);
    uint64_t end = m->bytes;
    if (a.random.one_in(2)) // its last slice lies in the reflection
        a.write(m, end - 1 - a.random.below(80), 1);
    a.grow(m, end + 1 + a.random.below(3000)); // within the page
    a.write(m, end - 30, 31);
    end = m->bytes;
    a.grow(m, end + PAGE + a.random.below(2 * PAGE));
    a.write(m, end - 20, 300);
    a.write(m, m->bytes - 200 - a.random.below(PAGE), 200);
    a.grow(m, (m->bytes / PAGE + 1) * PAGE);
    a.grow(m, m->bytes + 64);
    a.write(m, m->bytes - 90, 90);
}

void grow_and_unmap(Actor &a)
{
    a.grow(the(a), SIZE + 1 + a.random.below(3 * PAGE));
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
    a.grow(m, m->bytes + 100);
}

// The power went, or the process died, at any moment of a growth.
void before_cut_growth(Actor &a)
{
    Mapping *m = mapped(a, ATO_NO_RTM);
    if (a.random.one_in(2))
        a.deploy(m, 0,
                 m->bytes); // then nobody stores to the original any more, which makes it sure
    Loss loss = loss_of(a.domain);
    Media media(a.world.look(), loss, a.domain != ATO_DOMAIN_MSYNC);
    Trace t;
    a.world.record(&t);
    a.grow(the(a), SIZE + PAGE + a.random.below(PAGE));
    a.world.record(nullptr);
    a.world.die();
    bool killed = loss == Loss::Process || a.random.one_in(2);
    size_t longer = 0; // from here on there is something to cut off
    while (t[longer].kind != Kind::Resize || t[longer].inode != a.world.inode_of(0))
        longer++;
    size_t cut = a.random.below(t.size());
    if (a.random.one_in(2))
        cut = longer + 1 + a.random.below(t.size() - longer - 1);
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
        throw Violation("after a cut in a growth: " + f.damage);
    a.contents[0] = f.content;
}

// Which is cut off, whatever it was, before the file grows to another size.
void grow_after_cut(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.grow(m, m->bytes + 2 * PAGE + a.random.below(PAGE));
    a.write(m, m->bytes - 500, 500);
}

// Or before it is unmapped; the next one may be dead, too, when the one after it comes.
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

void grow_over_chunks(Actor &a)
{
    a.grow(the(a), CHUNK - PAGE + 1 + a.random.below(PAGE));
    a.grow(the(a), CHUNK + PAGE + a.random.below(PAGE));
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
        {"grow, two chunks", COSTLY, {CHUNK - 2 * PAGE + 77}, before_near_chunk, grow_over_chunks},
    };
    return cases;
}

} // namespace crash
