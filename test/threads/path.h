/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The policies and commit paths of the tests of threads.
 */
#ifndef ATO_TEST_THREADS_PATH_H
#define ATO_TEST_THREADS_PATH_H

#include "../model/rig.h"

#include <gtest/gtest.h>
#include <ostream>

namespace threads
{

struct Path {
    int policy, domain;
    unsigned flags;

    ato_options options() const
    {
        return rig::options(policy, domain, flags);
    }
};

inline std::string name_of(const Path &p)
{
    const bool journal = p.flags & ATO_NO_RTM || p.domain == ATO_DOMAIN_PMEM;
    return rig::policy_name(p.policy) + rig::domain_name(p.domain) +
           (p.domain == ATO_DOMAIN_DISK ? "Log"
            : journal                   ? "Journal"
                                        : "Rtm");
}

inline void PrintTo(const Path &p, std::ostream *out)
{
    *out << name_of(p);
}

inline std::vector<Path> all_paths()
{
    std::vector<Path> all;
    for (int policy : {ATO_READ_LAZY, ATO_READ_GATHER, ATO_READ_EAGER}) {
        all.push_back({policy, ATO_DOMAIN_PROCESS, 0});
        all.push_back({policy, ATO_DOMAIN_PROCESS, ATO_NO_RTM});
        all.push_back({policy, ATO_DOMAIN_PMEM, 0});
    }
    if (!rig::is_second_round())
        all.push_back({ATO_READ_LAZY, ATO_DOMAIN_DISK, 0});
    return all;
}

/* For tests that need fewer. */
inline std::vector<Path> some_paths()
{
    return {{ATO_READ_LAZY, ATO_DOMAIN_PROCESS, 0},
            {ATO_READ_LAZY, ATO_DOMAIN_PMEM, 0},
            {ATO_READ_GATHER, ATO_DOMAIN_PROCESS, ATO_NO_RTM},
            {ATO_READ_EAGER, ATO_DOMAIN_PROCESS, 0}};
}

class OnPath : public testing::TestWithParam<Path>
{
};

} // namespace threads

#endif
