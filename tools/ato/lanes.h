/* SPDX-License-Identifier: BSD-3-Clause */
/* The lanes in which commits to a file may be, those of its manifest, read into memory. */
#ifndef ATO_TOOLS_LANES_H
#define ATO_TOOLS_LANES_H

#include "look.h"

#include "reflection/pairing/area.h"

struct lanes {
    unsigned slot; /* MANIFEST_SLOTS: the long lane */
    bool alive;    /* the process in the slot, or any: a lane may be in the middle of a commit */
    char path[PATH_MAX + NAME_MAX + 2]; /* of the manifest */
    int error;                     /* 0; else they cannot be used, and report_sentence() says why */
    struct lane lanes[LANE_SMALL]; /* in the module's own memory */
    struct lane again[LANE_SMALL]; /* while the process lives, a second reading */
    unsigned n;
};

/* Returns what the lane holds. While a process lives, one is damaged only if both readings say so. */
enum lane_finding lanes_look(const struct lanes *l, unsigned lane, struct lane_view *v);

/* Calls `visit` for the lanes of each slot of the manifest, which lies in `f`. Not for those that the next map drops. */
typedef void lanes_visit(void *arg, const struct lanes *l);
void lanes_each(const struct folder *f, const struct look_manifest *m, lanes_visit *visit,
                void *arg);

#endif
