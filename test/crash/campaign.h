// SPDX-License-Identifier: BSD-3-Clause
//
// Explores all cases in all their domains, in rounds with different seeds, several at a time.
#ifndef ATO_TEST_CRASH_CAMPAIGN_H
#define ATO_TEST_CRASH_CAMPAIGN_H

#include "explorer.h"

namespace crash
{

// A case in a domain and with one of the two kinds of reflections, and its results.
struct Combination {
    size_t number; // of the case
    int domain;
    bool sparse;
    std::unordered_set<uint64_t> images;
    uint64_t recoveries = 0;
    // The places of the library that its first round reached: in the first life, and in all lives.
    std::set<std::string> own_sites, sites;

    const Case &what() const
    {
        return all_cases()[number];
    }
    std::string name() const;
    // Different in each round; its last digits name the combination.
    uint64_t seed(uint64_t round) const;
};

const char *domain_name(int domain);

// The combinations with `name` in their name.
std::vector<Combination> combinations(const std::string &name);
// Keeps one kind of reflections of each case in a domain, which the seed chooses; of those with sparse ones only, a quarter; and those
// that are needed.
void keep_one_format(std::vector<Combination> &list, uint64_t seed,
                     const std::function<bool(const Combination &)> &is_needed);

// One crash, by three values: SEED:EVENT:CHOICE.
struct Crash {
    uint64_t seed;
    Place place;
};
std::string name_of(const Crash &crash);
bool parse_crash(const std::string &name, Crash &crash);
// The combination that the crash belongs to, or NULL.
const Combination *combination_of(const std::vector<Combination> &list, const Crash &crash);
// Replays the crash, in a folder; describes it in `story`, which stays empty if there is no such
// crash.
Result replay(const Combination &c, const Crash &crash, const Mutation &mutation,
              const std::string &folder, std::string &story);

// Fewer crashes for cases with large files and for programs, which cost more.
Bounds fitting(Bounds bounds, const Case &c);

struct Effort {
    double seconds = 40; // each combination once, and rounds for this time
    bool is_long = false;
    bool is_survey = false; // the first round looks at few crashes
    uint64_t scouts = 0;    // more seeds, used only to find the places of the code that are reached
    uint64_t seed = 1;
    unsigned cpus = 1;
    std::string folder; // for all files
};

struct Totals {
    uint64_t recoveries = 0, violations = 0;
    std::unordered_set<uint64_t> images;
};

// Reports violations as it finds them.
Totals explore(const Effort &effort, std::vector<Combination> &list);

// Prints a line of progress, with the time since the first.
void say(const std::string &what);

} // namespace crash

#endif
