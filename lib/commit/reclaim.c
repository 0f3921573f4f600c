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
 *
 * Modelled in reclaim.pml.
 */
#include "lib/commit/reclaim.h"

#include "lib/file/page.h"
#include "lib/file/space.h"
#include "lib/page/reservation.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* n places of one chunk; their words, perhaps of a moment ago; and the pages that have them. */
struct places {
    uint64_t first, n;
    uint64_t words[CHUNK_PAGES], pages[CHUNK_PAGES];
};

/* Reserves the page of the i-th place, if it is free and its RefPage is unused. Returns 1: it is held; 0; -1 with errno. */
static int hold(struct file *f, const struct places *p, uint64_t i)
{
    const uint64_t page = p->pages[i];
    if (p->words[i] || page >= layout_pages(file_size(f)))
        return 0;
    struct page_state *s = shared_state(&f->shared, page);
    if (!s || !page_try_reserve(f, s))
        return s ? 0 : -1;
    int r = file_check(f); /* I2: a flip in doubt may have made R valid */
    /* Also while a shrink is under way, which waits for this page. */
    if (r == 0 && reservation_within(f, page * PAGE_BYTES + 1) == 0) {
        r = load_page(f, page, s);
        if (r == 0 && !s->bitmap && file_place(f, page) == p->first + i)
            return 1;
    }
    page_release(s);
    return r;
}

/* Gives back the RefPages that are unused, in runs. Returns 0; -1 with errno. */
static int give_back(struct file *f, const struct places *p)
{
    int result = 0;
    for (uint64_t i = 0, end; i < p->n; i = end + 1) {
        int held = 1;
        for (end = i; end < p->n && (held = hold(f, p, end)) > 0;)
            end++;
        if (held < 0)
            result = -1;
        if (end > i && space_give_back(f, p->first + i, end - i) < 0)
            result = -1;
        for (uint64_t k = i; k < end; k++)
            page_release(shared_held(&f->shared, p->pages[k]));
    }
    return result;
}

/* Moves *place to the next one with space in the reflection, and sets *end to the first one behind it without, or of another
 * chunk. (Space that was never stored to counts as none.) Returns 1; 0: there is none; -1 with errno. */
static int next_space(const struct file *f, uint64_t *place, uint64_t *end)
{
    const int fd = f->pairing.reflection;
    const uint64_t each = layout_chunk(file_format(f));
    for (;;) {
        const off_t data = lseek(fd, (off_t)layout_refpage(file_format(f), *place), SEEK_DATA);
        const off_t hole = data < 0 ? data : lseek(fd, data, SEEK_HOLE);
        if (hole < 0)
            return errno == ENXIO ? 0
                                  : report_errno(errno,
                                                 "cannot find out which parts of the reflection of "
                                                 "%s have space",
                                                 f->pairing.path);
        const uint64_t at = (uint64_t)data / PAGE_BYTES, chunk = at / (each + 1),
                       first = at % (each + 1), n = layout_pages((uint64_t)hole) - at;
        *place = chunk * each + (first ? first - 1 : 0);
        *end = lesser(*place + n, (chunk + 1) * each);
        if (first) /* else it is the meta page */
            return 1;
    }
}

int reclaim_range(struct file *f, uint64_t first, uint64_t last)
{
    uint64_t place = f->sparse ? 0 : first, end = 0;
    int r, error = 0;                      /* an errno; the calls that follow it may change errno */
    if (f->logged || !space_comes_back(f)) /* a logged file has no RefPages */
        return 0;
    while ((r = next_space(f, &place, &end)) > 0 && (f->sparse || place <= last)) {
        struct places *p HEAP = malloc(sizeof(*p));
        if (!p)
            return report_error(ENOMEM, "no memory to give space of %s back", f->pairing.path);
        p->first = place;
        p->n = (f->sparse ? end : lesser(end, last + 1)) - place;
        r = file_read_words(f, place, p->n, p->words, p->pages);
        for (uint64_t i = 0; i < p->n; i++)
            if (p->pages[i] < first || p->pages[i] > last)
                p->words[i] = UINT64_MAX;
        if (r == 0)
            r = give_back(f, p);
        if (r < 0)
            error = errno;
        place += p->n;
    }
    if (error)
        errno = error;
    return r < 0 || error ? -1 : 0;
}
