/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do more threads write more? Figure 10 of the Libnvmmio paper.
 *
 *   private files   each thread writes 4 KiB at random places of a file of its own
 *   shared file     the same in one file, each thread in a range of its own
 *
 * The values are MB/s of all threads together, and that relative to the engine's own rate with one thread. Each write is a unit:
 * durable, and as atomic as the engine makes it, when it returns (the paper does not say how often FIO syncs here). The threads
 * are at most four times as many as the processors; the paper has 20, and 16 threads at most. With more threads than processors a
 * value says what waiting for one another costs, not how an engine scales; background threads of an engine count as well. The
 * file of one thread is as large as the files of all together.
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

/* by_one[side]: the rate of one thread; set by the cell with one thread. */
void run_cell(const Cell &cell, bool is_private, double seconds, std::vector<double> *by_one)
{
    say("threads: %s, %u threads%s", cell.workload.c_str(), cell.threads,
        cell.threads > settings.cpus ? ", more than processors" : "");
    const uint64_t pages = (settings.file_mib << 20) / BYTES / cell.threads; /* of a thread */
    engine::Options options;
    options.bytes = pages * BYTES * (is_private ? 1 : cell.threads);
    options.domain = settings.domain;
    std::vector<std::unique_ptr<Sides>> files;
    for (unsigned i = 0; i < (is_private ? cell.threads : 1); i++) {
        files.push_back(std::make_unique<Sides>(options));
        files[i]->fill();
    }

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
    Crew crew(cell.threads);
    const auto take = [&](size_t side) {
        const double ns = crew.ns_of_all([&](unsigned i) {
            const Sides &sides = *files[is_private ? i : 0];
            sides[side].run(operations[i].data(), operations[i].size(), sides.source(),
                            sides.target());
        });
        return static_cast<double>(operations[0].size() * cell.threads * BYTES) / ns * 1e3;
    };
    const Sides &first = *files[0];
    const size_t count = batch(seconds, rounds(), first.count(), 1, MOST, prepare, take);
    auto values = first.interleave(
        rounds(), [&] { prepare(count); }, take);
    for (const std::unique_ptr<Sides> &file : files)
        file->check_content();
    first.report("threads", cell, "MB/s", values);

    if (cell.threads == 1)
        for (const std::vector<double> &of_side : values)
            by_one->push_back(bench::median(of_side));
    for (size_t side = 0; side < values.size(); side++)
        for (double &value : values[side])
            value /= (*by_one)[side];
    first.report("threads", cell, "times one thread", values);
}

void run()
{
    std::vector<unsigned> counts = {1};
    for (unsigned count = 2; count <= (settings.full ? 16 : 8); count *= 2)
        if (count <= 4 * settings.cpus)
            counts.push_back(count);
    size_t cells = 2 * counts.size();
    for (const bool is_private : {true, false}) {
        std::vector<double> by_one;
        for (const unsigned count : counts) {
            Cell cell;
            cell.workload =
                is_private ? "private files, random writes" : "shared file, random writes";
            cell.size = BYTES;
            cell.threads = count;
            run_cell(cell, is_private, time_of_cell(cells--), &by_one);
        }
    }
}

} // namespace

const Suite THREADS = {"threads",
                       "random writes of 4 KiB by several threads (Libnvmmio, figure 10)", run};

} // namespace suite
