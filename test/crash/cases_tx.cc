// SPDX-License-Identifier: BSD-3-Clause
#include "draft.h"
#include "scenes.h"
#include "threads.h"

namespace crash
{

namespace
{

// Sometimes by a hardware transaction, if the domain allows one.
unsigned any_way(Actor &a)
{
    return a.random.one_in(3) ? 0 : ATO_NO_RTM;
}

unsigned any_reads(Actor &a)
{
    return a.random.one_in(2) ? ATO_TX_READ_COMMITTED : 0;
}

void before_any(Actor &a)
{
    mapped(a, any_way(a), a.random.one_in(4) ? ATO_READ_EAGER : ATO_READ_GATHER);
}

// The file is mapped a second time, with an epoch.
void before_epoch(Actor &a)
{
    unsigned way = any_way(a);
    mapped(a, way);
    a.map(0, a.random.one_in(4) ? ATO_READ_EAGER : ATO_READ_GATHER, way | ATO_EPOCHS);
}

// ---- transactions ----

// Slices of some pages, some of them twice, or by halves.
void write_here_and_there(Actor &a, Draft &t, Mapping *m)
{
    uint64_t page = a_page(a), at = page + a.random.below(3000);
    t.write(m, at, 66 + a.random.below(200));
    t.write(m, at + a.random.below(100), 1 + a.random.below(200)); // again
    uint64_t slice = a_page(a) + a.random.below(60) * LINE;
    t.write(m, slice, LINE / 2);
    t.write(m, slice + LINE / 2, LINE / 2);
    t.write_like(m, page + 5, 500, ATO_SKIP_EQUAL);
}

void commit(Actor &a)
{
    for (int i = 0; i < 2; i++) {
        Draft t(a, any_reads(a));
        if (i == 1)
            t.check(the(a), a_page(a), 900);
        write_here_and_there(a, t, the(a));
        uint64_t at = PAGE - 1 - a.random.below(90);
        t.write(the(a), at, 100, a.random.one_in(3) ? ATO_EAGER : 0);
        t.copy(the(a), at + PAGE, the(a), at, 90);
        t.check(the(a), 0, SIZE);
        t.commit();
        a.write(the(a), at + 20, 70); // a newer flip of a page that is in the lane
    }
}

// A transaction of one page: its commit is one word.
void commit_page(Actor &a)
{
    for (int i = 0; i < 3; i++) {
        uint64_t at = a_page(a) + a.random.below(900);
        Draft t(a, any_reads(a));
        t.write(the(a), at, 64);
        t.write(the(a), at + 30, 64);
        t.check(the(a), at, 200);
        t.commit();
    }
    Draft reads(a); // and a read-only transaction
    reads.check(the(a), 0, 2 * PAGE);
    reads.commit();
}

// What it reads of another file has to stay until the commit.
void commit_with_a_source(Actor &a)
{
    for (int i = 0; i < 2; i++) {
        uint64_t at = (1 + a.random.below(4)) * PAGE - 1 - a.random.below(60);
        Draft t(a, any_reads(a));
        t.copy(the(a), at, the(a, 1), at + 20, 200);
        t.check(the(a, 1), at, 300);
        t.write(the(a), at + 50, 90);
        t.commit();
        a.write(the(a, 1), at + 10, 90);
    }
}

// An abort leaves its stores in invalid homes: the next write of these pages must not be affected.
void abort(Actor &a)
{
    for (int i = 0; i < 2; i++) {
        uint64_t at = (1 + a.random.below(4)) * PAGE - 1 - a.random.below(60);
        Draft t(a, any_reads(a));
        t.write(the(a), at, 150);
        t.check(the(a), at - 200, 400);
        t.write(the(a), at + 20, 100);
        t.abort();
        a.check(the(a));
        a.write(the(a), at + 30, 20 + a.random.below(200));
        Draft next(a);
        next.write(the(a), at + 10, 100);
        next.write(the(a), at + 90, 64);
        next.commit();
    }
}

// The process dies before the transaction ends; there may be an epoch, too.
void leave_open(Actor &a)
{
    Draft t(a, any_reads(a));
    write_here_and_there(a, t, the(a));
    t.write(the(a), PAGE - 1 - a.random.below(90), 100);
    t.check(the(a), 0, SIZE);
}

void leave_epoch_open(Actor &a)
{
    Draft e(a, the(a, 1));
    write_here_and_there(a, e, the(a, 1));
    if (a.random.one_in(2))
        e.commit();
    e.write(the(a, 1), PAGE - 1 - a.random.below(90), 100);
    e.write(the(a, 1), a.random.below(SIZE - 300), 300);
    e.check(the(a, 1), 0, SIZE);
}

// ---- sizes ----

// Longer, shorter, and longer than before; each time with a write at the end.
void change_size(Actor &a, Draft &t, Mapping *m)
{
    for (uint64_t n = 1 + a.random.below(3); n; n--) {
        uint64_t size = t.size(m), most = a.random.one_in(2) ? size : SIZE + 2 * PAGE;
        t.resize(m, 200 + a.random.below(most - 200));
        size = t.size(m);
        t.write(m, size - 150, a.random.one_in(2) ? 150 : 60);
    }
    t.check(m, 0, t.size(m));
}

void commit_size(Actor &a)
{
    for (int i = 0; i < 2; i++) {
        Draft t(a, any_reads(a));
        if (a.random.one_in(2))
            t.write(the(a), a.random.below(t.size(the(a)) - 90), 90);
        change_size(a, t, the(a));
        t.commit();
        Mapping *m = the(a);
        a.check(m);
        a.write(m, m->bytes - 90, 90);
        a.resize(m, m->bytes + 1 + a.random.below(PAGE)); // zeros, whatever bytes lay there
        a.check(m);
    }
}

// An aborted growth leaves its bytes on the media: the next change of size uses or removes them.
void abort_size(Actor &a)
{
    Mapping *m = the(a);
    for (int i = 0; i < 2; i++) {
        Draft t(a, any_reads(a));
        change_size(a, t, m);
        t.abort();
        a.demand.settled = true;
        a.allow_this();
        a.check(m);
        a.write(m, m->bytes - 90, 80);
        a.demand = Demand();
        a.allow_this();
        if (i || a.random.one_in(2))
            a.resize(m, 200 + a.random.below(SIZE + PAGE));
        a.write(m, m->bytes - 100, 100);
    }
    a.unmap(m, a.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
}

void leave_size_open(Actor &a)
{
    Draft t(a, any_reads(a));
    change_size(a, t, the(a));
}

// ---- ato_writev() ----

void ranges(Actor &a)
{
    for (int i = 0; i < 2; i++) {
        uint64_t at = (1 + a.random.below(3)) * PAGE - 1 - a.random.below(60);
        std::vector<Put> puts = {{the(a), at, 90}, {the(a), at + 30, 100}, {the(a), at, 1}};
        if (i) {
            puts.push_back({the(a), at + a.random.below(PAGE), 70, the(a, 1), at});
            puts.push_back({the(a), at + 140, 50, the(a), at + 10}); // the source as it is by then
        }
        write_ranges(a, puts, a.random.one_in(3) ? ATO_EAGER : 0);
        a.write(the(a), at + 20, 60);
    }
}

// ---- epochs ----

void epoch(Actor &a)
{
    Mapping *m = the(a, 1);
    for (int i = 0; i < 2; i++) {
        Draft e(a, m);
        write_here_and_there(a, e, m);
        uint64_t at = (1 + a.random.below(4)) * PAGE - 1 - a.random.below(60);
        e.write(m, at, 100);
        e.copy(m, at + 500, m, at, 90);
        e.check(m, 0, SIZE);
        a.check(the(a)); // the other mapping shows the old content
        e.commit();
        a.check(the(a));
        a.write(the(a), at + 20, 60); // the pages are free
    }
}

// ---- other threads ----

// One thread stores without a fence behind it, and another commits.
void commit_anothers(Actor &a)
{
    for (int i = 0; i < 2; i++) {
        Draft *t = nullptr;
        uint64_t at = a_page(a) + a.random.below(2900);
        in_thread(1, [&] {
            t = new Draft(a, any_reads(a));
            t->write(the(a), at, 100);
            t->write(the(a), at + PAGE / 2, 100);
            t->check(the(a), at, 20); // this thread stores the bytes that were only queued
        });
        auto rest = [&] {
            if (a.random.one_in(2))
                t->write(the(a), at + 50, 70);
            t->commit();
        };
        if (i)
            in_thread(2, rest);
        else
            rest();
        delete t;
        a.write(the(a), at + 20, 60);
    }
}

void commit_epoch_of_others(Actor &a)
{
    Mapping *m = the(a, 1);
    for (int i = 0; i < 2; i++) {
        Draft e(a, m);
        uint64_t at = a_page(a) + a.random.below(2900); // the last range ends within the file
        for (int thread = 1; thread <= 2; thread++)
            in_thread(thread, [&] {
                e.write(m, at + a.random.below(60), 100);
                if (a.random.one_in(2))
                    e.write_ranges(m, {a.random.below(SIZE - 90), at, at + PAGE / 2}, 90);
            });
        e.commit();
        a.write(the(a), at + 20, 60);
    }
}

// Two threads take the same pages in different orders: sometimes each waits for the other, until one is refused.
void threads_with_transactions(Actor &a)
{
    uint64_t at = a.random.below(PAGE), flags = any_reads(a);
    run_threads(a, {{{Step::Begin, flags},
                     {Step::Write, at, 100},
                     {Step::Read, at + PAGE, 200},
                     {Step::Write, at + PAGE, 100},
                     {Step::Commit},
                     {Step::Write, at + 50, 100}},
                    {{Step::Begin, 0},
                     {Step::Read, at + PAGE, 80},
                     {Step::Write, at + PAGE + 40, 100},
                     {Step::Write, at + 20, 30},
                     {a.random.one_in(4) ? Step::Abort : Step::Commit},
                     {Step::Read, at, PAGE + 200}}});
}

// Beside plain operations on several pages, some of which belong to a transaction.
void threads_beside_transactions(Actor &a)
{
    uint64_t at = PAGE - 1 - a.random.below(60);
    run_threads(a, {{{Step::Begin, any_reads(a)},
                     {Step::Write, at + PAGE, 100},
                     {Step::Write, at, 30},
                     {Step::Commit}},
                    {{Step::Write, at, 100}, {Step::Write, at + PAGE, 100}},
                    {{Step::Read, at + a.random.below(2) * PAGE, PAGE}, {Step::Read, at, 200}}});
}

void threads_with_an_epoch(Actor &a)
{
    constexpr size_t OTHER = 0, OWN = 1;
    uint64_t at = PAGE - 1 - a.random.below(60);
    run_threads(
        a,
        {{{Step::Write, at, 100, OWN},
          {Step::Write, at + 30, 100, OWN}, // another store to a page that is being read
          {Step::Sync, 0, 0, OWN},
          {Step::Write, at + 10, 20, OWN}},
         {{Step::Write, at + 50, 90, OWN},
          {Step::Read, at, 200, OWN},
          {Step::Write, at + PAGE, 60, OWN}},
         {{Step::Read, at, 200, OTHER}, {Step::Read, at, 200, OWN}, {Step::Read, at, 200, OTHER}}});
    Draft(a, the(a, OWN)).commit();
}

} // namespace

const std::vector<Case> &tx_cases()
{
    constexpr uint64_t ORDERS = 15;
    static const std::vector<Case> cases = {
        {"transaction", ALL, {SIZE}, before_any, commit},
        {"transaction, one page", COSTLY, {SIZE}, before_any, commit_page},
        {"transaction, reads another file", COSTLY, {SIZE, SIZE}, before_two, commit_with_a_source},
        {"transaction, aborted", COSTLY, {SIZE}, before_any, abort},
        {"transaction, left open", COSTLY, {SIZE}, before_any, leave_open},
        {"transaction, another thread", DURABLE, {SIZE}, before_any, commit_anothers},
        {"transaction, size", ALL, {SIZE}, before_any, commit_size},
        {"transaction, size aborted", COSTLY, {SIZE}, before_any, abort_size},
        {"transaction, size left open", COSTLY, {SIZE}, before_any, leave_size_open},
        {"ranges", COSTLY, {SIZE, SIZE}, before_two, ranges},
        {"epoch", DURABLE, {SIZE}, before_epoch, epoch},
        {"epoch, left open", COSTLY, {SIZE}, before_epoch, leave_epoch_open},
        {"epoch, of others", DURABLE, {SIZE}, before_epoch, commit_epoch_of_others},
        {"threads, transactions", DURABLE, {SIZE}, before_any, threads_with_transactions, ORDERS},
        {"threads, beside transactions",
         PMEM,
         {SIZE},
         before_plain,
         threads_beside_transactions,
         ORDERS},
        {"threads, epoch", COSTLY, {SIZE}, before_epoch, threads_with_an_epoch, ORDERS},
    };
    return cases;
}

} // namespace crash
