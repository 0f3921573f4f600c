/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/recovery/takeover.h"

#include "lib/recovery/dead.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/recovery/pool.h"
#include "reflection/recovery/replay.h"
#include "reflection/recovery/sweep.h"

#include <errno.h>
#include <stdlib.h>

struct set {
    const struct takeover *t;
    struct participants files;
    struct participant *own;
    struct pool pool;  /* .map NULL: there is no journal */
    struct dead *dead; /* of each of the files */
};

static int replay_journal(struct set *s, enum replay_step step)
{
    return replay_lanes(&s->pool.journal, step, &s->files, s->pool.path);
}

/* Opens the journal and notes the files of its commits. Returns 1; 0 if it was recovered meanwhile; -1. */
static int open_journal(struct set *s)
{
    const struct pairing *pr = s->t->own;
    if (pool_open(&s->pool, &pr->folder, s->t->journal, &pr->identity.trust) < 0)
        return errno == ENOENT ? 0 : -1;
    return replay_journal(s, REPLAY_COLLECT) < 0 ? -1 : 1;
}

/* Takes all locks. Returns 1; 0 if there is nothing to do any more; -1. */
static int lock_all(struct set *s)
{
    const struct takeover *t = s->t;
    const struct journal_file file = pairing_in_journals(t->own);
    int there = 1;
    if (participants_add(&s->files, &file) < 0 || (t->journal && (there = open_journal(s)) < 0) ||
        participants_acquire(&s->files) < 0)
        return -1;
    s->own = participants_find(&s->files, &file);
    if (!s->own)
        return 0;
    /* persist-order N2 (writer: area_set_journal): a journal is removed when no manifest names it. */
    if (!there)
        return report_error(EUCLEAN,
                            "the manifest of %s names the journal %s of a dead process, which "
                            "is missing: put it back",
                            s->own->path, s->pool.path);
    if (!t->journal)
        s->own->slot = t->slot;
    return 1;
}

static int find_all(struct set *s)
{
    const struct takeover *t = s->t;
    s->dead = calloc(s->files.nfiles, sizeof(*s->dead));
    if (!s->dead)
        return report_error(ENOMEM, "no memory to recover a file");
    for (size_t i = 0; i < s->files.nfiles; i++) {
        struct participant *p = &s->files.files[i];
        struct dead *d = &s->dead[i];
        d->file = p;
        d->shared.fd = -1;
        d->original = p == s->own ? t->own->original : -1;
        if (dead_find(d, &t->own->identity.trust, p == s->own ? t->holder : 0) < 0)
            return -1;
    }
    return 0;
}

static int replay_all(struct set *s)
{
    for (size_t i = 0; i < s->files.nfiles; i++) {
        struct participant *p = &s->files.files[i];
        if (p->slot < MANIFEST_SLOTS && replay_slots(&s->files, p, p->slot, p->slot + 1) < 0)
            return -1;
    }
    return s->pool.map ? replay_journal(s, REPLAY_APPLY) : 0;
}

/* The manifests no longer name the journal. */
static int forget_journal(const struct set *s)
{
    for (size_t i = 0; i < s->files.nfiles; i++) {
        const struct participant *p = &s->files.files[i];
        if (s->t->journal && p->area && area_set_journal(&p->persist, p->area, 0, p->path) < 0)
            return -1;
    }
    return 0;
}

static void in_memory(struct set *s, void (*what)(struct dead *d))
{
    for (size_t i = 0; i < s->files.nfiles; i++)
        if (s->dead[i].shared.header)
            what(&s->dead[i]);
}

static int run(struct set *s)
{
    int r = lock_all(s);
    if (r <= 0 || find_all(s) < 0)
        return r <= 0 ? r : -1;
    in_memory(s, dead_mark);
    if (replay_all(s) < 0) {
        in_memory(s, dead_take_marks_off);
        return -1;
    }
    /* All lanes are replayed before the first is retired: the next recovery learns from the lanes which files belong
     * together. From here on the marks stay, until all of it is shown. */
    if (s->pool.map && replay_journal(s, REPLAY_RETIRE) < 0)
        return -1;
    in_memory(s, dead_reload);
    in_memory(s, dead_show);
    in_memory(s, dead_release);
    if (forget_journal(s) < 0)
        return -1;
    in_memory(s, dead_free_slot);
    return 0;
}

int takeover(const struct takeover *t)
{
    struct set s = {.t = t, .files = {.own = t->own, .journal = t->journal}, .pool = {.lock = -1}};
    int r = run(&s);
    KEEP_ERRNO();
    for (size_t i = 0; s.dead && i < s.files.nfiles; i++) {
        if (s.dead[i].shared.header)
            shared_close(&s.dead[i].shared, false);
        free(s.dead[i].pages);
    }
    free(s.dead);
    participants_end(&s.files);
    if (s.pool.map) {
        (void)pool_close(&s.pool, &t->own->folder, false);
        if (r == 0)
            sweep_journals(&t->own->folder);
    }
    return r;
}
