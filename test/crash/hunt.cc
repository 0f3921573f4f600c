// SPDX-License-Identifier: BSD-3-Clause
#include "hunt.h"

#include "mutants.h"
#include "workers.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include <unistd.h>

namespace crash
{

namespace
{

// Images and recoveries that a mutant may cost. Most are found within some hundreds.
constexpr uint64_t PATIENCE = 400000, FOR_JUSTIFIED = 20000;

// Passes over the cases made for a mutant before each pass over all others.
constexpr uint64_t MADE = 16;

struct Verdict {
    bool killed = false;
    std::string crash, what; // the crash that showed it, and the violation
    uint64_t work = 0;
};

struct Where {
    std::vector<const Combination *> made; // for that mutant
    std::vector<const Combination *> near; // whose first life reaches the place
    std::vector<const Combination *> far;  // where only a later life does
};

// When only the process dies, no missing flush, fence or fsync loses anything; and msync() needs no fence.
bool may_show(const Mutant &m, const Combination &c)
{
    bool orders = m.mutation.fault == Fault::Drop || m.mutation.fault == Fault::Delay;
    bool fence = m.fault.find(" fence") != std::string::npos;
    const bool synced = c.domain == ATO_DOMAIN_DISK && !c.what().stored;
    return !(orders && c.domain == ATO_DOMAIN_PROCESS) && !(fence && synced);
}

Where cases_for(const Mutant &m, const std::vector<Combination> &list, uint64_t seed)
{
    Where w;
    for (const Combination &c : list) {
        // The cases of a program are for its own mutants: other cases show those of the library, at
        // lower cost.
        if (!may_show(m, c) || (c.what().use && m.code == CodeFault::None))
            continue;
        bool near = c.own_sites.count(m.mutation.site) != 0 || m.code != CodeFault::None;
        if (near && m.has_case(c.name()))
            w.made.push_back(&c);
        else if (m.code != CodeFault::None)
            continue;
        else if (near)
            w.near.push_back(&c);
        else if (c.sites.count(m.mutation.site))
            w.far.push_back(&c);
    }
    // Shuffled, so that each mutant gets a suitable domain early.
    shuffle(w.made, Random(seed + 2));
    shuffle(w.near, Random(seed));
    shuffle(w.far, Random(seed + 1));
    return w;
}

// Many moments and few lives; in every second pass more lives, or deeper ones. Most mutants need no
// further life, some only show there, and some need an operation that occurs with one seed of many.
// Some show in one image of all that a moment allows: where a record has seven new words, and the
// word before it is lost.
Bounds bounds_of(uint64_t pass)
{
    Bounds b;
    b.images = 40;
    b.lives = 1;
    b.life_images = 8;
    if (pass % 4 == 1) {
        b.images = 8;
        b.lives = 12;
        b.life_images = 20;
    } else if (pass % 4 == 3) {
        b.images = 60;
        b.lives = 8;
        b.life_images = 12;
        b.depth = 3;
    } else {
        b.whole = 128;
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
            uint64_t seed = c->seed(effort.seed + pass);
            Explorer explorer(c->what(), c->domain, c->sparse, seed, folder,
                              fitting(bounds_of(pass), c->what()), m.mutation);
            explorer.progress = [&](const Place &p) { where.tell(name_of({seed, p})); };
            Result r = explorer.run();
            verdict.work += 1 + r.images.size() + r.recoveries;
            if (!r.failures.empty()) {
                verdict.killed = true;
                verdict.crash = name_of({seed, r.failures[0].place});
                verdict.what = r.failures[0].what;
            }
        }
    }
};

std::string mutant_job(const Mutant &m, const Where &w, const Effort &effort, uint64_t first_pass,
                       Whereabouts &where)
{
    standins::set_fault(m.code);
    Search search{m, effort, where, {}};
    bool nowhere = w.made.empty() && w.near.empty() && w.far.empty();
    for (uint64_t pass = first_pass; !search.over() && !nowhere; pass++) {
        for (uint64_t i = 0; i < MADE; i++)
            search.look(w.made, MADE * pass + i);
        search.look(w.near, pass);
        if (pass > 0 || w.near.empty())
            search.look(w.far, pass);
    }
    Pack p;
    p.number(search.verdict.killed);
    p.number(search.verdict.work);
    p.word(search.verdict.crash);
    p.word(search.verdict.what);
    return p.bytes;
}

// Returns the violation at that crash; "": none.
std::string control_job(const std::vector<Combination> &list, const std::string &name,
                        const Mutant *fault, const Effort &effort)
{
    Crash crash;
    const Combination *c = parse_crash(name, crash) ? combination_of(list, crash) : nullptr;
    if (!c)
        return "it is no crash of any case";
    standins::set_fault(fault ? fault->code : CodeFault::None);
    std::string story, folder = effort.folder + "/" + std::to_string(getpid());
    Result r = replay(*c, crash, fault ? fault->mutation : Mutation(), folder, story);
    return r.failures.empty() ? "" : r.failures[0].what;
}

// The passes of each further worker that looks for the same mutant begin so much later: it takes other seeds.
constexpr uint64_t APART = 4096;

// A change of everything must not turn a check of minutes into one of an hour.
constexpr size_t MOST_OF_A_CHANGE = 4;

class Hunt
{
  public:
    Hunt(const Effort &e, const std::vector<Combination> &l, const std::vector<Mutant> &m, bool all)
        : effort(e), list(l), whole(all), mutants(m), workers(e.cpus)
    {
    }

    Score run()
    {
        score.mutants = mutants.size();
        std::set<std::string> places;
        for (const Mutant &m : mutants)
            places.insert(m.place);
        for (size_t at = 0; at < mutants.size() || !workers.idle();) {
            if (at < mutants.size() && !workers.full())
                search(at++);
            else if (workers.full() || !help())
                take(workers.wait());
        }
        // A third of them are fences that only order the steps of CPUs, and syncs for speed: no image shows those.
        if (whole && score.justified * 7 > score.mutants) {
            score.violations++;
            notable.push_back("VIOLATION: more than a seventh is justified");
        }
        printf("\n%zu mutants at %zu places of the code\n", mutants.size(), places.size());
        for (const std::string &s : notable)
            printf("  %s\n", s.c_str());
        return score;
    }

  private:
    const Effort &effort;
    const std::vector<Combination> &list;
    const bool whole;
    const std::vector<Mutant> &mutants;
    Workers workers; // job: the number of a mutant; its controls have this number plus one or two
                     // times the number of mutants, its helpers three times and more
    std::map<size_t, unsigned> hunters; // of each mutant that is looked for, by its number
    Score score;
    std::vector<std::string> notable;

    void search(size_t number)
    {
        const Mutant &m = mutants[number];
        const unsigned part = hunters[number]++;
        Where w = cases_for(m, list, effort.seed + number + part * mutants.size());
        workers.start(static_cast<int>(number + (part ? part + 2 : 0) * mutants.size()),
                      [&, w, part](Whereabouts &where) {
                          return mutant_job(m, w, effort, part * APART, where);
                      });
    }

    // A CPU is idle, since no mutant is left that nobody looks for: it joins a search. Those of mutants that a comment justifies
    // are short. Returns whether there is one to join.
    bool help()
    {
        auto least = hunters.end();
        for (auto at = hunters.begin(); at != hunters.end(); ++at)
            if (mutants[at->first].argument.empty() &&
                (least == hunters.end() || at->second < least->second))
                least = at;
        if (least != hunters.end())
            search(least->first);
        return least != hunters.end();
    }

    void take(const Workers::Outcome &done)
    {
        size_t job = static_cast<size_t>(done.job);
        const Mutant &m = mutants[job % mutants.size()];
        if (job / mutants.size() == 1 || job / mutants.size() == 2) { // a control
            std::string wrong = done.death.empty() ? done.bytes : done.death;
            bool with = job < 2 * mutants.size();
            if (with && wrong.empty())
                violation("the crash that showed a fault does not show it again", m);
            else if (!with && !wrong.empty())
                violation("the crash that showed a fault is wrong without it too: " + wrong, m);
            return;
        }
        Verdict v;
        if (done.death.empty()) {
            Unpack u(done.bytes);
            v.killed = u.number();
            v.work = u.number();
            v.crash = u.word();
            v.what = u.word();
        } else {
            v.killed = true;
            v.crash = done.place;
            v.what = "the library died: " + done.death;
        }
        const size_t number = job % mutants.size();
        hunters.erase(number);
        workers.stop(
            [&](int other) { return static_cast<size_t>(other) % mutants.size() == number; });
        if (v.killed)
            killed(m, number, v);
        else
            survived(m, v);
    }

    void killed(const Mutant &m, size_t number, const Verdict &v)
    {
        score.killed++;
        say("killed: " + m.name() + ", work " + std::to_string(v.work) + ": " + v.what +
            "\n         tools/explore --mutant '" + m.name() + "' --replay " + v.crash);
        if (!m.argument.empty())
            violation("killed, though a comment says why it survives", m);
        std::string crash = v.crash;
        for (const Mutant *fault : {&m, static_cast<const Mutant *>(nullptr)})
            workers.start(static_cast<int>((fault ? 1 : 2) * mutants.size() + number),
                          [&, crash, fault](Whereabouts &) {
                              return control_job(list, crash, fault, effort);
                          });
    }

    void survived(const Mutant &m, const Verdict &v)
    {
        score.justified += !m.argument.empty();
        std::string why = !m.argument.empty() ? "justified: " + m.argument
                          : v.work ? "NOT JUSTIFIED, after work " + std::to_string(v.work)
                                   : "NOT JUSTIFIED: no case comes to this place";
        say("survives: " + m.name() + "\n         " + why);
        notable.push_back(m.name() + ": " + why);
    }

    void violation(const std::string &what, const Mutant &m)
    {
        score.violations++;
        say("VIOLATION: " + what + ": " + m.name());
        notable.push_back("VIOLATION: " + what + ": " + m.name());
    }
};

} // namespace

std::vector<Mutant> choose_mutants(const Quarry &q, uint64_t seed)
{
    std::vector<Mutant> mutants = all_mutants();
    auto other = [&](const Mutant &m) {
        auto is_there = [&](const std::string &f) { return m.place.rfind(f + ":", 0) == 0; };
        return m.name().find(q.name) == std::string::npos ||
               (!q.files.empty() && std::none_of(q.files.begin(), q.files.end(), is_there));
    };
    mutants.erase(std::remove_if(mutants.begin(), mutants.end(), other), mutants.end());
    if (!q.files.empty() && mutants.size() > MOST_OF_A_CHANGE) {
        printf("%zu faults lie in files that changed: %zu of them, chosen by the seed\n",
               mutants.size(), MOST_OF_A_CHANGE);
        std::shuffle(mutants.begin(), mutants.end(), std::mt19937_64(seed));
        mutants.erase(mutants.begin() + MOST_OF_A_CHANGE, mutants.end());
    }
    return mutants;
}

Score hunt(const Effort &effort, const std::vector<Combination> &list,
           const std::vector<Mutant> &mutants, const Quarry &quarry)
{
    Score score = Hunt(effort, list, mutants, quarry.is_all()).run();
    if (!score.mutants && !quarry.name.empty()) {
        fprintf(stderr, "no mutant's name contains '%s'\n", quarry.name.c_str());
        score.violations++;
    }
    return score;
}

} // namespace crash
