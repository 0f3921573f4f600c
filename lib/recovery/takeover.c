/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bitmaps on the media are authoritative. The dead process may have made them visible in memory in part, or not
 * at all. So all its pages are marked as flipping, all words are reloaded, all marks are removed. So readers of
 * several pages see its last operation as a whole or not at all.
 */
#include "lib/recovery/takeover.h"

#include "lib/file/attach.h"
#include "lib/file/clock.h"
#include "lib/file/page.h"
#include "lib/file/store_views.h"
#include "lib/file/under_way.h"
#include "lib/file/undo.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/length.h"
#include "reflection/pairing/meta.h"
#include "reflection/recovery/log_replay.h"
#include "reflection/recovery/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what it held, in memory ---- */

#define DEAD_SIZE UINT64_MAX
#define DEAD_LOCK (UINT64_MAX - 1)

struct dead_page {
    struct page_state *state;
    uint64_t
        page; /* DEAD_SIZE: this is `sizing`, the state of the size; DEAD_LOCK: one of the log's, which has no content */
    uint64_t value; /* its bitmap, or the size, as on the media */
    bool showed;    /* marked as flipping when its holder died */
};

struct dead {
    struct file *file;
    uint32_t holder; /* as in page_state.holder */
    struct replay media;
    struct undo undo; /* what it has committed becomes visible as one commit */
    bool took;        /* `showing` was free */
    bool commits;     /* it may have died in a commit. Else no content has changed */
    struct dead_page *pages;
    uint64_t npages;
    bool in_place; /* words of the original, too */
};

/* Version 0: not loaded, so no reader uses the page. */
static bool is_flipping(const struct page_state *s)
{
    return s->version && !(s->version & 1);
}

/* Adds a page, or the size, if the dead process holds it, and marks it as flipping. */
static int add(struct dead *p, struct page_state *s, uint64_t page)
{
    if (__atomic_load_n(&s->holder, __ATOMIC_ACQUIRE) != p->holder)
        return 0;
    struct dead_page *more = realloc(p->pages, (p->npages + 1) * sizeof(*more));
    if (!more)
        return report_error(ENOMEM,
                            "no memory to free the pages of %s that a dead process had reserved",
                            p->file->pairing.path);
    p->pages = more;
    more[p->npages++] = (struct dead_page){.state = s, .page = page, .showed = is_flipping(s)};
    seam_point(SEAM_FLIP, p);
    if (s->version & 1)
        page_turn_mark(s);
    return 0;
}

/* Marks all that it holds. */
static int find(struct dead *p)
{
    struct shared *sh = &p->file->shared;
    uint64_t page = 0;
    if (shared_reach_all(sh) < 0)
        return -1;
    for (struct page_state *s; (s = shared_next_state(sh, &page, UINT64_MAX));)
        if (add(p, s, page - 1) < 0)
            return -1;
    struct shared_log *l = &sh->header->log;
    return add(p, &l->appending, DEAD_LOCK) < 0 || add(p, &l->syncing, DEAD_LOCK) < 0 ||
                   add(p, &l->checking, DEAD_LOCK) < 0
               ? -1
               : add(p, &sh->header->sizing, DEAD_SIZE);
}

/* ---- the number ---- */

/* Was a thread of the process in a commit, or is that not known, since the slot is another one's? */
static bool was_committing(const struct shared *s, uint32_t holder)
{
    const unsigned slot = shared_slot_of(holder), threads = under_way_threads(s, slot);
    if (shared_holder_of(s, slot) != holder)
        return true;
    for (unsigned thread = 0; thread < threads; thread++)
        if (under_way_look(s, slot, thread) & UNDER_WAY_NOW)
            return true;
    return false;
}

/* With numbers (undo.h), `showing` is held for the dead process: should this one die too, the next one goes on as here. So all that it
 * had made visible of a commit gets the same number again, and what it had saved stays. Returns 0; 1: wait for another holder. */
static int begin_number(struct dead *p)
{
    struct file *f = p->file;
    struct page_state *showing = &f->shared.header->undo.showing;
    uint32_t holder = 0;
    p->undo = (struct undo){.f = f};
    p->commits = was_committing(&f->shared, p->holder);
    /* With a log, or plain stores, pages come home meanwhile. */
    if (!file_is_numbered(f) || (!p->commits && !f->logged && !store_views_any(f)))
        return 0;
    p->took = __atomic_compare_exchange_n(&showing->holder, &holder, p->holder, false,
                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    if (!p->took && holder != p->holder)
        return 1;
    if (p->commits)
        undo_begin(&p->undo, f, false);
    return 0;
}

/* The newest content of a page is in an early copy (undo.h). */
static bool is_early(const struct dead *p, const struct dead_page *at)
{
    return at->page < DEAD_LOCK && undo_is_early(p->file, at->state);
}

/* Then all may change; another process that has to go on here saves nothing of it. */
static void save_all(struct dead *p)
{
    if (!p->undo.number)
        return;
    for (uint64_t i = 0; i < p->npages; i++)
        if (p->pages[i].page < DEAD_LOCK && !is_early(p, &p->pages[i]))
            (void)undo_save(&p->undo, p->pages[i].page, p->pages[i].state, false);
    undo_saved(&p->undo);
    for (uint64_t i = 0; i < p->npages; i++)
        if (is_flipping(p->pages[i].state))
            page_mark_changing(p->pages[i].state);
}

static void end_number(const struct dead *p)
{
    struct page_state *showing = &p->file->shared.header->undo.showing;
    if (__atomic_load_n(&showing->holder, __ATOMIC_RELAXED) == p->holder)
        page_release(showing);
}

/* Takes off the marks that add() has set: memory is as before for readers, and the pages stay with the dead process. */
static void unmark_all(const struct dead *p)
{
    for (uint64_t i = 0; i < p->npages; i++)
        if (!p->pages[i].showed && is_flipping(p->pages[i].state))
            page_turn_mark(p->pages[i].state);
}

/* ---- what is in the log ---- */

static bool was_held(void *arg, uint64_t page)
{
    const struct dead *p = arg;
    for (uint64_t i = 0; i < p->npages; i++)
        if (p->pages[i].page == page)
            return true;
    return false;
}

static bool held(const struct dead *p, const struct page_state *s)
{
    return __atomic_load_n(&s->holder, __ATOMIC_ACQUIRE) == p->holder;
}

/* Is it a page that somebody has used? */
static bool has_content(const struct dead_page *at)
{
    return at->page < DEAD_LOCK && at->state->version;
}

/* The file itself changes, for those that have plain stores (store_views.h). */
static void look_before(struct dead *p, struct store_look *l)
{
    store_look_begin(l, p->file, 0);
    for (uint64_t i = 0; i < p->npages; i++)
        if (has_content(&p->pages[i]))
            store_look_before(l, p->pages[i].page);
}

static void look_after(struct dead *p, struct store_look *l)
{
    for (uint64_t i = 0; i < p->npages; i++)
        if (has_content(&p->pages[i]))
            store_look_after(l, p->pages[i].page);
    store_look_end(l);
}

/* If the dead process was appending: its record may be whole, and the tail not moved. It counts then, since a recovery would find it.
 * Returns 0; -1 with a sentence. */
static int note_tail(const struct dead *p)
{
    struct shared_log *l = &p->file->shared.header->log;
    struct log_file log;
    struct log_view v = {0};
    if (!held(p, &l->appending))
        return 0;
    if (file_log(p->file, &log) < 0)
        return -1;
    const int found = log_look(&log, l->tail, log.header.start + log.header.capacity - l->tail, &v);
    if (found > 0) {
        shared_log_note_size(l, l->tail + v.record.bytes, v.record.size);
        __atomic_store_n(&l->tail, l->tail + v.record.bytes, __ATOMIC_RELEASE);
    }
    free(v.pages);
    return found < 0 ? report_errno(errno, "cannot read the log of %s", p->file->pairing.path) : 0;
}

/* Brings what the log has of these pages to the file: the dead process may have appended a commit, and copied nothing of it, or a part.
 * What others have committed to them before is copied once more. */
static int replay_log(struct dead *p)
{
    struct file *f = p->file;
    struct shared_log *l = &f->shared.header->log;
    struct log_range range;
    struct store_look look;
    int r = 1;
    /* persist-order L2 (log.h) */
    if (file_fdatasync(f, f->pairing.reflection, "what a dead process committed") < 0)
        return -1;
    /* At a checkpoint it may have written a header, which is durable now, and not noted that in shared memory. */
    if ((held(p, &l->checking) && file_load_log(f) < 0) || note_tail(p) < 0)
        return -1;
    look_before(p, &look);
    while (r > 0) {
        range = (struct log_range){.end = __atomic_load_n(&l->tail, __ATOMIC_ACQUIRE),
                                   .size = LOG_NO_SIZE};
        if (file_log(f, &range.log) < 0) {
            r = -1;
            break;
        }
        range.position = range.log.header.start;
        if (range.position > range.end) /* a checkpoint came between */
            continue;
        r = log_replay_last(&range, f->pairing.original, was_held, p, &l->start, f->pairing.path);
    }
    look_after(p, &look);
    /* explorer: tear word survives: the record says the size, until a checkpoint has made the word durable. */
    if (r == 0 && range.size != LOG_NO_SIZE && was_held(p, DEAD_SIZE))
        persist_store_word(&p->media.persist, (uint64_t *)(p->media.manifest + MANIFEST_SIZE_WORD),
                           manifest_encode_size(range.size));
    /* All that is visible was in the log when it was synced. Before any page changes: readers may go by `moment`. */
    if (r == 0 && file_is_numbered(f))
        undo_raise(f, f->shared.header->undo.shown);
    return r;
}

/* ---- what is on the media ---- */

static int flush(const struct dead *p, const void *word)
{
    if (persist_flush_any(&p->media.persist, word, sizeof(uint64_t)) == 0)
        return 0;
    return report_errno(errno, "cannot make a bitmap or the size of %s durable",
                        p->file->pairing.path);
}

static int note_size(const struct dead *p, struct dead_page *at)
{
    const uint64_t *word = (const uint64_t *)(p->media.manifest + MANIFEST_SIZE_WORD);
    if (flush(p, word) < 0)
        return -1;
    if (!manifest_decode_size(__atomic_load_n(word, __ATOMIC_RELAXED), &at->value))
        return report_error(EUCLEAN, "the size in the manifest of %s is damaged",
                            p->file->pairing.path);
    return 0;
}

/* Notes the bitmap of a page, and makes it durable. Not where memory has the same bitmap: then it is durable already (I4; and
 * no word ever returns to an earlier value). This avoids a wait until all that a transaction has stored is durable, though no
 * process will ever read it. (Sparse: the dead process noted a place when the entry was durable.) */
static int note_bitmap(struct dead *p, struct dead_page *at)
{
    if (p->file->logged) {
        at->value = 0;
        p->in_place |= at->showed; /* a word may have been stored in place */
        return 0;
    }
    const uint32_t format = file_format(p->file);
    const uint64_t place = file_place_of(p->file, at->page, at->state);
    const uint64_t chunk = place / layout_chunk(format), offset = layout_word(format, place);
    const uint64_t there = meta_next(p->media.fd, format, chunk, chunk + 1);
    /* A load from a hole, which holds zeros, might be SIGBUS. */
    const bool has_word =
        place != SHARED_NO_PLACE && there == chunk && offset + 8 <= p->media.bytes;
    const uint64_t *word = has_word ? (const uint64_t *)(p->media.map + offset) : NULL;
    const uint64_t is = word ? __atomic_load_n(word, __ATOMIC_RELAXED) : 0;
    if (word && format == LAYOUT_SPARSE && word[-1] != at->page) /* I5 */
        return report_error(EUCLEAN, "place %llu of the reflection %s is not of page %llu",
                            (unsigned long long)place, p->file->pairing.path,
                            (unsigned long long)at->page);
    const bool same = is == at->state->bitmap;
    at->value = is;
    /* It was flipping, and does not flip. */
    p->in_place |= at->showed && same && p->media.persist.domain != PERSIST_PROCESS;
    if (!word || !at->state->version || same)
        return 0;
    return flush(p, word);
}

static int note_all(struct dead *p)
{
    for (uint64_t i = 0; i < p->npages; i++) {
        struct dead_page *at = &p->pages[i];
        if (at->page != DEAD_LOCK &&
            (at->page == DEAD_SIZE ? note_size(p, at) : note_bitmap(p, at)) < 0)
            return -1;
    }
    /* persist-order R6 (writer: W6 in write.c): a word that was stored in place may be visible and not durable. */
    if (p->in_place && fsops_fsync(p->file->pairing.original) < 0)
        return report_errno(errno, "cannot make the file of %s durable", p->file->pairing.path);
    return replay_check(&p->media); /* zeros may have been read instead */
}

/* ---- what becomes visible ---- */

/* Is the page to come home? Its commit has made the space (show_begin()). */
static bool comes_home(const struct file *f, const struct dead_page *at)
{
    return has_content(at) && at->state->bitmap && (at->state->flags & PAGE_O_ALLOCATED) &&
           (at->page + 1) * PAGE_BYTES <= __atomic_load_n(&f->viewed, __ATOMIC_ACQUIRE);
}

/* With plain stores: the dead process has not brought home what it committed. As deploy.c does. */
static void bring_home(struct dead *p)
{
    struct file *f = p->file;
    struct store_look look;
    if (f->logged || !store_views_any(f))
        return;
    look_before(p, &look);
    for (uint64_t i = 0; i < p->npages; i++) {
        const struct dead_page *at = &p->pages[i];
        if (!comes_home(f, at))
            continue;
        const struct homes homes = file_homes_of(f, at->page, at->state);
        persist_home(&f->persist, homes.o, homes.r, at->state->bitmap, false);
    }
    persist_fence(&f->persist); /* W1 */
    for (uint64_t i = 0; i < p->npages; i++) {
        const struct dead_page *at = &p->pages[i];
        if (!comes_home(f, at))
            continue;
        uint64_t *word = file_homes_of(f, at->page, at->state).word;
        /* explorer: tear word survives: both homes have the same bytes. */
        persist_store_word(&f->persist, word, 0);
        if (flush(p, word) < 0)
            __atomic_store_n(&f->shared.header->poisoned, 1, __ATOMIC_RELEASE);
        page_set_bitmap(at->state, 0);
    }
    persist_fence(&f->persist); /* W2 */
    look_after(p, &look);
}

/* Reloads all from the media, and changes it in memory; marks stay. A failure poisons the file: it is then unknown what the
 * media have. */
static void reload(struct dead *p)
{
    struct shared_header *h = p->file->shared.header;
    if (note_all(p) < 0) {
        __atomic_store_n(&h->poisoned, 1, __ATOMIC_RELEASE);
        return;
    }
    /* persist-order R5 (writers: W2, G4, S2 in commit.h and commit.c): after a kill bitmaps and size may be visible and not durable. They
     * become durable before they become visible in memory (I4): otherwise a power cut could take back what was read. */
    persist_fence(&p->media.persist);
    for (uint64_t i = 0; i < p->npages; i++) {
        const struct dead_page *at = &p->pages[i];
        seam_point(SEAM_FLIPPING, p);
        if (at->page == DEAD_SIZE)
            __atomic_store_n(&h->size, at->value, __ATOMIC_RELEASE);
        else if (at->state->version) {
            if (is_early(p, at) && p->undo.number)
                undo_outdate(&p->undo, at->page, at->state->version);
            if (is_early(p, at)) /* replay_log() has brought it home */
                undo_forget(p->file, at->page, at->state);
            page_set_bitmap(at->state, at->value);
        }
    }
    bring_home(p);
}

/* Takes all marks off, and frees pages and size. */
static void release(struct dead *p)
{
    struct shared_header *h = p->file->shared.header;
    /* The dead process may have stored to the original, and the kernel may not have changed its mtime yet. */
    __atomic_store_n(&h->written, 1, __ATOMIC_RELAXED);
    if (p->file->logged && p->undo.number) /* as show() */
        undo_raise(p->file, p->undo.number);
    for (uint64_t i = 0; i < p->npages; i++) {
        const struct dead_page *at = &p->pages[i];
        seam_point(SEAM_FLIPPED, p);
        /* What has the number already gets no earlier version again, which a reader of its early copy may have noted. */
        const bool has_number =
            p->undo.number && page_content(at->state->version) == p->undo.number;
        if (is_flipping(at->state) && p->commits && !has_number)
            page_unmark_changed(at->state, p->undo.number);
        else if (is_flipping(at->state))
            page_turn_mark(at->state);
        if (at->page == DEAD_SIZE)
            __atomic_store_n(&h->cut, UINT64_MAX, __ATOMIC_RELEASE);
        __atomic_store_n(&at->state->tx, 0, __ATOMIC_RELAXED);
        page_release(at->state);
    }
    if (p->undo.number)
        undo_end(p->file, p->undo.number, false);
    end_number(p);
    report_log(REPORT_INFO, "freed the pages of %s that a dead process had reserved",
               p->file->pairing.path);
}

/* ---- all of it ---- */

/* Returns 0; -1 with ESTALE: the manifest is not the one any more that the file was mapped with; or with another error. */
static int check_manifest(const struct pairing *pr)
{
    struct manifest_record is;
    const int named = folder_names(&pr->folder, pr->names.manifest, pr->lock);
    const int found = named < 0 ? -1 : area_read(pr->lock, &is, NULL, NULL);
    if (found < 0)
        return named < 0 ? -1 : report_errno(errno, "cannot read the manifest of %s", pr->path);
    if (named && found == MANIFEST_VALID && memcmp(is.id, pr->record.id, sizeof(is.id)) == 0 &&
        is.state == MANIFEST_IN_USE)
        return 0;
    return report_error(ESTALE,
                        "the manifest of %s was removed or overwritten by another program while "
                        "the file was mapped: what a dead process held stays held. %s",
                        pr->path, pairing_way_out(pr));
}

/* With the attach lock. Returns 0; 1: another process has `showing`; -1 with errno. */
static int recover(struct dead *p)
{
    struct shared *sh = &p->file->shared;
    const unsigned slot = shared_slot_of(p->holder);
    /* If the slot was given to another process its lanes are not touched: what is left of the dead one are pages. */
    const bool has_slot = shared_holder_of(sh, slot) == p->holder;
    const bool has_long = __atomic_load_n(&sh->header->long_lane, __ATOMIC_RELAXED) == p->holder;
    const int busy = replay_open(&p->media, &p->file->pairing) < 0 ? -1 : begin_number(p);
    if (busy)
        return busy;
    const int found = find(p);
    if (found == 0)
        save_all(p); /* before anything of it changes */
    if (found < 0 || (p->file->logged && (p->npages || p->undo.number) && replay_log(p) < 0) ||
        (has_slot && replay_slots(&p->media, slot, slot) < 0) ||
        (has_long && replay_slots(&p->media, MANIFEST_SLOTS, MANIFEST_SLOTS) < 0)) {
        unmark_all(p);
        if (p->took) { /* else some of it may have become visible: nobody else gets that number */
            struct shared_undo *u = &sh->header->undo;
            __atomic_store_n(&u->begun, u->shown,
                             __ATOMIC_RELEASE); /* for ato_snapshot_is_newest() */
            end_number(p);
        }
        return -1;
    }
    reload(p);
    release(p);
    if (has_long)
        __atomic_store_n(&sh->header->long_lane, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&sh->header->died, 1, __ATOMIC_RELAXED);
    if (has_slot)
        __atomic_store_n(&sh->slots[slot].state, SLOT_FREE, __ATOMIC_RELEASE);
    return replay_check(&p->media);
}

/* ---- which processes are dead ---- */

/* How long `showing` is waited for. */
#define BUSY_NS (10ull * 1000 * 1000 * 1000)

/* Returns as recover(). */
static int take_over_once(struct file *f, uint32_t holder)
{
    struct dead p = {.file = f, .holder = holder, .media.fd = -1};
    if (attach_lock(f) < 0)
        return -1;
    int r = check_manifest(&f->pairing);
    if (r == 0 && attach_is_dead(f, holder)) /* or another process has done it */
        r = recover(&p);
    {
        KEEP_ERRNO();
        replay_close(&p.media);
        free(p.pages);
    }
    return attach_unlock(f) < 0 ? -1 : r;
}

int takeover(struct file *f, uint32_t holder)
{
    const struct page_state *showing = &f->shared.header->undo.showing;
    if (!attach_is_dead(f, holder))
        return 0;
    /* Nobody needs what it held, and the next map recovers the file. */
    if (file_check(f) < 0)
        return -1;
    if (f->reader)
        return report_error(EAGAIN,
                            "a dead process has pages of %s reserved: a process that may write to "
                            "the file has to free them, by mapping it",
                            f->pairing.path);
    /* What another program did to the file meanwhile must not be mixed with what the dead process committed. */
    if (growth_check(&f->pairing) < 0)
        return -1;
    const uint64_t until = clock_ns() + BUSY_NS;
    int r;
    for (unsigned i = 0; (r = take_over_once(f, holder)) > 0; i++) {
        if (clock_ns() >= until)
            return report_error(ETIMEDOUT,
                                "a commit to %s does not end: its process may be stopped",
                                f->pairing.path);
        /* A living one releases it without a wait; another dead one comes first. */
        if (file_check(f) < 0 ||
            takeover(f, __atomic_load_n(&showing->holder, __ATOMIC_RELAXED)) < 0)
            return -1;
        page_pause(i);
    }
    return r;
}

int takeover_all(struct file *f)
{
    int r = 0;
    for (unsigned slot = 0; slot < MANIFEST_SLOTS; slot++)
        r |= takeover(f, shared_given_to(&f->shared, slot));
    return r;
}

bool takeover_is_due(const struct file *f)
{
    for (unsigned slot = 0; slot < MANIFEST_SLOTS; slot++)
        if (attach_is_dead(f, shared_given_to(&f->shared, slot)))
            return true;
    return false;
}
