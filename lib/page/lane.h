/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane, taken for a commit (journals.h). */
#ifndef ATO_LIB_PAGE_LANE_H
#define ATO_LIB_PAGE_LANE_H

struct journal;
struct journals;

struct journal_lane {
    const struct journal *journal; /* NULL: no lane is taken */
    struct journals *in;           /* whose it is; NULL: `journal` is the `lanes` of a file */
    unsigned lane;
};

#endif
