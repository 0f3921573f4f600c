/* SPDX-License-Identifier: BSD-3-Clause */
#include "lanes.h"

#include "reflection/media/locks.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum lane_finding lanes_look(const struct lanes *l, unsigned lane, struct lane_view *v)
{
    const enum lane_finding found = lane_look(&l->lanes[lane], v);
    return found == LANE_DAMAGED && l->alive ? lane_look(&l->again[lane], v) : found;
}

void lanes_each(const struct folder *f, const struct look_manifest *m, lanes_visit *visit,
                void *arg)
{
    if (m->found == MANIFEST_VALID && area_are_lost(&m->record))
        return;
    for (unsigned slot = 0; (slot = area_next(m->fd, slot)) < AREA_END; slot++) {
        const bool is_long = slot == MANIFEST_SLOTS;
        struct lanes l = {.slot = slot};
        l.alive = locks_ask(m->fd, is_long ? 1 : 1 + (off_t)slot, is_long ? MANIFEST_SLOTS : 1) ==
                  LOCKS_TAKEN;
        snprintf(l.path, sizeof(l.path), "%s/%" PRIu64 ".manifest", f->path, m->record.inode);
        char *first = area_copy_lanes(m->fd, slot, l.lanes, &l.n), *second = NULL;
        if (first && l.alive) {
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
            second = area_copy_lanes(m->fd, slot, l.again, &l.n);
        }
        if (!first || (l.alive && !second)) {
            l.error = errno;
            report_errno(errno, "cannot read the lanes in %s", l.path);
        }
        visit(arg, &l);
        free(first);
        free(second);
    }
}
