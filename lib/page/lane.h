/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane of one of the process's journals, taken for a commit (journals.h). */
#ifndef ATO_LIB_PAGE_LANE_H
#define ATO_LIB_PAGE_LANE_H

struct journal;
struct journals;

struct journal_lane {
    struct journals *in;
    const struct journal *journal;
    unsigned lane;
};

#endif
