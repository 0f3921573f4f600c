/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/replay.h"

#include "reflection/format/layout.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/recovery/visible.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* ---- words ---- */

/* I5. Returns 1 if the word has to be stored; 0 if its file is gone; -1 with a sentence. */
static int check_word(const struct journal_view *v, const struct journal_word *w,
                      const struct participants_target *targets)
{
    const unsigned file = journal_word_file(w);
    const uint64_t offset = journal_word_offset(w);
    uint64_t size;
    if (file >= v->nfiles) /* another process changed the lane meanwhile */
        return report_error(EUCLEAN, "another process changes a lane of a journal");
    const struct participants_target *to = &targets[file];
    if (!(journal_word_is_size(w) ? (void *)to->size : (void *)to->reflection))
        return 0;
    if (journal_word_is_size(w)) {
        if (manifest_decode_size(w->value, &size) && layout_reflection_bytes(size) <= to->bytes)
            return 1;
        return report_error(EUCLEAN,
                            "a journal has the size word 0x%" PRIx64
                            " for the file of the reflection %s/%s, which is %" PRIu64
                            " bytes long: that is not a valid size for it",
                            w->value, to->folder, to->name, to->bytes);
    }
    if (layout_is_word(offset, to->bytes))
        return 1;
    return report_error(EUCLEAN,
                        "a journal names offset %" PRIu64 " of the reflection %s/%s, which is "
                        "%" PRIu64 " bytes long and has no bitmap word there",
                        offset, to->folder, to->name, to->bytes);
}

/* Finds the place and value of a lane's i-th word. The word is copied and checked each time, since a user
 * that may write to the journal could change it now. Returns 1; 0 if its file is gone; -1. */
struct target_word {
    const struct participants_target *to;
    uint64_t *word, value;
};

static int target_word(const struct journal_view *v, uint64_t i,
                       const struct participants_target *targets, struct target_word *t)
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

static bool may_sync(const struct participants_target *to)
{
    return to->fd > 0 && to->persist.domain == PERSIST_MSYNC;
}

/* For words in many pages: syncs each file once; size words are flushed separately. This also syncs other
 * stores there; the slices of this commit are durable already. */
static int sync_files(const struct journal_view *v, const struct participants_target *targets)
{
    for (unsigned i = 0; i < v->nfiles; i++)
        if (may_sync(&targets[i]) && fsops_fsync(targets[i].fd) < 0)
            return report_errno(errno, "cannot make the replayed words of %s/%s durable",
                                targets[i].folder, targets[i].name);
    return 0;
}

int replay_apply(const struct journal_view *v, const struct participants_target *targets)
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
            return report_errno(errno, "cannot make the replayed words of %s/%s durable",
                                t.to->folder, t.to->name);
        flushed = t.word;
        last = &t.to->persist;
    }
    if (last)
        persist_fence(last);
    return 0;
}

/* ---- a journal ---- */

static int replay_lane(struct participants *n, const struct persist *p,
                       const struct journal_view *v, struct visible *visible)
{
    struct participants_target *targets = calloc(v->nfiles, sizeof(*targets));
    if (!targets)
        return report_error(ENOMEM, "no memory to replay a journal");
    int applied = participants_targets(n, v, targets);
    if (applied == 0)
        applied = replay_apply(v, targets);
    free(targets);
    if (applied < 0)
        return -1;
    visible_show(visible, v); /* before the lane is retired, as in commit.c */
    if (journal_retire_view(p, v) < 0)
        return report_errno(errno, "cannot make the replayed journal %s/%s durable",
                            n->journal->folder->path, n->journal->name);
    return 0;
}

int replay_settle(const struct folder *f, const struct pool *pool)
{
    struct persist p;
    persist_init(&p, pool->journal.domain);
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++)
        if (journal_settle(&pool->journal, &p, lane) < 0)
            return report_errno(errno, "cannot make the journal %s/%s durable", f->path,
                                pool->name);
    return 0;
}

int replay_all(const struct found_journal *journal, struct pool *pool)
{
    const struct folder *f = journal->folder;
    struct participants n = {.journal = journal};
    struct visible visible = {.named = NULL};
    struct persist p;
    struct journal_view v;
    int result = -1;
    uint64_t replayed = 0;
    persist_init(&p, pool->journal.domain);
    if (replay_settle(f, pool) < 0)
        goto out;
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++) {
        enum journal_finding found = journal_look(&pool->journal, lane, &v);
        if (found == JOURNAL_DAMAGED) {
            report_error(EUCLEAN, "lane %u of the journal %s/%s is damaged", lane, f->path,
                         pool->name);
            goto out;
        }
        if (found == JOURNAL_COMMITTED && participants_add(&n, &v) < 0)
            goto out;
    }
    if (participants_acquire(&n) < 0 || visible_begin(&visible, &n) < 0)
        goto out;
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++)
        if (journal_look(&pool->journal, lane, &v) == JOURNAL_COMMITTED &&
            visible_hide(&visible, &v) < 0)
            goto out;
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++) {
        if (journal_look(&pool->journal, lane, &v) != JOURNAL_COMMITTED)
            continue;
        if (replay_lane(&n, &p, &v, &visible) < 0)
            goto out;
        replayed++;
    }
    if (replayed)
        report_log(REPORT_INFO,
                   "replayed %" PRIu64 " commits of the journal %s/%s of a dead process", replayed,
                   f->path, pool->name);
    result = 0;
out:
    visible_end(&visible);
    participants_end(&n);
    return result;
}
