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

#include "lib/file/attach.h"
#include "lib/file/clock.h"
#include "lib/file/page.h"
#include "lib/recovery/replay.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/length.h"
#include "reflection/pairing/meta.h"
#include "reflection/recovery/redo.h"

#include <errno.h>

/* ---- what it held of one file, in memory ---- */

#define DEAD_SIZE UINT64_MAX

struct dead_page {
    struct page_state *state;
    uint64_t page;  /* DEAD_SIZE: this is `sizing`, the state of the size */
    uint64_t value; /* its bitmap, or the size, as on the media */
    bool showed;    /* marked as flipping when its holder died */
};

/* Version 0: not loaded, so no reader uses the page. */
static bool is_flipping(const struct page_state *s)
{
    return s->version && !(s->version & 1);
}

/* Adds a page, or the size, if the dead process holds it, and marks it as flipping. */
static int add(struct participant *p, struct page_state *s, uint64_t page)
{
    if (__atomic_load_n(&s->holder, __ATOMIC_ACQUIRE) != p->holder)
        return 0;
    struct dead_page *more = realloc(p->pages, (p->npages + 1) * sizeof(*more));
    if (!more)
        return report_error(
            ENOMEM, "no memory to free the pages of %s that a dead process had reserved", p->path);
    p->pages = more;
    more[p->npages++] = (struct dead_page){.state = s, .page = page, .showed = is_flipping(s)};
    seam_point(SEAM_FLIP, p);
    if (s->version & 1)
        page_turn_mark(s);
    return 0;
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
static int join(struct participant *p, const struct trust *trust)
{
    enum { PATIENCE_MS = 1000 };
    int joined = PAIRING_NOT_YET;
    for (unsigned i = 0; i <= PATIENCE_MS && joined == PAIRING_NOT_YET; i++) {
        if (i) /* the last one is just ending */
            clock_nap(1000 * 1000);
        const enum locks_answer lives = locks_ask(p->lock, 1, PAIRING_LIVES);
        if (lives == LOCKS_FREE)
            return 0;
        if (lives == LOCKS_FAILED)
            return report_errno(errno, "cannot ask for the locks of the manifest of %s", p->path);
        joined = shared_join(&p->shared, &p->record, trust, p->path, O_RDWR);
    }
    if (joined == 0)
        shared_watch(&p->shared, &p->faults, O_RDWR);
    return joined == 0 ? 1 : joined == PAIRING_NOT_YET ? report_aloud() : -1;
}

/* Opens the shared memory of a file, and marks what the dead process holds there. Returns 0; -1 with a sentence. */
static int find(struct participant *p, const struct trust *trust)
{
    uint64_t page = 0;
    const int joined = join(p, trust);
    if (joined <= 0)
        return joined;
    const uint32_t now = shared_holder_of(&p->shared, p->slot);
    if (!p->holder)
        p->holder = now;
    if (p->holder != now) { /* another process is in the slot by now: its lanes are not touched */
        p->slot = MANIFEST_SLOTS;
    } else if (__atomic_load_n(&p->shared.header->poisoned, __ATOMIC_ACQUIRE) &&
               locks_ask(p->lock, 1 + (off_t)p->slot, 1) == LOCKS_TAKEN) {
        /* The process lives: the commit is in doubt, and it has unmapped another one of its files. Here every call is
         * EIO, so nothing has to be shown; the slot, and the journal's name, stay until it unmaps this file too. */
        p->slot = MANIFEST_SLOTS;
        shared_close(&p->shared, false);
        return 0;
    } else if (await_death(p) < 0) {
        return -1;
    }
    if (shared_reach_all(&p->shared) < 0)
        return -1;
    for (struct page_state *s; (s = shared_next_state(&p->shared, &page, UINT64_MAX));)
        if (add(p, s, page - 1) < 0)
            return -1;
    return add(p, &p->shared.header->sizing, DEAD_SIZE);
}

static void unmark(struct page_state *s)
{
    if (is_flipping(s))
        page_unmark_changed(s);
}

/* Takes off the marks that add() has set: nothing was retired. This function and the next ones are called only for a file with
 * shared memory (in_memory()). */
static void take_marks_off(struct participant *p)
{
    for (uint64_t i = 0; i < p->npages; i++)
        if (!p->pages[i].showed)
            unmark(p->pages[i].state);
}

/* ---- the size ---- */

static int flush(const struct participant *p, const void *word)
{
    if (persist_flush_any(&p->persist, word, sizeof(uint64_t)) == 0)
        return 0;
    return report_errno(errno, "cannot make a bitmap or the size of %s durable", p->path);
}

static int note_size(const struct participant *p, struct dead_page *at)
{
    const uint64_t *word = (const uint64_t *)(p->manifest + MANIFEST_SIZE_WORD);
    if (flush(p, word) < 0)
        return -1;
    if (!manifest_decode_size(__atomic_load_n(word, __ATOMIC_RELAXED), &at->value))
        return report_error(EUCLEAN, "the size in the manifest of %s is damaged", p->path);
    return 0;
}

/* ---- words ---- */

/* Sparse: as noted beside the page's state. The dead process noted a place when the entry was durable. */
static uint64_t place_of(const struct participant *p, const struct dead_page *at)
{
    return p->record.format == LAYOUT_DENSE ? at->page : shared_place(&p->shared, at->state);
}

/* Notes the bitmap of a page, and makes it durable. Not where memory has the same bitmap: then it is durable already (I4; and
 * no word ever returns to an earlier value). This avoids a wait until all that a transaction has stored is durable, though no
 * process will ever read it. */
static int note_bitmap(struct participant *p, struct dead_page *at)
{
    const uint32_t format = p->record.format;
    const uint64_t place = place_of(p, at);
    const uint64_t chunk = place / layout_chunk(format), offset = layout_word(format, place);
    const uint64_t there = meta_next(p->reflection, format, chunk, chunk + 1);
    /* A load from a hole, which holds zeros, might be SIGBUS. */
    const bool has_word = place != SHARED_NO_PLACE && there == chunk && offset + 8 <= p->bytes;
    const uint64_t *word = has_word ? (const uint64_t *)(p->map + offset) : NULL;
    const uint64_t is = word ? __atomic_load_n(word, __ATOMIC_RELAXED) : 0;
    if (word && format == LAYOUT_SPARSE && word[-1] != at->page) /* I5 */
        return report_error(EUCLEAN, "place %llu of the reflection %s is not of page %llu",
                            (unsigned long long)place, p->path, (unsigned long long)at->page);
    const bool same = is == at->state->bitmap;
    at->value = is;
    /* It was flipping, and does not flip. */
    p->in_place |= at->showed && same && p->persist.domain != PERSIST_PROCESS;
    if (!word || !at->state->version || same)
        return 0;
    /* In domain msync each call takes as long as one for all words. */
    p->unsettled = p->persist.domain == PERSIST_MSYNC;
    return p->unsettled ? 0 : flush(p, word);
}

static int note_bitmaps(struct participant *p)
{
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < p->npages; i++)
        r = p->pages[i].page == DEAD_SIZE ? note_size(p, &p->pages[i])
                                          : note_bitmap(p, &p->pages[i]);
    if (r == 0 && p->unsettled && fsops_fsync(p->reflection) < 0)
        r = report_errno(errno, "cannot make the bitmaps of %s durable", p->path);
    /* persist-order R6 (writer: W6 in write.c): a word that was stored in place may be visible and not durable. */
    if (r == 0 && p->in_place && p->original >= 0 && fsops_fsync(p->original) < 0)
        r = report_errno(errno, "cannot make the file of %s durable", p->path);
    return r;
}

/* ---- what becomes visible ---- */

/* Reloads all from the media, and changes it in memory; marks stay. A failure poisons the file: it is then unknown what the
 * media have. */
static void reload(struct participant *p)
{
    struct shared_header *h = p->shared.header;
    if (note_bitmaps(p) < 0) {
        __atomic_store_n(&h->poisoned, 1, __ATOMIC_RELEASE);
        return;
    }
    /* persist-order R5 (writers: W2, G4, S2 in commit.h and commit.c): after a kill bitmaps and size may be visible and not durable. They
     * become durable before they become visible in memory (I4): otherwise a power cut could take back what was read. */
    persist_fence(&p->persist);
    for (uint64_t i = 0; i < p->npages; i++) {
        const struct dead_page *at = &p->pages[i];
        seam_point(SEAM_FLIPPING, p);
        if (at->page == DEAD_SIZE)
            __atomic_store_n(&h->size, at->value, __ATOMIC_RELEASE);
        else if (at->state->version)
            page_set_bitmap(at->state, at->value);
    }
    if (p->in_place && p->original < 0)
        shared_close(&p->shared, false); /* left to others: see the head of this file */
}

/* Takes all marks off, and frees pages and size. */
static void release(struct participant *p)
{
    struct shared_header *h = p->shared.header;
    /* The dead process may have stored to the original, and the kernel may not have changed its mtime yet. */
    __atomic_store_n(&h->written, 1, __ATOMIC_RELAXED);
    for (uint64_t i = 0; i < p->npages; i++) {
        const struct dead_page *at = &p->pages[i];
        seam_point(SEAM_FLIPPED, p);
        unmark(at->state);
        if (at->page == DEAD_SIZE)
            __atomic_store_n(&h->cut, UINT64_MAX, __ATOMIC_RELEASE);
        __atomic_store_n(&at->state->tx, 0, __ATOMIC_RELAXED);
        page_release(at->state);
    }
    report_log(REPORT_INFO, "freed the pages of %s that a dead process had reserved", p->path);
}

/* ---- all files ---- */

struct set {
    struct participants files;
    uint32_t holder;  /* the dead process, as in page_state.holder of the own file; 0: not known */
    struct redo redo; /* .map NULL: there is no journal */
};

static int replay_journal(struct set *s, enum replay_step step)
{
    return replay_lanes(&s->redo.journal, step, &s->files, s->redo.path);
}

/* Takes all locks. Returns 1; 0 if there is nothing to do any more; -1. */
static int lock_all(struct set *s)
{
    struct participants *n = &s->files;
    const struct pairing *own = n->own;
    const struct journal_file file = pairing_in_journals(own);
    if (n->journal && redo_open(&s->redo, &own->folder, n->journal, &own->identity.trust) < 0 &&
        errno != ENOENT)
        return -1;
    if (participants_add(n, &file) < 0 ||
        (s->redo.map.base && replay_journal(s, REPLAY_COLLECT) < 0) || participants_acquire(n) < 0)
        return -1;
    struct participant *p = participants_find(n, &file);
    if (!p) /* it was recovered meanwhile */
        return 0;
    /* persist-order N2 (writer: area_set_journal): a journal is removed when no manifest names it. */
    if (n->journal && !s->redo.map.base)
        return report_error(EUCLEAN,
                            "the manifest of %s names the journal %s of a dead process, which "
                            "is missing: put it back",
                            p->path, s->redo.path);
    if (!n->journal && s->holder)
        p->slot = shared_slot_of(s->holder);
    p->holder = s->holder;
    p->original = own->original;
    return 1;
}

static int find_all(struct set *s)
{
    for (size_t i = 0; !s->files.alone && i < s->files.nfiles; i++)
        if (find(&s->files.files[i], &s->files.own->identity.trust) < 0)
            return -1;
    return 0;
}

static int replay_all(struct set *s)
{
    for (size_t i = 0; i < s->files.nfiles; i++) {
        struct participant *p = &s->files.files[i];
        if (p->slot < MANIFEST_SLOTS && replay_slots(&s->files, p) < 0)
            return -1;
    }
    return s->redo.map.base ? replay_journal(s, REPLAY_APPLY) : 0;
}

/* The manifests no longer name the journal, and the slots are free. */
static int free_slots(const struct set *s)
{
    for (size_t i = 0; i < s->files.nfiles; i++) {
        const struct participant *p = &s->files.files[i];
        if (s->files.journal && p->area && area_set_journal(&p->persist, p->area, 0, p->path) < 0)
            return -1;
        if (p->shared.header && p->slot < MANIFEST_SLOTS) {
            __atomic_store_n(&p->shared.header->died, 1, __ATOMIC_RELAXED);
            __atomic_store_n(&p->shared.slots[p->slot].state, SLOT_FREE, __ATOMIC_RELEASE);
        }
    }
    return 0;
}

static void in_memory(struct set *s, void (*what)(struct participant *p))
{
    for (size_t i = 0; i < s->files.nfiles; i++)
        if (s->files.files[i].shared.header)
            what(&s->files.files[i]);
}

static int run(struct set *s)
{
    const int r = lock_all(s);
    if (r <= 0)
        return r;
    if (find_all(s) < 0 || replay_all(s) < 0) {
        in_memory(s, take_marks_off);
        return -1;
    }
    /* All lanes are replayed before the first is retired: the next recovery learns from the lanes which files belong
     * together. From here on the marks stay, until all has changed in memory. */
    if (s->redo.map.base && replay_journal(s, REPLAY_RETIRE) < 0)
        return -1;
    in_memory(s, reload);
    in_memory(s, release);
    return free_slots(s);
}

/* What was read or stored may be lost (fault.h). */
static bool has_met_a_fault(const struct set *s)
{
    bool met = s->redo.faults.met;
    for (size_t i = 0; i < s->files.nfiles; i++)
        met |= s->files.files[i].faults.met;
    return met;
}

/* Recovers the file `own`. `journal`: that the dead process's slot names; 0: none. If neither it nor the holder is known: all
 * slots of a file that no process has mapped; the caller has its attach lock. Returns 0, also if another process has done it
 * already; -1 with a sentence. */
static int recover(const struct pairing *own, uint64_t journal, uint32_t holder)
{
    const bool alone = !journal && !holder;
    struct set *s HEAP = malloc(sizeof(*s));
    if (!s)
        return report_error(ENOMEM, "no memory to recover %s", own->path);
    *s = (struct set){.files = {.own = own, .journal = journal, .alone = alone},
                      .holder = holder,
                      .redo = {.lock = -1}};
    int r = run(s);
    if (r == 0 && has_met_a_fault(s))
        r = report_error(EIO,
                         "another program made a file of %s, or of its folder %s, shorter while it "
                         "was recovered, or its medium failed",
                         own->path, own->folder.path);
    KEEP_ERRNO();
    participants_end(&s->files);
    if (s->redo.map.base) {
        redo_close(&s->redo, &own->folder, false);
        if (r == 0)
            redo_sweep(&own->folder);
    }
    return r;
}

/* ---- which processes are dead ---- */

int takeover_lanes(const struct pairing *pr, uint64_t journal)
{
    return recover(pr, journal, 0);
}

int takeover(struct file *f, uint32_t holder)
{
    struct pairing *pr = &f->pairing;
    const unsigned slot = shared_slot_of(holder);
    uint64_t journal = 0;
    if (!attach_is_dead(f, holder))
        return 0;
    /* Nobody needs what it held, and the next map recovers the file. */
    if (file_check(f) < 0)
        return -1;
    if (f->reader)
        return report_error(EAGAIN,
                            "a dead process has pages of %s reserved: a process that may write to "
                            "the file has to free them, by mapping it",
                            pr->path);
    /* What another program did to the file meanwhile must not be mixed with what the dead process committed. */
    if (growth_check(pr) < 0)
        return -1;
    /* If the slot is given to another process by now, what its journal word says is about that one. */
    if (shared_holder_of(&f->shared, slot) == holder &&
        area_journal(pr->lock, slot, pr->path, &journal) < 0)
        return -1;
    return recover(pr, shared_holder_of(&f->shared, slot) == holder ? journal : 0, holder);
}

int takeover_all(struct file *f)
{
    int r = 0;
    for (unsigned slot = 0; slot < MANIFEST_SLOTS; slot++)
        if (takeover(f, shared_given_to(&f->shared, slot)) < 0)
            r = -1;
    return r;
}

bool takeover_is_due(const struct file *f)
{
    unsigned slot = 0;
    while (slot < MANIFEST_SLOTS && !attach_is_dead(f, shared_given_to(&f->shared, slot)))
        slot++;
    return slot < MANIFEST_SLOTS;
}
