/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the lanes in which commits to a file may be. */
#include "check.h"

#include "lanes.h"

#include "reflection/format/layout.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <inttypes.h>

struct lanes_check {
    struct check *check;
    const char *name;
    const struct look_manifest *manifest;
    uint64_t length; /* of the reflection */
    bool good;
};

static bool is_in_order(const struct lane_word *w, uint32_t format, uint64_t length)
{
    uint64_t size;
    if (w->word == LANE_SIZE)
        return manifest_decode_size(w->value, &size) &&
               layout_reflection_bytes(format, size) <= length;
    return layout_is_word(format, w->word, length);
}

static void check_words(struct lanes_check *lc, const struct lanes *l, unsigned lane,
                        const struct lane_view *v)
{
    for (uint64_t i = 0; lc->length && i < v->nwords; i++) {
        const struct lane_word *w = &v->words[i];
        if (is_in_order(w, lc->manifest->record.format, lc->length))
            continue;
        finding_add(&lc->check->findings, FINDING_ERROR, l->path,
                    w->word == LANE_SIZE
                        ? "lane %u of slot %u has size word 0x%" PRIx64
                          ", for which a reflection of %" PRIu64 " bytes is too short"
                        : "lane %u of slot %u names offset %" PRIu64 " of a reflection of %" PRIu64
                          " bytes, which has no bitmap word there",
                    lane, l->slot, w->word == LANE_SIZE ? w->value : w->word, lc->length);
        return;
    }
}

static void check_some(void *arg, const struct lanes *l)
{
    struct lanes_check *lc = arg;
    struct findings *f = &lc->check->findings;
    struct lane_view v;
    const bool in_use = lc->manifest->record.state == MANIFEST_IN_USE;
    if (l->error)
        finding_add(f, l->error == EACCES ? FINDING_BLIND : FINDING_ERROR, lc->name, "%s",
                    report_sentence());
    lc->good = lc->good && !l->error;
    if (l->error)
        return;
    for (unsigned lane = 0; lane < l->n; lane++) {
        const enum lane_finding found = lanes_look(l, lane, &v);
        if (found == LANE_DAMAGED)
            finding_add(f, FINDING_ERROR, l->path, "lane %u of slot %u is damaged", lane, l->slot);
        else if (found == LANE_COMMITTED && !l->alive && in_use)
            check_words(lc, l, lane, &v);
        lc->good = lc->good && found != LANE_DAMAGED;
    }
}

bool check_lanes(struct check *c, const char *name, const struct folder *f,
                 const struct look_manifest *m, uint64_t length)
{
    struct lanes_check lc = {c, name, m, length, true};
    lanes_each(f, m, check_some, &lc);
    return lc.good;
}
