/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * evaluate_bench: runs suites of the evaluation, prints their results, and adds them to a file of CSV.
 *
 * This is also the source of evaluate_counted, beside it, which counts and charges what goes to persistent memory
 * (engines/counting.cc). evaluate_bench starts it for suites that count, and becomes it for --charge.
 *
 * Exits 0; 1 if a content is wrong or something fails; 77 if there is no space for the files; 128 and the number of the signal
 * that asked it to end.
 */
#include "suites.h"

#include "../bench.h"
#include "../engines/media.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <getopt.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace suite
{

namespace
{

const std::vector<Suite> SUITES = {
    RANDOM, AMPLIFICATION, SYNC, THREADS, LATENCY, TRANSACTIONS, SMALL_NVM, UNMAP, RECOVERY,
#ifdef WITH_SQLITE
    YCSB,   TPCC,
#endif
};

/* Two homes, a copy in memory, logs: what an engine takes at most, in sizes of its file, and besides. */
constexpr uint64_t COPIES = 3, BESIDES = 64 << 20, LEAST_MIB = 4;

std::chrono::steady_clock::time_point began;

const char USAGE[] =
    "usage: evaluate_bench [OPTION...]\n"
    "  --suite NAME      this one; may be given several times (all)\n"
    "  --dir FOLDER      where the files lie: the medium (/dev/shm)\n"
    "  --domain NAME     pmem, disk or process (pmem)\n"
    "  --engines A,B     only these, and the floor\n"
    "  --file-mib N      of the file of each engine (64; less if there is no space)\n"
    "  --seconds S       that a suite takes, about (60)\n"
    "  --full            more rounds and more cells\n"
    "  --charge LINE,FENCE   each line that is flushed and each fence takes so many ns more\n"
    "  --csv FILE        adds the results to it\n"
    "  --list, --list-engines   prints what there is\n";

[[noreturn]] void usage(const char *what)
{
    std::fprintf(stderr, "%s\n%s", what, USAGE);
    std::exit(1);
}

double number(const char *option, const char *value, double least, double most)
{
    char *end;
    const double n = std::strtod(value, &end);
    if (end == value || *end || !(n >= least && n <= most))
        bench::fail("%s takes a number from %g to %g, not %s", option, least, most, value);
    return n;
}

std::vector<std::string> split(const std::string &list)
{
    std::vector<std::string> parts;
    for (size_t at = 0; at <= list.size();) {
        const size_t comma = std::min(list.find(',', at), list.size());
        parts.push_back(list.substr(at, comma - at));
        at = comma + 1;
    }
    return parts;
}

engine::Domain domain_of(const char *name)
{
    for (const engine::Domain one :
         {engine::Domain::pmem, engine::Domain::disk, engine::Domain::process})
        if (std::strcmp(engine::name_of(one), name) == 0)
            return one;
    usage("--domain is pmem, disk or process");
}

const Suite &suite_of(const char *name)
{
    for (const Suite &one : SUITES)
        if (std::strcmp(one.name, name) == 0)
            return one;
    bench::fail("there is no suite %s (--list)", name);
}

/* What libpmem finds in the environment when it is loaded. In domain pmem every flush is issued, although the files may lie in
 * DRAM. In domain process nothing has to be flushed. On a disk libpmemobj calls msync(). */
std::vector<std::string> environment()
{
    switch (settings.domain) {
    case engine::Domain::pmem:
        return {"PMEM_IS_PMEM_FORCE=1"};
    case engine::Domain::process:
        return {"PMEM_IS_PMEM_FORCE=1", "PMEM_NO_FLUSH=1"};
    case engine::Domain::disk:
        break;
    }
    return {"PMEM_IS_PMEM_FORCE=0"};
}

uint64_t available_memory()
{
    std::ifstream info("/proc/meminfo");
    for (std::string word; info >> word;)
        if (word == "MemAvailable:") {
            uint64_t kib = 0;
            info >> kib;
            return kib << 10;
        }
    return UINT64_MAX;
}

void shrink_to_machine()
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
        settings.cpus = static_cast<unsigned>(CPU_COUNT(&cpus));
    const uint64_t engines =
                       settings.only.empty() ? engine::ENGINES.size() : settings.only.size() + 1,
                   room = std::min(bench::free_bytes(), available_memory()) / 4 * 3,
                   asked = settings.file_mib;
    const auto takes = [&] { return engines * (COPIES * (settings.file_mib << 20) + BESIDES); };
    while (takes() > room && settings.file_mib > LEAST_MIB)
        settings.file_mib = std::max(settings.file_mib / 2, LEAST_MIB);
    if (takes() > room) {
        std::fprintf(stderr,
                     "no space: %s and the memory have %" PRIu64
                     " MiB, the smallest files take %" PRIu64 "\n",
                     settings.dir.c_str(), room >> 20, takes() >> 20);
        std::exit(77);
    }
    if (settings.file_mib < asked)
        say("files of %" PRIu64 " MiB instead of %" PRIu64 ": there are %" PRIu64
            " MiB for %" PRIu64 " engines",
            settings.file_mib, asked, room >> 20, engines);
}

void open_csv(const char *path)
{
    settings.csv = std::fopen(path, "ae");
    if (!settings.csv)
        bench::fail("cannot open %s: %s", path, std::strerror(errno));
    std::fseek(settings.csv, 0, SEEK_END);
    if (std::ftell(settings.csv) == 0)
        std::fputs(
            "suite,engine,guarantee,workload,size,threads,metric,value,spread,ratio_to_floor\n",
            settings.csv);
}

/* ---- evaluate_counted ---- */

std::string counted_program()
{
    std::error_code ignored;
    return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() /
           "evaluate_counted";
}

[[noreturn]] void become_counted(char **argv)
{
    const std::string path = counted_program();
    execv(path.c_str(), argv);
    bench::fail("cannot start %s: %s", path.c_str(), std::strerror(errno));
}

void run_counted(const Suite &one, const char *csv)
{
    std::vector<std::string> words = {counted_program(),
                                      "--suite",
                                      one.name,
                                      "--dir",
                                      settings.dir,
                                      "--domain",
                                      engine::name_of(settings.domain),
                                      "--file-mib",
                                      std::to_string(settings.file_mib),
                                      "--seconds",
                                      std::to_string(settings.seconds)};
    if (settings.full)
        words.push_back("--full");
    if (csv)
        words.insert(words.end(), {"--csv", csv});
    std::string engines;
    for (const std::string &name : settings.only)
        engines += (engines.empty() ? "" : ",") + name;
    if (!engines.empty())
        words.insert(words.end(), {"--engines", engines});
    std::vector<char *> argv;
    for (std::string &word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() == parent)
            execv(argv[0], argv.data());
        _exit(127);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, WNOHANG) == 0) {
        bench::stop_if_asked();
        usleep(10000);
    }
    if (child < 0 || status != 0)
        bench::fail("%s did not run the suite %s", argv[0], one.name);
}

void list_suites()
{
    for (const Suite &one : SUITES)
        std::printf("%-14s %s\n", one.name, one.what);
    std::exit(0);
}

void list_engines()
{
    engine::Options options;
    options.domain = settings.domain;
    for (const engine::Kind &kind : engine::ENGINES)
        std::printf("%-18s %s (%s)\n", kind.name, kind.what,
                    kind.takes_part(options)
                        ? engine::name_of(kind.promise(options), options.domain)
                        : "not here");
    std::exit(0);
}

int main(int argc, char **argv)
{
    enum {
        SUITE = 1,
        DIR,
        DOMAIN,
        ENGINES,
        FILE_MIB,
        SECONDS,
        FULL,
        CHARGE,
        CSV,
        LIST,
        LIST_ENGINES,
        HELP
    };
    static const option OPTIONS[] = {{"suite", required_argument, nullptr, SUITE},
                                     {"dir", required_argument, nullptr, DIR},
                                     {"domain", required_argument, nullptr, DOMAIN},
                                     {"engines", required_argument, nullptr, ENGINES},
                                     {"file-mib", required_argument, nullptr, FILE_MIB},
                                     {"seconds", required_argument, nullptr, SECONDS},
                                     {"full", no_argument, nullptr, FULL},
                                     {"charge", required_argument, nullptr, CHARGE},
                                     {"csv", required_argument, nullptr, CSV},
                                     {"list", no_argument, nullptr, LIST},
                                     {"list-engines", no_argument, nullptr, LIST_ENGINES},
                                     {"help", no_argument, nullptr, HELP},
                                     {}};
    std::vector<Suite> suites;
    const char *csv = nullptr;
    bool lists_engines = false;
    for (int c; (c = getopt_long(argc, argv, "", OPTIONS, nullptr)) != -1;)
        switch (c) {
        case SUITE:
            suites.push_back(suite_of(optarg));
            break;
        case DIR:
            settings.dir = optarg;
            break;
        case DOMAIN:
            settings.domain = domain_of(optarg);
            break;
        case ENGINES:
            settings.only = split(optarg);
            for (const std::string &name : settings.only)
                (void)engine::kind(name);
            break;
        case FILE_MIB:
            settings.file_mib =
                static_cast<uint64_t>(number("--file-mib", optarg, LEAST_MIB, 1 << 20));
            break;
        case SECONDS:
            settings.seconds = number("--seconds", optarg, 0.1, 1e6);
            break;
        case FULL:
            settings.full = true;
            break;
        case CHARGE: {
            const std::vector<std::string> parts = split(optarg);
            if (parts.size() != 2)
                usage("--charge takes two numbers: ns of a line, ns of a fence");
            settings.ns_line = static_cast<unsigned>(number("--charge", parts[0].c_str(), 0, 1e6));
            settings.ns_fence = static_cast<unsigned>(number("--charge", parts[1].c_str(), 0, 1e6));
            break;
        }
        case CSV:
            csv = optarg;
            break;
        case LIST:
            list_suites();
            break;
        case LIST_ENGINES:
            lists_engines = true;
            break;
        case HELP:
            std::fputs(USAGE, stdout);
            return 0;
        default:
            usage("");
        }
    if (optind < argc)
        usage("there are no arguments but options");
    if (lists_engines)
        list_engines();
    if ((settings.ns_line || settings.ns_fence) && !engine::meter)
        become_counted(argv);
    bench::restart_with(argv, environment());

    bench::folder(settings.dir.c_str());
    if (csv)
        open_csv(csv);
    shrink_to_machine();
    say("%s, %u CPUs; %s, domain %s; files of %" PRIu64 " MiB", bench::cpu_name().c_str(),
        settings.cpus, bench::medium_name().c_str(), engine::name_of(settings.domain),
        settings.file_mib);
    if (settings.ns_line || settings.ns_fence) {
        say("each line takes %u ns more, each fence %u; what the kernel flushes does not",
            settings.ns_line, settings.ns_fence);
        engine::meter->charge(settings.ns_line, settings.ns_fence);
    }
    for (const Suite &one : suites.empty() ? SUITES : suites) {
        began = std::chrono::steady_clock::now();
        if (one.counts && !engine::meter)
            run_counted(one, csv);
        else
            one.run();
        bench::stop_if_asked();
    }
    say("done");
    if (settings.csv && std::fclose(settings.csv) != 0)
        bench::fail("cannot write %s: %s", csv, std::strerror(errno));
    return 0;
}

} // namespace

double seconds_left()
{
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began;
    return settings.seconds - passed.count();
}

} // namespace suite

int main(int argc, char **argv)
{
    return suite::main(argc, argv);
}
