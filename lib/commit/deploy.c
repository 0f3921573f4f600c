/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies slices whose bit is 1 from R to O, which is their invalid home (I2), fences, and flips the bits to
 * 0. The content of a page does not change, so each page may flip by itself, without a journal, and many
 * pages share the two fences.
 */
#include "lib/commit/deploy.h"

#include "lib/commit/commit.h"
#include "lib/file/page.h"
#include "lib/file/space.h"
#include "lib/page/load.h"
#include "lib/page/page_set_reserve.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Pages that share two fences. In domain msync, where a flush of many pages takes as long as one of a single
 * page, they share a flush of their homes and one of their words. */
enum { BATCH = PAGE_SET_SMALL, BATCH_MSYNC = CHUNK_PAGES };

static uint64_t batch_of(const struct file *f)
{
    return f->persist.domain == PERSIST_MSYNC ? BATCH_MSYNC : BATCH;
}

static int copy_home(struct mapping *m, struct held_page *at)
{
    struct file *f = at->file;
    struct page_state *s = at->state;
    uint64_t mask = s->bitmap;
    if (!mask)
        return 0;
    if (file_check(f) < 0) /* I2: a flip in doubt may have made O valid */
        return -1;
    /* The word is not 0, so it has space. But the pages beside its meta page may have none
     * (domain_make_storable()). */
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

static bool came_home(const struct file *f, const struct held_page *at)
{
    return at->file == f && at->pending;
}

/* Returns the index of the next page, from the i-th on, that was copied to O; h->n if there is none. */
static uint64_t next_home(const struct file *f, const struct page_set *h, uint64_t i)
{
    while (i < h->n && !came_home(f, &h->pages[i]))
        i++;
    return i;
}

/* Flushes the copied pages in O. Pages near each other share a call, which also writes dirty pages between
 * them. If a call fails, its pages and all later ones lose their pending masks, and do not flip. */
static int flush_homes(struct file *f, struct page_set *h)
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

int deploy_held(struct mapping *m, struct page_set *h)
{
    int r = 0;
    for (uint64_t i = 0; i < h->n && r == 0; i++)
        if (h->pages[i].file == m->file)
            r = copy_home(m, &h->pages[i]);
    if (m->file->persist.domain == PERSIST_MSYNC && flush_homes(m->file, h) < 0)
        r = -1;
    /* The pages that were copied may flip even if others failed. */
    int flips = commit_each_page(m, h);
    return r < 0 ? r : flips;
}

int deploy_committed(struct mapping *m, struct page_set *h)
{
    /* persist-order W3 (reader: read.c, point 2): the flip becomes visible before the homes that it
     * made invalid are stored to. Elsewhere a reservation, a locked instruction, lies between them.
     * Here there is none, and non-temporal stores do not wait for earlier stores.
     * explorer: drop fence survives: it orders what other CPUs see, not what a crash leaves, and
     * the explorer lets one thread run at a time.
     * explorer: delay fence survives: for the same reason. */
    persist_fence(&m->file->persist);
    return deploy_held(m, h);
}

/* Returns true if the page has no slice in R and is free. The holder of a page may be about to flip it, so
 * the caller has to wait for its release. */
static bool is_home(const struct file *f, uint64_t page)
{
    const struct page_state *s = shared_peek(&f->shared, page);
    return s && (__atomic_load_n(&s->version, __ATOMIC_ACQUIRE) & 1) &&
           !__atomic_load_n(&s->holder, __ATOMIC_ACQUIRE) &&
           !__atomic_load_n(&s->bitmap, __ATOMIC_RELAXED);
}

int deploy_range(struct mapping *m, uint64_t first, uint64_t last)
{
    const uint64_t batch = batch_of(m->file);
    for (uint64_t page = first; page <= last; page += batch) {
        while (page <= last && is_home(m->file, page))
            page++;
        if (page > last)
            break;
        uint64_t end = last - page < batch ? last : page + batch - 1;
        struct page_set h;
        page_set_init(&h);
        int r = page_set_reserve_range(&h, m->file, page, end);
        if (r == 0)
            r = deploy_held(m, &h);
        page_set_release(&h);
        if (r < 0)
            return -1;
    }
    return 0;
}

/* Returns true if a reader of the slices `asked` should deploy the page. Counts the read if the policy is
 * adaptive. */
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
    struct page_set h;
    page_set_init(&h);
    for (uint64_t page = first; page <= last; page++) {
        unsigned begin = page == first ? (unsigned)(offset % PAGE_BYTES) : 0;
        uint64_t end = page == last ? offset + n - page * PAGE_BYTES : PAGE_BYTES;
        struct page_state *s = load_look(f, page);
        if (!s)
            break;
        if (wants_deploy(policy, s, bitmap_touched(begin, (unsigned)end - begin)) &&
            page_try_reserve(f, s))
            h.pages[h.n++] = (struct held_page){.file = f, .state = s, .page = page};
        if (h.n == BATCH) {
            int r = deploy_held(m, &h);
            page_set_release(&h);
            if (r < 0)
                return;
        }
    }
    (void)deploy_held(m, &h);
    page_set_release(&h);
}

/* ---- the whole file ---- */

struct everything {
    struct mapping *m;
    uint64_t pages;        /* of the file at the start */
    uint64_t chunks, next; /* of 512 pages; the next to hand out */
    int error;
    struct deploying *how;
    pthread_mutex_t progress;
};

/* Runs of at least this many pages are worth a system call for their page tables. */
enum { LONG_RUN = 16 };

/* Makes the page tables of a run at once: one fault per page would take longer than its copy. Only a hint: if
 * it fails, the stores fault. */
static void expect_stores(const struct file *f, uint64_t page, uint64_t n)
{
    if (n >= LONG_RUN)
        (void)madvise(file_o(f, page), n * PAGE_BYTES, MADV_POPULATE_WRITE);
}

/* These pages are not used again unless the unmapping fails. All threads drop their page tables here, so that
 * one munmap() at the end does not have to. */
void deploy_expect_nothing(const struct file *f, uint64_t chunk, uint64_t pages)
{
    (void)madvise(file_o(f, chunk * CHUNK_PAGES), pages * PAGE_BYTES, MADV_DONTNEED);
    (void)madvise(f->r + layout_meta_page(chunk), (pages + 1) * PAGE_BYTES, MADV_DONTNEED);
}

/* Skips the pages between runs. In domain msync, where a whole batch costs no more than one run, deploys all
 * from the first run to the last. */
int deploy_runs(struct mapping *m, uint64_t first, const uint64_t *words, uint64_t n)
{
    const bool together = batch_of(m->file) == CHUNK_PAGES;
    uint64_t begin = UINT64_MAX, end = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!words[i])
            continue;
        begin = together && begin < i ? begin : i;
        end = i + 1;
        while (end < n && words[end])
            end++;
        expect_stores(m->file, first + i, end - i);
        if (!together && deploy_range(m, first + begin, first + end - 1) < 0)
            return -1;
        i = end;
    }
    return together && end ? deploy_range(m, first + begin, first + end - 1) : 0;
}

int deploy_words(const struct file *f, uint64_t first, uint64_t n, uint64_t *words)
{
    /* pread() reads a meta page that is a hole as zeros, where a load could be SIGBUS. */
    ssize_t got = pread(f->pairing.reflection, words, n * 8, (off_t)layout_word(first));
    return got == (ssize_t)(n * 8)
               ? 0
               : report_error(EIO, "cannot read the bitmaps from page %llu on of %s",
                              (unsigned long long)first, f->pairing.path);
}

void deploy_tell(const struct file *f, struct deploying *d, uint64_t bytes)
{
    const uint64_t size = file_size(f);
    if (bytes > size)
        bytes = size;
    if (!d->options->progress || bytes <= d->told)
        return;
    d->told = bytes;
    d->options->progress(d->options->progress_arg, bytes, size);
}

/* Bytes. With less free space, deploying does not go on: this covers the pages of a few chunks, and the
 * space that a file system needs to free other space. */
enum { PLENTY = 8 << 20 };

/* Returns true if deploying more could use up the free space: scarce.c needs some at its start. */
static bool is_scarce(const struct file *f)
{
    struct statfs fs;
    return !f->r_holes_fault && fstatfs(f->pairing.original, &fs) == 0 &&
           (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < PLENTY;
}

static int deploy_chunk(struct everything *e, uint64_t chunk)
{
    struct file *f = e->m->file;
    const uint64_t first = chunk * CHUNK_PAGES, n = deploy_pages_of(chunk, e->pages);
    uint64_t words[CHUNK_PAGES];
    if (deploy_words(f, first, n, words) < 0)
        return -1;
    if (!deploy_is_home(words, n) && is_scarce(f)) {
        errno = ENOSPC;
        return -1;
    }
    if (deploy_runs(e->m, first, words, n) < 0)
        return -1;
    deploy_expect_nothing(f, chunk, n);
    return 0;
}

/* ---- the whole file, by threads ---- */

uint64_t deploy_chunk_from(const struct file *f, uint64_t chunk, uint64_t chunks)
{
    const uint64_t found = meta_next(f->pairing.reflection, chunk, chunks);
    return found == UINT64_MAX ? chunk : found;
}

static uint64_t next_chunk(struct everything *e)
{
    uint64_t chunk = __atomic_load_n(&e->next, __ATOMIC_RELAXED), found;
    do {
        found = deploy_chunk_from(e->m->file, chunk, e->chunks);
    } while (!__atomic_compare_exchange_n(&e->next, &chunk, found + 1, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return found;
}

/* Chunks are handed out in order, so all before this one are done, or nearly. */
static void tell(struct everything *e, uint64_t chunk)
{
    pthread_mutex_lock(&e->progress);
    deploy_tell(e->m->file, e->how, (chunk + 1) * CHUNK_PAGES * PAGE_BYTES);
    pthread_mutex_unlock(&e->progress);
}

static void fail(struct everything *e, int error)
{
    int none = 0;
    __atomic_compare_exchange_n(&e->error, &none, error ? error : EIO, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

static void *work(void *arg)
{
    struct everything *e = arg;
    while (!__atomic_load_n(&e->error, __ATOMIC_RELAXED)) {
        uint64_t chunk = next_chunk(e);
        if (chunk >= e->chunks)
            break;
        if (deploy_chunk(e, chunk) < 0)
            fail(e, errno);
        else
            tell(e, chunk);
    }
    return NULL;
}

/* By default as many threads as CPUs, and no more than one for each CHUNKS_A_THREAD chunks. */
enum { CHUNKS_A_THREAD = 16, MOST_THREADS = 16 };

static unsigned choose_threads(const struct everything *e)
{
    uint64_t n = e->how->options->threads;
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

int deploy_map(struct mapping *whole, struct file *f)
{
    *whole = (struct mapping){.file = f,
                              .counters = calloc(THREAD_SHARED + 1, sizeof(*whole->counters))};
    return whole->counters ? 0 : report_error(ENOMEM, "no memory to unmap %s", f->pairing.path);
}

int deploy_file(struct file *f, struct deploying *d)
{
    struct mapping whole;
    if (deploy_map(&whole, f) < 0)
        return -1;
    uint64_t pages = layout_pages(file_size(f));
    struct everything e = {.m = &whole,
                           .pages = pages,
                           .chunks = (pages + CHUNK_PAGES - 1) / CHUNK_PAGES,
                           .how = d,
                           .progress = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[MOST_THREADS];
    unsigned wanted = choose_threads(&e), started = 0;
    sigset_t all, before;
    /* The new threads block all signals, which are for the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, work, &e) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work(&e);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(whole.counters);
    if (!e.error) {
        deploy_tell(f, d, UINT64_MAX);
        return 0;
    }
    /* The thread that failed may be another one, but the sentence of ato_errormsg() belongs to
     * the calling thread. */
    return report_errno(e.error, "cannot deploy all of %s", f->pairing.path);
}
