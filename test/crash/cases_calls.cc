// SPDX-License-Identifier: BSD-3-Clause
#include "scenes.h"

namespace crash
{

namespace
{

// The sequence numbers of a lane are about to need their upper halves.
void before_old_lane(Actor &a)
{
    Mapping *m = mapped(a, ATO_NO_RTM);
    if (a.domain == ATO_DOMAIN_DISK)
        return;
    const uint64_t old = 0xfffffffe, at = lane_in_manifest(0);
    a.world.poke(".ato/" + manifest_of(a, 0), at, {old});      // sequence
    a.world.poke(".ato/" + manifest_of(a, 0), at + 64, {old}); // retired
    a.write(m, PAGE - 10, 20);                                 // the first use of the lane
}

void before_rtm(Actor &a)
{
    mapped(a, 0);
}

void write_aligned(Actor &a)
{
    uint64_t page = a_page(a);
    for (int i = 0; i < 3; i++) {
        uint64_t first = a.random.below(40), n = 1 + a.random.below(i == 2 ? 24 : 4);
        a.write(the(a), page + first * LINE, n * LINE);
    }
}

void write_byte(Actor &a)
{
    uint64_t at = a.random.below(SIZE);
    for (int i = 0; i < 3; i++)
        a.write(the(a), i == 2 ? a.random.below(SIZE) : at, 1);
}

void write_across(Actor &a)
{
    uint64_t page = a_page(a), at = page + 1 + a.random.below(3000);
    for (int i = 0; i < 3; i++)
        a.write(the(a), at + a.random.below(60), 66 + a.random.below(300));
}

void write_ends(Actor &a)
{
    a.write(the(a), a_page(a) + PAGE - 1, 1);
    a.write(the(a), SIZE - 1, 1);
    a.write(the(a), SIZE - 1 - a.random.below(200), 1);
    a.write(the(a), a_page(a), PAGE);
}

void write_pages(Actor &a)
{
    for (int i = 0; i < 3; i++) {
        uint64_t n = PAGE + 2 + a.random.below(3 * PAGE);
        uint64_t at = a.random.below(SIZE - n);
        a.write(the(a), at, n);
        if (i == 0) // a newer flip of a page that is in the lane
            a.write(the(a), at + n - 1 - a.random.below(900), 1);
    }
}

// Few slices of each page, so that every combination of words can be explored.
void write_seam(Actor &a)
{
    uint64_t seam = PAGE * (1 + a.random.below(4));
    for (int i = 0; i < 3; i++) {
        uint64_t left = 1 + a.random.below(90);
        a.write(the(a), seam - left, left + 1 + a.random.below(90));
    }
    a.write(the(a), seam - 3, 3);
    a.write(the(a), seam - 20, 60);
}

void write_many(Actor &a)
{
    uint64_t n = 9 * PAGE + a.random.below(30 * PAGE);
    uint64_t at = a.random.below(the(a)->bytes - n);
    a.write(the(a), at, n);
    a.write(the(a), at + 3 * PAGE, 2 * PAGE);
}

void write_equal(Actor &a)
{
    uint64_t page = a_page(a);
    a.write_like(the(a), page, PAGE, ATO_SKIP_EQUAL);
    a.write_like(the(a), page + 5, 700, ATO_SKIP_EQUAL);
    a.write_like(the(a), PAGE / 2, 3 * PAGE, ATO_SKIP_EQUAL);
}

void fill(Actor &a)
{
    a.fill(the(a), a.random.below(3 * PAGE), 1 + a.random.below(200));
    a.fill(the(a), a.random.below(3 * PAGE), PAGE + a.random.below(PAGE));
}

void copy(Actor &a)
{
    uint64_t at = a.random.below(2 * PAGE);
    a.copy(the(a), at + 300, the(a), at, PAGE + 500); // overlapping
    a.copy(the(a), at, the(a), at + 700, 900);
    a.copy(the(a, 1), a.random.below(PAGE), the(a), at, 2 * PAGE);
    a.copy(the(a), at, the(a, 1), at, 100);
}

void write_eager(Actor &a)
{
    uint64_t at = a.random.below(3000);
    a.write(the(a), at, 200, ATO_EAGER);
    a.write(the(a), at + 100, 90);
    a.write(the(a), PAGE - 90, 300, ATO_EAGER);
    a.write(the(a), PAGE - 30, 60);
}

// Within one word: the store is in place if the slice is home.
void write_words(Actor &a)
{
    const uint64_t at = a.random.below(3000) / 8 * 8;
    a.write(the(a), at, 8, ATO_EAGER);
    a.write(the(a), at + 3, 2, ATO_EAGER);
    a.write(the(a), at + 64, 20);
    a.write(the(a), at + 72, 8, ATO_EAGER);
    a.write(the(a), at + 72, 8, ATO_EAGER);
}

void deploy(Actor &a)
{
    uint64_t page = a_page(a);
    a.deploy(the(a), page, 2 * PAGE < the(a)->bytes - page ? 2 * PAGE : PAGE);
    a.write(the(a), page + 100, 300);
    a.deploy(the(a), page, PAGE);
    a.write(the(a), page + 130, 200);
    a.deploy(the(a), 0, the(a)->bytes);
}

// What is not deployed stays; what is written after it takes space again.
void reclaim(Actor &a)
{
    uint64_t page = a_page(a);
    a.write(the(a), page + 100, 300);
    a.deploy(the(a), page, PAGE);
    a.reclaim(the(a), 0, the(a)->bytes);
    a.write(the(a), page + 130, 200);
    a.reclaim(the(a), page, PAGE);
    a.deploy(the(a), 0, the(a)->bytes);
    a.reclaim(the(a), 0, the(a)->bytes);
    a.write(the(a), page + 130, 200);
}

void before_deployed(Actor &a)
{
    before_plain(a);
    a.deploy(the(a), 0, the(a)->bytes);
}

// Space is given back before anything else happens, and is needed again.
void reclaim_first(Actor &a)
{
    a.reclaim(the(a), 0, the(a)->bytes);
    a.write(the(a), a_page(a) + 130, 200);
    a.write(the(a), PAGE - 60, 2 * PAGE);
}

void before_lazy(Actor &a)
{
    mapped(a, ATO_NO_RTM, ATO_READ_LAZY);
}

void before_eager(Actor &a)
{
    mapped(a, ATO_NO_RTM, ATO_READ_EAGER);
}

void read_lazily(Actor &a)
{
    uint64_t page = a_page(a);
    for (int i = 0; i < 4; i++)
        a.read(the(a), page, PAGE);
    a.write(the(a), page + 100, 300);
    for (int i = 0; i < 4; i++)
        a.read(the(a), page + 64, 100);
    a.write(the(a), page + 200, 100);
    a.check(the(a));
}

void unmap_fast(Actor &a)
{
    a.unmap(the(a), ATO_UNMAP_FAST);
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.unmap(m, ATO_UNMAP_FAST); // the file is unchanged
    m = a.map(0, ATO_READ_LAZY, ATO_NO_RTM);
    a.write(m, 100, 5000);
    a.unmap(m, ATO_UNMAP_FAST);
    a.check(a.map(0));
}

void unmap_spatial(Actor &a)
{
    a.unmap(the(a), ATO_UNMAP_SPATIAL);
    a.demand.plain = true;
    a.allow_this();
    a.demand = Demand();
    a.allow_this();
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.write(m, a.random.below(4000), 70);
    a.unmap(m, ATO_UNMAP_SPATIAL);
    a.demand.plain = true;
    a.allow_this();
}

// These bytes differ while the file is not plain.
void before_guard(Actor &a)
{
    Mapping *m = mapped(a, ATO_NO_RTM);
    uint64_t n = 1 + a.random.below(16);
    a.guard(m, a.random.one_in(3) ? PAGE - 1 - a.random.below(n) : a.random.below(SIZE - n), n);
    a.scatter(m, 2);
    Guard &g = a.guards.at(0);
    a.write(m, g.at, g.plain.size());
}

void guard(Actor &a)
{
    uint64_t n = 1 + a.random.below(16);
    a.guard(the(a), a.random.one_in(3) ? PAGE - 1 - a.random.below(n) : a.random.below(SIZE - n),
            n);
    if (a.random.one_in(2)) {
        a.unmap(the(a), ATO_UNMAP_FAST);
        a.check(a.map(0, ATO_READ_GATHER, ATO_NO_RTM));
    }
    a.unmap(the(a), ATO_UNMAP_SPATIAL);
    a.demand.plain = true;
    a.allow_this();
}

void unmap_guarded(Actor &a)
{
    a.unmap(the(a), ATO_UNMAP_SPATIAL);
    a.demand.plain = true;
    a.allow_this();
}

void first_map(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.write(m, a.random.below(4000), 90);
    a.check(m);
}

void before_no_lanes(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 0);
    for (int i = 0; i < 4; i++)
        a.write(m, a_page(a) + a.random.below(3000), 300);
}

void use_lanes(Actor &a)
{
    a.write(the(a), PAGE - 40, 90); // gives the slot's area its space
    a.write(the(a), PAGE - 30, 20);
    a.unmap(the(a), ATO_UNMAP_FAST);
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.write(m, PAGE - 60, 90);
    a.write(m, PAGE - 30, 20);
}

// More words than a small lane holds: the first commit makes the long lane, the second one uses it again.
void make_long_lane(Actor &a)
{
    for (int i = 0; i < 2; i++) {
        write_long(a);
        a.write(the(a), 9 * PAGE, PAGE + 10); // a newer flip of pages that are in the lane
    }
}

// The unmap cuts it off, and a commit makes it anew.
void cut_long_lane_off(Actor &a)
{
    a.write(the(a), 9 * PAGE, PAGE + 10);
    a.unmap(the(a), ATO_UNMAP_FAST);
    a.check(a.map(0, ATO_READ_GATHER, ATO_NO_RTM));
    write_long(a);
    a.write(the(a), 9 * PAGE, PAGE + 10);
    a.unmap(the(a), ATO_UNMAP_SPATIAL);
}

} // namespace

const std::vector<Case> &call_cases()
{
    static const std::vector<Case> cases = {
        {"write, aligned slices", ALL, {SIZE}, before_plain, write_aligned},
        {"write, 1 byte", ALL, {SIZE}, before_plain, write_byte},
        {"write, across slices", ALL, {SIZE}, before_plain, write_across},
        {"write, page and file end", ALL, {SIZE}, before_plain, write_ends},
        {"write, pages, RTM", RTM, {SIZE}, before_rtm, write_pages},
        {"write, pages", ALL, {SIZE}, before_plain, write_pages},
        {"write, two pages' seam", ALL, {SIZE}, before_old_lane, write_seam},
        {"write, many pages", ALL, {48 * PAGE}, before_plain, write_many},
        {"write, equal skipped", ALL, {SIZE}, before_plain, write_equal},
        {"fill", ALL, {SIZE}, before_plain, fill},
        {"copy between mappings", ALL, {SIZE, SIZE}, before_two, copy},
        {"eager write", ALL, {SIZE}, before_plain, write_eager},
        {"deploy", ALL, {SIZE}, before_plain, deploy},
        {"reclaim", REFLECTED, {SIZE}, before_plain, reclaim},
        {"reclaim, then write", PMEM, {SIZE}, before_deployed, reclaim_first},
        {"eager policy", ALL, {SIZE}, before_eager, write_eager},
        {"lazy read", REFLECTED, {SIZE}, before_lazy, read_lazily},
        {"unmap fast, map again", ALL, {SIZE}, before_plain, unmap_fast},
        {"unmap spatial", ALL, {SIZE}, before_plain, unmap_spatial},
        {"guard, unmap spatial", ALL, {SIZE}, before_plain, guard},
        {"unmap guarded", ALL, {SIZE}, before_guard, unmap_guarded},
        {"first map", ALL, {SIZE}, nullptr, first_map},
        {"lanes made", REFLECTED, {SIZE}, before_no_lanes, use_lanes},
        {"long lane", PMEM, {LARGE}, before_plain, make_long_lane},
        {"long lane, cut off", PMEM, {LARGE}, before_long, cut_long_lane_off},
        {"eager words", ALL, {SIZE}, before_plain, write_words},
    };
    return cases;
}

} // namespace crash
