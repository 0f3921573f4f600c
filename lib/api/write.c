/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reserve all pages; copy to invalid homes (I2); flip (commit.c); release.
 *
 * Until the flip no valid slice has changed, so the operation may end anywhere before it: by an error, by a fault
 * on the source that kills the process, by a power cut.
 */
#include "lib/api/write.h"

#include "lib/commit/deploy.h"
#include "lib/commit/log.h"
#include "lib/commit/show.h"
#include "lib/file/space.h"
#include "lib/file/undo.h"
#include "lib/page/page_set_reserve.h"

#include <string.h>

int write_in_place(const struct held_page *at, unsigned begin, unsigned n, const char *bytes)
{
    struct file *f = at->file;
    uint64_t *word = (uint64_t *)(file_o(f, at->page) + begin / 8 * 8), value;
    uint64_t number;
    struct held_page changed = *at;
    int r = 0;
    /* A record of this slice would be copied over the word. None is appended meanwhile: the page is held. */
    if (f->logged && log_checkpoint(f) < 0)
        return -1;
    if (at->state->bitmap & bitmap_touched(begin, n))
        return 1;
    if (!(at->state->flags & PAGE_O_ALLOCATED) && space_make(f, at->page, PAGE_O_ALLOCATED) < 0)
        return -1;
    if (f->logged && space_keep(f, at->page, 1) < 0)
        return -1;
    value = *word; /* not before: a load of a hole is SIGBUS on a full tmpfs */
    memcpy((char *)&value + begin % 8, bytes, n);
    const struct tally under_way = under_way_begin(f);
    changed.pending = 1; /* what show_begin() saves */
    struct store_look look;
    if ((f->logged ? log_show_begin : show_begin)(f, &changed, 1, false, &number) < 0) {
        under_way_end(under_way);
        return -1;
    }
    show_look_begin(&look, f, 0, number != 0);
    page_mark_changing(at->state);
    store_look_before(&look, at->page);
    persist_store_word(&f->persist, word, value);
    store_look_after(&look, at->page);
    if (f->logged)
        r = file_fdatasync(f, f->pairing.original, "a write");
    else if (persist_flush_word(&f->persist, word) < 0)
        r = file_in_doubt(f, "a write");
    /* persist-order W6 (readers: R6 in adoption.c and takeover.c): the word is durable before readers may see it. I4. */
    persist_fence(&f->persist);
    if (f->logged && number) /* as show() */
        undo_raise(f, number);
    page_unmark_changed(at->state, number);
    show_look_end(&look);
    show_end(f, number);
    under_way_end(under_way);
    if (r == 0)
        r = file_check(f);
    count(f, COUNT_COMMITS_SINGLE, 1);
    count(f, COUNT_BYTES_TO_MEDIA, sizeof(value));
    file_note_written(f);
    return r;
}

/* Writes to the pages of the range, all of which are held. `repeats`: `from` is a page of one repeated byte. */
static int write_held(struct mapping *m, struct page_set *h, uint64_t offset, uint64_t n,
                      const char *from, bool repeats, unsigned flags)
{
    struct file *f = m->file;
    struct held_page *at = h->pages;
    uint64_t stored = 0;
    if (store_make_space(f, offset, n, flags & ATO_EAGER) < 0)
        return -1;
    /* With SKIP_EQUAL the number of pages that flip is not known yet. */
    if (!(flags & ATO_SKIP_EQUAL) && commit_prepare(m, h, h->n) < 0)
        return -1;
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        at->pending = store_page(at, (unsigned)begin, (unsigned)bytes, from, flags);
        stored |= at++->pending;
        from += repeats ? 0 : bytes;
    }
    if (stored || f->logged) {
        const struct commit flip = {.set = h, .m = m, .relaxed = show_is_relaxed(m, flags)};
        if (commit_run(&flip) < 0)
            return -1;
    }
    file_note_written(f);
    /* The write is committed. If its slices cannot be deployed now, since the medium fails, which the next call reports, it stays
     * committed. */
    if ((flags & ATO_EAGER) || store_views_any(f))
        (void)deploy_committed(f, h);
    return 0;
}

int write_several(struct mapping *m, uint64_t offset, uint64_t n, const char *from, bool repeats,
                  unsigned flags)
{
    const struct page_span pages = page_span_of(m->file, offset, n);
    struct page_set h;
    page_set_init(&h);
    int r = page_set_reserve(&h, &pages, 1);
    if (r == 0)
        r = write_held(m, &h, offset, n, from, repeats, flags);
    commit_unprepare(&h);
    page_set_release(&h);
    return r;
}

int write_others(struct mapping *m, uint64_t offset, const char *bytes, uint64_t n, bool repeats,
                 unsigned flags)
{
    int r = 1;
    if ((flags & ATO_EAGER) && offset % 8 + n <= 8 && !(flags & ATO_SKIP_EQUAL))
        r = write_page(m, offset, (unsigned)n, bytes, flags, true);
    return r <= 0 ? r : write_several(m, offset, n, bytes, repeats, flags);
}
