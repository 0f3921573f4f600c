/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/replay.h"

#include "reflection/format/layout.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- words ---- */

/* I5. Returns 1 if the word has to be stored; 0 if its file is gone; -1 with a sentence. */
static int check_word(const struct journal_view *v, const struct journal_word *w,
                      const struct replay_target *targets)
{
    const unsigned file = journal_word_file(w);
    const uint64_t offset = journal_word_offset(w);
    uint64_t size;
    if (file >= v->nfiles) /* another process changed the lane meanwhile */
        return report_error(EUCLEAN, "another process changes a lane of a journal");
    const struct replay_target *to = &targets[file];
    if (!to->reflection && !to->size)
        return 0;
    if (journal_word_is_size(w)) {
        if (manifest_decode_size(w->value, &size) && layout_reflection_bytes(size) <= to->bytes)
            return 1;
        return report_error(EUCLEAN,
                            "a journal has the size word 0x%" PRIx64
                            " for the file of the reflection %s, which is %" PRIu64
                            " bytes long: that is not a valid size for it",
                            w->value, to->path, to->bytes);
    }
    if (layout_is_word(offset, to->bytes))
        return 1;
    return report_error(EUCLEAN,
                        "a journal names offset %" PRIu64 " of the reflection %s, which is "
                        "%" PRIu64 " bytes long and has no bitmap word there",
                        offset, to->path, to->bytes);
}

/* Finds the place and value of a lane's i-th word. The word is copied and checked each time, since a user
 * that may write to the journal could change it now. Returns 1; 0 if its file is gone; -1. */
struct target_word {
    const struct replay_target *to;
    uint64_t *word, value;
};

static int target_word(const struct journal_view *v, uint64_t i,
                       const struct replay_target *targets, struct target_word *t)
{
    const struct journal_word w = *(const volatile struct journal_word *)&v->words[i];
    int apply = check_word(v, &w, targets);
    if (apply <= 0)
        return apply;
    t->to = &targets[journal_word_file(&w)];
    t->word = journal_word_is_size(&w) ? t->to->size
                                       : (uint64_t *)(t->to->reflection + journal_word_offset(&w));
    t->value = w.value;
    return 1;
}

/* Up to this many msync() calls are in most cases not slower than one fsync() of the whole file. */
#ifdef ATO_SEAM
unsigned replay_few_flushes = 8;
#else
static const unsigned replay_few_flushes = 8;
#endif

static bool may_sync(const struct replay_target *to)
{
    return to->fd > 0 && to->persist.domain == PERSIST_MSYNC;
}

/* For words in many pages: syncs each file once; size words are flushed separately. This also syncs other
 * stores there; the slices of this commit are durable already. */
static int sync_files(const struct journal_view *v, const struct replay_target *targets)
{
    for (unsigned i = 0; i < v->nfiles; i++)
        if (may_sync(&targets[i]) && fsops_fsync(targets[i].fd) < 0)
            return report_errno(errno, "cannot make the replayed words of %s durable",
                                targets[i].path);
    return 0;
}

int replay_apply(const struct journal_view *v, const struct replay_target *targets)
{
    const struct persist *last = NULL;
    const uint64_t *flushed = NULL;
    uint64_t flushes = 0;
    struct target_word t;
    for (uint64_t i = 0; i < v->nwords; i++)
        if (target_word(v, i, targets, &t) < 0)
            return -1;
    /* persist-order R1 (writer: W1 in lib/commit/commit.c): the bytes that these words make valid were durable
     * before the commit line existed, so the words may be stored in any order. I1.
     * explorer: tear word survives: the lane is committed until it is retired, and a process that finds
     * half of a word stores it again. */
    for (uint64_t i = 0; i < v->nwords; i++) {
        int apply = target_word(v, i, targets, &t);
        if (apply < 0)
            return -1;
        if (!apply)
            continue;
        persist_store_word(&t.to->persist, t.word, t.value);
        flushes +=
            may_sync(t.to) && !(flushed && persist_shares_flush(&t.to->persist, flushed, t.word));
        flushed = t.word;
    }
    const bool at_once = flushes > replay_few_flushes;
    if (at_once && sync_files(v, targets) < 0)
        return -1;
    /* As when they were committed: one flush for successive words of a cache line, or in domain msync of a
     * meta page. */
    flushed = NULL;
    for (uint64_t i = 0; i < v->nwords; i++) {
        int apply = target_word(v, i, targets, &t);
        if (apply < 0)
            return -1;
        if (!apply || (at_once && may_sync(t.to) && t.word != t.to->size))
            continue;
        if (flushed && persist_shares_flush(&t.to->persist, flushed, t.word))
            continue;
        if (persist_flush_word(&t.to->persist, t.word) < 0)
            return report_errno(errno, "cannot make the replayed words of %s durable", t.to->path);
        flushed = t.word;
        last = &t.to->persist;
    }
    if (last)
        persist_fence(last);
    return 0;
}

/* ---- lanes ---- */

static int replay_lane(const struct participants *n, const struct journal_view *v)
{
    struct replay_target *targets = calloc(v->nfiles, sizeof(*targets));
    if (!targets)
        return report_error(ENOMEM, "no memory to replay a journal");
    for (unsigned i = 0; i < v->nfiles; i++) {
        const struct participant *file = participants_find(n, &v->files[i]);
        if (file && file->held)
            targets[i] =
                (struct replay_target){.persist = file->persist,
                                       .reflection = file->map,
                                       .bytes = file->bytes,
                                       .size = (uint64_t *)(file->manifest + MANIFEST_SIZE_WORD),
                                       .path = file->path,
                                       .fd = file->reflection};
    }
    int r = participants_make_space(n, v);
    if (r == 0)
        r = replay_apply(v, targets);
    free(targets);
    return r;
}

int replay_collect(const struct journal *j, struct participants *n, const char *path)
{
    struct persist p;
    struct journal_view v;
    persist_init(&p, j->domain);
    for (unsigned lane = 0; lane < j->lanes; lane++) {
        if (journal_settle(j, &p, lane) < 0)
            return report_errno(errno, "cannot make %s durable", path);
        enum journal_finding found = journal_look(j, lane, &v);
        if (found == JOURNAL_DAMAGED)
            return report_error(EUCLEAN, "lane %u of %s is damaged", lane, path);
        for (unsigned i = 0; n && found == JOURNAL_COMMITTED && i < v.nfiles; i++)
            if (participants_add(n, &v.files[i]) < 0)
                return -1;
    }
    return 0;
}

int replay_lanes(const struct journal *j, const struct participants *n, const char *path)
{
    struct journal_view v;
    unsigned replayed = 0;
    for (unsigned lane = 0; lane < j->lanes; lane++) {
        if (journal_look(j, lane, &v) != JOURNAL_COMMITTED)
            continue;
        if (replay_lane(n, &v) < 0)
            return -1;
        replayed++;
    }
    if (replayed)
        report_log(REPORT_INFO, "replayed %u commits of a dead process from %s", replayed, path);
    return 0;
}

int replay_retire(const struct journal *j, const char *path)
{
    struct persist p;
    struct journal_view v;
    persist_init(&p, j->domain);
    for (unsigned lane = 0; lane < j->lanes; lane++)
        if (journal_look(j, lane, &v) == JOURNAL_COMMITTED && journal_retire_view(&p, &v) < 0)
            return report_errno(errno, "cannot make the replayed journal %s durable", path);
    return 0;
}

int replay_slot(const struct participants *n, struct participant *p)
{
    const int used =
        p->slot < MANIFEST_SLOTS ? area_next(p->lock, p->slot, p->path) : MANIFEST_SLOTS;
    if (used < 0 || used != (int)p->slot || used == MANIFEST_SLOTS)
        return used < 0 ? -1 : 0;
    p->area = area_map(p->lock, p->slot, p->persist.domain, p->path);
    if (!p->area)
        return -1;
    char name[sizeof(p->path) + 16];
    snprintf(name, sizeof(name), "%s.manifest", p->path);
    const struct journal j = journal_of_slot(p->area + MANIFEST_AREA_LANES, p->persist.domain);
    if (replay_collect(&j, NULL, name) < 0)
        return -1;
    return replay_lanes(&j, n, name) < 0 ? -1 : replay_retire(&j, name);
}
