/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reservation of each page is held from before its bitmap is looked at until its RefPage is punched. So no slice of it becomes
 * valid meanwhile, and the next writer sees that it has to allocate space before it stores (P3).
 *
 * persist-order W5 (writers: W2 in commit.h and commit.c, R4 in page.c): a word is durable before the RefPage that it does not
 * need is punched: the previous holder made it so before it released the page, or load_page() does. The punch is over when
 * the call returns, and the file system keeps its order with what follows: so a power cut cannot punch what a later writer has
 * allocated, and stored to before its word (W1). I1.
 *
 * Readers take no reservation. One that has noted a bitmap before the page was deployed may copy zeros; but the deploy
 * has moved the version, so the reader copies again (read.c, point 2).
 *
 * A kill at any moment leaves pages of a dead process, which others free as they are: first the bit goes that says that the
 * RefPage has space, then the space.
 */
#include "lib/commit/reclaim.h"

#include "lib/commit/deploy.h"
#include "lib/file/clock.h"
#include "lib/file/page.h"
#include "lib/file/space.h"
#include "lib/page/load.h"
#include "lib/page/page_set_reserve.h"
#include "lib/page/reservation.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Loads the held page. Returns 1; 0 if it is not to be touched; -1 with errno. */
static int look(struct file *f, uint64_t page, struct page_state *s)
{
    if (file_check(f) < 0) /* I2: a flip in doubt may have made R valid */
        return -1;
    /* Also while a shrink is under way, which waits for this page. */
    if (reservation_within(f, page * PAGE_BYTES + 1) != 0)
        return 0;
    return load_page(f, page, s) < 0 ? -1 : 1;
}

/* Reserves the page if it is free. Returns its state, or NULL; *r is -1 if that is an error. */
static struct page_state *try_hold(struct file *f, uint64_t page, int *r)
{
    struct page_state *s = shared_state(&f->shared, page);
    if (!s)
        *r = -1;
    return s && page_try_reserve(f, s) ? s : NULL;
}

static void release(struct file *f, uint64_t page, uint64_t end)
{
    for (; page < end; page++)
        page_release(shared_peek(&f->shared, page));
}

/* Of n pages of one chunk, gives back the unused RefPages, in runs. `words` are theirs, perhaps of a moment ago; those that are not 0
 * are skipped. `held`: the caller holds all pages. Returns 0; -1 with errno. */
static int give_back(struct file *f, uint64_t first, uint64_t n, const uint64_t *words, bool held)
{
    int result = 0;
    for (uint64_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && !words[end]; end++) {
            const uint64_t page = first + end;
            struct page_state *s =
                held ? shared_peek(&f->shared, page) : try_hold(f, page, &result);
            const int may = s ? look(f, page, s) : 0;
            if (may < 0)
                result = -1;
            if (may > 0 && !s->bitmap)
                continue;
            if (s && !held)
                page_release(s);
            break;
        }
        if (end > i && space_give_back(f, first + i, end - i) < 0)
            result = -1;
        if (!held)
            release(f, first + i, first + end);
    }
    return result;
}

/* Writes the bitmaps and RefPages of held pages back. A dirty page of the cache might not lose its neighbours, and need
 * space for them once more. */
static int make_clean(struct file *f, uint64_t page, uint64_t end)
{
    char *at = f->r + layout_meta_page(page / CHUNK_PAGES);
    const uint64_t n = (uint64_t)(file_r(f, end - 1) - at) + PAGE_BYTES;
    /* explorer: drop flush survives: all that is valid is durable already, and a flush after it tells of a lost write too.
     * No case of the explorer is on a disk. */
    if (file_flush_data(f, at, n) < 0)
        return -1;
    if (f->persist.domain == PERSIST_PROCESS && msync(at, n, MS_SYNC) < 0)
        return report_errno(errno, "cannot write the reflection of %s", f->pairing.path);
    return 0;
}

/* The same while all pages are held whose space a punch may cost (space_near()), and the size; or nothing, if somebody holds one. */
static int give_back_near(struct file *f, uint64_t first, uint64_t n, const uint64_t *words)
{
    struct page_state *sizing = &f->shared.header->sizing;
    uint64_t page, end;
    int r = 0;
    if (!page_try_reserve(f, sizing))
        return 0;
    space_near(f, first, n, &page, &end);
    const uint64_t from = page;
    end = lesser(end, layout_pages(file_size(f)));
    while (page < end && try_hold(f, page, &r))
        page++;
    if (page == end)
        r = make_clean(f, from, end);
    if (page == end && r == 0)
        r = give_back(f, first, n, words, true);
    release(f, from, page);
    page_release(sizing);
    return r;
}

/* Of n pages of one chunk, of which the caller holds none, gives back the unused RefPages, as far as others let it. */
static int reclaim_pages(struct file *f, uint64_t first, uint64_t n, const uint64_t *words)
{
    return space_is_joint(f) ? give_back_near(f, first, n, words)
                             : give_back(f, first, n, words, false);
}

/* Moves *page to the next one with space in the reflection, and sets *end to the first one behind it without, or of another
 * chunk. (Space that was never stored to counts as none.) Returns 1; 0: there is none; -1 with errno. */
static int next_space(const struct file *f, uint64_t *page, uint64_t *end)
{
    const int fd = f->pairing.reflection;
    for (;;) {
        const off_t data = lseek(fd, (off_t)layout_reflected(*page * PAGE_BYTES), SEEK_DATA);
        const off_t hole = data < 0 ? data : lseek(fd, data, SEEK_HOLE);
        if (hole < 0)
            return errno == ENXIO ? 0
                                  : report_errno(errno,
                                                 "cannot find out which parts of the reflection of "
                                                 "%s have space",
                                                 f->pairing.path);
        const uint64_t at = (uint64_t)data / PAGE_BYTES, chunk = at / (CHUNK_PAGES + 1),
                       first = at % (CHUNK_PAGES + 1), n = layout_pages((uint64_t)hole) - at;
        *page = chunk * CHUNK_PAGES + (first ? first - 1 : 0);
        *end = lesser(*page + n, (chunk + 1) * CHUNK_PAGES);
        if (first) /* else it is the meta page */
            return 1;
    }
}

int reclaim_range(struct file *f, uint64_t first, uint64_t last, uint64_t until)
{
    uint64_t page = first, end = 0;
    int r, error = 0; /* an errno; the calls that follow it may change errno */
    while ((r = next_space(f, &page, &end)) > 0 && page <= last) {
        uint64_t words[CHUNK_PAGES];
        end = lesser(end, last + 1);
        r = file_read_words(f, page, end - page, words);
        if (r == 0)
            r = reclaim_pages(f, page, end - page, words);
        if (r < 0)
            error = errno;
        page = end;
        if (clock_ns() >= until)
            break;
    }
    if (error)
        errno = error;
    return r < 0 || error ? -1 : 0;
}

/* ---- the budget ---- */

/* Pages that are brought home together, and pages that a call looks at. */
enum { BATCH = PAGE_SET_SMALL, LOOKS = 8 * BATCH };

static bool is_over(const struct file *f, uint64_t more)
{
    struct statx sx;
    return statx(f->pairing.reflection, "", AT_EMPTY_PATH, STATX_BLOCKS, &sx) == 0 &&
           sx.stx_blocks * 512 + more * PAGE_BYTES > f->budget;
}

/* Adds the page to the set if nobody holds it, and if it was not written since this was last asked, or with `any`. */
static void consider(struct file *f, uint64_t page, struct page_set *h, bool any)
{
    int r = 0;
    struct page_state *s = try_hold(f, page, &r);
    if (!s)
        return;
    if (look(f, page, s) > 0) {
        const uint8_t seen = (uint8_t)(s->version >> 1);
        const struct homes homes = file_homes(f, page);
        if (any || s->seen == seen) {
            page_set_add(h, f, page, s, &homes);
            return;
        }
        /* Atomic: sleepers read the whole word. */
        __atomic_store_n(&s->seen, seen, __ATOMIC_RELAXED);
    }
    page_release(s);
}

/* Moves the hand until it has found a batch. Returns false if there is no more to look at. */
static bool find_batch(struct file *f, struct page_set *h, unsigned *looks)
{
    uint64_t *hand = &f->shared.header->hand;
    const uint64_t pages = layout_pages(file_size(f));
    uint64_t page = __atomic_load_n(hand, __ATOMIC_RELAXED), end = 0;
    bool again = false;
    while (h->n < BATCH && *looks < LOOKS) {
        if (page < end) {
            consider(f, page++, h, ++*looks > LOOKS / 2);
            continue;
        }
        if (page < pages && next_space(f, &page, &end) > 0 && page < pages)
            continue;
        page = end = 0;
        if (again)
            break;
        again = true;
    }
    __atomic_store_n(hand, page, __ATOMIC_RELAXED);
    return h->n > 0;
}

/* Gives back those of n pages, in ascending order but for one step back, whose word is 0. */
static void give_back_pages(struct file *f, const uint64_t *pages, uint64_t n)
{
    for (uint64_t i = 0, next; i < n; i = next) {
        const uint64_t first = pages[i], chunk = first / CHUNK_PAGES;
        uint64_t words[CHUNK_PAGES], last = first;
        memset(words, 0xff, sizeof(words));
        for (next = i; next < n && pages[next] >= last && pages[next] / CHUNK_PAGES == chunk;
             next++) {
            last = pages[next];
            words[last - first] = 0;
        }
        (void)reclaim_pages(f, first, last - first + 1, words); /* what is not given back is kept */
    }
}

void reclaim_for(struct file *f, uint64_t more)
{
    KEEP_ERRNO();
    struct mapping whole; /* only its counters are used */
    unsigned looks = 0;
    if (!is_over(f, more))
        return;
    memset(&whole, 0, sizeof(whole));
    whole.file = f;
    whole.threads = f->threads;
    do {
        struct page_set h;
        uint64_t pages[BATCH], n = 0;
        page_set_init(&h);
        if (!find_batch(f, &h, &looks))
            return;
        for (; n < h.n; n++)
            pages[n] = h.pages[n].page;
        const int r = deploy_held(&whole, &h);
        page_set_release(&h);
        if (r < 0)
            return;
        give_back_pages(f, pages, n);
    } while (looks < LOOKS && is_over(f, more));
}
