/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A whole file is deployed, so that it can become plain: chunk by chunk, by threads if it is large.
 *
 * All new bytes of a file may lie in its reflection, and the disk may have no room for a second copy. Where space is
 * short, the space of pages that are deployed is given back in the reflection, for the next pages.
 *
 * One thread does all the work then. Where reading a hole may be SIGBUS, no space is given back, since others may read without a lock;
 * nor in a page cache (space_comes_back()).
 *
 * Other processes that want to map or read the file wait meanwhile, so the work is done in turns.
 */
#include "lib/commit/deploy.h"

#include "lib/file/clock.h"
#include "lib/file/space.h"
#include "reflection/media/domain.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/vfs.h>

/* How long a turn is; far less than the other processes would wait at most. */
enum { TURN_MS = 500 };

/* Bytes. With less free space, space is given back: this covers the chunks that threads are deploying, and the space
 * that a file system needs to free other space. */
enum { PLENTY = 8 << 20 };

struct turn {
    struct file *f;
    struct plain_job *job;
    uint64_t places, chunks; /* of the reflection */
    uint64_t end;            /* clock_ns() */
    int error;
    pthread_mutex_t progress;
};

static bool gives_back_at_all(const struct file *f)
{
    return !f->r_holes_fault && space_comes_back(f);
}

/* Of n places of one chunk gives the space of those back whose pages are deployed. */
static int give_back(struct file *f, uint64_t first, uint64_t n)
{
    uint64_t words[CHUNK_PAGES];
    if (file_check(f) < 0 || file_read_words(f, first, n, words, NULL) < 0)
        return -1;
    /* persist-order W5 (writers: W2 in commit.h and commit.c, R4 in files.c): a word is durable before the space of the copy that
     * it makes invalid is given back. I2. */
    for (uint64_t i = 0, end; i < n; i = end) {
        end = i + 1;
        if (words[i])
            continue;
        while (end < n && !words[end])
            end++;
        (void)space_give_back(f, first + i, end - i); /* on failure the space is kept */
    }
    return 0;
}

/* Runs of at least this many pages are worth a system call for their page tables. */
enum { LONG_RUN = 16 };

/* Deploys the pages of n places of one chunk whose words are not 0. Changes `pages`. */
static int deploy_places(struct file *f, const uint64_t *words, uint64_t *pages, uint64_t n)
{
    const uint64_t end = layout_pages(file_size(f)); /* sparse: others may have been cut off */
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        if (words[i] && pages[i] < end)
            pages[count++] = pages[i];
    if (f->sparse)
        qsort(pages, count, sizeof(*pages), meta_by_number);
    for (uint64_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && pages[next] == pages[next - 1] + 1;)
            next++;
        /* Makes the page tables of a run at once: one fault per page would take longer than its copy. Only a hint: if
         * it fails, the stores fault. */
        if (next - i >= LONG_RUN)
            (void)madvise(file_o(f, pages[i]), (next - i) * PAGE_BYTES, MADV_POPULATE_WRITE);
    }
    return deploy_pages(f, pages, count);
}

/* Pages that are deployed at once where space is short. */
enum { STEP = 64 };

/* Where space is short, gives space back: first that of pages that were deployed before, then after each step that of the first
 * copies. Returns 0; -1 with ENOSPC also if space is short and job->gives_back is not set. */
static int deploy_chunk(struct turn *t, uint64_t chunk)
{
    struct file *f = t->f;
    const bool gives_back = t->job->gives_back;
    struct statfs fs;
    const uint32_t format = file_format(f);
    const uint64_t each = layout_chunk(format), first = chunk * each;
    const uint64_t n = lesser(t->places - first, each);
    uint64_t *words HEAP = malloc(2 * CHUNK_PAGES * sizeof(*words)), *const pages =
                                                                         words + CHUNK_PAGES;
    if (!words)
        return report_error(ENOMEM, "no memory to deploy %s", f->pairing.path);
    if (file_read_words(f, first, n, words, pages) < 0 ||
        (gives_back && give_back(f, first, n) < 0))
        return -1;
    if (!gives_back && gives_back_at_all(f) && fstatfs(f->pairing.original, &fs) == 0 &&
        (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < PLENTY) {
        errno = ENOSPC;
        return -1;
    }
    for (uint64_t i = 0, step; i < n; i += step) {
        step = gives_back ? lesser(n - i, STEP) : n;
        if (deploy_places(f, words + i, pages + i, step) < 0 ||
            (gives_back && give_back(f, first + i, step) < 0))
            return -1;
    }
    /* These pages are not used again unless the unmapping fails. All threads drop their page tables here, so that one
     * munmap() at the end does not have to. */
    if (!f->sparse)
        (void)madvise(file_o(f, first), n * PAGE_BYTES, MADV_DONTNEED);
    (void)madvise(f->r + layout_meta_page(format, chunk), (n + 1) * PAGE_BYTES, MADV_DONTNEED);
    return 0;
}

/* Returns the first chunk from `chunk` on whose meta page has data; t->chunks if there is none. */
static uint64_t chunk_from(const struct turn *t, uint64_t chunk)
{
    return meta_next(t->f->pairing.reflection, file_format(t->f), chunk, t->chunks);
}

/* Takes the next one. */
static uint64_t next_chunk(struct turn *t)
{
    uint64_t *next = &t->job->next, chunk = __atomic_load_n(next, __ATOMIC_RELAXED), found;
    do {
        found = chunk_from(t, chunk);
    } while (!__atomic_compare_exchange_n(next, &chunk, found + 1, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return found;
}

/* Reports to options->progress that `bytes` of the file are done, if that is more than it was told before. */
static void tell(struct turn *t, uint64_t bytes)
{
    struct plain_job *job = t->job;
    const uint64_t size = file_size(t->f);
    bytes = lesser(bytes, size);
    pthread_mutex_lock(&t->progress);
    if (job->options->progress && bytes > job->told) {
        job->told = bytes;
        job->options->progress(job->options->progress_arg, bytes, size);
    }
    pthread_mutex_unlock(&t->progress);
}

static void *work(void *arg)
{
    struct turn *t = arg;
    while (!__atomic_load_n(&t->error, __ATOMIC_RELAXED) && clock_ns() < t->end) {
        const uint64_t chunk = next_chunk(t);
        if (chunk >= t->chunks)
            break;
        if (deploy_chunk(t, chunk) < 0) {
            __atomic_store_n(&t->error, errno ? errno : EIO, __ATOMIC_RELAXED);
            break;
        }
        /* Chunks are handed out in order, so all before this one are done, or nearly. (Sparse: the pages of a chunk are anywhere.) */
        const double part = (double)(chunk + 1) / (double)t->chunks;
        tell(t, t->f->sparse ? (uint64_t)((double)file_size(t->f) * part)
                             : (chunk + 1) * CHUNK_PAGES * PAGE_BYTES);
    }
    return NULL;
}

/* By default as many threads as CPUs, and no more than one for each CHUNKS_A_THREAD chunks from the first one that was written. */
enum { CHUNKS_A_THREAD = 16, MOST_THREADS = 16 };

static void work_all(struct turn *t)
{
    pthread_t threads[MOST_THREADS];
    uint64_t wanted = t->job->options->threads;
    unsigned started = 0;
    if (wanted == 0) {
        cpu_set_t cpus;
        wanted = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (uint64_t)CPU_COUNT(&cpus) : 1;
        wanted = lesser(wanted, (t->chunks - chunk_from(t, t->job->next)) / CHUNKS_A_THREAD);
    }
    wanted = t->job->gives_back ? 1 : lesser(wanted, MOST_THREADS);
    while (started + 1 < wanted && thread_start(&threads[started], work, t) == 0)
        started++;
    work(t);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

int plain_make(struct file *f, struct plain_job *job)
{
    const uint64_t places = file_places(f, file_size(f)), each = layout_chunk(file_format(f));
    struct turn t = {.f = f,
                     .job = job,
                     .places = places,
                     .chunks = (places + each - 1) / each,
                     .end = clock_ns() + TURN_MS * 1000000u,
                     .progress = PTHREAD_MUTEX_INITIALIZER};
    if (places == UINT64_MAX)
        return -1;
    work_all(&t);
    if ((t.error == ENOSPC || t.error == EDQUOT) && !job->gives_back && gives_back_at_all(f)) {
        /* From the next turn on. */
        job->gives_back = true;
        job->next = 0;
        return 1;
    }
    /* The thread that failed may be another one, but the sentence of ato_errormsg() belongs to
     * the calling thread. */
    if (t.error)
        return report_errno(t.error, "cannot deploy all of %s", f->pairing.path);
    if (job->next < t.chunks)
        return 1;
    tell(&t, UINT64_MAX);
    return 0;
}
