// SPDX-License-Identifier: BSD-3-Clause
#include "scenes.h"
#include "threads.h"

namespace crash
{

namespace
{

void before_threads(Actor &a)
{
    mapped(a, 0, a.random.one_in(2) ? ATO_READ_GATHER : ATO_READ_LAZY);
}

// Writes and reads of overlapping places in one page.
void threads_in_page(Actor &a)
{
    uint64_t at = a_page(a) + a.random.below(3000);
    std::vector<std::vector<Step>> threads(3);
    for (auto &steps : threads)
        for (int i = 0; i < 2; i++)
            steps.push_back({Step::Write, at + a.random.below(200), 1 + a.random.below(250)});
    threads[0].push_back({Step::Read, at, 400});
    threads[1].insert(threads[1].begin() + 1, {Step::Read, at, 400});
    run_threads(a, threads);
}

// Operations that share some of their pages.
void threads_across_pages(Actor &a)
{
    std::vector<std::vector<Step>> threads(3);
    for (auto &steps : threads)
        for (int i = 0; i < 2; i++) {
            uint64_t n = 1 + a.random.below(a.random.one_in(3) ? 100 : PAGE + 300);
            steps.push_back({Step::Write, PAGE / 2 + a.random.below(PAGE), n});
        }
    threads[a.random.below(3)].push_back({Step::Read, 0, 3 * PAGE});
    threads[0].insert(threads[0].begin(), {Step::Read, PAGE / 2, 2 * PAGE});
    run_threads(a, threads);
}

// Other threads read again and again the pages that one writes: content that was read stays.
void threads_looking(Actor &a)
{
    uint64_t at = a_page(a) + a.random.below(3900);
    std::vector<Step> looks(6, {Step::Read, at, 8});
    run_threads(
        a, {{{Step::Write, at, 8}, {Step::Write, at, 30}, {Step::Write, at, 8}}, looks, looks});
}

// One thread commits several pages and ends; the others work on these pages.
void threads_handing_over(Actor &a)
{
    uint64_t at = PAGE - 1 - a.random.below(100);
    run_threads(a, {{{Step::Write, at, 200}},
                    {{Step::Write, at + 10, 80}, {Step::Write, at - 20, 30}},
                    {{Step::Write, PAGE + 20, 50}, {Step::Write, at, 190}}});
}

// Independent commits at the same time: several lanes.
void threads_apart(Actor &a)
{
    uint64_t at = PAGE - 1 - a.random.below(60);
    run_threads(a, {{{Step::Write, at, 100}, {Step::Write, at + 20, 100}},
                    {{Step::Write, 3 * PAGE - 50, 90}, {Step::Write, 3 * PAGE - 30, 90}}});
}

// Two threads commit at once what needs the long lane, which sometimes does not exist yet: one waits for the other. A third one
// commits beside them.
void before_long_threads(Actor &a)
{
    if (a.random.one_in(2))
        before_long(a);
    else
        before_plain(a);
}

void threads_with_the_long_lane(Actor &a)
{
    std::vector<std::vector<Step>> threads(3);
    for (uint64_t i = 0; i < 2; i++) {
        threads[i].push_back({Step::Begin, 0});
        for (uint64_t page = i; page < 2 * 250; page += 2) // more than a small lane takes
            threads[i].push_back({Step::Write, page * PAGE + a.random.below(60) * LINE, LINE});
        threads[i].push_back({Step::Commit});
    }
    const uint64_t at = 2 * 252 * PAGE;
    threads[2] = {{Step::Write, at, PAGE + 30}, {Step::Write, at + 30, PAGE}};
    run_threads(a, threads);
}

// Both files are mapped, and one thread may have to make its lanes.
void before_two_threads(Actor &a)
{
    before_two(a);
    if (a.random.one_in(2))
        return;
    for (int i = 0; i < 2; i++)
        a.unmap(the(a), ATO_UNMAP_FAST);
    for (int i = 0; i < 2; i++)
        a.map(i, ATO_READ_GATHER, ATO_NO_RTM);
}

// One thread unmaps its file and maps it again while the other commits to another file.
void threads_mapping_anew(Actor &a)
{
    uint64_t at = PAGE - 1 - a.random.below(60);
    size_t stays = a.random.below(2), goes = 1 - stays;
    run_threads(a, {{{Step::Write, at, 100, stays},
                     {Step::Write, at + 20, 100, stays},
                     {Step::Write, at + PAGE, 100, stays},
                     {Step::Read, 0, 3 * PAGE, stays}},
                    {{Step::Write, at, 90, goes},
                     {Step::Remap, 0, 0, goes},
                     {Step::Write, at + 30, 90, goes}}});
}

// Readers that deploy, and deploys, beside writers.
void threads_deploying(Actor &a)
{
    uint64_t at = a.random.below(2 * PAGE);
    run_threads(a, {{{Step::Write, at, 300}, {Step::Write, at + 200, PAGE}},
                    {{Step::Deploy, 0, 3 * PAGE}, {Step::Write, at + 100, 200}},
                    {{Step::Read, at, 500}, {Step::Read, 0, 4 * PAGE}}});
}

} // namespace

const std::vector<Case> &thread_cases()
{
    constexpr uint64_t ORDERS = 20;
    static const std::vector<Case> cases = {
        {"threads, one page", ALL, {SIZE}, before_threads, threads_in_page, ORDERS},
        {"threads, looking", ALL, {SIZE}, before_threads, threads_looking, ORDERS},
        {"threads, several pages", ALL, {SIZE}, before_threads, threads_across_pages, ORDERS},
        {"threads, handing over", ALL, {SIZE}, before_threads, threads_handing_over, ORDERS},
        {"threads, apart", ALL, {SIZE}, before_threads, threads_apart, ORDERS},
        {"threads, long lane",
         PMEM,
         {510 * PAGE},
         before_long_threads,
         threads_with_the_long_lane,
         1,
         nullptr,
         0},
        {"threads, mapping anew",
         COSTLY,
         {SIZE, SIZE},
         before_two_threads,
         threads_mapping_anew,
         ORDERS},
        {"threads, deploys", ALL, {SIZE}, before_threads, threads_deploying, ORDERS},
    };
    return cases;
}

} // namespace crash
