// SPDX-License-Identifier: BSD-3-Clause
//
// Places in a sparse reflection: pages get them, one by one or several in one commit, and lose them to other pages.
#include "draft.h"
#include "scenes.h"
#include "threads.h"

namespace crash
{

namespace
{

constexpr uint64_t PAGES = 20; // whole ones
constexpr uint64_t BYTES = PAGES * PAGE + 1003;

// A place in the file with room for n bytes.
uint64_t anywhere(Actor &a, uint64_t n)
{
    return a.random.below(BYTES - n + 1);
}

// Within a page.
uint64_t in_a_page(Actor &a)
{
    return a.random.below(PAGES) * PAGE + a.random.below(3000);
}

// Few pages have places, not in the order of the pages: these, and page 3.
constexpr uint64_t FIRST[] = {13, 2, 7};

void before_few(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 0);
    for (uint64_t page : FIRST)
        a.write(m, page * PAGE + a.random.below(3000), 1 + a.random.below(700));
    a.write(m, 3 * PAGE - 30, 60); // gives the slot's area its space
    litter_lanes(a);
}

// The places of one meta page are nearly used up.
void before_next_meta_page(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 0);
    a.write_sparsely(m, 0, (240 + a.random.below(14)) * PAGE);
    litter_lanes(a);
}

// Single pages; several in one commit, some of which have places already.
void claim(Actor &a)
{
    for (int i = 0; i < 3; i++)
        a.write(the(a), in_a_page(a), 1 + a.random.below(300));
    for (int i = 0; i < 2; i++) {
        const uint64_t n = 4 * PAGE + a.random.below(5 * PAGE);
        a.write(the(a), anywhere(a, n), n);
    }
    a.write(the(a), in_a_page(a), 100);
}

// Few slices of each page, so that most losses of words and numbers can be explored.
void claim_at_seams(Actor &a)
{
    for (int i = 0; i < 5; i++) {
        const uint64_t seam = (1 + a.random.below(PAGES)) * PAGE, left = 1 + a.random.below(60);
        a.write(the(a), seam - left, left + 1 + a.random.below(60));
    }
}

void claim_next_meta_page(Actor &a)
{
    const uint64_t first = 256 * PAGE;
    a.write(the(a), first + a.random.below(3000), 200);
    a.write_sparsely(the(a), first, 18 * PAGE);
    a.write(the(a), first - 50, 100);
}

// The next process finds out again which page has which place.
void claim_and_map_again(Actor &a)
{
    for (int i = 0; i < 2; i++) {
        a.write(the(a), in_a_page(a), 200);
        if (a.random.one_in(2)) {
            a.unmap(the(a), ATO_UNMAP_FAST);
        } else {
            a.world.die();
            set_thread_number(get_thread_number() + 1);
        }
        a.check(a.map(0, ATO_READ_GATHER, ATO_NO_RTM));
    }
    claim_at_seams(a);
    a.unmap(the(a), a.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
}

// Pages of all places are cut off, and come back.
void shrink(Actor &a)
{
    Mapping *m = the(a);
    claim_at_seams(a);
    a.resize(m, (3 + a.random.below(8)) * PAGE + a.random.below(PAGE));
    a.write(m, m->bytes - 100, 100);
    a.resize(m, BYTES);
    claim_at_seams(a);
    a.resize(m, (3 + a.random.below(8)) * PAGE + a.random.below(PAGE));
    a.unmap(m, ATO_UNMAP_FAST);
    m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.resize(m, BYTES);
    a.check(m);
    claim_at_seams(a);
}

// What is given back keeps its place.
void reclaim(Actor &a)
{
    claim_at_seams(a);
    a.deploy(the(a), 0, BYTES);
    a.reclaim(the(a), 0, BYTES);
    claim_at_seams(a);
}

// Pages get places from threads that do not commit.
void claim_for_others(Actor &a)
{
    for (int i = 0; i < 2; i++) {
        Draft *t = nullptr;
        in_thread(1, [&] {
            t = new Draft(a);
            for (int k = 0; k < 3; k++)
                t->write(the(a), in_a_page(a), 100);
            t->check(the(a), 0, BYTES);
        });
        in_thread(2, [&] { t->commit(); });
        delete t;
    }
}

void claim_in_threads(Actor &a)
{
    std::vector<std::vector<Step>> threads(3);
    const uint64_t at = anywhere(a, 3 * PAGE);
    for (int i = 0; i < 2; i++) {
        threads[0].push_back({Step::Write, in_a_page(a), 100});
        threads[1].push_back({Step::Write, at + a.random.below(PAGE), 1 + a.random.below(PAGE)});
        threads[2].push_back({i ? Step::Write : Step::Read, at, 2 * PAGE});
    }
    run_threads(a, threads);
}

// ---- processes that die ----

void write_anything(Actor &a, Mapping *m)
{
    const uint64_t n = a.random.one_in(2) ? 200 : 4 * PAGE;
    a.write(m, anywhere(a, n), n);
}

void go_on(Actor &a)
{
    if (a.random.one_in(2))
        a.write_blindly(the(a), anywhere(a, 200), 200);
    a.look();
    claim_at_seams(a);
}

// Another process dies near a claim.
void dies(Actor &a)
{
    const uint64_t moments = a.random.below(a.random.one_in(2) ? 12 : 60);
    a.beside([&] {
        Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
        Peer::die_within(moments);
        write_anything(a, m);
    });
    go_on(a);
}

// Another process dies when it has noted the place of a page. The next commit has words of this page and of another one,
// which has a place: so nothing else makes the page's number durable.
void dies_with_a_note(Actor &a)
{
    const uint64_t seam = FIRST[a.random.below(3)] * PAGE, moments = 2 + a.random.below(9);
    a.beside([&] {
        Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
        Peer::die_within(moments);
        a.write(m, seam - 200, 10);
    });
    a.write_blindly(the(a), seam - 1 - a.random.below(60), 1 + a.random.below(60) + 60);
    a.look();
}

void before_nobody(Actor &a)
{
    before_few(a);
    a.world.die();
}

// One dies, another one maps the file and takes places, and a third one may only read.
void reads(Actor &a)
{
    const uint64_t moments = a.random.below(60);
    a.beside([&] {
        Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
        Peer::die_within(moments);
        write_anything(a, m);
    });
    a.world.beside_for_good([&] { a.deploy_all(a.map(0, ATO_READ_GATHER, ATO_NO_RTM)); });
    a.world.map_to_read(0, a.domain);
    a.look_once();
}

// Two die one after the other, at any moment of a claim, the second one perhaps in its recovery: words and numbers are visible, and
// not durable. The third one finds out which page has which place.
void two_die(Actor &a)
{
    a.allow({}); // both outcomes are right until one has been read
    a.mute = true;
    for (int i = 0; i < 2; i++) {
        set_thread_number(get_thread_number() + 50);
        const bool attached = i == 0 || a.random.one_in(2);
        if (!attached)
            a.world.cut_short(1 + a.random.below(30));
        Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
        if (attached)
            a.world.cut_short(1 + a.random.below(20));
        write_anything(a, m);
        a.world.die();
    }
    a.mute = false;
    set_thread_number(get_thread_number() + 1);
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.contents[0] = a.read(m, 0, m->bytes);
    a.allow_this();
    claim_at_seams(a);
}

} // namespace

const std::vector<Case> &place_cases()
{
    constexpr uint64_t OTHERS = 8;
    constexpr unsigned NEVER = 0; // with dense reflections
    static const std::vector<Case> cases = {
        {"places, new", REFLECTED, {BYTES}, before_few, claim, 0, nullptr, ~0u, NEVER},
        {"places, at seams",
         REFLECTED,
         {BYTES},
         before_few,
         claim_at_seams,
         0,
         nullptr,
         ~0u,
         NEVER},
        {"places, next meta page",
         PMEM,
         {280 * PAGE},
         before_next_meta_page,
         claim_next_meta_page,
         0,
         nullptr,
         ~0u,
         NEVER},
        {"places, mapped again",
         REFLECTED,
         {BYTES},
         before_few,
         claim_and_map_again,
         0,
         nullptr,
         ~0u,
         NEVER},
        {"places, shrink", PMEM, {BYTES}, before_few, shrink, 0, nullptr, ~0u, NEVER},
        {"places, reclaim", PMEM, {BYTES}, before_few, reclaim, 0, nullptr, ~0u, NEVER},
        {"places, another thread",
         DURABLE & REFLECTED,
         {BYTES},
         before_few,
         claim_for_others,
         0,
         nullptr,
         ~0u,
         NEVER},
        {"places, threads",
         PMEM,
         {BYTES},
         before_few,
         claim_in_threads,
         OTHERS,
         nullptr,
         ~0u,
         NEVER},
        {"places, peers", PMEM, {BYTES}, before_few, dies, OTHERS, nullptr, ~0u, NEVER},
        {"places, a note",
         PMEM,
         {BYTES},
         before_few,
         dies_with_a_note,
         OTHERS,
         nullptr,
         ~0u,
         NEVER},
        {"places, reading", PMEM, {BYTES}, before_nobody, reads, OTHERS, nullptr, ~0u, NEVER},
        {"places, two dead",
         REFLECTED,
         {BYTES},
         before_nobody,
         two_die,
         OTHERS,
         nullptr,
         ~0u,
         NEVER},
    };
    return cases;
}

} // namespace crash
