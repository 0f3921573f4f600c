/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How does a forked child map the files of a ledger, and check what a kill left in them? Nothing returns an
 * error: a call that fails ends the child by leave().
 */
#ifndef ATO_TEST_KILL_ACTORS_H
#define ATO_TEST_KILL_ACTORS_H

#include "ledger.h"

namespace kills
{

/* How to map the files, and where the records lie. */
struct Script {
    int policy, domain;
    unsigned flags;
    bool within_page;

    ato_options options() const
    {
        return rig::options(policy, domain, flags);
    }
};

/* How a checker leaves the files. */
enum class End { Fast, Spatial };

/* Both files, mapped. */
struct Files {
    rig::Map maps[Ledger::FILES];

    /* In either order; tells the names of the shared memory. */
    Files(const Script &s, const Ledger &l, bool second_first, const Teller &t);
    unsigned char *at(const Ledger &l, unsigned record) const;
    void unmap(int mode);
};

/* Reads every record and the bytes between them; tells verdicts. */
void check(const Script &s, const Ledger &l, uint64_t seed, End end, const Teller &t);

} // namespace kills

#endif
