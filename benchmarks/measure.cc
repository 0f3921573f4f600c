/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure.h"

extern "C" {
#include "reflection/media/copy.h"
}

#include <ato.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench
{

Settings settings;

/* ---- one repetition ---- */

void Medians::add(size_t side, const std::string &value, double seen)
{
    seen_[{side, value}].push_back(seen);
}

std::vector<Values> Medians::medians(size_t sides) const
{
    std::vector<Values> result(sides);
    for (auto &[what, seen] : seen_)
        result[what.first][what.second] = median(seen);
    return result;
}

std::vector<Values> interleave(size_t sides, uint64_t rounds, const std::function<void()> &prepare,
                               const std::function<double(size_t)> &take)
{
    static std::mt19937_64 random(20261121);
    std::vector<size_t> order;
    for (size_t side = 0; side < sides; side++)
        order.push_back(side);
    Medians medians;
    for (uint64_t round = 0; round <= rounds; round++) {
        stop_if_asked();
        prepare();
        std::vector<double> ns(sides);
        std::shuffle(order.begin(), order.end(), random);
        for (size_t side : order)
            ns[side] = take(side);
        for (size_t side = 0; side < sides && round > 0; side++) {
            medians.add(side, "ns", ns[side]);
            medians.add(side, "ratio", ns[side] / ns[0]);
            medians.add(side, "over_ns", ns[side] - ns[0]);
        }
    }
    return medians.medians(sides);
}

namespace
{

/* ---- Google Benchmark's rows ---- */

std::string copy_kernel_name()
{
    return copy_best()->name;
}

std::string describe_machine()
{
    static const std::string machine =
        medium_name() + ", " + cpu_name() + ", kernel " + copy_kernel_name() + ", ";
    return machine;
}

/* Medium, domain and CPU are in every row of the JSON: a row is quoted without its context. */
std::string describe(const Case &c, const std::string &side)
{
    return describe_machine() + c.promise(side);
}

/* The k-th repetitions of all sides of a case are measured together, when the first of them is asked for. */
class Repetitions
{
  public:
    explicit Repetitions(const Case &c) : case_(c)
    {
    }

    const Values &next(size_t side)
    {
        size_t k = done_[side]++;
        while (seen_.size() <= k)
            seen_.push_back(case_.repeat());
        return seen_[k][side];
    }

  private:
    const Case &case_;
    std::map<size_t, size_t> done_;
    std::vector<std::vector<Values>> seen_;
};

void run_row(benchmark::State &state, const Case &c, Repetitions *repetitions, size_t side)
{
    const Values &values = repetitions->next(side);
    double seconds = values.at("ns") * 1e-9 * static_cast<double>(state.max_iterations);
    while (state.KeepRunningBatch(state.max_iterations))
        state.SetIterationTime(seconds);
    for (auto &[name, value] : values)
        state.counters[name] = value;
    for (const Goal &goal : c.goals)
        if (goal.side == c.sides[side])
            state.counters[(goal.at_least ? "at_least_" : "at_most_") + goal.value] = goal.limit;
    state.SetLabel(describe(c, c.sides[side]));
}

std::string row_name(const Case &c, const std::string &side)
{
    return c.name + "/" + side;
}

void register_rows(const std::vector<Case> &cases, std::vector<Repetitions> *repetitions)
{
    repetitions->reserve(cases.size());
    for (const Case &c : cases) {
        repetitions->emplace_back(c);
        Repetitions *of_case = &repetitions->back();
        for (size_t side = 0; side < c.sides.size(); side++)
            benchmark::RegisterBenchmark(
                row_name(c, c.sides[side]).c_str(),
                [&c, of_case, side](benchmark::State &state) { run_row(state, c, of_case, side); })
                ->Iterations(static_cast<benchmark::IterationCount>(settings.ops))
                ->UseManualTime();
    }
}

/* ---- the table ---- */

std::string time_text(double ns)
{
    char text[32];
    if (ns < 1e4)
        std::snprintf(text, sizeof(text), "%.0f ns", ns);
    else if (ns < 1e7)
        std::snprintf(text, sizeof(text), "%.0f us", ns / 1e3);
    else
        std::snprintf(text, sizeof(text), "%.0f ms", ns / 1e6);
    return text;
}

std::string number_text(double value)
{
    char text[32];
    std::snprintf(text, sizeof(text), value < 100 ? "%.2f" : "%.0f", value);
    return text;
}

/* The medians alone: Google Benchmark's own reporters show four lines for a row. */
class MedianTable : public benchmark::BenchmarkReporter
{
  public:
    MedianTable(const Program &program, const std::vector<Case> &cases)
        : program_(program), cases_(cases)
    {
    }

    bool ReportContext(const Context &) override
    {
        std::printf("%s\n%s, copy kernel %s; %s. Files of %" PRIu64
                    " MiB;\nmedians of repetitions of %" PRIu64 " operations, in rounds of %" PRIu64
                    ".\n\n",
                    program_.title, cpu_name().c_str(), copy_kernel_name().c_str(),
                    medium_name().c_str(), settings.file_mib, settings.ops, settings.batch);
        std::printf("%-32s %9s %7s %9s  %-40s  %s\n", "case/side", "time", "ratio", "over", "more",
                    "domain: guarantee");
        return true;
    }

    void ReportRuns(const std::vector<Run> &runs) override
    {
        for (const Run &run : runs)
            if (run.repetitions < 2 || run.aggregate_name == "median")
                print(run);
    }

    void Finalize() override
    {
        bool any = false;
        for (const Case &c : cases_)
            for (const Goal &goal : c.goals) {
                auto row = seen_.find(row_name(c, goal.side));
                if (row == seen_.end())
                    continue;
                if (!any)
                    std::printf("\n%-46s %14s %9s\n", "asked of", "asked", "seen");
                any = true;
                double seen = row->second.at(goal.value);
                bool met = goal.at_least ? seen >= goal.limit : seen <= goal.limit;
                std::printf("%-46s %14s %9s %s\n", (row->first + " " + goal.value).c_str(),
                            ((goal.at_least ? ">= " : "<= ") + number_text(goal.limit)).c_str(),
                            number_text(seen).c_str(), met ? "" : "missed");
            }
        program_.summary(seen_);
    }

  private:
    static bool has_column(const std::string &name)
    {
        return name == "ns" || name == "ratio" || name == "over_ns" ||
               name.rfind("at_least_", 0) == 0 || name.rfind("at_most_", 0) == 0;
    }

    void print(const Run &run)
    {
        const std::string &name = run.run_name.function_name;
        std::string more;
        for (auto &[key, counter] : run.counters) {
            seen_[name][key] = counter.value;
            if (!has_column(key))
                more += (more.empty() ? "" : ", ") + key + " " + number_text(counter.value);
        }
        const Values &values = seen_[name];
        std::string ratio, over;
        if (values.count("ratio"))
            ratio = number_text(values.at("ratio"));
        if (values.count("over_ns"))
            over =
                (values.at("over_ns") < 0 ? "-" : "+") + time_text(std::abs(values.at("over_ns")));
        std::printf("%-32s %9s %7s %9s  %-40s  %s\n", name.c_str(),
                    time_text(values.at("ns")).c_str(), ratio.c_str(), over.c_str(), more.c_str(),
                    run.report_label.substr(describe_machine().size()).c_str());
        std::fflush(stdout);
    }

    const Program &program_;
    const std::vector<Case> &cases_;
    Rows seen_;
};

/* ---- start ---- */

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
    errno = 0;
    uint64_t n = std::strtoull(value, &end, 10);
    if (!std::isdigit(static_cast<unsigned char>(*value)) || *end || n == 0 || errno ||
        n > 1u << 30)
        fail("not a number from 1 to 2^30: %s", value);
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
        else if (take_value(argv[i], "--plot=", &value))
            settings.plot = value;
        else if (std::strcmp(argv[i], "--plot") == 0 && i + 1 < argc)
            settings.plot = argv[++i];
        else
            rest.push_back(argv[i]);
    }
    settings.batch = std::min(settings.batch, settings.ops);
    settings.ops = (settings.ops + settings.batch - 1) / settings.batch * settings.batch;
    return rest;
}

/* --benchmark_format is for Google Benchmark's own reporters. */
bool format_is_chosen(const std::vector<char *> &args)
{
    return std::any_of(args.begin(), args.end(), [](const char *arg) {
        return std::strncmp(arg, "--benchmark_format=", 19) == 0;
    });
}

/* The description of the whole run in the JSON. */
void add_context()
{
    struct utsname kernel;
    uname(&kernel);
    benchmark::AddCustomContext("libato", ato_version());
    benchmark::AddCustomContext("kernel", kernel.release);
    benchmark::AddCustomContext("cpu", cpu_name());
    benchmark::AddCustomContext("copy_kernel", copy_kernel_name());
    benchmark::AddCustomContext("medium", medium_name());
    benchmark::AddCustomContext("file_mib", std::to_string(settings.file_mib));
    benchmark::AddCustomContext("ops", std::to_string(settings.ops));
    benchmark::AddCustomContext("batch", std::to_string(settings.batch));
}

/* ---- the picture ---- */

/* The file that Google Benchmark writes the JSON to; the picture is drawn from it. */
std::string take_json_file(std::vector<char *> *args)
{
    static std::string flag;
    const char *file;
    for (char *arg : *args)
        if (take_value(arg, "--benchmark_out=", &file))
            return file;
    flag = "--benchmark_out=" + folder() + "/plot.json";
    args->push_back(flag.data());
    return flag.substr(flag.find('=') + 1);
}

/* Before anything is measured. */
void check_plot(const Program &program)
{
    if (!program.plot_script)
        fail("this benchmark draws no picture: it has no --plot");
    if (!std::ofstream(settings.plot, std::ios::app))
        fail("cannot write %s: %s", settings.plot.c_str(), std::strerror(errno));
}

void draw(const char *script, const std::string &json)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        execlp("python3", "python3", script, json.c_str(), settings.plot.c_str(), nullptr);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
        fail("python3 %s did not draw %s", script, settings.plot.c_str());
}

bool space_is_enough(uint64_t needed)
{
    if (free_bytes() >= needed)
        return true;
    std::fprintf(stderr, "%s has %" PRIu64 " MiB free, the files take %" PRIu64 " MiB\n",
                 settings.dir.c_str(), free_bytes() >> 20, needed >> 20);
    return false;
}

} // namespace

int run(int argc, char **argv, const Program &program)
{
    if (program.forces_pmem)
        restart_with(argv, {"PMEM_IS_PMEM_FORCE=1"});
    settings = program.defaults;
    std::vector<char *> args = take_settings(argc, argv);
    bool own_table = !format_is_chosen(args);
    folder(settings.dir.c_str());
    std::string json;
    if (!settings.plot.empty()) {
        check_plot(program);
        json = take_json_file(&args);
    }
    int count = static_cast<int>(args.size());
    benchmark::Initialize(&count, args.data());
    if (benchmark::ReportUnrecognizedArguments(count, args.data()))
        return 1;
    if (!space_is_enough(program.space()))
        return 77;
    std::vector<Case> cases = program.cases();
    add_context();
    std::vector<Repetitions> repetitions;
    register_rows(cases, &repetitions);
    MedianTable table(program, cases);
    size_t rows = benchmark::RunSpecifiedBenchmarks(own_table ? &table : nullptr);
    benchmark::Shutdown();
    program.finish();
    if (rows == 0)
        fail("no row has such a name: they are CASE/SIDE/iterations:N/manual_time");
    if (!settings.plot.empty())
        draw(program.plot_script, json);
    if (std::fflush(stdout) != 0)
        fail("cannot print the results: %s", std::strerror(errno));
    return 0;
}

} // namespace bench
