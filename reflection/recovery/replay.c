/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/replay.h"

#include "reflection/format/layout.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- words ---- */

struct target_word {
    const struct participant *to;
    uint64_t *word, value;
    bool is_size;
};

/* I5. Finds the place and value of a lane's i-th word. The word is copied and checked each time, since a user
 * that may write to the journal could change it now. Returns 1; 0 if its file is gone; -1 with a sentence. */
static int target_word(const struct journal_view *v, uint64_t i, struct participant *const *targets,
                       struct target_word *t)
{
    const struct journal_word w = *(const volatile struct journal_word *)&v->words[i];
    const unsigned file = journal_word_file(&w);
    const uint64_t offset = journal_word_offset(&w);
    uint64_t size;
    if (file >= v->nfiles) /* another process changed the lane meanwhile */
        return report_error(EUCLEAN, "another process changes a lane of a journal");
    t->to = targets[file];
    if (!t->to)
        return 0;
    t->value = w.value;
    t->is_size = journal_word_is_size(&w);
    if (!t->is_size && !layout_is_word(offset, t->to->bytes))
        return report_error(EUCLEAN,
                            "a journal names offset %" PRIu64 " of the reflection %s, which is "
                            "%" PRIu64 " bytes long and has no bitmap word there",
                            offset, t->to->path, t->to->bytes);
    if (t->is_size &&
        (!manifest_decode_size(w.value, &size) || layout_reflection_bytes(size) > t->to->bytes))
        return report_error(EUCLEAN,
                            "a journal has the size word 0x%" PRIx64
                            " for the file of the reflection %s, which is %" PRIu64
                            " bytes long: that is not a valid size for it",
                            w.value, t->to->path, t->to->bytes);
    t->word = (uint64_t *)(t->is_size ? t->to->manifest + MANIFEST_SIZE_WORD : t->to->map + offset);
    return 1;
}

/* Returns true if one fsync() of the file makes the word durable: for words in many pages each msync() would take as long.
 * This also syncs other stores there; the slices of this commit are durable already. */
static bool is_synced(const struct target_word *t)
{
    return !t->is_size && t->to->persist.domain == PERSIST_MSYNC;
}

int replay_apply(const struct journal_view *v, struct participant *const *targets)
{
    const struct persist *last = NULL;
    struct target_word t = {0};
    char *page = NULL;
    int apply;
    for (uint64_t i = 0; i < v->nwords; i++) {
        if ((apply = target_word(v, i, targets, &t)) < 0)
            return -1;
        char *at = (char *)((uintptr_t)t.word & ~(uintptr_t)(PAGE_BYTES - 1));
        if (!apply || at == page)
            continue;
        /* In a copied reflection a meta page of zeros may be a hole. */
        page = at;
        if (domain_make_storable(PERSIST_MSYNC, page, PAGE_BYTES) < 0)
            return report_errno(errno, "cannot allocate the bitmaps in %s", t.to->path);
    }
    /* persist-order R1 (writer: W1 in lib/commit/commit.c): the bytes that these words make valid were durable
     * before the commit line existed, so the words may be stored in any order. I1.
     * explorer: tear word survives: the lane is committed until it is retired, and a process that finds
     * half of a word stores it again. */
    for (uint64_t i = 0; i < v->nwords; i++) {
        if ((apply = target_word(v, i, targets, &t)) < 0)
            return -1;
        if (!apply)
            continue;
        last = &t.to->persist;
        persist_store_word(last, t.word, t.value);
        if (!is_synced(&t) && persist_flush_word(last, t.word) < 0)
            return report_errno(errno, "cannot make the replayed words of %s durable", t.to->path);
    }
    for (unsigned i = 0; i < v->nfiles; i++)
        if (targets[i] && targets[i]->persist.domain == PERSIST_MSYNC &&
            fsops_fsync(targets[i]->reflection) < 0)
            return report_errno(errno, "cannot make the replayed words of %s durable",
                                targets[i]->path);
    if (last)
        persist_fence(last);
    return 0;
}

/* ---- lanes ---- */

static int replay_lane(const struct participants *n, const struct journal_view *v)
{
    struct participant **targets = calloc(v->nfiles, sizeof(struct participant *));
    if (!targets)
        return report_error(ENOMEM, "no memory to replay a journal");
    for (unsigned i = 0; i < v->nfiles; i++)
        targets[i] = participants_find(n, &v->files[i]);
    int r = replay_apply(v, targets);
    free(targets);
    return r;
}

int replay_lanes(const struct journal *j, enum replay_step step, struct participants *n,
                 const char *path)
{
    struct persist p;
    struct journal_view v;
    persist_init(&p, j->domain);
    for (unsigned lane = 0; lane < j->lanes; lane++) {
        if (step == REPLAY_COLLECT && journal_settle(j, &p, lane) < 0)
            return report_errno(errno, "cannot make %s durable", path);
        enum journal_finding found = journal_look(j, lane, &v);
        if (found == JOURNAL_DAMAGED)
            return report_error(EUCLEAN, "lane %u of %s is damaged", lane, path);
        const bool committed = found == JOURNAL_COMMITTED;
        for (unsigned i = 0; committed && step == REPLAY_COLLECT && n && i < v.nfiles; i++)
            if (participants_add(n, &v.files[i]) < 0)
                return -1;
        if (committed && step == REPLAY_APPLY && replay_lane(n, &v) < 0)
            return -1;
        if (found != JOURNAL_IDLE && step == REPLAY_RETIRE && journal_retire_view(&p, &v) < 0)
            return report_errno(errno, "cannot make the replayed journal %s durable", path);
    }
    /* persist-order R2 (writers: J2, J3): a killed writer may have stored its commit line or its `retired` and not fenced
     * it. A recovery after a power cut must find the same lanes as this one. */
    if (step == REPLAY_COLLECT)
        persist_fence(&p);
    return 0;
}

int replay_slots(struct participants *n, struct participant *p, unsigned slot, unsigned end)
{
    char name[sizeof(p->path) + 16];
    snprintf(name, sizeof(name), "%s.manifest", p->path);
    for (int used; slot < end; slot = (unsigned)used + 1) {
        used = area_next(p->lock, slot, p->path);
        if (used < 0 || used >= (int)end)
            return used < 0 ? -1 : 0;
        area_unmap(p->area);
        p->area = area_map(p->lock, (unsigned)used, p->persist.domain, p->path);
        if (!p->area)
            return -1;
        const struct journal j = journal_of_slot(p->area + MANIFEST_AREA_LANES, p->persist.domain);
        if (replay_lanes(&j, REPLAY_COLLECT, NULL, name) < 0 ||
            replay_lanes(&j, REPLAY_APPLY, n, name) < 0 ||
            replay_lanes(&j, REPLAY_RETIRE, n, name) < 0)
            return -1;
    }
    return 0;
}
