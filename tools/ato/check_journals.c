/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the journals of a reflection folder, and finds those that need a replay. */
#include "check.h"

#include "lanes.h"

#include "reflection/format/layout.h"
#include "reflection/format/manifest.h"
#include "reflection/media/report.h"
#include "reflection/pairing/lookup.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct journal_check {
    struct check *check;
    char name[PATH_MAX + NAME_MAX + 2];
};

/* Returns the length of the reflection, in folder `in`, of a file of a lane; 0 if the pairing is
 * gone: recovery skips such a file. */
static uint64_t find_in(struct journal_check *jc, const struct folder *in, unsigned lane,
                        const struct journal_file *file)
{
    static struct look_manifest m; /* 12 KiB */
    struct findings *f = &jc->check->findings;
    struct lookup_names n = lookup_names(file->inode);
    struct stat st;
    int there = look_manifest(in, file->inode, &m);
    if (there < 0) {
        finding_add(f, FINDING_BLIND, jc->name, "lane %u: %s", lane, report_sentence());
        return 0;
    }
    if (there == 1)
        look_manifest_close(&m);
    if (there == 1 && (m.found == MANIFEST_DAMAGED || m.found == MANIFEST_FOREIGN)) {
        finding_add(f, FINDING_ERROR, jc->name,
                    "lane %u holds a commit of inode %" PRIu64 ", whose manifest is damaged", lane,
                    file->inode);
        return 0;
    }
    /* The same rule as in reflection/recovery/participants.c. */
    if (there == 0 || m.found != MANIFEST_VALID || memcmp(m.record.id, file->id, 16) != 0 ||
        m.record.state != MANIFEST_IN_USE) {
        finding_add(f, FINDING_NOTE, jc->name,
                    "lane %u holds a commit of inode %" PRIu64 ", whose reflection is gone", lane,
                    file->inode);
        return 0;
    }
    int fd = look_into(in, n.reflection, &st);
    if (fd < 0) {
        finding_add(f, errno == EACCES ? FINDING_BLIND : FINDING_ERROR, jc->name,
                    "lane %u holds a commit of inode %" PRIu64
                    ", whose reflection cannot be opened: %s",
                    lane, file->inode, strerror(errno));
        return 0;
    }
    close(fd);
    return (uint64_t)st.st_size;
}

static bool is_in_order(const struct journal_word *w, uint64_t length)
{
    uint64_t size;
    if (journal_word_is_size(w))
        return manifest_decode_size(w->value, &size) && layout_reflection_bytes(size) <= length;
    return layout_is_word(journal_word_offset(w), length);
}

static void check_commit(struct journal_check *jc, const struct lanes *j, unsigned lane,
                         const struct journal_view *v)
{
    static uint64_t lengths[JOURNAL_MAX_FILES];
    for (unsigned i = 0; i < v->nfiles; i++)
        lengths[i] = find_in(jc, j->at.folder, lane, &v->files[i]);
    finding_add(&jc->check->findings, FINDING_NOTE, jc->name,
                "recovery due: lane %u holds a commit of %" PRIu64 " words of %u file%s", lane,
                v->nwords, v->nfiles, v->nfiles == 1 ? "" : "s");
    for (uint64_t i = 0; i < v->nwords; i++) {
        uint64_t length = lengths[journal_word_file(&v->words[i])];
        if (!length || is_in_order(&v->words[i], length))
            continue;
        if (journal_word_is_size(&v->words[i]))
            finding_add(&jc->check->findings, FINDING_ERROR, jc->name,
                        "lane %u has a size word for which a reflection of %" PRIu64
                        " bytes is too short",
                        lane, length);
        else
            finding_add(&jc->check->findings, FINDING_ERROR, jc->name,
                        "lane %u names offset %" PRIu64 " of a reflection of %" PRIu64
                        " bytes, which has no bitmap word there",
                        lane, journal_word_offset(&v->words[i]), length);
        return;
    }
}

static void check_lanes(struct journal_check *jc, const struct lanes *j)
{
    struct journal_view v;
    for (unsigned lane = 0; lane < j->journal.lanes; lane++) {
        enum journal_finding found = lanes_look(j, lane, &v);
        if (found == JOURNAL_DAMAGED)
            finding_add(&jc->check->findings, FINDING_ERROR, jc->name, "lane %u is damaged", lane);
        else if (found == JOURNAL_COMMITTED && !j->alive)
            check_commit(jc, j, lane, &v);
    }
}

static void check_journal(void *arg, const struct lanes *j)
{
    struct journal_check *jc = arg;
    struct findings *f = &jc->check->findings;
    snprintf(jc->name, sizeof(jc->name), "%s/%s", j->at.folder->path, j->at.name);
    switch (j->kind) {
    case LANES_FORBIDDEN:
        finding_add(f, FINDING_BLIND, jc->name, "cannot read the journal: %s", strerror(j->error));
        break;
    case LANES_DAMAGED:
        finding_add(f, FINDING_ERROR, jc->name, "the journal is damaged: no valid header is found");
        break;
    case LANES_UNFINISHED:
        if (!j->alive && look_is_old(&j->at.st)) /* a younger one may be about to be locked */
            finding_add(f, FINDING_NOTE, jc->name,
                        "left over: a process died while it made this journal; the next map here "
                        "removes it");
        break;
    case LANES_READ:
        if (!j->alive)
            finding_add(f, FINDING_NOTE, jc->name,
                        "the journal of a dead process; the next map here removes it");
        check_lanes(jc, j);
        break;
    }
}

void check_journals(struct check *c, const struct folder *f)
{
    struct journal_check jc = {.check = c};
    struct stat st;
    if (fstat(f->fd, &st) == 0 && seen_before(&c->folders, st.st_dev, st.st_ino))
        return;
    if (lanes_each(f, true, check_journal, &jc) < 0)
        finding_add(&c->findings, FINDING_BLIND, f->path, "%s", report_sentence());
}
