/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/notes.h"

#include "lib/commit/commit.h"
#include "lib/file/clock.h"
#include "lib/file/under_way.h"
#include "lib/page/page_set.h"
#include "lib/page/reservation.h"
#include "lib/read/read.h"
#include "lib/transaction/claim.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <immintrin.h>
#include <stdlib.h>

enum { LEAST_ROOM = 64 };

/* The half of a content's number that a note has. */
static uint32_t half_of(uint64_t version)
{
    return (uint32_t)page_content(version);
}

static int has_changed(struct tx *t, const struct file *f)
{
    t->refused = true;
    return report_error(
        EAGAIN,
        "others have changed what the transaction has read of %s: it has no effect; "
        "abort it, and run it again",
        f->pairing.path);
}

/* ---- the table ---- */

/* Returns the place of a page, or the free place where it belongs. */
static uint32_t place_of(const struct notes *n, const struct page_state *s)
{
    const uint64_t most = 2 * n->room - 1;
    uint64_t at = ((uintptr_t)s / sizeof(*s) * 0x9e3779b97f4a7c15ull >> 32) & most;
    while (n->index[at] && n->each[n->index[at] - 1].state != s)
        at = (at + 1) & most;
    return (uint32_t)at;
}

static int make_room(struct notes *n)
{
    const uint64_t room = n->room ? 2 * n->room : LEAST_ROOM;
    struct note *each = realloc(n->each, room * sizeof(*each));
    uint32_t *index = each ? calloc(2 * room, sizeof(*index)) : NULL;
    n->each = each ? each : n->each;
    if (!index)
        return report_error(ENOMEM, "no memory to note %llu pages that a transaction reads",
                            (unsigned long long)room);
    free(n->index);
    n->index = index;
    n->room = room;
    for (uint64_t i = 0; i < n->n; i++) {
        n->each[i].at = place_of(n, n->each[i].state);
        n->index[n->each[i].at] = (uint32_t)i + 1;
    }
    return 0;
}

int notes_add(struct tx *t, struct file *f, const struct page_state *s, uint64_t end,
              uint64_t version)
{
    struct notes *n = &t->notes;
    const uint32_t content = half_of(version);
    if (n->n == n->room && make_room(n) < 0)
        return -1;
    const uint32_t at = place_of(n, s);
    if (n->index[at]) {
        struct note *known = &n->each[n->index[at] - 1];
        known->end = known->end > end ? known->end : end;
        return known->content == content ? 0 : has_changed(t, f);
    }
    const uint64_t pages = n->n - n->sizes;
    if (end && pages == t->max_pages)
        return report_error(E2BIG,
                            "a transaction that reads %llu pages: its limit is %llu "
                            "(ato_tx_options.max_bytes)",
                            (unsigned long long)pages + 1, (unsigned long long)t->max_pages);
    n->each[n->n++] =
        (struct note){.file = f, .state = s, .end = end, .content = content, .at = at};
    n->index[at] = (uint32_t)n->n;
    n->sizes += !end;
    return 0;
}

int notes_add_size(struct tx *t, struct mapping *m)
{
    struct file *f = m->file;
    const struct page_state *sizing = &f->shared.header->sizing;
    if ((t->flags & ATO_TX_READ_COMMITTED) || claim_sizing(t, f))
        return 0;
    if (f->reader)
        return notes_refuse_reader(f);
    const uint64_t version = read_steady_version(f, sizing);
    return version && claim_mapping(t, m, false) == 0 ? notes_add(t, f, sizing, 0, version) : -1;
}

int notes_refuse_reader(const struct file *f)
{
    return report_error(EACCES,
                        "a transaction cannot note what it reads of %s, which may only be read "
                        "here: begin it with ATO_TX_READ_COMMITTED",
                        f->pairing.path);
}

/* The newest one first: the search for an older one ends before the place of a newer one. */
void notes_give_back(struct notes *n, uint64_t from)
{
    while (n->n > from) {
        const struct note *last = &n->each[--n->n];
        n->index[last->at] = 0;
        n->sizes -= !last->end;
    }
}

/* Notes that are kept for the next transaction. */
enum { FEW = 65536 };

void notes_drop(struct notes *n)
{
    n->moment = 0;
    if (n->room > FEW) {
        free(n->each);
        free(n->index);
        *n = (struct notes){0};
    }
    notes_give_back(n, 0);
}

/* ---- the check ---- */

/* With fewer notes it takes no longer to look at each. */
enum { WORTH_A_MOMENT = 32 };

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ b) * 0x9e3779b97f4a7c15ull;
    return a ^ a >> 29;
}

/* Returns a number that is the same as long as nobody has begun a commit to one of the transaction's files since it
 * was the same: it sums up how many commits there were, of all processes (under_way.h). 0: unknown, since one is under way. */
static uint64_t moment(const struct tx *t)
{
    uint64_t sum = 1;
    if (t->notes.n < WORTH_A_MOMENT)
        return 0;
    for (unsigned i = 0; i < t->nmappings; i++) {
        const struct shared *shared = &t->mappings[i]->file->shared;
        const unsigned slots = under_way_slots(shared);
        for (unsigned slot = 0; slot < slots; slot++) {
            const uint32_t holder = shared_given_to(shared, slot);
            const unsigned threads = holder ? under_way_threads(shared, slot) : 0;
            sum = mix(sum, holder);
            for (unsigned thread = 0; thread < threads; thread++) {
                const uint64_t commits = under_way_look(shared, slot, thread);
                if (commits & UNDER_WAY_NOW)
                    return 0;
                sum = mix(sum, commits);
            }
        }
    }
    return sum;
}

/* Returns true if the page was read beyond byte `end` of its file, and the transaction does not change the file's size. */
static bool is_behind(const struct tx *t, const struct note *at, uint64_t end)
{
    return at->end > end && !claim_sizing(t, at->file);
}

/* Returns true if another transaction is going to cut the page off, or has cut it off. */
static bool is_cut(const struct tx *t, const struct note *at)
{
    /* `cut` first, as in reservation_within(). */
    const uint64_t cut = __atomic_load_n(&at->file->shared.header->cut, __ATOMIC_ACQUIRE);
    return is_behind(t, at, cut) || is_behind(t, at, file_size(at->file));
}

/* Waits until no other transaction commits the page, or cuts it off. Returns 0; -1 with EAGAIN: the transaction is
 * refused. */
static int await_commit(struct tx *t, const struct note *at)
{
    const struct page_state *s = is_cut(t, at) ? &at->file->shared.header->sizing : at->state;
    uint64_t until = 0;
    for (unsigned i = 0; __atomic_load_n(&s->tx, __ATOMIC_ACQUIRE) & PAGE_SET_COMMITS; i++) {
        const uint64_t now = clock_ns();
        until = until ? until : now + t->wait_ms * 1000000;
        if (now >= until) {
            const uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
            (void)reservation_look_after(at->file, s, holder);
            return has_changed(t, at->file);
        }
        page_pause(i);
    }
    return 0;
}

int notes_hold(struct tx *t)
{
    struct notes *n = &t->notes;
    /* Before the notes are looked at: a commit that begins after this moves the next moment, and one that began
     * before and is not over makes this one unknown. */
    const uint64_t now = moment(t);
    if (now && now == n->moment)
        return 0;
    for (uint64_t i = 0; i < n->n; i++) {
        const struct note *at = &n->each[i];
        if (await_commit(t, at) < 0)
            return -1;
        const uint64_t version = read_steady_version(at->file, at->state);
        if (!version)
            return -1;
        if (half_of(version) != at->content || is_behind(t, at, file_size(at->file)))
            return has_changed(t, at->file);
    }
    n->moment = now;
    return 0;
}

void notes_mark_commit(struct tx *t, bool begins)
{
    const uint64_t flag = begins ? PAGE_SET_COMMITS : 0;
    struct file *f = t->written->file;
    if (begins)
        (void)under_way_begin(f);
    if (t->sized)
        __atomic_store_n(&f->shared.header->sizing.tx, page_set_note(t->set.tag, 0) | flag,
                         __ATOMIC_RELEASE);
    for (uint64_t i = 0; i < t->set.n; i++)
        __atomic_store_n(&t->set.pages[i].state->tx, page_set_note(t->set.tag, i) | flag,
                         __ATOMIC_RELEASE);
    if (!begins)
        under_way_end(under_way_of(f));
    /* The check that follows comes after the flags, for all CPUs. If another transaction misses a flag, it has seen a change
     * of what this one has read, and this check finds that change, too. */
    if (begins)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Returns the holder of the page, if that is not the transaction, after it had a moment to release it. */
static uint32_t other_holder(const struct tx *t, const struct note *at)
{
    uint32_t holder = 0;
    for (unsigned i = 0; i < PAGE_SPINS; i++) {
        holder = __atomic_load_n(&at->state->holder, __ATOMIC_ACQUIRE);
        if (!holder || page_set_is_of(at->file, at->state, t->set.tag))
            return 0;
        seam_point(SEAM_WAIT, at->state);
        _mm_pause();
    }
    return holder;
}

bool notes_are_of_held(struct tx *t)
{
    for (uint64_t i = 0; i < t->notes.n; i++) {
        const struct note *at = &t->notes.each[i];
        /* A cut within the page, before it was held, leaves its content. */
        if (!claim_find_at(t, at->state) || is_behind(t, at, file_size(at->file)) ||
            half_of(__atomic_load_n(&at->state->version, __ATOMIC_RELAXED)) != at->content)
            return false;
    }
    return true;
}

int notes_hold_for_commit(struct tx *t)
{
    /* The holder comes first: if the page is free, or the transaction's own, all that was committed to it is
     * visible. Each of two transactions has reserved what it writes, by locked instructions, before it looks here. So
     * at least one of them sees the other one. */
    for (uint64_t i = 0; i < t->notes.n; i++) {
        const struct note *at = &t->notes.each[i];
        const uint32_t holder = other_holder(t, at);
        if (holder) {
            (void)reservation_look_after(at->file, at->state, holder); /* for the next try */
            return has_changed(t, at->file);
        }
        if (half_of(__atomic_load_n(&at->state->version, __ATOMIC_ACQUIRE)) != at->content)
            return has_changed(t, at->file);
        if (!is_cut(t, at))
            continue;
        /* The transaction that cuts the page off may be waiting for a lane. */
        commit_unprepare(&t->set);
        const struct patience patience = claim_patience(t);
        if (reservation_wait_for_size(at->file, &patience) < 0 || is_cut(t, at))
            return has_changed(t, at->file);
    }
    return 0;
}
