// SPDX-License-Identifier: BSD-3-Clause
//
// The crash explorer's command line: explores, hunts the mutants and prints the results; or replays
// one crash.
#include "hunt.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include <csignal>
#include <getopt.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace crash;

namespace
{

struct Options {
    Effort effort;
    bool mutants = true, both = true; // both kinds of reflections of each case in a domain
    std::string replay, only;
    Quarry quarry;
};

std::string top; // folder of all files of the run

void print_table(const std::vector<Combination> &list)
{
    printf("\n%-36s %-6s", "images, recoveries", "");
    for (int d = ATO_DOMAIN_PMEM; d <= ATO_DOMAIN_PROCESS; d++)
        printf(" %18s", domain_name(d));
    std::map<std::pair<size_t, bool>, std::map<int, const Combination *>> rows;
    for (const Combination &c : list)
        rows[{c.number, c.sparse}][c.domain] = &c;
    for (const auto &row : rows) {
        printf("\n%-36s %-6s", all_cases()[row.first.first].name.c_str(),
               row.first.second ? "sparse" : "");
        for (int d = ATO_DOMAIN_PMEM; d <= ATO_DOMAIN_PROCESS; d++) {
            auto found = row.second.find(d);
            if (found == row.second.end())
                printf(" %18s", "-");
            else
                printf(" %8zu %9llu", found->second->images.size(),
                       static_cast<unsigned long long>(found->second->recoveries));
        }
    }
    printf("\n");
}

int explore_all(Options &o)
{
    std::vector<Combination> list = combinations(o.only);
    if (list.empty()) {
        fprintf(stderr, "no operation, domain and format has '%s' in its name\n", o.only.c_str());
        return 2;
    }
    std::vector<Mutant> mutants;
    if (o.mutants)
        mutants = choose_mutants(o.quarry, o.effort.seed);
    if (!o.both && o.only.empty())
        keep_one_format(list, o.effort.seed, [&](const Combination &c) {
            return std::any_of(mutants.begin(), mutants.end(),
                               [&](const Mutant &m) { return m.has_case(c.name()); });
        });
    say(std::to_string(list.size()) + " combinations of operation, domain and format, " +
        std::to_string(o.effort.cpus) + " at a time, seed " + std::to_string(o.effort.seed));
    o.effort.scouts = o.mutants ? 3 : 0;
    Totals totals = explore(o.effort, list);
    Score score;
    if (o.mutants)
        score = hunt(o.effort, list, mutants, o.quarry);
    totals.violations += score.violations;
    print_table(list);
    printf("\nimages %zu, recoveries %llu, violations %llu, mutants killed %zu of %zu, "
           "justified %zu\n",
           totals.images.size(), static_cast<unsigned long long>(totals.recoveries),
           static_cast<unsigned long long>(totals.violations), score.killed, score.mutants,
           score.justified);
    return totals.violations || score.killed + score.justified != score.mutants;
}

bool find_mutant(const std::string &name, Mutation &mutation)
{
    for (const Mutant &m : all_mutants())
        if (m.name() == name) {
            mutation = m.mutation;
            standins::set_fault(m.code);
            return true;
        }
    fprintf(stderr, "no mutant is called '%s'\n", name.c_str());
    return false;
}

int replay(const Options &o)
{
    Crash crash;
    if (!parse_crash(o.replay, crash)) {
        fprintf(stderr, "--replay wants SEED:EVENT:CHOICE, as a violation was printed\n");
        return 2;
    }
    Mutation mutation;
    if (!o.quarry.name.empty() && !find_mutant(o.quarry.name, mutation))
        return 2;
    std::vector<Combination> list = combinations("");
    const Combination *c = combination_of(list, crash);
    if (!c) {
        fprintf(stderr, "seed %llu names no case\n", static_cast<unsigned long long>(crash.seed));
        return 2;
    }
    std::string story;
    Result r = crash::replay(*c, crash, mutation, top + "/replay", story);
    printf("'%s'\n%s", c->name().c_str(), story.c_str());
    for (const Failure &f : r.failures)
        printf("VIOLATION: %s\n", f.what.c_str());
    if (story.empty() && r.failures.empty()) {
        fprintf(stderr, "the case has no such event or choice\n");
        return 2;
    }
    if (r.failures.empty())
        printf("no violation\n");
    return !r.failures.empty();
}

// In a child: the replay may crash the library.
int replay_safely(const Options &o)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int answer = replay(o);
        fflush(stdout);
        _exit(answer);
    }
    int result = 0;
    if (child < 0 || waitpid(child, &result, 0) < 0) {
        perror("replay");
        return 2;
    }
    if (WIFSIGNALED(result))
        printf("VIOLATION: the library or the explorer died: %s\n", strsignal(WTERMSIG(result)));
    return WIFEXITED(result) ? WEXITSTATUS(result) : 1;
}

void remove_leftovers()
{
    // Also removes the shared memory of workers that died, which has the folder's name.
    std::string command = "rm -rf '" + top + "' '" + top + "'-*";
    if (system(command.c_str()) != 0)
        fprintf(stderr, "cannot remove %s\n", top.c_str());
}

// Seeds of rounds are ten thousand times as large, and those of orders of threads larger still.
constexpr uint64_t LARGEST_SEED = 1000000000;

bool take_number(const char *option, const char *word, double most, double &number)
{
    char *end;
    number = strtod(word, &end);
    if (*word && !*end && number >= 0 && number <= most)
        return true;
    fprintf(stderr, "--%s: '%s' is no number from 0 to %.0f\n", option, word, most);
    return false;
}

bool parse(int argc, char **argv, Options &o)
{
    double number;
    enum { SECONDS = 1, LONG, SEED, REPLAY, CASE, MUTANT, NO_MUTANTS, QUICK, TOUCHED };
    static const struct option known[] = {{"seconds", required_argument, nullptr, SECONDS},
                                          {"long", no_argument, nullptr, LONG},
                                          {"seed", required_argument, nullptr, SEED},
                                          {"replay", required_argument, nullptr, REPLAY},
                                          {"case", required_argument, nullptr, CASE},
                                          {"mutant", required_argument, nullptr, MUTANT},
                                          {"no-mutants", no_argument, nullptr, NO_MUTANTS},
                                          {"quick", no_argument, nullptr, QUICK},
                                          {"touched", required_argument, nullptr, TOUCHED},
                                          {nullptr, 0, nullptr, 0}};
    bool seconds_given = false;
    for (int c; (c = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        switch (c) {
        case SECONDS:
            if (!take_number("seconds", optarg, 1e6, o.effort.seconds))
                return false;
            seconds_given = true;
            break;
        case LONG:
            o.effort.is_long = true;
            break;
        case SEED:
            if (!take_number("seed", optarg, LARGEST_SEED, number))
                return false;
            o.effort.seed = static_cast<uint64_t>(number);
            break;
        case REPLAY:
            o.replay = optarg;
            break;
        case CASE:
            o.only = optarg;
            break;
        case MUTANT:
            o.quarry.name = optarg;
            o.effort.is_survey = true;
            break;
        case QUICK:
            o.effort.is_survey = true;
            o.both = false;
            break;
        case TOUCHED:
            o.quarry.files.push_back(optarg);
            break;
        case NO_MUTANTS:
            o.mutants = false;
            break;
        default:
            return false;
        }
    }
    if (o.effort.is_long && !seconds_given)
        o.effort.seconds = 0;
    return optind == argc;
}

unsigned count_cpus()
{
    cpu_set_t cpus;
    return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? static_cast<unsigned>(CPU_COUNT(&cpus))
                                                          : 1;
}

} // namespace

int main(int argc, char **argv)
{
    Options o;
    if (!parse(argc, argv, o))
        return 2;
    char name[] = "/dev/shm/libato-explore-XXXXXX";
    if (!mkdtemp(name)) {
        perror("a folder in /dev/shm");
        return 2;
    }
    top = o.effort.folder = name;
    o.effort.cpus = count_cpus();
    for (int s : {SIGINT, SIGTERM, SIGHUP})
        signal(s, [](int) {
            remove_leftovers();
            _exit(130);
        });
    int status = o.replay.empty() ? explore_all(o) : replay_safely(o);
    remove_leftovers();
    return status;
}
