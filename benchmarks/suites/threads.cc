/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do more threads write more? Figure 10 of the Libnvmmio paper.
 *
 *   private files   each thread writes 4 KiB at random places of a file of its own
 *   shared file     the same in one file, each thread in a range of its own
 *
 * The values are MB/s of all threads together; and in the same round, how many times as fast that is as one thread that makes the
 * same writes, to the same files. Each write is a unit: durable, and as atomic as the engine makes it, when it returns (the paper does
 * not say how often FIO syncs here). The threads are at most four times as many as the processors; the paper has 20 processors and
 * at most 16 threads. With more threads than processors a value says what waiting for one another costs, not how an engine scales;
 * background threads of an engine count as well. All private files, of the most threads, are as large as the shared one.
 */
#include "pace.h"
#include "suites.h"

#include <memory>
#include <pthread.h>
#include <random>
#include <thread>

namespace suite
{

namespace
{

constexpr size_t BYTES = 4096, MOST = 1 << 18;

/* Threads that stay, so that a round times no start of a thread. The caller is the first of them. */
class Crew
{
  public:
    explicit Crew(unsigned count)
    {
        pthread_barrier_init(&barrier_, nullptr, count);
        for (unsigned i = 1; i < count; i++)
            others_.emplace_back([this, i] {
                for (;;) {
                    pthread_barrier_wait(&barrier_);
                    if (!work_)
                        return;
                    (*work_)(i);
                    pthread_barrier_wait(&barrier_);
                }
            });
    }

    ~Crew()
    {
        work_ = nullptr;
        pthread_barrier_wait(&barrier_);
        for (std::thread &other : others_)
            other.join();
        pthread_barrier_destroy(&barrier_);
    }

    Crew(const Crew &) = delete;
    Crew &operator=(const Crew &) = delete;

    /* The nanoseconds until work(thread) has returned for each of them. */
    double ns_of_all(const std::function<void(unsigned)> &work)
    {
        work_ = &work;
        return ns_of([&] {
            pthread_barrier_wait(&barrier_);
            work(0);
            pthread_barrier_wait(&barrier_);
        });
    }

  private:
    pthread_barrier_t barrier_;
    const std::function<void(unsigned)> *work_ = nullptr;
    std::vector<std::thread> others_;
};

/* Several files, one for each thread, or one for all. */
using Files = std::vector<std::unique_ptr<Sides>>;

void run_cell(const Cell &cell, const Files &files, uint64_t file_bytes, double seconds)
{
    say("threads: %s, %u threads%s", cell.workload.c_str(), cell.threads,
        cell.threads > settings.cpus ? ", more than processors" : "");
    const bool is_private = files.size() > 1;
    const uint64_t pages = file_bytes / BYTES / (is_private ? 1 : cell.threads); /* of a thread */
    std::mt19937_64 generator(1);
    std::vector<std::vector<engine::Operation>> operations(cell.threads);
    const auto prepare = [&](size_t count) {
        for (unsigned i = 0; i < cell.threads; i++) {
            const uint64_t first = is_private ? 0 : i * pages;
            operations[i].resize(count);
            for (engine::Operation &o : operations[i]) {
                o = {(first + generator() % pages) * BYTES, BYTES, 0, 0};
                o.source = generator() % 64 * 64;
            }
        }
    };
    const auto write = [&](size_t side, unsigned i) {
        const Sides &sides = *files[is_private ? i : 0];
        sides[side].run(operations[i].data(), operations[i].size(), sides.source(), sides.target());
    };
    const auto write_all = [&](size_t side) { /* by one thread */
                                              for (unsigned i = 0; i < cell.threads; i++)
                                                  write(side, i);
    };
    const Sides &first = *files[0];
    Crew crew(cell.threads);
    std::vector<std::vector<double>> speedups(first.count());
    const auto take = [&](size_t side) {
        const double ns = crew.ns_of_all([&](unsigned i) { write(side, i); });
        if (cell.threads > 1)
            speedups[side].push_back(ns_of([&] { write_all(side); }) / ns);
        return static_cast<double>(operations[0].size() * cell.threads * BYTES) / ns * 1e3;
    };
    /* Tried by one thread, and not too few: else the time is the one in which threads wake up. */
    const auto [count, rounds] =
        batches(cell.threads > 1 ? seconds / 2 : seconds, first.count(),
                settings.domain == engine::Domain::disk ? 1 : 512, MOST, prepare, write_all);
    const auto rates = first.interleave(
        rounds, [&, n = count] { prepare(n); }, take);
    first.report("threads", cell, "MB/s", rates);
    if (cell.threads == 1)
        return;
    for (std::vector<double> &of_side : speedups)
        of_side.erase(of_side.begin()); /* of the warm-up */
    first.report("threads", cell, "times one thread", speedups);
}

void run()
{
    std::vector<unsigned> counts = {1};
    const bool on_disk =
        settings.domain == engine::Domain::disk; /* where files take long to make */
    for (unsigned count = 2; count <= (settings.full ? 16 : on_disk ? 4 : 8); count *= 2)
        if (count <= 4 * settings.cpus)
            counts.push_back(count);
    size_t cells = 2 * counts.size();
    for (const bool is_private : {true, false}) {
        const unsigned count = is_private ? std::max(counts.back(), 2u) : 1;
        engine::Options options;
        options.bytes = (settings.file_mib << 20) / count / BYTES * BYTES;
        options.domain = settings.domain;
        Files files;
        for (unsigned i = 0; i < count; i++) {
            files.push_back(std::make_unique<Sides>(options));
            files[i]->fill();
        }
        for (const unsigned threads : counts)
            run_cell({is_private ? "private files, random writes" : "shared file, random writes",
                      BYTES, threads},
                     files, options.bytes, time_of_cell(cells--));
        for (const std::unique_ptr<Sides> &file : files)
            file->check_content();
    }
}

} // namespace

const Suite THREADS = {"threads",
                       "random writes of 4 KiB by several threads (Libnvmmio, figure 10)", run};

} // namespace suite
