/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What do the processes do that are killed, and those that look at what is left? Each function is
 * the whole life of a forked child; none returns an error: a call that fails is told by leave().
 */
#ifndef ATO_TEST_KILL_ACTORS_H
#define ATO_TEST_KILL_ACTORS_H

#include "ledger.h"

namespace kills
{

/* How to map the files, and what the work is like. */
struct Script {
    int policy, domain;
    unsigned flags;
    bool within_page;
    bool on_disk = false;
    unsigned writers = 1, others = 0; /* threads; the others read and deploy */

    ato_options options() const
    {
        return rig::options(policy, domain, flags);
    }
    bool makes_journals() const
    {
        return !within_page && !(flags & ATO_RTM_ONLY) && domain != ATO_DOMAIN_EADR;
    }
};

/* How a checker leaves the files. */
enum class End { Fast, Spatial, Exit, Abandon };

/* Both files, mapped. */
struct Files {
    rig::Map maps[Ledger::FILES];

    /* In either order; tells the names of the shared memory. */
    Files(const Script &s, const Ledger &l, bool second_first, const Teller &t);
    unsigned char *at(const Ledger &l, unsigned record) const;
    void unmap(int mode);
};

/* Writes records for ever: copies, fills, copies from record to record and from file to file, with
 * unmapping and mapping again in between if it has one thread only. */
void write_until_killed(const Script &s, const Ledger &l, uint64_t seed, const Teller &t);

/* The same records through a plain mmap(): what libato is for. */
void write_plainly_until_killed(const Ledger &l, uint64_t seed, const Teller &t);

/* Maps and unmaps for ever: after a kill the first thing that comes is recovery. */
void recover_until_killed(const Script &s, const Ledger &l, uint64_t seed, const Teller &t);

/* Reads every record and the bytes between them; tells verdicts. */
void check(const Script &s, const Ledger &l, uint64_t seed, End end, const Teller &t);

} // namespace kills

#endif
