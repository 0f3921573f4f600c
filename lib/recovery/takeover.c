/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bitmaps on the media are authoritative. The dead process may have made them visible in memory in part, or not
 * at all. So all its pages are marked as flipping, all words are reloaded, all marks are removed. So readers of
 * several pages see its last operation as a whole or not at all.
 *
 * A word of the original that was stored in place may be visible and not durable. If this process does not have that file
 * open, all its pages are left with the dead process, marked: a process that has the file mapped frees them.
 */
#include "lib/recovery/takeover.h"

#include "lib/file/clock.h"
#include "lib/file/page.h"
#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/meta.h"
#include "reflection/recovery/redo.h"
#include "reflection/recovery/replay.h"
#include "reflection/recovery/sweep.h"

#include <errno.h>
#include <stdlib.h>

/* ---- what it held of one file, in memory ---- */

#define DEAD_SIZE UINT64_MAX

struct dead_page {
    struct page_state *state;
    uint64_t page;  /* DEAD_SIZE: this is `sizing`, the state of the size */
    uint64_t value; /* its bitmap, or the size, as on the media */
    bool showed;    /* marked as flipping when its holder died */
};

struct dead {
    struct participant *file;
    int original;         /* -1: this process does not have it open */
    struct shared shared; /* .header NULL: no process has the file mapped */
    uint32_t holder;
    struct dead_page *pages;
    uint64_t n;
    bool unsettled; /* some words must be made durable */
    bool in_place;  /* words of the original, too */
};

/* Version 0: not loaded, so no reader uses the page. */
static bool is_flipping(const struct page_state *s)
{
    return s->version && !(s->version & 1);
}

static int add(struct dead *d, struct page_state *s, uint64_t page)
{
    struct dead_page *more = realloc(d->pages, (d->n + 1) * sizeof(*more));
    if (!more)
        return report_error(ENOMEM,
                            "no memory to free the pages of %s that a dead process had reserved",
                            d->file->path);
    d->pages = more;
    more[d->n++] = (struct dead_page){.state = s, .page = page, .showed = is_flipping(s)};
    return 0;
}

static bool has(const struct dead *d, const struct page_state *s)
{
    return __atomic_load_n(&s->holder, __ATOMIC_ACQUIRE) == d->holder;
}

/* The kernel drops the locks of a dying process one by one: waits until its slot is free. */
static int await_death(const struct participant *p)
{
    enum { PATIENCE_MS = 5000 };
    for (unsigned i = 0; i < PATIENCE_MS; i++) {
        if (locks_ask(p->lock, 1 + (off_t)p->slot, 1) == LOCKS_FREE)
            return 0;
        clock_nap(1000 * 1000);
    }
    return report_error(EBUSY,
                        "a process has committed to several files and unmapped one, but not the "
                        "file of %s: map the one again when it has unmapped the other, too",
                        p->path);
}

/* Opens the shared memory. Returns 1; 0 if no process has the file mapped; -1. */
static int join(struct dead *d, const struct trust *trust)
{
    enum { PATIENCE_MS = 1000 };
    const struct participant *p = d->file;
    int joined = SHARED_NOT_THERE;
    for (unsigned i = 0; i <= PATIENCE_MS && joined == SHARED_NOT_THERE; i++) {
        if (i) /* the last one is just ending */
            clock_nap(1000 * 1000);
        const enum locks_answer lives = locks_ask(p->lock, 1, PAIRING_LIVES);
        if (lives == LOCKS_FREE)
            return 0;
        if (lives == LOCKS_FAILED)
            return report_errno(errno, "cannot ask for the locks of the manifest of %s", p->path);
        joined = shared_join(&d->shared, &p->record, trust, p->path, O_RDWR);
    }
    return joined == 0 ? 1 : -1;
}

/* Opens the shared memory of a file, and finds what the dead process holds there. `holder`: as in page_state.holder; 0 if
 * it is not known. Returns 0; -1 with a sentence. */
static int find(struct dead *d, const struct trust *trust, uint32_t holder)
{
    struct participant *p = d->file;
    uint64_t page = 0;
    const int joined = join(d, trust);
    if (joined <= 0)
        return joined;
    const uint32_t now = shared_holder_of(&d->shared, p->slot);
    d->holder = holder ? holder : now;
    if (d->holder != now) { /* another process is in the slot by now: its lanes are not touched */
        p->slot = MANIFEST_SLOTS;
    } else if (__atomic_load_n(&d->shared.header->poisoned, __ATOMIC_ACQUIRE) &&
               locks_ask(p->lock, 1 + (off_t)p->slot, 1) == LOCKS_TAKEN) {
        /* The process lives: the commit is in doubt, and it has unmapped another one of its files. Here every call is
         * EIO, so nothing has to be shown; the slot, and the journal's name, stay until it unmaps this file too. */
        p->slot = MANIFEST_SLOTS;
        shared_close(&d->shared, false);
        return 0;
    } else if (await_death(p) < 0) {
        return -1;
    }
    for (struct page_state *s; (s = shared_next_state(&d->shared, &page, UINT64_MAX));)
        if (has(d, s) && add(d, s, page - 1) < 0)
            return -1;
    struct page_state *sizing = &d->shared.header->sizing;
    return has(d, sizing) ? add(d, sizing, DEAD_SIZE) : 0;
}

static void unmark(struct page_state *s)
{
    if (is_flipping(s))
        page_unmark_changed(s);
}

/* Marks all pages that the dead process holds, and the size, as flipping. This function and the next ones are called only for a
 * file with shared memory (in_memory()). */
static void mark(struct dead *d)
{
    for (uint64_t i = 0; i < d->n; i++) {
        seam_point(SEAM_FLIP, d);
        if (d->pages[i].state->version & 1)
            page_turn_mark(d->pages[i].state);
    }
}

/* Takes off the marks that mark() has set: the replay failed. */
static void take_marks_off(struct dead *d)
{
    for (uint64_t i = 0; i < d->n; i++)
        if (!d->pages[i].showed)
            unmark(d->pages[i].state);
}

/* ---- the size ---- */

static int flush(const struct dead *d, const void *word)
{
    if (persist_flush_any(&d->file->persist, word, sizeof(uint64_t)) == 0)
        return 0;
    return report_errno(errno, "cannot make a bitmap or the size of %s durable", d->file->path);
}

static int note_size(const struct dead *d, struct dead_page *p)
{
    const char *manifest = d->file->manifest;
    struct manifest_sizes sizes;
    if (flush(d, manifest + MANIFEST_SIZE_WORD) < 0)
        return -1;
    if (!manifest_sizes(manifest, &sizes))
        return report_error(EUCLEAN, "the size in the manifest of %s is damaged", d->file->path);
    p->value = sizes.size;
    return 0;
}

/* ---- words ---- */

/* Notes the bitmap of a page, and makes it durable. Not where memory has the same bitmap: then it is durable already (I4; and
 * no word ever returns to an earlier value). This avoids a wait until all that a transaction has stored is durable, though no
 * process will ever read it. */
static int note_bitmap(struct dead *d, struct dead_page *p)
{
    const struct participant *file = d->file;
    const uint64_t chunk = p->page / CHUNK_PAGES, at = layout_word(p->page);
    const uint64_t there = meta_next(file->reflection, chunk, chunk + 1);
    /* A load from a hole, which holds zeros, might be SIGBUS. */
    const char *word = there == chunk && at + 8 <= file->bytes ? file->map + at : NULL;
    const uint64_t is = word ? __atomic_load_n((const uint64_t *)word, __ATOMIC_RELAXED) : 0;
    const bool same = is == p->state->bitmap;
    /* It was flipping, and does not flip. */
    const bool in_place = p->showed && same && file->persist.domain != PERSIST_PROCESS;
    p->value = is;
    d->in_place |= in_place;
    if (!word || !p->state->version || same)
        return 0;
    /* In domain msync each call takes as long as one for all words. */
    d->unsettled = file->persist.domain == PERSIST_MSYNC;
    return d->unsettled ? 0 : flush(d, word);
}

static int note_bitmaps(struct dead *d)
{
    const struct participant *p = d->file;
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < d->n; i++)
        r = d->pages[i].page == DEAD_SIZE ? note_size(d, &d->pages[i])
                                          : note_bitmap(d, &d->pages[i]);
    if (r == 0 && d->unsettled && fsops_fsync(p->reflection) < 0)
        r = report_errno(errno, "cannot make the bitmaps of %s durable", p->path);
    /* persist-order R6 (writer: W6 in write.c): a word that was stored in place may be visible and not durable. */
    if (r == 0 && d->in_place && d->original >= 0 && fsops_fsync(d->original) < 0)
        r = report_errno(errno, "cannot make the file of %s durable", p->path);
    return r;
}

/* ---- what becomes visible ---- */

/* Reloads all from the media, and changes it in memory; marks stay. A failure poisons the file: it is then unknown what the
 * media have. */
static void reload(struct dead *d)
{
    struct shared_header *h = d->shared.header;
    if (note_bitmaps(d) < 0) {
        __atomic_store_n(&h->poisoned, 1, __ATOMIC_RELEASE);
        return;
    }
    /* persist-order R5 (writers: W2, G4, S2 in commit.h and commit.c): after a kill bitmaps and size may be visible and not durable. They
     * become durable before they become visible in memory (I4): otherwise a power cut could take back what was read. */
    persist_fence(&d->file->persist);
    for (uint64_t i = 0; i < d->n; i++) {
        const struct dead_page *p = &d->pages[i];
        seam_point(SEAM_FLIPPING, d);
        if (p->page == DEAD_SIZE)
            __atomic_store_n(&h->size, p->value, __ATOMIC_RELEASE);
        else if (p->state->version)
            page_set_bitmap(p->state, p->value);
    }
    if (d->in_place && d->original < 0)
        shared_close(&d->shared, false); /* left to others: see the head of this file */
}

/* Takes all marks off. */
static void show(struct dead *d)
{
    for (uint64_t i = 0; i < d->n; i++) {
        seam_point(SEAM_FLIPPED, d);
        unmark(d->pages[i].state);
    }
    /* The dead process may have stored to the original, and the kernel may not have changed its mtime yet. */
    __atomic_store_n(&d->shared.header->written, 1, __ATOMIC_RELAXED);
}

/* Frees pages and size. */
static void release(struct dead *d)
{
    struct shared_header *h = d->shared.header;
    for (uint64_t i = 0; i < d->n; i++) {
        const struct dead_page *p = &d->pages[i];
        if (p->page == DEAD_SIZE)
            __atomic_store_n(&h->cut, UINT64_MAX, __ATOMIC_RELEASE);
        __atomic_store_n(&p->state->tx, 0, __ATOMIC_RELAXED);
        page_release(p->state);
    }
    report_log(REPORT_INFO, "freed the pages of %s that a dead process had reserved",
               d->file->path);
}

static void free_slot(struct dead *d)
{
    if (d->file->slot == MANIFEST_SLOTS)
        return;
    __atomic_store_n(&d->shared.slots[d->file->slot].state, SLOT_FREE, __ATOMIC_RELEASE);
}

/* ---- all files ---- */

struct set {
    const struct takeover *t;
    struct participants files;
    struct participant *own;
    struct redo redo;  /* .map NULL: there is no journal */
    struct dead *dead; /* of each of the files */
};

static int replay_journal(struct set *s, enum replay_step step)
{
    return replay_lanes(&s->redo.journal, step, &s->files, s->redo.path);
}

/* Opens the journal and notes the files of its commits. Returns 1; 0 if it was recovered meanwhile; -1. */
static int open_journal(struct set *s)
{
    const struct pairing *pr = s->t->own;
    if (redo_open(&s->redo, &pr->folder, s->t->journal, &pr->identity.trust) < 0)
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
                            s->own->path, s->redo.path);
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
        if (find(d, &t->own->identity.trust, p == s->own ? t->holder : 0) < 0)
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
    return s->redo.map ? replay_journal(s, REPLAY_APPLY) : 0;
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
    in_memory(s, mark);
    if (replay_all(s) < 0) {
        in_memory(s, take_marks_off);
        return -1;
    }
    /* All lanes are replayed before the first is retired: the next recovery learns from the lanes which files belong
     * together. From here on the marks stay, until all of it is shown. */
    if (s->redo.map && replay_journal(s, REPLAY_RETIRE) < 0)
        return -1;
    in_memory(s, reload);
    in_memory(s, show);
    in_memory(s, release);
    if (forget_journal(s) < 0)
        return -1;
    in_memory(s, free_slot);
    return 0;
}

int takeover(const struct takeover *t)
{
    struct set s = {.t = t, .files = {.own = t->own, .journal = t->journal}, .redo = {.lock = -1}};
    int r = run(&s);
    KEEP_ERRNO();
    for (size_t i = 0; s.dead && i < s.files.nfiles; i++) {
        if (s.dead[i].shared.header)
            shared_close(&s.dead[i].shared, false);
        free(s.dead[i].pages);
    }
    free(s.dead);
    participants_end(&s.files);
    if (s.redo.map) {
        (void)redo_close(&s.redo, &t->own->folder, false);
        if (r == 0)
            sweep_folder(&t->own->folder);
    }
    return r;
}
