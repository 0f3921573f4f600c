/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deploying when the disk is full. All new bytes of a file lie in its reflection. If there is no room for a second
 * copy, the space of pages that are deployed is freed in the reflection, for the next pages.
 *
 * This runs only while no other process has the file mapped. Space that is given back becomes a hole, and in a page
 * cache a hole may cost the pages beside it their space too (domain_make_storable()): a process that knows that a
 * page has space, and is about to store to it, would get SIGBUS. Here only the words are stored to the reflection:
 * they get their space again before each part, and at the end no page counts as having space there. Other processes
 * that want to map or read the file wait meanwhile, so the work is done in turns.
 */
#include "lib/commit/scarce.h"

#include "lib/file/clock.h"
#include "lib/file/space.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Pages that are deployed before space is given back: few, since until then their data needs space twice. */
enum { PART = 64 };

/* How long a turn is, during which other processes wait for the attach lock; far less than they would wait at most. */
enum { TURN_MS = 500 };

bool scarce_is(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

/* Writes a range of the reflection back. A dirty page of the cache cannot lose its neighbours, and would need space
 * for them once more. */
static int make_clean(struct file *f, uint64_t at, uint64_t n)
{
    /* explorer: drop flush survives: its files lie in memory, where no space is given back; and what must
     * be durable is durable already. */
    if (f->persist.domain == PERSIST_MSYNC)
        return file_flush_data(f, f->r + at, n);
    if (f->persist.domain == PERSIST_PROCESS && msync(f->r + at, n, MS_SYNC) < 0)
        return report_errno(errno, "cannot write the reflection of %s", f->pairing.path);
    return 0;
}

static int give_back(struct file *f, uint64_t first, uint64_t n)
{
    const uint64_t meta = layout_meta_page(first / CHUNK_PAGES);
    uint64_t words[CHUNK_PAGES];
    if (make_clean(f, meta, layout_reflected((first + n) * PAGE_BYTES - 1) + 1 - meta) < 0 ||
        file_check(f) < 0 || deploy_words(f, first, n, words) < 0)
        return -1;
    /* persist-order W5 (writers: W2 in commit.c, R4 in open.c): a word is durable before the space of the copy that
     * it makes invalid is given back. I2. */
    for (uint64_t i = 0, end; i < n; i = end) {
        end = i + 1;
        if (words[i])
            continue;
        while (end < n && !words[end])
            end++;
        space_give_back(f, first + i, end - i);
    }
    return 0;
}

/* Deploys n pages of one chunk, and gives their space back; on a full disk in two halves. `words` are their words;
 * some of the pages may be deployed by now. */
static int bring(struct mapping *m, uint64_t first, const uint64_t *words, uint64_t n)
{
    int r = space_make_words(m->file, first / CHUNK_PAGES);
    if (r == 0)
        r = deploy_runs(m, first, words, n);
    const int error = errno;
    if ((r < 0 && !scarce_is(error)) || give_back(m->file, first, n) < 0)
        return -1;
    errno = error;
    if (r == 0 || n == 1)
        return r;
    const uint64_t half = n / 2;
    return bring(m, first, words, half) < 0 ? -1 : bring(m, first + half, words + half, n - half);
}

/* Deploys a chunk. Returns 1 if there was something to do, 0 if not, -1 on error. */
static int bring_chunk(struct mapping *m, uint64_t chunk, uint64_t n)
{
    uint64_t words[CHUNK_PAGES];
    if (deploy_words(m->file, chunk * CHUNK_PAGES, n, words) < 0)
        return -1;
    if (deploy_is_home(words, n))
        return 0;
    for (uint64_t i = 0, end; i < n; i = end) {
        end = n - i < PART ? n : i + PART;
        if (!deploy_is_home(words + i, end - i) &&
            bring(m, chunk * CHUNK_PAGES + i, words + i, end - i) < 0)
            return -1;
    }
    deploy_expect_nothing(m->file, chunk, n);
    return 1;
}

static int bring_all(struct mapping *m, struct deploying *d)
{
    struct file *f = m->file;
    const uint64_t pages = layout_pages(file_size(f)),
                   chunks = (pages + CHUNK_PAGES - 1) / CHUNK_PAGES,
                   end = clock_ns() + TURN_MS * 1000000u;
    if (make_clean(f, 0, layout_reflection_bytes(file_size(f))) < 0)
        return -1;
    /* Once for each chunk. Pages that others deploy between two turns keep their space. */
    for (uint64_t c; (c = deploy_chunk_from(f, d->given_back, chunks)) < chunks;) {
        if (give_back(f, c * CHUNK_PAGES, deploy_pages_of(c, pages)) < 0)
            return -1;
        d->given_back = c + 1;
        if (clock_ns() >= end)
            return 1;
    }
    for (uint64_t c = 0; (c = deploy_chunk_from(f, c, chunks)) < chunks; c++) {
        const int r = bring_chunk(m, c, deploy_pages_of(c, pages));
        if (r < 0)
            return -1;
        deploy_tell(f, d, (c + 1) * CHUNK_PAGES * PAGE_BYTES);
        if (r && clock_ns() >= end)
            return 1;
    }
    deploy_tell(f, d, UINT64_MAX);
    return 0;
}

int scarce_deploy(struct file *f, struct deploying *d)
{
    struct mapping whole;
    if (deploy_map(&whole, f) < 0)
        return -1;
    const int r = bring_all(&whole, d), error = errno;
    space_forget(f);
    free(whole.counters);
    errno = error;
    return r;
}
