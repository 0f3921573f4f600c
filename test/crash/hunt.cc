// SPDX-License-Identifier: BSD-3-Clause
#include "hunt.h"

#include "mutants.h"
#include "workers.h"

#include <algorithm>
#include <cstdio>

#include <unistd.h>

namespace crash
{

namespace
{

// Images and recoveries that a mutant may cost. Most are found within some hundreds.
constexpr uint64_t PATIENCE = 400000, FOR_JUSTIFIED = 40000;

// Passes over the cases made for a mutant before all others.
constexpr uint64_t MADE = 24;

struct Verdict {
    bool killed = false;
    std::string how;
    uint64_t work = 0;
};

struct Where {
    std::vector<const Combination *> made; // for that mutant
    std::vector<const Combination *> near; // the operation itself comes to the place
    std::vector<const Combination *> far;  // only a later life does
};

// When only the process dies, nothing is lost for want of a flush, fence or fsync.
bool may_show(const Mutant &m, const Combination &c)
{
    bool orders = m.mutation.fault == Fault::Drop || m.mutation.fault == Fault::Delay;
    return c.domain != ATO_DOMAIN_PROCESS || !orders;
}

void shuffle(std::vector<const Combination *> &cases, uint64_t seed)
{
    Random r(seed);
    for (size_t i = cases.size(); i > 1; i--)
        std::swap(cases[i - 1], cases[r.below(i)]);
}

Where cases_for(const Mutant &m, const std::vector<Combination> &list, uint64_t seed)
{
    Where w;
    for (const Combination &c : list) {
        if (!may_show(m, c))
            continue;
        bool near = c.own_sites.count(m.mutation.site) != 0 || m.code != CodeFault::None;
        if (near && !m.cases.empty() && c.name().compare(0, m.cases.size(), m.cases) == 0)
            w.made.push_back(&c);
        else if (m.code != CodeFault::None)
            continue;
        else if (near)
            w.near.push_back(&c);
        else if (c.sites.count(m.mutation.site))
            w.far.push_back(&c);
    }
    // In no order, so that each fault meets its own domain early.
    shuffle(w.made, seed + 2);
    shuffle(w.near, seed);
    shuffle(w.far, seed + 1);
    return w;
}

// Few lives, then more, then deep ones: most faults need none, some nothing else.
Bounds bounds_of(uint64_t pass)
{
    Bounds b;
    switch (pass % 3) {
    case 0:
        b.images = 40;
        b.lives = 1;
        b.life_images = 8;
        break;
    case 1:
        b.images = 8;
        b.lives = 15;
        b.life_images = 20;
        break;
    case 2:
        b.images = 100;
        b.lives = 25;
        b.life_images = 20;
        b.depth = 3;
        break;
    }
    return b;
}

struct Search {
    const Mutant &m;
    const Effort &effort;
    Whereabouts &where;
    Verdict verdict;

    bool over() const
    {
        return verdict.killed || verdict.work > (m.argument.empty() ? PATIENCE : FOR_JUSTIFIED);
    }

    void look(const std::vector<const Combination *> &cases, uint64_t pass)
    {
        for (const Combination *c : cases) {
            if (over())
                return;
            std::string folder = effort.folder + "/" + std::to_string(getpid());
            Explorer explorer(c->what(), c->domain, c->seed(effort.seed + pass), folder,
                              fitting(bounds_of(pass), c->what()), m.mutation);
            explorer.progress = [&](const Place &p) {
                where.tell(c->name() + " " + p.event + ":" + p.choice);
            };
            Result r = explorer.run();
            verdict.work += 1 + r.images.size() + r.recoveries;
            if (!r.failures.empty()) {
                const Failure &f = r.failures[0];
                verdict.killed = true;
                verdict.how =
                    c->name() + ", " + f.place.event + ":" + f.place.choice + ": " + f.what;
            }
        }
    }
};

std::string mutant_job(const Mutant &m, const Where &w, const Effort &effort, Whereabouts &where)
{
    standins::set_fault(m.code);
    Search search{m, effort, where, {}};
    bool nowhere = w.made.empty() && w.near.empty() && w.far.empty();
    for (uint64_t pass = 0; !search.over() && !nowhere; pass++) {
        search.look(w.made, pass);
        if (pass > MADE || w.made.empty())
            search.look(w.near, pass);
        if (pass > MADE + 1 || (w.made.empty() && w.near.empty()))
            search.look(w.far, pass);
    }
    Pack p;
    p.number(search.verdict.killed);
    p.number(search.verdict.work);
    p.word(search.verdict.how);
    return p.bytes;
}

} // namespace

Score hunt(const Effort &effort, const std::vector<Combination> &list, const std::string &name)
{
    std::vector<Mutant> mutants = all_mutants();
    mutants.erase(
        std::remove_if(mutants.begin(), mutants.end(),
                       [&](const Mutant &m) { return m.name().find(name) == std::string::npos; }),
        mutants.end());
    Score score;
    score.mutants = mutants.size();
    if (mutants.empty()) {
        fprintf(stderr, "no mutant's name contains '%s'\n", name.c_str());
        score.violations++;
    }
    std::set<std::string> places;
    std::vector<std::string> survivors;
    Workers workers(effort.cpus);
    for (size_t at = 0; at < mutants.size() || !workers.idle();) {
        while (at < mutants.size() && !workers.full()) {
            const Mutant &m = mutants[at];
            Where w = cases_for(m, list, effort.seed + at);
            workers.start(static_cast<int>(at++),
                          [&, w](Whereabouts &where) { return mutant_job(m, w, effort, where); });
        }
        Workers::Outcome done = workers.wait();
        const Mutant &m = mutants[static_cast<size_t>(done.job)];
        places.insert(m.place);
        bool killed = true;
        uint64_t work = 0;
        std::string how = done.death + " at " + done.place;
        if (done.death.empty()) {
            Unpack u(done.bytes);
            killed = u.number();
            work = u.number();
            how = u.word();
        }
        if (killed) {
            score.killed++;
            say("killed: " + m.name() + ", work " + std::to_string(work) + "\n         by " + how);
            if (!m.argument.empty()) {
                score.violations++;
                survivors.push_back("VIOLATION: killed, though a comment says why it survives: " +
                                    m.name());
            }
            continue;
        }
        score.justified += !m.argument.empty();
        std::string why = !m.argument.empty() ? "justified: " + m.argument
                          : work              ? "NOT JUSTIFIED, after work " + std::to_string(work)
                                              : "NOT JUSTIFIED: no case comes to this place";
        say("survives: " + m.name() + "\n         " + why);
        survivors.push_back(m.name() + ": " + why);
    }
    printf("\n%zu mutants at %zu places of the code\n", mutants.size(), places.size());
    for (const std::string &s : survivors)
        printf("  %s\n", s.c_str());
    return score;
}

} // namespace crash
