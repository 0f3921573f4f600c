// SPDX-License-Identifier: BSD-3-Clause
#include "scenes.h"

namespace crash
{

// Those in which a record, or what uses its place again, is made durable in another way if the log is on persistent memory.
static std::vector<Case> with_stored_logs(const std::vector<Case> &all)
{
    static const char *const names[] = {"write, across slices",
                                        "write, pages",
                                        "write, many pages",
                                        "deploy",
                                        "unmap fast, map again",
                                        "unmap spatial",
                                        "first map",
                                        "recovery",
                                        "two dead",
                                        "dead in a commit",
                                        "full log, dead",
                                        "grow",
                                        "shrink",
                                        "transaction",
                                        "transaction, size",
                                        "threads, several pages",
                                        "peers, in several pages",
                                        "peers, in many pages",
                                        "peers, in a word",
                                        "peers, takeover cut"};
    std::vector<Case> some;
    for (const char *name : names)
        for (const Case &c : all)
            if (c.name == name) {
                some.push_back(c);
                some.back().name += ", stored log";
                some.back().domains = DISK;
                some.back().stored = true;
            }
    return some;
}

const std::vector<Case> &all_cases()
{
    static const std::vector<Case> cases = [] {
        std::vector<Case> all;
        for (const auto *part :
             {&call_cases(), &past_cases(), &chunk_cases(), &thread_cases(), &size_cases(),
              &tx_cases(), &peer_cases(), &early_cases(), &stores_cases()})
            all.insert(all.end(), part->begin(), part->end());
#ifdef WITH_SQLITE
        all.insert(all.end(), sqlite_cases().begin(), sqlite_cases().end());
#endif
        all.insert(all.end(), place_cases().begin(), place_cases().end());
        const std::vector<Case> stored = with_stored_logs(all);
        all.insert(all.end(), stored.begin(), stored.end());
        return all;
    }();
    return cases;
}

} // namespace crash
