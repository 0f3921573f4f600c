/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/undo.h"

#include "lib/file/mutex.h"
#include "lib/file/page.h"
#include "reflection/media/locks.h"
#include "reflection/media/races.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <string.h>
#include <sys/vfs.h>

enum {
    COPIES_AT = UNDO_BUCKETS * 4,
    STEP = 256,        /* copies that get space together */
    LOOKS = 8,         /* copies that are looked at for a free one before there are more */
    LONGEST = 65536,   /* list. Shared memory is not trusted */
    MOST_GIVEN_UP = 64 /* snapshots for one page: others may take entries without end */
};

/* ---- the table ---- */

static uint64_t *line_at(const struct shared *s, unsigned line)
{
    return (uint64_t *)s->table.base + line * UNDO_WORDS;
}

/* Returns how many words there are in the lines in use, which begin at line 1. */
static unsigned entries(const struct shared *s)
{
    const uint64_t lines = __atomic_load_n(line_at(s, 0), __ATOMIC_ACQUIRE);
    return (unsigned)lesser(lines, UNDO_LINES - 1) * UNDO_WORDS;
}

static bool is_snapshot(uint64_t entry)
{
    return entry >= UNDO_FIRST;
}

/* Is there a snapshot that sees the content that a page had from commit `from` on, until commit `until`? */
static bool is_needed(const struct shared *s, uint64_t from, uint64_t until)
{
    const uint64_t *entry = line_at(s, 1);
    for (const uint64_t *end = entry + entries(s); entry < end; entry++) {
        const uint64_t e = __atomic_load_n(entry, __ATOMIC_RELAXED), number = e & ~UNDO_BEGINNING;
        if (is_snapshot(e) && number < until && (number >= from || (e & UNDO_BEGINNING)))
            return true;
    }
    return false;
}

/* Readers begin at `moment`, or later. It is loaded before the table is looked at: an early commit stores nothing that a snapshot which
 * begins meanwhile would find (mutant TABLE_FIRST of early.pml). */
static bool is_kept(const struct shared *s, const struct undo_copy *c)
{
    if (c->until == UNDO_PRIVATE)
        return c->views & __atomic_load_n(&s->header->views_used, __ATOMIC_RELAXED);
    return c->until > __atomic_load_n(&s->header->undo.moment, __ATOMIC_ACQUIRE) ||
           (c->until && is_needed(s, c->from, c->until));
}

/* Is the line this process's? It is, before there is a snapshot in it. */
static bool is_own(const struct shared *s, unsigned line)
{
    return __atomic_load_n(&s->table_lines[line / 64], __ATOMIC_ACQUIRE) >> line % 64 & 1;
}

/* Gives up the snapshots of dead processes. Not free: a process that gets the line meanwhile may have begun the same one, and begins again. */
static void forget_dead(struct shared *s)
{
    for (unsigned line = 1; line <= entries(s) / UNDO_WORDS; line++) {
        uint64_t *words = line_at(s, line), was[UNDO_WORDS], any = 0;
        for (unsigned i = 0; i < UNDO_WORDS; i++) {
            was[i] = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
            any |= is_snapshot(was[i]);
        }
        /* A process sees its own locks as free. */
        if (!any || is_own(s, line) || locks_ask(s->table_fd, line, 1) != LOCKS_FREE)
            continue;
        for (unsigned i = 0; i < UNDO_WORDS; i++)
            if (is_snapshot(was[i]))
                (void)__atomic_compare_exchange_n(&words[i], &was[i], UNDO_LOST, false,
                                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

/* Gives up the oldest snapshot, or all with the same number. Returns whether there was one. */
static bool give_up_oldest(struct shared *s)
{
    uint64_t *const first = line_at(s, 1), *const end = first + entries(s), oldest = UINT64_MAX;
    for (const uint64_t *entry = first; entry < end; entry++) {
        const uint64_t e = __atomic_load_n(entry, __ATOMIC_RELAXED);
        if (is_snapshot(e) && e < oldest)
            oldest = e;
    }
    for (uint64_t *entry = first; entry < end; entry++) {
        uint64_t e = oldest;
        (void)__atomic_compare_exchange_n(entry, &e, UNDO_LOST, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED);
    }
    return oldest != UINT64_MAX;
}

static int lock_line(struct file *f, unsigned line)
{
    const enum locks_answer answer = locks_try(f->shared.table_fd, F_WRLCK, line, 1);
    return answer == LOCKS_FAILED
               ? report_errno(errno, "cannot lock a line of the snapshots of %s", f->pairing.path)
               : answer == LOCKS_MINE;
}

/* Tells others that the lines up to this one are in use. */
static void raise_used(struct shared *s, uint64_t line)
{
    uint64_t lines = __atomic_load_n(line_at(s, 0), __ATOMIC_RELAXED);
    while (lines < line && !__atomic_compare_exchange_n(line_at(s, 0), &lines, line, false,
                                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

uint64_t *undo_take_entry(struct file *f)
{
    struct shared *s = &f->shared;
    /* First in the process's own lines, then in a new one. */
    for (unsigned i = 0; i < 2 * UNDO_LINES; i++) {
        const unsigned line = i % UNDO_LINES;
        uint64_t *words = line_at(s, line);
        const bool is_new = i >= UNDO_LINES;
        if (line == 0 || is_new == is_own(s, line))
            continue;
        const int mine = is_new ? lock_line(f, line) : 1;
        if (mine < 0)
            return NULL;
        if (!mine)
            continue;
        for (unsigned k = 0; is_new && k < UNDO_WORDS; k++)
            __atomic_store_n(&words[k], UNDO_FREE, __ATOMIC_RELAXED);
        __atomic_fetch_or(&s->table_lines[line / 64], 1ull << line % 64, __ATOMIC_RELEASE);
        raise_used(s, line);
        for (unsigned k = 0; k < UNDO_WORDS; k++) {
            uint64_t e = UNDO_FREE;
            if (__atomic_compare_exchange_n(&words[k], &e, UNDO_TAKEN, false, __ATOMIC_ACQUIRE,
                                            __ATOMIC_RELAXED))
                return &words[k];
        }
    }
    return report_null(EAGAIN, "%d snapshots of %s are open, or so many as others leave room for",
                       (UNDO_LINES - 1) * UNDO_WORDS, f->pairing.path);
}

/* ---- copies ---- */

static uint32_t *head_of(const struct shared *s, uint64_t page)
{
    return (uint32_t *)s->undo.base + (page * 0x9e3779b97f4a7c15ull >> 49) % UNDO_BUCKETS;
}

/* Returns the copy with that index, and maps it; NULL: it cannot be mapped. */
static struct undo_copy *copy_at(struct shared *s, uint64_t i)
{
    struct undo_copy *first = (struct undo_copy *)(s->undo.base + COPIES_AT);
    const uint64_t end = COPIES_AT + (i + 1) * sizeof(*first);
    if (end > s->undo.room || (end > __atomic_load_n(&s->undo.bytes, __ATOMIC_ACQUIRE) &&
                               window_reach(&s->undo, lesser(2 * end, s->undo.room)) < 0 &&
                               window_reach(&s->undo, end) < 0))
        return NULL;
    return first + i;
}

bool undo_next(struct undo_walk *w)
{
    struct shared *s = &w->f->shared;
    do {
        const uint32_t at =
            __atomic_load_n(w->at ? &w->at->next : head_of(s, w->page), __ATOMIC_ACQUIRE);
        if (!at || w->looks++ == LONGEST)
            return false;
        w->at = copy_at(s, at - 1);
        w->failed = !w->at;
    } while (w->at && __atomic_load_n(&w->at->page, __ATOMIC_ACQUIRE) != w->page);
    return w->at;
}

struct undo_copy *undo_at(struct file *f, uint64_t i)
{
    return i < f->shared.header->undo.made && undo_map(f) == 0 ? copy_at(&f->shared, i) : NULL;
}

/* Takes the copy out of its list, if it is in one. */
static void unlink_copy(struct shared *s, uint64_t i, struct undo_copy *c)
{
    uint32_t *link = head_of(s, c->page);
    for (unsigned n = 0; *link && n < LONGEST; n++) {
        if (*link == i + 1) {
            __atomic_store_n(link, c->next, __ATOMIC_RELEASE);
            return;
        }
        struct undo_copy *next = copy_at(s, *link - 1);
        if (!next)
            return;
        link = &next->next;
    }
}

/* Gives more copies space, where the next one is looked for. */
static bool make_more(struct shared *s)
{
    struct shared_undo *u = &s->header->undo;
    const uint64_t made = u->made, n = lesser(STEP, u->most > made ? u->most - made : 0);
    const uint64_t at = shared_undo_at(s) + COPIES_AT + made * sizeof(struct undo_copy);
    struct statfs fs; /* a quarter stays for the states of pages, of all files */
    KEEP_REPORT();
    if (!n || fstatfs(s->fd, &fs) < 0 || fs.f_bavail <= fs.f_blocks / 4 ||
        !copy_at(s, made + n - 1) ||
        shared_allocate(s, at, n * sizeof(struct undo_copy), "pages that snapshots see") < 0)
        return false;
    u->hand = made;
    u->made = made + n;
    return true;
}

/* Returns a copy that no snapshot needs, in no list; NULL: there is none. *index: its own. */
static struct undo_copy *find_free(struct shared *s, uint64_t *index, bool early)
{
    struct shared_undo *u = &s->header->undo;
    unsigned given_up = 0;
    for (bool full = false;;) {
        for (uint64_t n = full ? u->made : lesser(LOOKS, u->made); n > 0; n--) {
            const uint64_t i = u->hand < u->made ? u->hand : 0;
            struct undo_copy *c = copy_at(s, i);
            u->hand = i + 1;
            if (!c)
                return NULL;
            if (!is_kept(s, c)) {
                __atomic_store_n(&c->until, 0, __ATOMIC_RELEASE);
                unlink_copy(s, i, c);
                *index = i;
                return c;
            }
        }
        if (full && (early || given_up++ == MOST_GIVEN_UP || !give_up_oldest(s)))
            return NULL;
        if (full)
            continue;
        forget_dead(s);
        full = !make_more(s);
    }
}

/* Returns a free copy, which becomes the first in the list of the page; NULL: there is none. */
static struct undo_copy *take(const struct undo *u, uint64_t page)
{
    struct shared *s = &u->f->shared;
    uint64_t i;
    struct undo_copy *c = find_free(s, &i, u->early);
    if (!c)
        return NULL;
    uint32_t *head = head_of(s, page);
    __atomic_store_n(&c->page, page, __ATOMIC_RELAXED);
    __atomic_store_n(&c->next, *head, __ATOMIC_RELAXED);
    __atomic_store_n(head, (uint32_t)i + 1, __ATOMIC_RELEASE);
    return c;
}

/* Returns where to save the page; NULL: nowhere, or it is saved. */
static struct undo_copy *choose(const struct undo *u, uint64_t page, bool *is_saved)
{
    struct undo_walk w = {.f = u->f, .page = page};
    struct undo_copy *unneeded = NULL;
    *is_saved = false;
    while (undo_next(&w)) {
        /* By the process that died in this commit, or by one that could not make it early. */
        if (w.at->until == u->number) {
            *is_saved = true;
            return NULL;
        }
        if (!unneeded && !is_kept(&u->f->shared, w.at))
            unneeded = w.at;
    }
    return unneeded ? unneeded : take(u, page);
}

/* ---- a commit ---- */

void undo_begin(struct undo *u, struct file *f, bool early)
{
    struct shared *s = &f->shared;
    struct shared_undo *h = &s->header->undo;
    const uint64_t shown = h->shown; /* not trusted: without a number `showing` would stay held */
    *u = (struct undo){
        .f = f, .number = shown + 1 > UNDO_FIRST ? shown + 1 : UNDO_FIRST + 1, .early = early};
    if (!early)
        __atomic_store_n(&h->begun, u->number, __ATOMIC_RELEASE);
    /* Before the look at the table: pairs with the one in snapshot.c. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    /* If they cannot be mapped, nothing is saved, and snapshots that need it are given up. */
    u->saves = undo_map(f) == 0;
}

/* The lists are about to be changed. */
static void change(const struct undo *u)
{
    struct shared_undo *h = &u->f->shared.header->undo;
    __atomic_store_n(&h->edition, h->edition | 1, __ATOMIC_RELEASE);
}

bool undo_save(struct undo *u, uint64_t page, struct page_state *s, bool always)
{
    const uint64_t version = __atomic_load_n(&s->version, __ATOMIC_RELAXED),
                   from = page_content(version);
    struct file *f = u->f;
    if (!version || (version & PAGE_CHANGING) || !u->saves || from >= u->number)
        return !always;
    if (undo_is_early(f, s)) {
        if (!always)
            undo_outdate(u, page, version);
        return true;
    }
    if (f->logged)
        undo_forget(f, page, s);
    if (!always && !is_needed(&f->shared, from, u->number))
        return true;
    change(u);
    bool is_saved;
    struct undo_copy *c = choose(u, page, &is_saved);
    if (!c)
        return is_saved;
    __atomic_store_n(&c->until, 0, __ATOMIC_RELEASE);
    copy_gather_range(f->persist.kernel, c->bytes, file_o(f, page), file_r_to_read(f, page, s),
                      s->bitmap, 0, PAGE_BYTES);
    __atomic_store_n(&c->from, from, __ATOMIC_RELEASE);
    seam_point(SEAM_SAVING, u);
    __atomic_store_n(&c->until, u->number, __ATOMIC_RELEASE);
    return true;
}

void undo_saved(const struct undo *u)
{
    struct shared_undo *h = &u->f->shared.header->undo;
    if (h->edition & 1)
        __atomic_store_n(&h->edition, h->edition + 1, __ATOMIC_RELEASE);
}

void undo_raise(struct file *f, uint64_t number)
{
    uint64_t *moment = &f->shared.header->undo.moment,
             is = __atomic_load_n(moment, __ATOMIC_RELAXED);
    while (is < number && !__atomic_compare_exchange_n(moment, &is, number, false, __ATOMIC_ACQ_REL,
                                                       __ATOMIC_RELAXED))
        ;
}

/* ---- early copies ---- */

static int no_memory(const struct file *f)
{
    return window_no_room(ENOMEM, sizeof(struct undo_copy), "the snapshots of ", f->pairing.path);
}

struct undo_copy *undo_room(const struct undo *u, uint64_t page)
{
    const struct undo other = {.f = u->f, .number = UNDO_EARLY - 1, .early = true};
    bool is_saved;
    change(u);
    struct undo_copy *c = choose(&other, page, &is_saved);
    if (c)
        __atomic_store_n(&c->until, 0, __ATOMIC_RELEASE);
    return c;
}

void undo_put(const struct undo *u, struct undo_copy *c)
{
    __atomic_store_n(&c->from, u->number, __ATOMIC_RELEASE);
    __atomic_store_n(&c->until, UNDO_EARLY, __ATOMIC_RELEASE);
}

/* Finds the copy that has the content of a page with this version; *found: NULL: there is none. Returns 0; -1 with ENOMEM. */
static int find_newest(struct file *f, uint64_t page, uint64_t version, struct undo_copy **found)
{
    struct undo_walk w = {.f = f, .page = page};
    *found = NULL;
    while (!*found && undo_next(&w)) {
        const uint64_t until = __atomic_load_n(&w.at->until, __ATOMIC_ACQUIRE),
                       from = __atomic_load_n(&w.at->from, __ATOMIC_ACQUIRE);
        /* The page once more: another one may have got the copy meanwhile, for content of the same commit. */
        if (from == page_content(version) && until > from &&
            __atomic_load_n(&w.at->page, __ATOMIC_ACQUIRE) == page)
            *found = w.at;
    }
    return w.failed ? no_memory(f) : 0;
}

int undo_newest(struct file *f, uint64_t page, const struct page_state *s, uint64_t version,
                unsigned begin, unsigned n, char *dst)
{
    const struct shared_undo *h = &f->shared.header->undo;
    const uint32_t edition = __atomic_load_n(&h->edition, __ATOMIC_ACQUIRE);
    struct undo_copy *c;
    if (undo_map(f) < 0 || find_newest(f, page, version, &c) < 0)
        return -1;
    if (c)
        f->persist.kernel->plain(dst, c->bytes + begin, n);
    if (c || __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) != version || !undo_is_early(f, s))
        return 0;
    /* The list was being changed, and led elsewhere. */
    if (edition & 1 || __atomic_load_n(&h->edition, __ATOMIC_ACQUIRE) != edition)
        return 1;
    return report_error(EUCLEAN, "the shared memory of %s is damaged", f->pairing.path);
}

void undo_outdate(const struct undo *u, uint64_t page, uint64_t version)
{
    struct undo_copy *c;
    if (u->saves && find_newest(u->f, page, version, &c) == 0 && c)
        __atomic_store_n(&c->until, u->number, __ATOMIC_RELEASE);
}

void undo_forget(struct file *f, uint64_t page, struct page_state *state)
{
    struct undo_walk w = {.f = f, .page = page};
    while (undo_map(f) == 0 && undo_next(&w))
        if (w.at->until == UNDO_EARLY) {
            page_renew(state);
            __atomic_store_n(&w.at->until, 0, __ATOMIC_RELEASE);
        }
}

int undo_each_early(struct file *f, int (*visit)(struct file *f, uint64_t page,
                                                 struct page_state *s, const char *bytes))
{
    struct shared *s = &f->shared;
    const uint64_t made = s->header->undo.made;
    if (made && undo_map(f) < 0)
        return -1;
    for (uint64_t i = 0; i < made; i++) {
        struct undo_copy *c = copy_at(s, i);
        if (!c)
            return no_memory(f);
        if (c->until != UNDO_EARLY)
            continue;
        struct page_state *state = c->page < s->pages ? shared_peek(s, c->page) : NULL;
        if (!state)
            return report_error(EUCLEAN, "the shared memory of %s is damaged", f->pairing.path);
        /* Or it was left by a process that was killed when it had brought the page home. */
        const bool is_newest = state->bitmap && page_content(state->version) == c->from;
        const int r = is_newest ? visit(f, c->page, state, c->bytes) : 0;
        if (r < 0)
            return -1;
        if (r > 0)
            continue;
        page_renew(state);
        __atomic_store_n(&c->until, 0, __ATOMIC_RELEASE);
    }
    return 0;
}

/* ---- copies for plain stores ---- */

struct undo_copy *undo_first_room(struct file *f, uint64_t page)
{
    const struct undo u = {.f = f, .early = true};
    if (undo_map(f) < 0)
        return NULL;
    change(&u);
    struct undo_copy *c = take(&u, page);
    undo_saved(&u);
    return c;
}

/* ---- a snapshot ---- */

int undo_find(struct file *f, uint64_t number, uint64_t page, unsigned begin, unsigned n, char *dst)
{
    const struct shared_undo *h = &f->shared.header->undo;
    const uint32_t edition = __atomic_load_n(&h->edition, __ATOMIC_ACQUIRE);
    struct undo_walk w = {.f = f, .page = page};
    while (undo_next(&w)) {
        const struct undo_copy *c = w.at;
        const uint64_t until = __atomic_load_n(&c->until, __ATOMIC_ACQUIRE),
                       from = __atomic_load_n(&c->from, __ATOMIC_ACQUIRE);
        seam_point(SEAM_VERSION, f);
        if (number < from || number >= until)
            continue;
        RACES_MEANT_BEGIN(); /* it may be used anew meanwhile */
        f->persist.kernel->plain(dst, c->bytes + begin, n);
        RACES_MEANT_END(dst, n);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        /* `until` becomes 0 before anything else changes, and no page has the same content twice. */
        return __atomic_load_n(&c->until, __ATOMIC_RELAXED) == until &&
                       __atomic_load_n(&c->from, __ATOMIC_RELAXED) == from &&
                       __atomic_load_n(&c->page, __ATOMIC_RELAXED) == page
                   ? UNDO_FOUND
                   : UNDO_AGAIN;
    }
    if (w.failed)
        return no_memory(f);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return edition & 1 || __atomic_load_n(&h->edition, __ATOMIC_RELAXED) != edition ? UNDO_AGAIN
                                                                                    : UNDO_NONE;
}

/* ---- both objects ---- */

int undo_number(struct file *f, uint64_t bytes)
{
    struct shared *s = &f->shared;
    struct shared_header *h = s->header;
    if (__atomic_load_n(&h->numbered, __ATOMIC_ACQUIRE))
        return 0;
    __atomic_store_n(&h->undo.most, bytes / sizeof(struct undo_copy), __ATOMIC_RELEASE);
    /* The table last: after a failure it is not open. */
    if (shared_allocate(s, shared_undo_at(s), COPIES_AT, "snapshots") < 0)
        return -1;
    mutex_lock(MUTEX_SNAPSHOTS);
    const int r = shared_open_table(s, &f->pairing.identity.trust, UNDO_TABLE_BYTES, true);
    mutex_unlock(MUTEX_SNAPSHOTS);
    if (r < 0)
        return -1;
    __atomic_store_n(&h->numbered, UNDO_BEGUN, __ATOMIC_RELEASE);
    return 0;
}

int undo_map(struct file *f)
{
    struct shared *s = &f->shared;
    if (__builtin_expect(__atomic_load_n(&s->undo_mapped, __ATOMIC_ACQUIRE), 1))
        return 0;
    mutex_lock(MUTEX_SNAPSHOTS);
    const uint64_t most = lesser(s->header->undo.most, UINT32_MAX);
    int r = s->table.base
                ? 0
                : shared_open_table(s, &f->pairing.identity.trust, UNDO_TABLE_BYTES, false);
    if (r == 0 && !s->undo_mapped) {
        s->undo = (struct window){.domain = PERSIST_PROCESS,
                                  .fd = s->fd,
                                  .prot = f->reader ? PROT_READ : PROT_READ | PROT_WRITE,
                                  .at = shared_undo_at(s)};
        r = window_open(&s->undo, COPIES_AT, COPIES_AT + most * sizeof(struct undo_copy),
                        s->faults);
        if (r < 0)
            (void)window_no_room(errno, COPIES_AT, "the snapshots of ", f->pairing.path);
        else
            __atomic_store_n(&s->undo_mapped, true, __ATOMIC_RELEASE);
    }
    mutex_unlock(MUTEX_SNAPSHOTS);
    return r;
}
