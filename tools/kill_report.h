/* SPDX-License-Identifier: BSD-3-Clause */
/* What kill_demo counts, and what it says about it. */
#ifndef ATO_TOOLS_KILL_REPORT_H
#define ATO_TOOLS_KILL_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#define LONGEST_DELAY_NS 3000000u /* from the first acknowledged write to the kill */

struct kill_tally {
    unsigned kills, torn, damaged;
    uint64_t acked, lost;
    unsigned ended_old, ended_new; /* what became of the interrupted write */
    unsigned rtm, journal;         /* rounds by the commit path of their first write */
};

/* Shows how far it is: in a line that is written over on a terminal, in a few lines elsewhere. */
void kill_report_progress(const char *what, unsigned done, unsigned total, unsigned torn);

/* Shows the results. Returns the exit status of kill_demo: 0 if plain mmap tore records and libato did not; else 1. */
int kill_report(const struct kill_tally *plain, const struct kill_tally *rtm,
                const struct kill_tally *journal, uint32_t records, bool is_plain_again);

#endif
