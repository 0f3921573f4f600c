/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/snapshot.h"

#include "lib/file/space.h"
#include "lib/file/views.h"
#include "lib/page/reservation.h"
#include "lib/read/guard.h"
#include "lib/read/range.h"
#include "lib/read/read.h"
#include "lib/read/reader.h"
#include "reflection/media/report.h"
#include "reflection/pairing/guard.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Pages of the buffer; and how far to look for holes at once. */
enum { ROOM = 64 };

/* Others are kept out after EASY passes if the last one had to copy only FEW pages, and after PASSES in any case. */
enum { EASY = 3, FEW = 256, PASSES = 10 };

struct copy {
    struct file *f;
    int (*put)(void *arg, off_t offset, const void *bytes, size_t n);
    void *arg;
    uint64_t *versions; /* of each page, when it was copied last; 0: it was not loaded */
    uint64_t pages;     /* the first ones, which were copied */
    uint64_t reached;   /* the most that this was: of pages behind that none was put */
    uint64_t size;
    uint64_t changes; /* pages that this pass had to copy */
    bool plain;       /* a reader's: the file is plain, and its pages have no states */
    uint32_t marked;  /* a reader's: the holder of a page that was flipping; 0 */
    char *buffer;     /* `filled` bytes of the file at `offset`, which are not put yet */
    uint64_t offset, filled;
};

static int put_filled(struct copy *c)
{
    const uint64_t n = c->filled;
    c->filled = 0;
    errno = ECANCELED;
    if (n == 0 || c->put(c->arg, (off_t)c->offset, c->buffer, n) == 0)
        return 0;
    return report_errno(errno, "the copy of %s was ended by the function that takes its bytes",
                        c->f->pairing.path);
}

/* Copies a page; s: its state, NULL: none. A reader leaves a page out that is flipping: its version will be another one. */
static int copy_page(struct copy *c, uint64_t page, const struct page_state *s)
{
    struct file *f = c->f;
    const uint64_t offset = page * PAGE_BYTES;
    const unsigned n = (unsigned)lesser(PAGE_BYTES, c->size - offset);
    uint64_t version = s ? __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) : 0;
    int r = 0;
    c->changes++;
    if (version && !(version & 1) && f->reader) {
        c->marked = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
        return 0;
    }
    if (version && !(version = read_steady_version(f, s)))
        return -1;
    if ((c->filled == ROOM * PAGE_BYTES || offset != c->offset + c->filled) && put_filled(c) < 0)
        return -1;
    if (c->filled == 0)
        c->offset = offset;
    if (version !=
        c->versions[page]) /* otherwise the memory of a long hole's versions is not touched */
        c->versions[page] = version;
    seam_point(SEAM_VERSION, f);
    RACES_MEANT_BEGIN(); /* as in read_at_once() */
    if (version)
        read_copy(f, s, page, 0, n, c->buffer + c->filled);
    else
        r = read_by_word(f, page, 0, n, c->buffer + c->filled);
    RACES_MEANT_END(c->buffer + c->filled, n);
    c->filled += n;
    return r;
}

/* Copies pages [page, end), which have no states, or had none before. Leaves holes out that were not copied before. */
static int copy_stateless(struct copy *c, uint64_t page, uint64_t end, struct space_words *words)
{
    for (uint64_t look = page; page < end; page++) {
        uint64_t data = page;
        if (page >= look) {
            if (space_skip_zeros(c->f, &data, end, words) < 0)
                return -1;
            page = page < c->reached ? page : data;
            look = page + ROOM;
        }
        if (page < end && copy_page(c, page, NULL) < 0)
            return -1;
    }
    return 0;
}

/* Copies the pages before `end` that were not copied yet. */
static int copy_new(struct copy *c, uint64_t end)
{
    struct space_words words = {.end = UINT64_MAX};
    for (uint64_t page = c->pages, next = page; page < end; page = next) {
        const struct page_state *s = shared_next_state(&c->f->shared, &next, end);
        const uint64_t stop = s ? next - 1 : end;
        next = s ? next : end;
        if (copy_stateless(c, page, stop, &words) < 0 || (s && copy_page(c, stop, s) < 0))
            return -1;
    }
    if (c->pages < end)
        c->pages = end;
    if (c->reached < end)
        c->reached = end;
    return 0;
}

/* Copies those pages again that have changed since. A page whose state is made meanwhile had not changed when the pass began. */
static int copy_changed(struct copy *c, uint64_t end)
{
    const struct page_state *s;
    for (uint64_t page = 0; (s = shared_next_state(&c->f->shared, &page, end));)
        if (__atomic_load_n(&s->version, __ATOMIC_ACQUIRE) != c->versions[page - 1] &&
            copy_page(c, page - 1, s) < 0)
            return -1;
    return 0;
}

/* Returns 1: what was put is what the file was when this pass began; 0: one more pass is necessary; -1 with errno. */
static int pass(struct copy *c)
{
    struct file *f = c->f;
    c->changes = 0;
    c->marked = 0;
    seam_point(SEAM_CHECK, f);
    /* The size comes first: if no page has changed afterwards, it was the size when all of them were as they are. Not
     * file_size(): the file may be longer than this process can read. */
    c->size = __atomic_load_n(&f->shared.header->size, __ATOMIC_ACQUIRE);
    if (c->size > f->max_size)
        return report_error(EFBIG,
                            "%s is %llu bytes long, and this process mapped it with a max_size of "
                            "%llu: map it with a larger max_size to copy it",
                            f->pairing.path, (unsigned long long)c->size,
                            (unsigned long long)f->limit);
    const uint64_t end = layout_pages(c->size);
    if (f->o && views_reach(f, c->size) < 0)
        return -1;
    if (copy_changed(c, lesser(c->pages, end)) < 0 || copy_new(c, end) < 0 || put_filled(c) < 0)
        return -1;
    /* After the versions: a takeover that fails poisons the file before it removes a mark. */
    return file_check(f) < 0 ? -1 : !c->changes;
}

/* Implements reader_pass. */
static int pass_of_reader(void *arg, bool watches, uint32_t *marked)
{
    struct copy *c = arg;
    if (!watches || c->plain)
        c->pages = 0; /* anew: how the pages were when the file was plain is over */
    c->plain = !watches;
    const int r = pass(c);
    *marked = c->marked;
    return r < 0 ? r : r || c->plain;
}

/* Passes while nobody begins to write. */
static int pass_alone(struct copy *c)
{
    static const struct patience plain = {0}; /* waits as long as ATO_WAIT_MS says */
    struct shared_header *h = c->f->shared.header;
    int r = reservation_take(c->f, &h->sizing, &plain);
    if (r < 0)
        return -1;
    __atomic_store_n(&h->cut, 0, __ATOMIC_RELEASE);
    do
        r = pass(c);
    while (r == 0);
    reservation_end_shrink(c->f);
    page_release(&h->sizing);
    return r;
}

static int copy_file(struct copy *c)
{
    int r = 0;
    if (c->f->reader)
        return reader_run(c->f, pass_of_reader, c);
    for (unsigned n = 0; r == 0 && n < PASSES && (n < EASY || c->changes > FEW); n++)
        r = pass(c);
    return r == 0 ? pass_alone(c) : r;
}

off_t snapshot_take(struct mapping *m,
                    int (*put)(void *arg, off_t offset, const void *bytes, size_t n), void *arg)
{
    struct copy c = {.f = m->file, .put = put, .arg = arg};
    /* Most of it stays untouched in a file with few pages in use, and takes no memory. */
    const uint64_t bytes = (layout_pages(c.f->max_size) + 1) * sizeof(*c.versions);
    void *versions = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (versions == MAP_FAILED)
        return report_error(ENOMEM, "no memory to copy %s", c.f->pairing.path);
    c.versions = versions;
    c.buffer = aligned_alloc(64, ROOM * PAGE_BYTES);
    int r =
        c.buffer ? copy_file(&c) : report_error(ENOMEM, "no memory to copy %s", c.f->pairing.path);
    const struct manifest_guard g = guard_of(c.f);
    /* Another program overwrote the file: what was copied is a mixture. */
    if (r >= 0 && c.f->pairing.reflection >= 0 && guard_check(&c.f->pairing, &g, c.size) < 0)
        r = -1;
    if (r >= 0)
        range_count_read(m, c.size);
    KEEP_ERRNO();
    free(c.buffer);
    munmap(versions, bytes);
    return r < 0 ? -1 : (off_t)c.size;
}
