// SPDX-License-Identifier: BSD-3-Clause
//
// All cases in all their domains, round after round with other seeds, some at a time.
#ifndef ATO_TEST_CRASH_CAMPAIGN_H
#define ATO_TEST_CRASH_CAMPAIGN_H

#include "explorer.h"

namespace crash
{

// A case in a domain, and what came of it.
struct Combination {
    size_t number; // of the case
    int domain;
    std::unordered_set<uint64_t> images;
    uint64_t recoveries = 0;
    // Where its first round came to: the operation itself, and all lives.
    std::set<std::string> own_sites, sites;

    const Case &what() const
    {
        return all_cases()[number];
    }
    std::string name() const;
    // Other for each round, and telling which combination it is.
    uint64_t seed(uint64_t round) const;
};

const char *domain_name(int domain);

// Those whose name contains this.
std::vector<Combination> combinations(const std::string &name);

// One crash, by three values: SEED:EVENT:CHOICE.
struct Crash {
    uint64_t seed;
    Place place;
};
std::string name_of(const Crash &crash);
bool parse_crash(const std::string &name, Crash &crash);
// Whose it is; NULL: nobody's.
const Combination *combination_of(const std::vector<Combination> &list, const Crash &crash);
// It again, in a folder; tells what it is about, or nothing if there is no such crash.
Result replay(const Combination &c, const Crash &crash, const Mutation &mutation,
              const std::string &folder, std::string &story);

// A large file costs more, and so does a program: fewer crashes of it.
Bounds fitting(Bounds bounds, const Case &c);

struct Effort {
    double seconds = 40; // each combination once, and rounds as long as this lasts
    bool is_long = false;
    bool is_survey = false; // the first round looks at few crashes
    uint64_t scouts =
        0; // seeds more, of which only is looked at which places of the code they come to
    uint64_t seed = 1;
    unsigned cpus = 1;
    std::string folder; // of all files
};

struct Totals {
    uint64_t recoveries = 0, violations = 0;
    std::unordered_set<uint64_t> images;
};

// Says what it finds as it goes.
Totals explore(const Effort &effort, std::vector<Combination> &list);

// A line for whoever watches, with the time since the first.
void say(const std::string &what);

} // namespace crash

#endif
