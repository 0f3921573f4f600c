/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copy slices whose bit is 1 from R to O, which is their invalid home (I2); fence; flip them to 0.
 * What a page holds does not change, so that each page may flip by itself, without a journal; many
 * pages share the two fences.
 */
#include "deploy.h"

#include "../reflection/bitmap.h"
#include "../reflection/meta.h"
#include "../reflection/report.h"
#include "flip.h"
#include "space.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Pages that share two fences; in domain msync, where a flush takes as long for many as for one, a flush of
 * their homes and one of their words. */
enum { BATCH = HOLD_SMALL, BATCH_MSYNC = CHUNK_PAGES };

static uint64_t batch_of(const struct file *f)
{
    return f->persist.domain == PERSIST_MSYNC ? BATCH_MSYNC : BATCH;
}

static int copy_home(struct mapping *m, struct held *at)
{
    struct file *f = at->file;
    struct page_state *s = at->state;
    uint64_t mask = s->bitmap;
    if (!mask)
        return 0;
    if (file_check(f) < 0) /* I2: a flip in doubt may have made O valid */
        return -1;
    /* The word has space already: it is not zero. But pages beside it may have none. */
    if (!(s->flags & PAGE_R_ALLOCATED) && space_make_meta(f, at->page / CHUNK_PAGES) < 0)
        return -1;
    if (!(s->flags & PAGE_O_ALLOCATED) && space_make(f, at->page, s, PAGE_O_ALLOCATED) < 0)
        return -1;
    persist_home(&f->persist, file_o(f, at->page), file_r(f, at->page), mask);
    at->pending = mask;
    count(m, COUNT_DEPLOYED_SLICES, bitmap_count(mask));
    file_note_written(f);
    return 0;
}

static bool came_home(const struct file *f, const struct held *at)
{
    return at->file == f && at->pending;
}

/* The next page from the i-th on that came home. */
static uint64_t next_home(const struct file *f, const struct hold *h, uint64_t i)
{
    while (i < h->n && !came_home(f, &h->pages[i]))
        i++;
    return i;
}

/* Those that are near each other by one call: what lies between them is written too, if it has to be. A page of
 * which that fails did not come home. */
static int flush_homes(struct file *f, struct hold *h)
{
    for (uint64_t i = next_home(f, h, 0), next; i < h->n; i = next) {
        const uint64_t first = h->pages[i].page;
        uint64_t last = first;
        for (next = next_home(f, h, i + 1);
             next < h->n && h->pages[next].page > last && h->pages[next].page - last < CHUNK_PAGES;
             next = next_home(f, h, next + 1))
            last = h->pages[next].page;
        if (file_flush_data(f, file_o(f, first), (last - first + 1) * PAGE_BYTES) == 0)
            continue;
        for (; i < h->n; i = next_home(f, h, i + 1))
            h->pages[i].pending = 0;
        h->forgotten = &f->persist;
        return -1;
    }
    return 0;
}

int deploy_held(struct mapping *m, struct hold *h)
{
    int r = 0;
    for (uint64_t i = 0; i < h->n && r == 0; i++)
        if (h->pages[i].file == m->file)
            r = copy_home(m, &h->pages[i]);
    if (m->file->persist.domain == PERSIST_MSYNC && flush_homes(m->file, h) < 0)
        r = -1;
    /* Those that came home may flip whatever happened to the rest. */
    int flips = flip_each(m, h);
    return r < 0 ? r : flips;
}

int deploy_committed(struct mapping *m, struct hold *h)
{
    /* persist-order W3 (reader: read.c, point 2): the flip is shown before the homes that it
     * made invalid are stored to. Elsewhere a reservation, a locked instruction, lies between;
     * here nothing does, and non-temporal stores wait for no earlier ones.
     * explorer: drop fence survives: it orders what other CPUs see, not what a crash leaves, and
     * the explorer lets one thread run at a time.
     * explorer: delay fence survives: for the same reason. */
    persist_fence(&m->file->persist);
    return deploy_held(m, h);
}

int deploy_range(struct mapping *m, uint64_t first, uint64_t last)
{
    const uint64_t batch = batch_of(m->file);
    for (uint64_t page = first; page <= last; page += batch) {
        uint64_t end = last - page < batch ? last : page + batch - 1;
        struct hold h;
        hold_init(&h);
        int r = hold_range(&h, m->file, page, end);
        if (r == 0)
            r = deploy_held(m, &h);
        hold_release(&h);
        if (r < 0)
            return -1;
    }
    return 0;
}

/* Pages that a reader asks for and that it may deploy now. */
static bool wants_deploy(int policy, struct page_state *s, uint64_t asked)
{
    if (!(__atomic_load_n(&s->bitmap, __ATOMIC_RELAXED) & asked))
        return false;
    if (policy != ATO_READ_ADAPTIVE)
        return true;
    if ((__atomic_load_n(&s->notes, __ATOMIC_RELAXED) & PAGE_READS) >= 3)
        return true;
    __atomic_fetch_add(&s->notes, 1, __ATOMIC_RELAXED);
    return false;
}

void deploy_for_reader(struct mapping *m, uint64_t offset, uint64_t n)
{
    struct file *f = m->file;
    uint64_t first = offset / PAGE_BYTES, last = (offset + n - 1) / PAGE_BYTES;
    const int policy = policy_of(m);
    struct hold h;
    hold_init(&h);
    for (uint64_t page = first; page <= last; page++) {
        unsigned begin = page == first ? (unsigned)(offset % PAGE_BYTES) : 0;
        uint64_t end = page == last ? offset + n - page * PAGE_BYTES : PAGE_BYTES;
        struct page_state *s = pages_look(f, page);
        if (!s)
            break;
        if (wants_deploy(policy, s, bitmap_touched(begin, (unsigned)end - begin)) &&
            pages_try_reserve(f, s))
            h.pages[h.n++] = (struct held){.file = f, .state = s, .page = page};
        if (h.n == BATCH) {
            int r = deploy_held(m, &h);
            hold_release(&h);
            if (r < 0)
                return;
        }
    }
    (void)deploy_held(m, &h);
    hold_release(&h);
}

/* ---- the whole file ---- */

struct everything {
    struct mapping *m;
    uint64_t pages;        /* of the file, when it began */
    uint64_t chunks, next; /* of 512 pages */
    uint64_t told;         /* bytes, to `progress` */
    int error;
    const struct ato_unmap_options *options;
    pthread_mutex_t progress;
};

/* Runs of so many pages are worth a call for their page tables. */
enum { LONG_RUN = 16 };

/* Page tables for all of a run at once: a fault a page would take longer than its copy. Only a
 * hint: where the kernel has no such call, or no space, the stores find out. */
static void expect_stores(const struct file *f, uint64_t page, uint64_t n)
{
    if (n >= LONG_RUN)
        (void)madvise(file_o(f, page), n * PAGE_BYTES, MADV_POPULATE_WRITE);
}

/* Nobody is going to look at these pages, unless the unmapping fails. Their page tables are cleared
 * here, by all threads, and not in one munmap() at the end. */
static void expect_nothing(const struct file *f, uint64_t chunk, uint64_t pages)
{
    (void)madvise(file_o(f, chunk * CHUNK_PAGES), pages * PAGE_BYTES, MADV_DONTNEED);
    (void)madvise(f->r + layout_meta_page(chunk), (pages + 1) * PAGE_BYTES, MADV_DONTNEED);
}

/* Runs of pages that have slices in R; the rest of the chunk is not even looked at, but for what lies between
 * them in domain msync: there a batch is as dear as a run. */
static int deploy_runs(struct everything *e, uint64_t first, const uint64_t *words, uint64_t n)
{
    const bool together = batch_of(e->m->file) == CHUNK_PAGES;
    uint64_t begin = UINT64_MAX, end = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!words[i])
            continue;
        begin = together && begin < i ? begin : i;
        end = i + 1;
        while (end < n && words[end])
            end++;
        expect_stores(e->m->file, first + i, end - i);
        if (!together && deploy_range(e->m, first + begin, first + end - 1) < 0)
            return -1;
        i = end;
    }
    return together && end ? deploy_range(e->m, first + begin, first + end - 1) : 0;
}

static uint64_t end_of_chunk(const struct everything *e, uint64_t chunk)
{
    const uint64_t end = (chunk + 1) * CHUNK_PAGES;
    return end < e->pages ? end : e->pages;
}

/* From `chunk` on, the first that has a meta page; where none can be looked for, `chunk`. */
static uint64_t chunk_from(const struct everything *e, uint64_t chunk)
{
    const uint64_t found = meta_next(e->m->file->pairing.reflection, chunk, e->chunks);
    return found == UINT64_MAX ? chunk : found;
}

/* The words on the media are what counts: a page that nobody touched since it was mapped has no state. */
static int deploy_chunk(struct everything *e, uint64_t chunk)
{
    struct file *f = e->m->file;
    const uint64_t first = chunk * CHUNK_PAGES, end = end_of_chunk(e, chunk);
    uint64_t words[CHUNK_PAGES];
    /* By pread(): a meta page that is a hole reads as zeros, where a load could be SIGBUS. */
    ssize_t got = pread(f->pairing.reflection, words, (end - first) * 8, (off_t)layout_word(first));
    if (got != (ssize_t)((end - first) * 8))
        return report_error(EIO, "cannot read the bitmaps of pages %llu on of %s",
                            (unsigned long long)first, f->pairing.path);
    if (deploy_runs(e, first, words, end - first) < 0)
        return -1;
    expect_nothing(f, chunk, end - first);
    return 0;
}

/* So much of the file was looked at, at least; told when it is more than before. */
static void tell(struct everything *e, uint64_t bytes)
{
    if (!e->options->progress)
        return;
    pthread_mutex_lock(&e->progress);
    uint64_t size = file_size(e->m->file);
    if (bytes > size)
        bytes = size;
    if (bytes > e->told) {
        e->told = bytes;
        e->options->progress(e->options->progress_arg, bytes, size);
    }
    pthread_mutex_unlock(&e->progress);
}

/* ---- the whole file, where the disk is full ---- */

/* The pages of a few chunks, their other copies, and what a file system needs to give space back. */
enum { PLENTY = 8 << 20 };

static bool is_full(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

/* Is there less space than that? Whoever finds out by taking the last of it can give nothing back. */
static bool is_scarce(const struct file *f)
{
    struct statfs fs;
    return !f->r_holes_fault && fstatfs(f->pairing.original, &fs) == 0 &&
           (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < PLENTY;
}

/* Pages that are home need no space in the reflection. By a reservation of its own, as a writer of those homes
 * would have (read.c, point 2). */
static void give_back(struct mapping *m, uint64_t first, uint64_t last)
{
    struct hold h;
    hold_init(&h);
    if (hold_range(&h, m->file, first, last) == 0)
        space_give_back(m->file, &h);
    hold_release(&h);
}

static int deploy_tightly(struct mapping *m, uint64_t first, uint64_t last)
{
    /* What was given back may be beside the words. */
    int r = space_make_words(m->file, first / CHUNK_PAGES);
    r = r == 0 ? deploy_range(m, first, last) : r;
    const int error = errno;
    if (r < 0 && !is_full(error))
        return -1;
    give_back(m, first, last);
    errno = error;
    if (r == 0 || first == last)
        return r;
    const uint64_t half = first + (last - first) / 2;
    return deploy_tightly(m, first, half) < 0 ? -1 : deploy_tightly(m, half + 1, last);
}

/* What came home leaves its space to what follows. By one thread: others would hold what is to be given back, and
 * take it. */
static int deploy_scarcely(struct everything *e)
{
    for (uint64_t c = chunk_from(e, 0); c < e->chunks; c = chunk_from(e, c + 1))
        give_back(e->m, c * CHUNK_PAGES, end_of_chunk(e, c) - 1);
    for (uint64_t c = chunk_from(e, 0); c < e->chunks; c = chunk_from(e, c + 1)) {
        if (deploy_tightly(e->m, c * CHUNK_PAGES, end_of_chunk(e, c) - 1) < 0)
            return -1;
        expect_nothing(e->m->file, c, end_of_chunk(e, c) - c * CHUNK_PAGES);
        tell(e, (c + 1) * CHUNK_PAGES * PAGE_BYTES);
    }
    return 0;
}

/* ---- the whole file, by threads ---- */

static uint64_t next_chunk(struct everything *e)
{
    uint64_t chunk = __atomic_load_n(&e->next, __ATOMIC_RELAXED), found;
    do {
        found = chunk_from(e, chunk);
    } while (!__atomic_compare_exchange_n(&e->next, &chunk, found + 1, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return found;
}

static void *work(void *arg)
{
    struct everything *e = arg;
    while (!__atomic_load_n(&e->error, __ATOMIC_RELAXED)) {
        uint64_t chunk = next_chunk(e);
        if (chunk >= e->chunks)
            break;
        if (is_scarce(e->m->file))
            __atomic_store_n(&e->error, ENOSPC, __ATOMIC_RELAXED);
        else if (deploy_chunk(e, chunk) < 0)
            __atomic_store_n(&e->error, errno ? errno : EIO, __ATOMIC_RELAXED);
        else
            /* Chunks are given out in their order: those before are done, or nearly. */
            tell(e, (chunk + 1) * CHUNK_PAGES * PAGE_BYTES);
    }
    return NULL;
}

/* A thread is worth starting from here on. */
enum { CHUNKS_A_THREAD = 16, MOST_THREADS = 16 };

static unsigned choose_threads(const struct everything *e)
{
    uint64_t n = e->options->threads;
    if (n == 0) {
        cpu_set_t cpus;
        n = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (uint64_t)CPU_COUNT(&cpus) : 1;
        if (n > e->chunks / CHUNKS_A_THREAD)
            n = e->chunks / CHUNKS_A_THREAD;
    }
    if (n > MOST_THREADS)
        n = MOST_THREADS;
    return n ? (unsigned)n : 1;
}

int deploy_file(struct file *f, const struct ato_unmap_options *options)
{
    /* A mapping of its own: whoever unmaps may have mapped only a part, and for reading. */
    struct counters *counters = calloc(THREAD_SHARED + 1, sizeof(*counters));
    if (!counters)
        return report_error(ENOMEM, "no memory to unmap %s", f->pairing.path);
    struct mapping whole = {.file = f, .counters = counters};
    uint64_t pages = layout_pages(file_size(f));
    struct everything e = {.m = &whole,
                           .pages = pages,
                           .chunks = (pages + CHUNK_PAGES - 1) / CHUNK_PAGES,
                           .options = options,
                           .progress = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[MOST_THREADS];
    unsigned wanted = choose_threads(&e), started = 0;
    sigset_t all, before;
    /* The program's signals are for its own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, work, &e) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work(&e);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (is_full(e.error) && !f->r_holes_fault)
        e.error = deploy_scarcely(&e) == 0 ? 0 : errno ? errno : EIO;
    if (!e.error)
        tell(&e, file_size(f));
    free(counters);
    if (!e.error)
        return 0;
    /* The sentence is the failing thread's, which may not be this one. */
    return report_errno(e.error, "cannot bring all of %s home", f->pairing.path);
}
