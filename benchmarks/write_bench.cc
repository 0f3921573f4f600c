/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How far is an atomic write from the fastest write that the medium allows?
 *
 * Workloads (random offsets, aligned to the size; no bitmap is all 0 or all 1):
 *
 *   write/pmem/64        one slice
 *   write/pmem/256       four slices
 *   write/pmem/1K        sixteen slices
 *   write/pmem/4K        a page
 *   write/pmem/8K        two pages, committed by the journal
 *   write/process/8K     two pages, committed by a hardware transaction
 *
 * Sides of a workload, each a file here:
 *
 *   floor        what durability alone costs: the ratio's 1
 *   libato       ato_memcpy()
 *   libpmemobj   a transaction (pmem only)
 *   memcpy       what programs do today; promises nothing
 *
 * How it is measured. On a shared machine bare times mean little, ratios inside one process more. A
 * repetition is many rounds; in a round every side, in random order, does the same batch of writes.
 * A round gives one ratio to the floor for each side, a repetition their median, the table the
 * median of the repetitions. Google Benchmark exports the same repetitions, a row for each side, by
 * manual time (its CPU time is of no use here).
 *
 * The `pmem` domain is forced, so that every flush is issued although the file lies in DRAM. For
 * that the program starts itself again with PMEM_IS_PMEM_FORCE=1, which libpmem reads when loaded.
 *
 * Before the first write of a domain all memory is touched, and each page gets a random bitmap:
 * neighbouring slices lie in different homes, as after a long run of small writes. At the end every
 * side must hold the same file.
 *
 *   write_bench [--file_mib=1024] [--ops=200000] [--batch=1000] [--dir=/dev/shm]
 *               [--benchmark_filter=pmem/1K] [--benchmark_out=FILE.json] [--benchmark_format=json]
 *
 * Exits 0; 1 when content or counts are wrong; 77 when there is no space for the files.
 */
#include "bench.h"
#include "floor.h"
#include "libato.h"
#include "plain.h"
#include "pmemobj.h"

#include "reflection/layout.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

namespace
{

using bench::Backend;
using bench::Domain;
using bench::fail;
using bench::Write;

enum Side { FLOOR, LIBATO, LIBPMEMOBJ, MEMCPY, SIDES };

const char *const SIDE_NAMES[SIDES] = {"floor", "libato", "libpmemobj", "memcpy"};

bool has_side(Domain domain, int side)
{
    return side != LIBPMEMOBJ || domain == Domain::pmem;
}

struct Workload {
    const char *name;
    Domain domain;
    uint32_t bytes;
};

constexpr Workload WORKLOADS[] = {
    {"write/pmem/64", Domain::pmem, 64},   {"write/pmem/256", Domain::pmem, 256},
    {"write/pmem/1K", Domain::pmem, 1024}, {"write/pmem/4K", Domain::pmem, 4096},
    {"write/pmem/8K", Domain::pmem, 8192}, {"write/process/8K", Domain::process, 8192},
};

struct Settings {
    uint64_t file_mib = 1024;
    uint64_t ops = 200000;
    uint64_t batch = 1000;
    std::string dir = "/dev/shm";

    uint64_t file_bytes() const
    {
        return file_mib << 20;
    }
};

Settings settings;

/* ---- the files, and what is written to them ---------------------------------------------- */

/* All sides of one domain, filled alike. One exists at a time: it takes five times the file. */
class World
{
  public:
    explicit World(Domain domain) : domain_(domain), source_(bench::SOURCE_SPAN + bench::MAX_WRITE)
    {
        for (size_t i = 0; i < source_.size(); i += 8) {
            uint64_t word = random_();
            std::memcpy(&source_[i], &word, 8);
        }
        auto libato = bench::make_libato(domain, settings.file_bytes());
        libato_ = libato.get();
        sides_[FLOOR] = bench::make_floor(domain, settings.file_bytes());
        sides_[LIBATO] = std::move(libato);
        if (has_side(domain, LIBPMEMOBJ))
            sides_[LIBPMEMOBJ] = bench::make_pmemobj(settings.file_bytes());
        sides_[MEMCPY] = bench::make_plain(settings.file_bytes());
        fill();
    }

    Domain domain() const
    {
        return domain_;
    }

    Backend *side(int which) const
    {
        return sides_[which].get();
    }

    /* The sides that there are, in an order that is another one each time. */
    std::vector<int> shuffled_sides()
    {
        std::vector<int> order;
        for (int i = 0; i < SIDES; i++)
            if (has_side(domain_, i))
                order.push_back(i);
        std::shuffle(order.begin(), order.end(), random_);
        return order;
    }

    const bench::Libato &libato() const
    {
        return *libato_;
    }

    /* 64-byte aligned: an unaligned source would cost every side the same, but more. */
    const char *source() const
    {
        return source_.data() + (64 - reinterpret_cast<uintptr_t>(source_.data()) % 64) % 64;
    }

    std::vector<Write> random_writes(uint32_t bytes, size_t count)
    {
        std::vector<Write> writes(count);
        for (Write &w : writes)
            w = {random_() % (settings.file_bytes() / bytes) * bytes, bytes, random_source()};
        return writes;
    }

    /* Every side must hold what the floor holds. */
    void check_content()
    {
        constexpr size_t STEP = 1 << 20;
        std::vector<char> expected(STEP), found(STEP);
        for (uint64_t offset = 0; offset < settings.file_bytes(); offset += STEP) {
            bench::stop_if_asked();
            sides_[FLOOR]->read(expected.data(), offset, STEP);
            for (int i = LIBATO; i < SIDES; i++) {
                if (!has_side(domain_, i))
                    continue;
                sides_[i]->read(found.data(), offset, STEP);
                if (found != expected)
                    fail("%s holds other bytes than the floor within a MiB from offset %" PRIu64,
                         SIDE_NAMES[i], offset);
            }
        }
    }

  private:
    uint32_t random_source()
    {
        return static_cast<uint32_t>(random_() % (bench::SOURCE_SPAN / 64) * 64);
    }

    void fill_all(const std::vector<Write> &writes)
    {
        bench::stop_if_asked();
        for (auto &side : sides_)
            if (side)
                side->fill(source(), writes.data(), writes.size());
    }

    /* Each page twice: whole, which leaves it in one home, then half of its slices at random. */
    void fill()
    {
        std::vector<Write> writes;
        for (uint64_t chunk = 0; chunk < settings.file_bytes(); chunk += CHUNK_PAGES * PAGE_BYTES) {
            uint64_t end =
                std::min<uint64_t>(chunk + CHUNK_PAGES * PAGE_BYTES, settings.file_bytes());
            writes.clear();
            for (uint64_t page = chunk; page < end; page += PAGE_BYTES)
                writes.push_back({page, PAGE_BYTES, random_source()});
            for (uint64_t page = chunk; page < end; page += PAGE_BYTES)
                add_runs(&writes, page, random_());
            fill_all(writes);
        }
        uint64_t slices = settings.file_bytes() / SLICE_BYTES;
        uint64_t reflected = libato_->stat().slices_in_reflection;
        if (reflected < slices * 2 / 5 || reflected > slices * 3 / 5)
            fail("the bitmaps are not at random: %" PRIu64 " of %" PRIu64 " slices reflected",
                 reflected, slices);
    }

    /* One write for each run of ones of the mask. */
    void add_runs(std::vector<Write> *writes, uint64_t page, uint64_t mask)
    {
        for (uint32_t slice = 0; slice < PAGE_SLICES; slice++) {
            uint32_t first = slice;
            while (slice < PAGE_SLICES && mask >> slice & 1)
                slice++;
            if (slice > first)
                writes->push_back({page + first * SLICE_BYTES,
                                   static_cast<uint32_t>((slice - first) * SLICE_BYTES),
                                   random_source()});
        }
    }

    Domain domain_;
    std::mt19937_64 random_{20240229};
    std::vector<char> source_;
    std::unique_ptr<Backend> sides_[SIDES];
    bench::Libato *libato_;
};

World *world; /* not destroyed by exit(), which fail() calls */

void end_world()
{
    if (world)
        world->check_content();
    delete world;
    world = nullptr;
}

World &world_of(Domain domain)
{
    if (!world || world->domain() != domain) {
        end_world(); /* first: there may be no space for two */
        world = new World(domain);
    }
    return *world;
}

/* ---- one repetition ---------------------------------------------------------------------- */

struct Repetition {
    double ns[SIDES];         /* a write */
    double ratio[SIDES];      /* to the floor of the same round */
    double over_floor[SIDES]; /* ns more than the floor of the same round */
    double media_bytes;       /* libato, a write, as ato_stat() counts them */
    double by_rtm, by_journal;
};

double ns_per_write(Backend *side, const char *source, const std::vector<Write> &writes)
{
    auto begin = std::chrono::steady_clock::now();
    side->write(source, writes.data(), writes.size());
    std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count() / static_cast<double>(writes.size());
}

/* What cannot be noise: the writes counted, their bytes, and how they were committed. */
void check_counts(const Workload &workload, const struct ato_stat &delta, uint64_t asked)
{
    if (delta.writes != asked)
        fail("%s: %" PRIu64 " writes, ato_stat() counts %" PRIu64, workload.name, asked,
             delta.writes);
    if (workload.bytes > PAGE_BYTES) {
        if (delta.commits_rtm + delta.commits_journal != asked)
            fail("%s: %" PRIu64 " writes, %" PRIu64 " went by RTM and %" PRIu64 " by the journal",
                 workload.name, asked, delta.commits_rtm, delta.commits_journal);
    } else if (delta.bytes_to_media != asked * (workload.bytes + 8)) {
        fail("%s: %.1f bytes to the media a write, not %u + 8", workload.name,
             static_cast<double>(delta.bytes_to_media) / static_cast<double>(asked),
             workload.bytes);
    }
}

/* Only the counters that are looked at here. */
struct ato_stat difference(struct ato_stat later, const struct ato_stat &sooner)
{
    later.writes -= sooner.writes;
    later.bytes_to_media -= sooner.bytes_to_media;
    later.commits_rtm -= sooner.commits_rtm;
    later.commits_journal -= sooner.commits_journal;
    return later;
}

Repetition run_repetition(const Workload &workload)
{
    World &w = world_of(workload.domain);
    std::vector<double> ns[SIDES], ratio[SIDES], over_floor[SIDES];
    uint64_t rounds = std::max<uint64_t>(1, settings.ops / settings.batch);
    struct ato_stat before = w.libato().stat();

    /* Round 0 only warms up. */
    for (uint64_t round = 0; round <= rounds; round++) {
        bench::stop_if_asked();
        std::vector<Write> writes = w.random_writes(workload.bytes, settings.batch);
        double took[SIDES] = {};
        for (int i : w.shuffled_sides())
            took[i] = ns_per_write(w.side(i), w.source(), writes);
        for (int i = 0; i < SIDES && round > 0; i++) {
            ns[i].push_back(took[i]);
            ratio[i].push_back(took[i] / took[FLOOR]);
            over_floor[i].push_back(took[i] - took[FLOOR]);
        }
    }

    struct ato_stat delta = difference(w.libato().stat(), before);
    check_counts(workload, delta, (rounds + 1) * settings.batch);

    Repetition r = {};
    for (int i = 0; i < SIDES; i++) {
        r.ns[i] = bench::median(ns[i]);
        r.ratio[i] = bench::median(ratio[i]);
        r.over_floor[i] = bench::median(over_floor[i]);
    }
    auto writes_in_all = static_cast<double>(delta.writes);
    r.media_bytes = static_cast<double>(delta.bytes_to_media) / writes_in_all;
    r.by_rtm = static_cast<double>(delta.commits_rtm) / writes_in_all;
    r.by_journal = static_cast<double>(delta.commits_journal) / writes_in_all;
    return r;
}

/* ---- Google Benchmark's rows ------------------------------------------------------------- */

std::map<const Workload *, std::vector<Repetition>> results;

/* Media, domain and CPU are in every row: a row is quoted without its context. */
std::string describe(const Workload &workload, const Backend &side)
{
    static const std::string medium = bench::medium_name(), cpu = bench::cpu_name();
    return medium + ", " + bench::domain_name(workload.domain) + ", " + cpu + ": " +
           side.guarantee();
}

/* The k-th repetition of any side of a workload is the k-th of all its sides, measured by whoever
 * comes first. */
void run_row(benchmark::State &state, const Workload &workload, int side)
{
    static std::map<std::pair<const Workload *, int>, size_t> done;
    size_t k = done[{&workload, side}]++;
    std::vector<Repetition> &repetitions = results[&workload];
    while (repetitions.size() <= k)
        repetitions.push_back(run_repetition(workload));
    const Repetition &r = repetitions[k];

    double seconds = r.ns[side] * 1e-9 * static_cast<double>(state.max_iterations);
    while (state.KeepRunningBatch(state.max_iterations))
        state.SetIterationTime(seconds);
    state.counters["x_floor"] = r.ratio[side];
    state.counters["over_floor_ns"] = r.over_floor[side];
    if (side == LIBATO) {
        state.counters["media_bytes"] = r.media_bytes;
        state.counters["by_rtm"] = r.by_rtm;
        state.counters["by_journal"] = r.by_journal;
    }
    state.SetLabel(describe(workload, *world_of(workload.domain).side(side)));
}

void register_rows()
{
    for (const Workload &workload : WORKLOADS)
        for (int side = 0; side < SIDES; side++)
            if (has_side(workload.domain, side))
                benchmark::RegisterBenchmark(
                    (std::string(workload.name) + "/" + SIDE_NAMES[side]).c_str(),
                    [&workload, side](benchmark::State &state) { run_row(state, workload, side); })
                    ->Iterations(static_cast<benchmark::IterationCount>(settings.ops))
                    ->UseManualTime();
}

/* ---- the table ---------------------------------------------------------------------------- */

/* The medians alone: Google Benchmark's own reporters show four lines for a row. */
class MedianTable : public benchmark::BenchmarkReporter
{
  public:
    bool ReportContext(const Context &) override
    {
        std::printf("Random writes into a file of %" PRIu64
                    " MiB: medians of repetitions of %" PRIu64 " writes, in turns of %" PRIu64 ".\n"
                    "Guarantees differ: only libato and libpmemobj promise the same, in pmem.\n\n",
                    settings.file_mib, settings.ops, settings.batch);
        std::printf("%-24s %8s %8s %8s  %-12s  %s\n", "workload/side", "ns/write", "x floor",
                    "ns over", "media bytes", "medium, domain, CPU: guarantee");
        return true;
    }

    void ReportRuns(const std::vector<Run> &runs) override
    {
        for (const Run &run : runs)
            if (run.repetitions < 2 || run.aggregate_name == "median")
                print(run);
    }

  private:
    static void print(const Run &run)
    {
        auto counter = [&run](const char *name) {
            auto found = run.counters.find(name);
            return found == run.counters.end() ? 0.0 : found->second.value;
        };
        std::string media;
        if (counter("media_bytes") > 0)
            media = std::to_string(std::lround(counter("media_bytes")));
        if (counter("by_rtm") > 0.5)
            media += " rtm";
        if (counter("by_journal") > 0.5)
            media += " journal";
        std::printf("%-24s %8.0f %8.2f %+8.0f  %-12s  %s\n", run.run_name.function_name.c_str(),
                    run.GetAdjustedRealTime(), counter("x_floor"), counter("over_floor_ns"),
                    media.c_str(), run.report_label.c_str());
        std::fflush(stdout);
    }
};

/* ---- start ------------------------------------------------------------------------------- */

/* libpmem reads the variable when it is loaded: too late for setenv(). */
void restart_with_pmem_forced(char **argv)
{
    const char *forced = std::getenv("PMEM_IS_PMEM_FORCE");
    if (forced && std::strcmp(forced, "1") == 0 && !std::getenv("PMEM_NO_FLUSH"))
        return;
    setenv("PMEM_IS_PMEM_FORCE", "1", 1);
    unsetenv("PMEM_NO_FLUSH");
    execv("/proc/self/exe", argv);
    fail("cannot start again with PMEM_IS_PMEM_FORCE=1: %s", std::strerror(errno));
}

bool take_value(const char *arg, const char *flag, const char **value)
{
    size_t n = std::strlen(flag);
    if (std::strncmp(arg, flag, n) != 0)
        return false;
    *value = arg + n;
    return true;
}

uint64_t number(const char *value)
{
    char *end;
    uint64_t n = std::strtoull(value, &end, 10);
    if (*end || n == 0)
        fail("not a positive number: %s", value);
    return n;
}

/* Takes our flags out of argv, and puts our defaults of Google Benchmark's before the user's. */
std::vector<char *> take_settings(int argc, char **argv)
{
    static char repetitions[] = "--benchmark_repetitions=7";
    static char aggregates[] = "--benchmark_display_aggregates_only=true";
    std::vector<char *> rest = {argv[0], repetitions, aggregates};
    for (int i = 1; i < argc; i++) {
        const char *value;
        if (take_value(argv[i], "--file_mib=", &value))
            settings.file_mib = number(value);
        else if (take_value(argv[i], "--ops=", &value))
            settings.ops = number(value);
        else if (take_value(argv[i], "--batch=", &value))
            settings.batch = number(value);
        else if (take_value(argv[i], "--dir=", &value))
            settings.dir = value;
        else
            rest.push_back(argv[i]);
    }
    settings.batch = std::min(settings.batch, settings.ops);
    return rest;
}

/* --benchmark_format is for Google Benchmark's own reporters. */
bool format_is_chosen(const std::vector<char *> &args)
{
    return std::any_of(args.begin(), args.end(), [](const char *arg) {
        return std::strncmp(arg, "--benchmark_format=", 19) == 0;
    });
}

bool space_is_enough()
{
    uint64_t needed = settings.file_bytes() * 26 / 5 + (64ull << 20);
    if (bench::free_bytes() >= needed)
        return true;
    std::fprintf(stderr, "%s has %" PRIu64 " MiB free, the files take %" PRIu64 " MiB\n",
                 settings.dir.c_str(), bench::free_bytes() >> 20, needed >> 20);
    return false;
}

} // namespace

int main(int argc, char **argv)
{
    restart_with_pmem_forced(argv);
    std::vector<char *> args = take_settings(argc, argv);
    bool own_table = !format_is_chosen(args);
    int count = static_cast<int>(args.size());
    benchmark::Initialize(&count, args.data());
    if (benchmark::ReportUnrecognizedArguments(count, args.data()))
        return 1;
    bench::folder(settings.dir.c_str());
    if (!space_is_enough())
        return 77;
    register_rows();
    MedianTable table;
    benchmark::RunSpecifiedBenchmarks(own_table ? &table : nullptr);
    benchmark::Shutdown();
    end_world();
    if (own_table)
        std::printf("\nAt the end every side held the same bytes.\n");
    return 0;
}
