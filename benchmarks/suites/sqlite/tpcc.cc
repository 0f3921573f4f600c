/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TPC-C on SQLite, at several page sizes, by one thread and by several: the Acumen paper's figure 5. What is done is in tpcc.h and
 * the files named there.
 *
 * There are two warehouses, so that 1 % of the order lines and 15 % of the payments concern the other one. Districts have fewer
 * customers, and there are fewer items, if the files are too small for all (--file-mib 640). A thread is a terminal with a
 * connection; all of a side begin at once, and draw their transactions from one count, so that they end together. Reports all
 * transactions a second; new orders a minute, without those that are rolled back; and what the slowest thread did of what the
 * fastest one did: a lock that is not fair lets one go on alone, with its cache of pages.
 *
 * With one thread all sides end with the same rows, which is compared; after the last run the consistency conditions are
 * checked on each side.
 */
#include "tpcc.h"

#include "../../bench.h"
#include "../suites.h"
#include "sides.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <deque>
#include <filesystem>
#include <thread>

namespace sqlite::tpcc
{

namespace
{

using suite::settings;

constexpr int64_t WAREHOUSES = 2, CUSTOMERS = 3000, ITEMS = 100000;
constexpr uint64_t WHOLE_MIB = 640; /* of a file for all of them */
constexpr uint64_t BYTES_OF_ONE =
    2048;                      /* that the database grows by, at most, with a transaction */
constexpr uint64_t LEAST = 25; /* in a round: a delivery is among them */
constexpr unsigned MOST_THREADS = 4;

Scale scale_for_files()
{
    const uint64_t mib = std::min(settings.file_mib, WHOLE_MIB);
    const auto part = [&](int64_t whole) {
        return whole * static_cast<int64_t>(mib) / static_cast<int64_t>(WHOLE_MIB);
    };
    return {WAREHOUSES, part(CUSTOMERS), part(ITEMS)};
}

class Terminals
{
  public:
    Terminals(Side &side, const Scale &scale, unsigned count)
    {
        for (unsigned i = 0; i < count; i++)
            terminals_.emplace_back(side.open(), scale, i);
    }

    void run(unsigned threads, uint64_t transactions)
    {
        std::atomic<uint64_t> drawn{0};
        std::atomic<unsigned> here{0};
        done_.assign(threads, 0);
        const auto work = [&](unsigned i) {
            uint64_t done = 0;
            for (here++; here < threads;)
                std::this_thread::yield();
            for (; drawn.fetch_add(1, std::memory_order_relaxed) < transactions; done++)
                terminals_[i].run();
            done_[i] = done;
        };
        std::vector<std::thread> others;
        for (unsigned i = 1; i < threads; i++)
            others.emplace_back(work, i);
        work(0);
        for (std::thread &other : others)
            other.join();
    }

    /* Of the last run: the part that the most idle thread did of what the busiest one did. */
    double evenness() const
    {
        const auto [least, most] = std::minmax_element(done_.begin(), done_.end());
        return static_cast<double>(*least + 1) / static_cast<double>(*most + 1);
    }

    Counts counts() const
    {
        Counts all;
        for (const Terminal &terminal : terminals_) {
            const Counts &one = terminal.counts();
            for (int kind = 0; kind < KINDS; kind++)
                all.done[static_cast<size_t>(kind)] += one.done[static_cast<size_t>(kind)];
            all.rolled_back += one.rolled_back;
            all.delivered += one.delivered;
        }
        return all;
    }

  private:
    std::deque<Terminal> terminals_;
    std::vector<uint64_t> done_; /* by each thread in the last run */
};

/* New orders that count, of all transactions. */
double part_of_new_orders(const Counts &counts)
{
    uint64_t all = 0;
    for (const uint64_t done : counts.done)
        all += done;
    return static_cast<double>(counts.done[NEW_ORDER] - counts.rolled_back) /
           static_cast<double>(std::max<uint64_t>(all, 1));
}

void run_page_size(unsigned page, const std::vector<unsigned> &thread_counts, double seconds)
{
    const Scale scale = scale_for_files();
    const uint64_t room = settings.file_mib << 20;
    const std::string first = new_file("tpcc");
    load(first, page, scale);
    const uint64_t bytes = std::filesystem::file_size(first);
    if (bytes > room)
        bench::fail("TPC-C's tables take %" PRIu64 " bytes, and files have %" PRIu64, bytes, room);
    suite::say("tpcc, pages of %u bytes: %" PRId64 " warehouses, %" PRId64
               " customers of 3000 in a district, %" PRId64 " items of 100000; %" PRIu64 " MiB",
               page, scale.warehouses, scale.customers, scale.items, bytes >> 20);
    const Sides sides(first, room);
    std::vector<std::unique_ptr<Terminals>> terminals;
    for (size_t side = 0; side < sides.count(); side++)
        terminals.push_back(std::make_unique<Terminals>(sides[side], scale, thread_counts.back()));
    const uint64_t limit = (room - bytes) / BYTES_OF_ONE / thread_counts.size();
    for (const unsigned threads : thread_counts) {
        Sides::Values evenness(sides.count());
        const Sides::Values rates = sides.measure(
            {seconds / static_cast<double>(thread_counts.size()), LEAST, limit, threads > 1},
            [&](size_t side, uint64_t count) {
                terminals[side]->run(threads, count);
                evenness[side].push_back(terminals[side]->evenness());
            });
        suite::Cell cell;
        cell.workload = "TPC-C";
        cell.size = page;
        cell.threads = threads;
        cell.unit = engine::Unit::sync;
        sides.report("tpcc", cell, "transactions/s", rates);
        Sides::Values orders = rates;
        for (size_t side = 0; side < sides.count(); side++)
            for (double &rate : orders[side])
                rate *= 60 * part_of_new_orders(terminals[side]->counts());
        sides.report("tpcc", cell, "new orders/min", orders);
        for (size_t side = 0; side < sides.count(); side++) /* the first ones were short */
            evenness[side].erase(evenness[side].begin(),
                                 evenness[side].end() - static_cast<ptrdiff_t>(rates[side].size()));
        if (threads == 1)
            sides.compare();
        else
            sides.report("tpcc", cell, "slowest/fastest", evenness);
    }
    for (size_t side = 0; side < sides.count(); side++)
        check(*sides[side].open(), scale, terminals[side]->counts().delivered,
              sides[side].name.c_str());
}

void run()
{
    std::vector<unsigned> pages = {2048, 4096}, threads = {1, MOST_THREADS};
    if (settings.full) {
        pages = {512, 1024, 2048, 4096};
        threads = {1, 2, 3, MOST_THREADS};
    } else if (settings.domain == engine::Domain::disk) {
        pages = {4096}; /* a sync takes as long for any of them */
    }
    if (settings.cpus < MOST_THREADS)
        suite::say("tpcc: up to %u threads, as in the paper's figure, on %u CPUs", MOST_THREADS,
                   settings.cpus);
    constexpr double MEASURED = 0.75; /* of the time: the rest goes into maps, loads, checks */
    for (size_t i = 0; i < pages.size(); i++)
        run_page_size(pages[i], threads,
                      suite::seconds_left() * MEASURED / static_cast<double>(pages.size() - i));
}

} // namespace

} // namespace sqlite::tpcc

namespace suite
{

const Suite TPCC = {"tpcc", "TPC-C on SQLite, 1 to 4 threads", sqlite::tpcc::run};

} // namespace suite
