/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane, taken for a commit (journals.h). */
#ifndef ATO_LIB_PAGE_LANE_H
#define ATO_LIB_PAGE_LANE_H

struct file;
struct journal;
struct journals;

struct journal_lane {
    const struct journal *journal; /* NULL: no lane is taken */
    unsigned lane;
    struct file *own;    /* the lane is one of this file's own, in its manifest; */
    struct journals *in; /* or it is in this journal */
};

#endif
