// SPDX-License-Identifier: BSD-3-Clause
#include "campaign.h"

#include "workers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>

#include <unistd.h>

namespace crash
{

namespace
{

constexpr uint64_t ANOTHER = 1000000;   // added to a round: a seed that no round has
constexpr uint64_t ENOUGH = 100;        // images of a combination, at least
constexpr uint64_t PLACES = 10000;      // the last four digits of a seed are the combination
constexpr uint64_t SPARSE = PLACES / 2; // from here on: with sparse reflections
constexpr uint64_t MANY = 1050000;
constexpr uint64_t NEVER = 1 << 30; // so large a distance that one moment is left

// Looks at each combination only briefly: the run is for the work after it.
bool is_survey(const Effort &effort, uint64_t round)
{
    return effort.is_survey && round == 0;
}

uint64_t index_of(const Combination &c)
{
    return c.number * 4 + static_cast<uint64_t>(c.domain) - 1 + (c.sparse ? SPARSE : 0);
}

Bounds bounds_of(const Effort &effort, uint64_t round)
{
    Bounds b;
    if (is_survey(effort, round)) {
        b.images = b.lives = b.life_images = 1;
        b.apart = 12;
    } else if (effort.is_long) {
        b.whole = Choices::EXHAUSTIVE;
        b.images = 300;
        b.lives = 16;
        b.life_images = 16;
        b.depth = 3;
    } else if (round > 0) { // deeper, after a first look at each
        b.lives = 30;
        b.life_images = 20;
        b.depth = 3;
    }
    return b;
}

std::string replay_command(uint64_t seed, const Place &p)
{
    return "tools/explore --replay " + name_of(Crash{seed, p});
}

struct Job {
    const Combination &c;
    const std::string &folder;
    Whereabouts &where;
    double end; // of the run
    Result all;
    std::vector<std::string> again; // the replay command of each failure

    void explore(uint64_t seed, const Bounds &b)
    {
        Explorer explorer(c.what(), c.domain, c.sparse, seed,
                          folder + "/" + std::to_string(getpid()), b);
        explorer.progress = [&](const Place &p) { where.tell(replay_command(seed, p)); };
        explorer.is_over = [&] { return now() > end; };
        Result r = explorer.run();
        all.images.insert(r.images.begin(), r.images.end());
        all.recoveries += r.recoveries;
        all.own_sites.insert(r.own_sites.begin(), r.own_sites.end());
        all.sites.insert(r.sites.begin(), r.sites.end());
        for (const Failure &f : r.failures) {
            all.failures.push_back(f);
            again.push_back(replay_command(seed, f.place));
        }
    }
};

std::string explore_job(const Combination &c, uint64_t seed, const Bounds &b, bool once,
                        uint64_t scouts, double end, const std::string &folder, Whereabouts &where)
{
    Job job{c, folder, where, end, {}, {}};
    job.explore(seed, b);
    Bounds scout;
    scout.images = scout.life_images = 1;
    scout.lives = 2;
    scout.apart = NEVER;
    for (uint64_t i = 1; i <= scouts; i++)
        job.explore(seed + i * PLACES, scout);
    Bounds few;
    few.images = 2;
    few.lives = 1;
    few.apart = b.apart;
    uint64_t more = 1;
    for (; more <= c.what().orders; more++)
        job.explore(seed + more * ANOTHER * PLACES, few);
    for (; !once && job.all.images.size() < ENOUGH && job.all.failures.empty() && now() < end;
         more++)
        job.explore(seed + more * ANOTHER * PLACES, b);
    Pack p;
    p.number(job.all.recoveries);
    p.number(job.all.images.size());
    for (uint64_t h : job.all.images)
        p.number(h);
    for (const auto *sites : {&job.all.own_sites, &job.all.sites}) {
        p.number(sites->size());
        for (const std::string &s : *sites)
            p.word(s);
    }
    p.number(job.again.size());
    for (size_t i = 0; i < job.again.size(); i++) {
        p.word(job.again[i]);
        p.word(job.all.failures[i].what);
    }
    return p.bytes;
}

void violation(Totals &totals, const Combination &c, const std::string &what,
               const std::string &again)
{
    totals.violations++;
    say("VIOLATION in '" + c.name() + "': " + what + "\n         again: " + again);
}

void take(Totals &totals, Combination &c, const Workers::Outcome &o, bool first)
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
    for (auto *sites : {&c.own_sites, &c.sites})
        for (n = u.number(); n; n--) {
            std::string site = u.word();
            if (first)
                sites->insert(site);
        }
    for (n = u.number(); n; n--) {
        std::string again = u.word(), what = u.word();
        violation(totals, c, what, again);
    }
}

} // namespace

const char *domain_name(int domain)
{
    static const char *const names[] = {"", "pmem", "eadr", "disk", "process"};
    return names[domain];
}

std::string Combination::name() const
{
    return what().name + ", " + domain_name(domain) + (sparse ? ", sparse" : "");
}

uint64_t Combination::seed(uint64_t round) const
{
    return round * PLACES + index_of(*this);
}

std::vector<Combination> combinations(const std::string &name)
{
    std::vector<Combination> list;
    if (all_cases().size() * 4 > SPARSE)
        throw std::logic_error("more cases than a seed can name");
    for (size_t i = 0; i < all_cases().size(); i++)
        for (bool sparse : {false, true})
            for (int d = ATO_DOMAIN_PMEM; d <= ATO_DOMAIN_PROCESS; d++) {
                const Case &what = all_cases()[i];
                Combination c{i, d, sparse, {}, 0, {}, {}};
                bool exists = (what.domains & (sparse ? what.sparse : what.dense)) >> d & 1;
                if (exists && c.name().find(name) != std::string::npos)
                    list.push_back(c);
            }
    return list;
}

void keep_one_format(std::vector<Combination> &list, uint64_t seed,
                     const std::function<bool(const Combination &)> &is_needed)
{
    std::map<std::pair<size_t, int>, size_t> kinds;
    for (const Combination &c : list)
        kinds[{c.number, c.domain}]++;
    auto goes = [&](const Combination &c) {
        const uint64_t place = c.number * 4 + static_cast<uint64_t>(c.domain);
        const uint64_t luck = mix(seed ^ mix(place));
        const bool other = kinds[{c.number, c.domain}] > 1 ? c.sparse != (luck % 2 != 0)
                                                           : c.sparse && luck % 4 != 0;
        return other && !is_needed(c);
    };
    list.erase(std::remove_if(list.begin(), list.end(), goes), list.end());
}

std::string name_of(const Crash &crash)
{
    return std::to_string(crash.seed) + ":" + crash.place.event + ":" + crash.place.choice;
}

bool parse_crash(const std::string &name, Crash &crash)
{
    size_t first = name.find(':'), second = name.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
        return false;
    if (first == 0 || name.find_first_not_of("0123456789") != first)
        return false;
    crash.seed = strtoull(name.c_str(), nullptr, 10);
    crash.place = {name.substr(first + 1, second - first - 1), name.substr(second + 1)};
    return true;
}

const Combination *combination_of(const std::vector<Combination> &list, const Crash &crash)
{
    for (const Combination &c : list)
        if (index_of(c) == crash.seed % PLACES)
            return &c;
    return nullptr;
}

Result replay(const Combination &c, const Crash &crash, const Mutation &mutation,
              const std::string &folder, std::string &story)
{
    Bounds b;
    b.depth = 9;
    Explorer explorer(c.what(), c.domain, c.sparse, crash.seed, folder, b, mutation);
    return explorer.replay(crash.place, story);
}

Bounds fitting(Bounds b, const Case &c)
{
    uint64_t share = c.sizes[0] > (1 << 20) ? 8 : c.sizes[0] > (1 << 17) ? 3 : c.use ? 2 : 1;
    b.whole /= share;
    b.images = std::max<uint64_t>(b.images / share, 8);
    b.lives = b.lives / share + 1;
    return b;
}

Totals explore(const Effort &effort, std::vector<Combination> &list)
{
    Totals totals;
    Workers workers(effort.cpus);
    // From the second round on, the seed decides the order: the time may be over before the end of
    // a round.
    std::vector<size_t> order(list.size());
    std::iota(order.begin(), order.end(), 0);
    shuffle(order, Random(effort.seed));
    auto at = [&](size_t job) { return job < list.size() ? job : order[job % list.size()]; };
    double end = now() + effort.seconds, next_news = now() + 10;
    size_t started = 0;
    auto more = [&] {
        if (started < list.size())
            return true;
        if (!effort.is_long || effort.seconds > 0)
            return now() < end && !list.empty();
        return started % list.size() != 0 || totals.images.size() < MANY;
    };
    while (more() || !workers.idle()) {
        while (more() && !workers.full()) {
            const Combination &c = list[at(started)];
            uint64_t round = started / list.size();
            Bounds b = fitting(bounds_of(effort, round), c.what());
            uint64_t seed = c.seed(effort.seed + round);
            bool once = is_survey(effort, round);
            uint64_t scouts = round == 0 ? effort.scouts : 0;
            // The first round is always complete, and so is each round that is limited by images,
            // not by time.
            bool timed = round > 0 && effort.seconds > 0;
            double until = timed ? end : std::numeric_limits<double>::infinity();
            workers.start(static_cast<int>(started++),
                          [&, seed, b, once, scouts, until](Whereabouts &w) {
                              return explore_job(c, seed, b, once, scouts, until, effort.folder, w);
                          });
        }
        Workers::Outcome done = workers.wait();
        size_t job = static_cast<size_t>(done.job);
        take(totals, list[at(job)], done, job < list.size());
        if (now() > next_news) {
            say("round " + std::to_string(started / list.size() + 1) + ": " +
                std::to_string(totals.images.size()) + " distinct images, " +
                std::to_string(totals.recoveries) + " recoveries, " +
                std::to_string(totals.violations) + " violations");
            next_news = now() + 10;
        }
    }
    return totals;
}

void say(const std::string &what)
{
    static const double began = now();
    printf("[%4.0f s] %s\n", now() - began, what.c_str());
    fflush(stdout);
}

} // namespace crash
