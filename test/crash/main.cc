// SPDX-License-Identifier: BSD-3-Clause
//
// The crash explorer: rounds of all cases in all domains, then the mutants, then what came of it.
#include "explorer.h"
#include "mutants.h"
#include "workers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <csignal>
#include <getopt.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace crash;

namespace
{

const char *const DOMAINS[] = {"", "pmem", "eadr", "msync", "process"};
constexpr uint64_t SCHEDULES = 40, SCHEDULE_STEP = 1000000;
constexpr uint64_t PLACES = 1000; // a seed's last three digits say which case and domain

struct Combination {
    size_t number; // of the case
    int domain;
    std::unordered_set<uint64_t> images;
    uint64_t recoveries = 0;
    std::set<std::string> sites;

    const Case &what() const
    {
        return all_cases()[number];
    }
    uint64_t index() const
    {
        return number * 4 + static_cast<uint64_t>(domain) - 1;
    }
    std::string name() const
    {
        return std::string(what().name) + ", " + DOMAINS[domain];
    }
};

struct Options {
    double seconds = 40; // of exploring, before the mutants
    bool is_long = false, mutants = true;
    uint64_t seed = 1;
    std::string replay, only, mutant;
};

struct Totals {
    uint64_t recoveries = 0, violations = 0;
    std::unordered_set<uint64_t> images;
    size_t mutants = 0, killed = 0, justified = 0;
};

double began;
std::string top; // folder of all files here

void say(const std::string &what)
{
    printf("[%4.0f s] %s\n", now() - began, what.c_str());
    fflush(stdout);
}

std::vector<Combination> all_combinations(const std::string &only)
{
    std::vector<Combination> list;
    for (size_t i = 0; i < all_cases().size(); i++)
        for (int d = ATO_DOMAIN_PMEM; d <= ATO_DOMAIN_PROCESS; d++) {
            Combination c{i, d, {}, 0, {}};
            bool wanted = only.empty() || c.name().find(only) != std::string::npos;
            if (all_cases()[i].domains >> d & 1 && wanted)
                list.push_back(c);
        }
    return list;
}

// A large file costs more: fewer crashes of it.
uint64_t share_of(const Case &c)
{
    return c.sizes[0] > (1 << 20) ? 16 : c.sizes[0] > (1 << 17) ? 4 : 1;
}

Bounds bounds_of(const Options &o, const Case &c, uint64_t round)
{
    Bounds b;
    if (o.is_long) {
        b.images = 600;
        b.lives = 40;
        b.life_images = 24;
        b.depth = 3;
    } else if (round > 0) { // deeper, now that each was looked at once
        b.lives = 30;
        b.life_images = 20;
        b.depth = 3;
    }
    b.images = std::max<uint64_t>(b.images / share_of(c), 8);
    b.lives = b.lives / share_of(c) + 1;
    return b;
}

std::string replay_command(uint64_t seed, const std::string &event, const std::string &choice)
{
    return "tools/explore --replay " + std::to_string(seed) + ":" + event + ":" + choice;
}

// ---- exploring ----------------------------------------------------------------------------------

Result explore_one(const Combination &c, uint64_t seed, const Bounds &b, Whereabouts &where)
{
    Explorer explorer(c.what(), c.domain, seed, top + "/" + std::to_string(getpid()), b);
    explorer.progress = [&](const Place &p) {
        where.tell(replay_command(seed, p.event, p.choice));
    };
    return explorer.run();
}

std::string explore_job(const Combination &c, uint64_t seed, const Bounds &b, Whereabouts &where)
{
    Result r = explore_one(c, seed, b, where);
    Pack p;
    std::vector<std::string> again;
    for (const Failure &f : r.failures)
        again.push_back(replay_command(seed, f.place.event, f.place.choice));
    // Of threads also many other orders, each with a few crashes only.
    bool threads = std::string(c.what().name).compare(0, 7, "threads") == 0;
    for (uint64_t i = 1; threads && i <= SCHEDULES; i++) {
        Bounds few = b;
        few.images = 2;
        few.lives = 1;
        uint64_t other = seed + i * SCHEDULE_STEP * PLACES;
        Result more = explore_one(c, other, few, where);
        r.images.insert(more.images.begin(), more.images.end());
        r.recoveries += more.recoveries;
        r.sites.insert(more.sites.begin(), more.sites.end());
        for (const Failure &f : more.failures) {
            r.failures.push_back(f);
            again.push_back(replay_command(other, f.place.event, f.place.choice));
        }
    }
    p.number(r.recoveries);
    p.number(r.images.size());
    for (uint64_t h : r.images)
        p.number(h);
    p.number(r.sites.size());
    for (const std::string &s : r.sites)
        p.word(s);
    p.number(r.failures.size());
    for (size_t i = 0; i < r.failures.size(); i++) {
        p.word(again[i]);
        p.word(r.failures[i].what);
    }
    return p.bytes;
}

void violation(Totals &totals, const Combination &c, const std::string &what,
               const std::string &again)
{
    totals.violations++;
    say("VIOLATION in '" + c.name() + "': " + what + "\n         again: " + again);
}

void take(Totals &totals, Combination &c, const Workers::Outcome &o)
{
    if (!o.death.empty()) {
        violation(totals, c, "the library or the explorer died: " + o.death, o.place);
        return;
    }
    Unpack u(o.bytes);
    uint64_t n = u.number();
    c.recoveries += n;
    totals.recoveries += n;
    for (n = u.number(); n; n--) {
        uint64_t h = u.number();
        c.images.insert(h);
        totals.images.insert(h);
    }
    for (n = u.number(); n; n--)
        c.sites.insert(u.word());
    for (n = u.number(); n; n--) {
        std::string again = u.word(), what = u.word();
        violation(totals, c, what, again);
    }
}

void explore(const Options &o, unsigned cpus, std::vector<Combination> &list, Totals &totals)
{
    Workers workers(cpus);
    double end = now() + o.seconds, next_news = now() + 10;
    uint64_t round = 0;
    size_t at = 0;
    auto more = [&] {
        if (o.is_long && o.seconds == 0) // as long as it takes
            return at < list.size() && (at > 0 || round == 0 || totals.images.size() < 1050000);
        return at < list.size() && (round == 0 || now() < end);
    };
    while (more() || !workers.idle()) {
        while (more() && !workers.full()) {
            const Combination &c = list[at];
            uint64_t seed = (o.seed + round) * PLACES + c.index();
            Bounds b = bounds_of(o, c.what(), round);
            workers.start(static_cast<int>(at),
                          [&, seed, b](Whereabouts &w) { return explore_job(c, seed, b, w); });
            if (++at == list.size()) {
                at = 0;
                round++;
            }
        }
        Workers::Outcome done = workers.wait();
        take(totals, list[static_cast<size_t>(done.job)], done);
        if (now() > next_news) {
            say("round " + std::to_string(round + 1) + ": " + std::to_string(totals.images.size()) +
                " distinct images, " + std::to_string(totals.recoveries) + " recoveries, " +
                std::to_string(totals.violations) + " violations");
            next_news = now() + 10;
        }
    }
}

// ---- mutants ------------------------------------------------------------------------------------

struct Verdict {
    bool killed = false;
    std::string how;
    uint64_t images = 0;
};

// Tries the cases that come to the place, quick ones first, until one fails.
std::string mutant_job(const Mutant &m, const std::vector<const Combination *> &where_to_look,
                       uint64_t seed, Whereabouts &where)
{
    standins::set_fault(m.code);
    constexpr double PATIENCE = 60, FOR_HINT = 25, FOR_JUSTIFIED = 8;
    double end = now() + (m.argument.empty() ? PATIENCE : FOR_JUSTIFIED);
    Verdict v;
    double hint = now() + FOR_HINT;
    constexpr int HINTED = 20;
    for (int effort = m.first.empty() ? HINTED : 0; effort < HINTED + 6 && !v.killed; effort++)
        for (const Combination *c : where_to_look) {
            bool first = !m.first.empty() && c->name().find(m.first) == 0;
            bool in_turn = effort >= HINTED || (first && now() < hint);
            if (v.killed || now() > end)
                break;
            if (!in_turn)
                continue;
            Bounds b;
            // Few lives, then more, then deep ones: most faults need none, some nothing else.
            const int how = effort % 3;
            b.images = how == 0 ? 40 : how == 1 ? 8 : 100;
            b.lives = how == 0 ? 1 : how == 1 ? 15 : 25;
            b.life_images = how == 0 ? 8 : 20;
            b.depth = how == 2 ? 3 : 2;
            b.images = std::max<uint64_t>(b.images / share_of(c->what()), 8);
            b.lives = b.lives / share_of(c->what()) + 1;
            uint64_t s = (seed + static_cast<uint64_t>(effort)) * PLACES + c->index();
            Explorer explorer(c->what(), c->domain, s, top + "/" + std::to_string(getpid()), b,
                              m.mutation);
            explorer.progress = [&](const Place &p) {
                where.tell(c->name() + " " + p.event + ":" + p.choice);
            };
            Result r = explorer.run();
            v.images += r.images.size();
            if (!r.failures.empty()) {
                const Failure &f = r.failures[0];
                v.killed = true;
                v.how = c->name() + ", " + f.place.event + ":" + f.place.choice + ": " + f.what;
            }
        }
    Pack p;
    p.number(v.killed);
    p.number(v.images);
    p.word(v.how);
    return p.bytes;
}

// When only the process dies, nothing is lost for want of a flush, fence or fsync.
bool may_show(const Mutant &m, const Combination &c)
{
    bool orders = m.mutation.fault == Fault::Drop || m.mutation.fault == Fault::Delay;
    return c.domain != ATO_DOMAIN_PROCESS || !orders;
}

// Those that came to the place while there was no fault, or all of them if none did: now their lives
// are many. In no order, so that each fault meets its own domain early.
std::vector<const Combination *> cases_for(const Mutant &m, const std::vector<Combination> &list,
                                           uint64_t seed)
{
    std::vector<const Combination *> all, came;
    for (const Combination &c : list) {
        if (!may_show(m, c))
            continue;
        all.push_back(&c);
        if (c.sites.count(m.mutation.site))
            came.push_back(&c);
    }
    std::vector<const Combination *> &cases = came.empty() ? all : came;
    Random r(seed);
    for (size_t i = cases.size(); i > 1; i--)
        std::swap(cases[i - 1], cases[r.below(i)]);
    if (!m.first.empty())
        std::stable_partition(cases.begin(), cases.end(), [&m](const Combination *c) {
            return std::string(c->what().name).find(m.first) != std::string::npos;
        });
    return cases;
}

void try_mutants(const Options &o, unsigned cpus, const std::vector<Combination> &list,
                 Totals &totals)
{
    std::vector<Mutant> mutants = all_mutants();
    std::set<std::string> points;
    if (!o.mutant.empty())
        mutants.erase(std::remove_if(mutants.begin(), mutants.end(),
                                     [&](const Mutant &m) {
                                         return m.name().find(o.mutant) == std::string::npos;
                                     }),
                      mutants.end());
    if (mutants.empty()) {
        fprintf(stderr, "no mutant's name contains '%s'\n", o.mutant.c_str());
        totals.violations++;
    }
    Workers workers(cpus);
    totals.mutants = mutants.size();
    std::vector<std::string> survivors;
    size_t at = 0;
    while (at < mutants.size() || !workers.idle()) {
        while (at < mutants.size() && !workers.full()) {
            const Mutant &m = mutants[at];
            std::vector<const Combination *> cases = cases_for(m, list, at);
            workers.start(static_cast<int>(at++),
                          [&, cases](Whereabouts &w) { return mutant_job(m, cases, o.seed, w); });
        }
        Workers::Outcome done = workers.wait();
        const Mutant &m = mutants[static_cast<size_t>(done.job)];
        points.insert(m.place);
        std::string name = m.name();
        if (!done.death.empty()) {
            totals.killed++;
            say("killed: " + name + ": " + done.death + " at " + done.place);
            continue;
        }
        Unpack u(done.bytes);
        bool killed = u.number();
        uint64_t images = u.number();
        std::string how = u.word();
        if (killed) {
            totals.killed++;
            say("killed: " + name + "\n         by " + how);
            if (!m.argument.empty()) {
                totals.violations++;
                survivors.push_back("VIOLATION: killed, though a comment says why it survives: " +
                                    name);
            }
        } else {
            totals.justified += !m.argument.empty();
            std::string why = !m.argument.empty() ? "justified: " + m.argument
                              : images
                                  ? "NOT JUSTIFIED, after " + std::to_string(images) + " images"
                                  : "NOT JUSTIFIED: no case comes to this place";
            say("survives: " + name + "\n         " + why);
            survivors.push_back(name + ": " + why);
        }
    }
    printf("\n%zu mutants at %zu places of the code\n", mutants.size(), points.size());
    for (const std::string &s : survivors)
        printf("  %s\n", s.c_str());
}

// ---- what came of it ----------------------------------------------------------------------------

void print_table(const std::vector<Combination> &list)
{
    printf("\n%-24s", "images, recoveries");
    for (int d = ATO_DOMAIN_PMEM; d <= ATO_DOMAIN_PROCESS; d++)
        printf(" %18s", DOMAINS[d]);
    for (size_t i = 0; i < all_cases().size(); i++) {
        std::map<int, const Combination *> row;
        for (const Combination &c : list)
            if (c.number == i)
                row[c.domain] = &c;
        if (row.empty())
            continue;
        printf("\n%-24s", all_cases()[i].name);
        for (int d = ATO_DOMAIN_PMEM; d <= ATO_DOMAIN_PROCESS; d++)
            if (row.count(d))
                printf(" %8zu %9llu", row[d]->images.size(),
                       static_cast<unsigned long long>(row[d]->recoveries));
            else
                printf(" %18s", "-");
    }
    printf("\n");
}

int replay(const Options &o)
{
    size_t first = o.replay.find(':'), second = o.replay.find(':', first + 1);
    if (second == std::string::npos) {
        fprintf(stderr, "--replay wants SEED:EVENT:CHOICE, as a violation was printed\n");
        return 2;
    }
    uint64_t seed = strtoull(o.replay.c_str(), nullptr, 10);
    Place place = {o.replay.substr(first + 1, second - first - 1), o.replay.substr(second + 1)};
    for (const Combination &c : all_combinations("")) {
        if (c.index() != seed % PLACES)
            continue;
        std::string story;
        Mutation mutation;
        bool known = o.mutant.empty();
        for (const Mutant &m : all_mutants())
            if (!o.mutant.empty() && m.name() == o.mutant) {
                mutation = m.mutation;
                standins::set_fault(m.code);
                known = true;
            }
        if (!known) {
            fprintf(stderr, "no mutant is called '%s'\n", o.mutant.c_str());
            return 2;
        }
        Bounds b;
        b.depth = 9;
        fflush(stdout);
        Explorer explorer(c.what(), c.domain, seed, top + "/replay", b, mutation);
        Result r = explorer.replay(place, story);
        printf("'%s'\n%s", c.name().c_str(), story.c_str());
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
    fprintf(stderr, "seed %llu names no case\n", static_cast<unsigned long long>(seed));
    return 2;
}

void remove_leftovers()
{
    // And the shared memory of workers that died, which is named after it.
    std::string command = "rm -rf '" + top + "' '" + top + "'-*";
    if (system(command.c_str()) != 0)
        fprintf(stderr, "cannot remove %s\n", top.c_str());
}

bool parse(int argc, char **argv, Options &o)
{
    enum { SECONDS = 1, LONG, SEED, REPLAY, CASE, MUTANT, NO_MUTANTS };
    static const struct option known[] = {{"seconds", required_argument, nullptr, SECONDS},
                                          {"long", no_argument, nullptr, LONG},
                                          {"seed", required_argument, nullptr, SEED},
                                          {"replay", required_argument, nullptr, REPLAY},
                                          {"case", required_argument, nullptr, CASE},
                                          {"mutant", required_argument, nullptr, MUTANT},
                                          {"no-mutants", no_argument, nullptr, NO_MUTANTS},
                                          {nullptr, 0, nullptr, 0}};
    bool seconds_given = false;
    for (int c; (c = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        switch (c) {
        case SECONDS:
            o.seconds = strtod(optarg, nullptr);
            seconds_given = true;
            break;
        case LONG:
            o.is_long = true;
            break;
        case SEED:
            o.seed = strtoull(optarg, nullptr, 10);
            break;
        case REPLAY:
            o.replay = optarg;
            break;
        case CASE:
            o.only = optarg;
            break;
        case MUTANT:
            o.mutant = optarg;
            break;
        case NO_MUTANTS:
            o.mutants = false;
            break;
        default:
            return false;
        }
    }
    if (o.is_long && !seconds_given)
        o.seconds = 0;
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
    top = name;
    began = now();
    int status;
    for (int s : {SIGINT, SIGTERM, SIGHUP})
        signal(s, [](int) {
            remove_leftovers();
            _exit(130);
        });
    if (!o.replay.empty()) {
        // In a child: what is replayed may be a crash of the library.
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            int answer = replay(o);
            fflush(stdout);
            _exit(answer);
        }
        int result = 0;
        waitpid(child, &result, 0);
        if (WIFSIGNALED(result))
            printf("VIOLATION: the library or the explorer died: %s\n",
                   strsignal(WTERMSIG(result)));
        status = WIFEXITED(result) ? WEXITSTATUS(result) : 1;
    } else {
        Totals totals;
        std::vector<Combination> list = all_combinations(o.only);
        unsigned cpus = count_cpus();
        say(std::to_string(list.size()) + " combinations of operation and domain, " +
            std::to_string(cpus) + " at a time, seed " + std::to_string(o.seed));
        explore(o, cpus, list, totals);
        if (o.mutants)
            try_mutants(o, cpus, list, totals);
        print_table(list);
        printf("\nimages %zu, recoveries %llu, violations %llu, mutants killed %zu of %zu, "
               "justified %zu\n",
               totals.images.size(), static_cast<unsigned long long>(totals.recoveries),
               static_cast<unsigned long long>(totals.violations), totals.killed, totals.mutants,
               totals.justified);
        status = totals.violations || totals.killed + totals.justified != totals.mutants;
    }
    remove_leftovers();
    return status;
}
