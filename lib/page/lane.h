/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane of a journal of this process, taken for a commit (journals.h). */
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
