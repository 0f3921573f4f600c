/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of transactions, and the end of a transaction. */
#include "tx.h"

#include "../reflection/report.h"
#include "deploy.h"
#include "process.h"
#include "resize.h"
#include "size.h"
#include "stage.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Place 0 is never used, so a handle and a tag are never 0. */
static struct tx *places[TX_PLACES];
static unsigned made; /* places in use, from 1 on */
static struct tx *unused;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The transaction that this thread used last: most transactions are begun by the thread that ended the last one. */
static __thread struct tx *kept __attribute__((tls_model("initial-exec")));
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit_of_thread;
static int have_key;
/* The thread's end will put `kept` away. */
static __thread bool armed __attribute__((tls_model("initial-exec")));

static void put_away(struct tx *t)
{
    pthread_mutex_lock(&lock);
    t->next_free = unused;
    unused = t;
    pthread_mutex_unlock(&lock);
}

static void thread_ends(void *any)
{
    (void)any;
    struct tx *t = kept;
    kept = NULL;
    armed = false;
    if (t)
        put_away(t);
}

static void make_key(void)
{
    have_key = pthread_key_create(&at_exit_of_thread, thread_ends) == 0;
}

/* The caller holds the lock. */
static struct tx *new_place(void)
{
    struct tx *t = unused;
    if (t) {
        unused = t->next_free;
        return t;
    }
    if (made + 1 == TX_PLACES) {
        report_error(EAGAIN, "%d transactions are open", TX_PLACES - 1);
        return NULL;
    }
    t = calloc(1, sizeof(*t));
    if (!t) {
        report_error(ENOMEM, "no memory for a transaction");
        return NULL;
    }
    hold_init(&t->hold);
    t->parts = t->few;
    t->parts_room = TX_FEW_PARTS;
    t->generation = 1;
    t->slot = made + 1;
    __atomic_store_n(&made, t->slot, __ATOMIC_RELAXED);
    __atomic_store_n(&places[t->slot], t, __ATOMIC_RELEASE);
    return t;
}

static void open_handle(struct tx *t)
{
    uint64_t handle = t->generation << 16 | t->slot;
    __atomic_store_n(&t->hold.tag, (uint32_t)handle, __ATOMIC_RELAXED);
    __atomic_store_n(&t->handle, handle, __ATOMIC_RELEASE);
}

static void next_generation(struct tx *t)
{
    t->generation = (t->generation + 1) & ((1ull << 48) - 1);
    if (__builtin_expect(!t->generation, 0))
        t->generation = 1;
}

struct tx *tx_make(uint64_t owner, unsigned flags)
{
    struct tx *t = kept;
    if (__builtin_expect(!t, 0)) {
        if (process_set_up() < 0)
            return NULL;
        pthread_once(&once, make_key);
        armed = have_key && pthread_setspecific(at_exit_of_thread, &kept) == 0;
        pthread_mutex_lock(&lock);
        t = new_place();
        pthread_mutex_unlock(&lock);
        if (!t)
            return NULL;
    }
    kept = NULL;
    t->flags = flags;
    t->wait_ms = 0;
    t->max_pages = TX_PAGES;
    __atomic_store_n(&t->owner, owner, __ATOMIC_RELEASE);
    open_handle(t);
    return t;
}

struct tx *tx_at(uint64_t handle)
{
    struct tx *t = __atomic_load_n(&places[handle & (TX_PLACES - 1)], __ATOMIC_ACQUIRE);
    return t && handle && __atomic_load_n(&t->handle, __ATOMIC_ACQUIRE) == handle ? t : NULL;
}

uint64_t tx_owner_of(uint64_t tx)
{
    uint32_t tag = (uint32_t)(tx >> 32);
    struct tx *t = __atomic_load_n(&places[tx_place(tx)], __ATOMIC_ACQUIRE);
    if (!t || (uint32_t)__atomic_load_n(&t->handle, __ATOMIC_ACQUIRE) != tag || !tag)
        return TX_NOBODY;
    return __atomic_load_n(&t->owner, __ATOMIC_RELAXED) & ~TX_UNDECIDED;
}

void tx_each_of(uint64_t thread, void (*visit)(struct tx *t, void *arg), void *arg)
{
    const unsigned n = __atomic_load_n(&made, __ATOMIC_RELAXED);
    for (unsigned i = 1; i <= n; i++) {
        struct tx *t = __atomic_load_n(&places[i], __ATOMIC_ACQUIRE);
        if (t && (__atomic_load_n(&t->owner, __ATOMIC_RELAXED) == thread || t->home))
            visit(t, arg);
    }
}

static int more_parts(struct tx *t)
{
    unsigned room = t->parts_room * 2;
    struct flip_part *parts = malloc(room * sizeof(*parts));
    if (!parts)
        return report_error(ENOMEM, "no memory for a transaction over %u mappings", room);
    memcpy(parts, t->parts, t->nparts * sizeof(*parts));
    if (t->parts != t->few)
        free(t->parts);
    t->parts = parts;
    t->parts_room = room;
    return 0;
}

int tx_make_room(struct tx *t, unsigned more)
{
    while (t->parts_room - t->nparts < more)
        if (more_parts(t) < 0)
            return -1;
    return 0;
}

static struct flip_part *find_part(struct tx *t, const struct mapping *m)
{
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].mapping == m)
            return &t->parts[i];
    return NULL;
}

/* All files of a commit are made durable in the same way, and a process that may recover one must be able to
 * recover all. So all files that a transaction writes to share one domain, owner, group and mode: comparing with
 * one suffices. */
int tx_check_alike(const struct tx *t, const struct mapping *m)
{
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].written)
            return journals_alike(t->parts[i].mapping->file, m->file);
    return 0;
}

struct flip_part *tx_part(struct tx *t, struct mapping *m, bool to_write)
{
    struct flip_part *part = find_part(t, m);
    if (to_write && !(part && part->written) && tx_check_alike(t, m) < 0)
        return NULL;
    if (part)
        return part;
    if (tx_make_room(t, 1) < 0)
        return NULL;
    count_open(m, 1);
    t->parts[t->nparts] = (struct flip_part){.mapping = m};
    return &t->parts[t->nparts++];
}

void tx_move_parts(struct tx *to, const struct tx *from)
{
    for (unsigned i = 0; i < from->nparts; i++) {
        const struct flip_part *part = &from->parts[i];
        struct flip_part *there = find_part(to, part->mapping);
        if (there) {
            there->written |= part->written;
            there->eager |= part->eager;
            count_open(part->mapping, UINT64_MAX); /* one count remains for both */
        } else {
            to->parts[to->nparts++] = (struct flip_part){
                .mapping = part->mapping, .written = part->written, .eager = part->eager};
        }
    }
}

void tx_drop_parts(struct tx *t, unsigned n)
{
    /* A release, so that all that was done through the mapping comes before the count. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    while (t->nparts > n)
        count_open(t->parts[--t->nparts].mapping, UINT64_MAX);
}

struct flip_part *tx_part_of(struct tx *t, const struct file *f)
{
    struct flip_part *part = t->parts;
    while (part->mapping->file != f)
        part++;
    return part;
}

const struct flip_part *tx_sizes(const struct tx *t, const struct file *f)
{
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].sized && t->parts[i].mapping->file == f)
            return &t->parts[i];
    return NULL;
}

uint64_t tx_size(const struct tx *t, const struct file *f)
{
    const struct flip_part *part = tx_sizes(t, f);
    return part ? part->size : file_size(f);
}

int tx_check(const struct tx *t)
{
    for (unsigned i = 0; i < t->nparts; i++)
        if (file_check(t->parts[i].mapping->file) < 0)
            return -1;
    return 0;
}

int tx_make_durable(struct tx *t)
{
    struct flip flip = {.hold = &t->hold, .parts = t->parts, .nparts = t->nparts};
    if (stage_is_for_several(t) && t->nparts == 1 &&
        flip_prepare(t->parts[0].mapping, &t->hold, t->hold.n) < 0)
        return -1;
    stage_drain(t);
    int r = 0;
    if (stage_has_to_be_flushed(t)) {
        /* An epoch's pages, which readers look at, are sorted already (epoch_commit()). */
        if (!stage_is_sorted(t))
            stage_sort(t);
        r = stage_flush(t);
    }
    if (r == 0)
        r = resize_announce(t);
    if (r == 0)
        r = flip_commit(&flip);
    if (r == 0)
        resize_clear(t);
    if (t->hold.lane.in)
        journals_give_lane(&t->hold.lane);
    t->hold.lane.in = NULL;
    return r;
}

void tx_bring_home(struct tx *t)
{
    /* After a failure pages may be left with pending masks, which the next call would take for its own. */
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].eager && deploy_committed(t->parts[i].mapping, &t->hold) < 0)
            return;
}

/* With more pages than this, the memory of their list is given back. */
enum { MUCH = 4096 };

/* Forgets the space of pages beyond the end of the file: that may be the old end again, or before the planned one. */
static void forget_behind(struct tx *t)
{
    bool sized = false;
    for (unsigned i = 0; i < t->nparts; i++)
        sized |= t->parts[i].sized;
    for (uint64_t i = 0; i < t->hold.n && sized; i++)
        size_forget_behind(&t->hold.pages[i]);
}

/* The transaction had `pages` pages, and has none now. */
static void keep_few(struct tx *t, uint64_t pages)
{
    if (t->hold.pages == t->region && pages > MUCH)
        (void)madvise(t->region, t->region_ready, MADV_DONTNEED);
    if (!t->settled) {
        t->hold.pages = t->hold.small;
        t->hold.room = HOLD_SMALL;
    }
}

void tx_let_go(struct tx *t)
{
    const uint64_t pages = t->hold.n;
    t->hold.n = 0;
    t->hold.forgotten = NULL;
    t->nparts = 0;
    keep_few(t, pages);
}

void tx_empty(struct tx *t)
{
    uint64_t pages = t->hold.n;
    stage_forget(t);
    forget_behind(t);
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].sized)
            resize_end(t, &t->parts[i]);
    hold_release_from(&t->hold, 0);
    keep_few(t, pages);
    tx_drop_parts(t, 0);
    if (__builtin_expect(t->parts != t->few, 0)) {
        free(t->parts);
        t->parts = t->few;
        t->parts_room = TX_FEW_PARTS;
    }
}

static void close_handle(struct tx *t)
{
    __atomic_store_n(&t->handle, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&t->owner, TX_NOBODY, __ATOMIC_RELEASE);
    next_generation(t);
}

void tx_renew(struct tx *t)
{
    next_generation(t);
    open_handle(t);
}

void tx_unmake(struct tx *t)
{
    tx_empty(t);
    close_handle(t);
    __atomic_store_n(&t->busy, false, __ATOMIC_RELEASE);
    if (__builtin_expect(!kept && armed, 1))
        kept = t;
    else
        put_away(t);
}

unsigned tx_kept(uint64_t *bytes)
{
    *bytes = 0;
    for (unsigned i = 1; i <= made; i++)
        *bytes += stage_kept_bytes(places[i]);
    return made;
}

void tx_lock(void)
{
    pthread_mutex_lock(&lock);
}

void tx_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* The pages are the parent's, and so are the places of threads that the child does not have. The caller holds the
 * lock. */
void tx_forget_all(void)
{
    unused = NULL;
    for (unsigned i = 1; i <= made; i++) {
        struct tx *t = places[i];
        stage_forget(t);
        t->hold.n = 0;
        t->hold.pages = t->hold.small;
        t->hold.room = HOLD_SMALL;
        t->hold.lane.in = NULL;
        t->hold.forgotten = NULL;
        t->settled = false;
        t->nparts = 0;
        t->home = NULL;
        t->busy = false;
        close_handle(t);
        if (t == kept)
            continue;
        t->next_free = unused;
        unused = t;
    }
}
