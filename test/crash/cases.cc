// SPDX-License-Identifier: BSD-3-Clause
#include "scenes.h"

namespace crash
{

const std::vector<Case> &all_cases()
{
    static const std::vector<Case> cases = [] {
        std::vector<Case> all;
        for (const auto *part : {&call_cases(), &past_cases(), &chunk_cases(), &thread_cases(),
                                 &size_cases(), &tx_cases(), &peer_cases()})
            all.insert(all.end(), part->begin(), part->end());
#ifdef WITH_SQLITE
        all.insert(all.end(), sqlite_cases().begin(), sqlite_cases().end());
#endif
        all.insert(all.end(), place_cases().begin(), place_cases().end());
        return all;
    }();
    return cases;
}

} // namespace crash
