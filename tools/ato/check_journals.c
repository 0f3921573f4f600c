/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the lanes in which commits to a file may be. Finds the journals that no manifest names. */
#include "check.h"

#include "lanes.h"

#include "reflection/format/layout.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/recovery/redo.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct lanes_check {
    struct check *check;
    const char *name;
    const struct look_manifest *manifest;
    uint64_t length; /* of the reflection */
    bool good;
};

static bool is_in_order(const struct journal_word *w, uint32_t format, uint64_t length)
{
    uint64_t size;
    if (journal_word_is_size(w))
        return manifest_decode_size(w->value, &size) &&
               layout_reflection_bytes(format, size) <= length;
    return layout_is_word(format, journal_word_offset(w), length);
}

/* The words of this file only: those of others are checked with these files. */
static void check_words(struct lanes_check *lc, const struct lanes *l, unsigned lane,
                        const struct journal_view *v)
{
    const unsigned file = lanes_file(v, lc->manifest->record.id);
    for (uint64_t i = 0; lc->length && i < v->nwords; i++) {
        const struct journal_word *w = &v->words[i];
        if (journal_word_file(w) != file || is_in_order(w, lc->manifest->record.format, lc->length))
            continue;
        finding_add(&lc->check->findings, FINDING_ERROR, l->path,
                    journal_word_is_size(w)
                        ? "lane %u of slot %u has size word 0x%" PRIx64
                          ", for which a reflection of %" PRIu64 " bytes is too short"
                        : "lane %u of slot %u names offset %" PRIu64 " of a reflection of %" PRIu64
                          " bytes, which has no bitmap word there",
                    lane, l->slot, journal_word_is_size(w) ? w->value : journal_word_offset(w),
                    lc->length);
        return;
    }
}

static void check_some(void *arg, const struct lanes *l)
{
    struct lanes_check *lc = arg;
    struct findings *f = &lc->check->findings;
    struct journal_view v;
    const bool in_use = lc->manifest->record.state == MANIFEST_IN_USE;
    /* A journal that several manifests name is checked with each, and reported once. */
    const bool seen = l->st.st_ino && seen_before(&lc->check->journals, l->st.st_dev, l->st.st_ino);
    if (l->error)
        finding_add(f, l->error == EACCES ? FINDING_BLIND : FINDING_ERROR, lc->name, "%s",
                    report_sentence());
    lc->good = lc->good && !l->error;
    if (l->error)
        return;
    for (unsigned lane = 0; lane < l->journal.lanes; lane++) {
        enum journal_finding found = lanes_look(l, lane, &v);
        if (found == JOURNAL_DAMAGED && !seen)
            finding_add(f, FINDING_ERROR, l->path, "lane %u of slot %u is damaged", lane, l->slot);
        else if (found == JOURNAL_COMMITTED && !l->alive && in_use)
            check_words(lc, l, lane, &v);
        lc->good = lc->good && found != JOURNAL_DAMAGED;
    }
}

bool check_lanes(struct check *c, const char *name, const struct folder *f,
                 const struct look_manifest *m, const struct trust *trust, uint64_t length)
{
    struct lanes_check lc = {c, name, m, length, true};
    lanes_each(f, m, trust, check_some, &lc);
    return lc.good;
}

void check_leftover(struct check *c, const struct folder *f, const char *entry)
{
    char name[PATH_MAX + NAME_MAX + 2];
    struct stat st;
    int fd = look_into(f, entry, &st);
    const int error = errno;
    snprintf(name, sizeof(name), "%s/%s", f->path, entry);
    if (fd < 0 && error != ENOENT)
        finding_add(&c->findings, FINDING_BLIND, name, "cannot open the journal: %s",
                    report_reason(error));
    if (fd < 0)
        return;
    /* An empty one may be about to be locked, and then filled. */
    if (!seen_has(&c->journals, st.st_dev, st.st_ino) && locks_ask(fd, 0, 1) == LOCKS_FREE &&
        (st.st_size || look_is_old(&st)) && folder_names(f, entry, fd) == 1)
        finding_add(&c->findings, FINDING_NOTE, name,
                    "left over: no manifest here names this journal; it is removed when a process "
                    "makes one here, or recovers one");
    close(fd);
}
