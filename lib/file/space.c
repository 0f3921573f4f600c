/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/space.h"

#include "lib/file/place.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *which(const struct file *f, int fd)
{
    return fd == f->pairing.original ? "" : "the reflection of ";
}

static int say_truncated(const struct file *f, int fd, off_t length)
{
    return report_error(
        ESTALE, "%s%s was truncated by another program, to %lld bytes, while the file was mapped",
        which(f, fd), f->pairing.path, (long long)length);
}

/* Sets *data to the offset of the first data at or after `from`, where the file must have a page; UINT64_MAX:
 * none. Returns 0; -1 on error: the caller must not assume a result, since a meta page without space means that
 * its words are 0. Space that was never stored to may be reported as none: then an unnecessary, harmless
 * fallocate() follows. */
static int find_data(const struct file *f, int fd, uint64_t from, uint64_t *data)
{
    off_t found = lseek(fd, (off_t)from, SEEK_DATA);
    *data = found < 0 ? UINT64_MAX : (uint64_t)found;
    if (found >= 0)
        return 0;
    const off_t length = errno == ENXIO ? fsops_length(fd) : -1;
    if (length < 0)
        return report_errno(errno, "cannot find out which parts of %s%s have space", which(f, fd),
                            f->pairing.path);
    /* There are only holes, or `from` is beyond the end of the file. */
    return (uint64_t)length <= from ? say_truncated(f, fd, length) : 0;
}

/* Returns the chunk's CHUNK_ bits, or -1. */
static int ask_chunk(struct file *f, uint64_t chunk)
{
    uint32_t known = __atomic_load_n(&f->chunks[chunk], __ATOMIC_RELAXED);
    if (known & CHUNK_ASKED)
        return (int)known;
    uint64_t meta = layout_meta_page(LAYOUT_DENSE, chunk), data = UINT64_MAX;
    if (!f->sparse && !f->logged && find_data(f, f->pairing.reflection, meta, &data) < 0)
        return -1;
    uint32_t found = CHUNK_ASKED | (data < meta + PAGE_BYTES ? CHUNK_META_WORDS : 0);
    /* How many pages of the original, the first ones, are known to have space. Whole pages only: if the last one is partly beyond the
     * end, that part may have no space, and the file may soon reach it. */
    const uint64_t all = file_size(f) / PAGE_BYTES, first = chunk * CHUNK_PAGES,
                   pages = all > first ? lesser(all - first, CHUNK_PAGES) : 0;
    /* Not on tmpfs, where files are lists of pages, not of extents: to find the next hole, the kernel would visit all pages up to
     * it. There each page is checked separately. In a page cache a store may need space beside the page too
     * (domain_make_storable()), at most as far as a chunk. */
    if (!f->holes_fault && pages &&
        (pages == CHUNK_PAGES || !domain_is_cached(f->persist.domain))) {
        const off_t hole = lseek(f->pairing.original, (off_t)(first * PAGE_BYTES), SEEK_HOLE);
        if (hole >= 0 && (uint64_t)hole >= (first + pages) * PAGE_BYTES)
            found |= (uint32_t)pages;
    }
    /* Another thread may have stored its answer meanwhile, for a file that was shorter or longer. Each answer
     * is right, a mixture may be wrong. */
    while (!__atomic_compare_exchange_n(&f->chunks[chunk], &known, known | found, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        if (known & CHUNK_ASKED)
            return (int)known;
    return (int)(known | found);
}

/* Makes a range of the view of the original or the reflection storable. Returns 0; -1 with errno and no sentence. */
static int take(struct file *f, char *view, uint64_t at, uint64_t n)
{
    const bool is_o = view == f->o, on_tmpfs = is_o ? f->holes_fault : f->r_holes_fault;
    const int fd = is_o ? f->pairing.original : f->pairing.reflection;
    /* Where there is data already, fallocate() would only make the next flush write the inode too. */
    const bool has_data = is_o && !on_tmpfs && lseek(fd, (off_t)at, SEEK_HOLE) >= (off_t)(at + n);
    /* On tmpfs, allocated pages can be stored to. */
    return (has_data || fsops->fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n) == 0) &&
                   (on_tmpfs || domain_make_storable(f->persist.domain, view + at, n) == 0)
               ? 0
               : -1;
}

static int allocate(struct file *f, char *view, uint64_t at, uint64_t n, const char *what)
{
    if (take(f, view, at, n) == 0)
        return 0;
    const int error = errno, fd = view == f->o ? f->pairing.original : f->pairing.reflection;
    const off_t length = fsops_length(fd);
    if (length >= 0 && layout_pages((uint64_t)length) * PAGE_BYTES < at + n)
        return say_truncated(f, fd, length);
    return report_errno(error,
                        "no space for %llu bytes at %llu of %s %s, or for the pages beside them",
                        (unsigned long long)n, (unsigned long long)at, what, f->pairing.path);
}

static int allocate_o(struct file *f, uint64_t page, uint64_t n)
{
    return allocate(f, f->o, page * PAGE_BYTES, n * PAGE_BYTES, "the file");
}

int space_look(struct file *f, uint64_t page)
{
    uint64_t data;
    int chunk = ask_chunk(f, page / CHUNK_PAGES);
    if (chunk < 0)
        return -1;
    if (page % CHUNK_PAGES < (chunk & CHUNK_O_PAGES))
        return PAGE_O_ALLOCATED;
    if (!f->holes_fault)
        return 0;
    /* A range that was found empty is not searched again: to find the next data, the kernel visits all pages that
     * have space and were never stored to. If the results of two threads mix, an unnecessary fallocate() follows. */
    if (page < __atomic_load_n(&f->empty_from, __ATOMIC_RELAXED) ||
        page >= __atomic_load_n(&f->empty_to, __ATOMIC_RELAXED)) {
        if (find_data(f, f->pairing.original, page * PAGE_BYTES, &data) < 0)
            return -1;
        /* Such file systems allocate whole pages. */
        if (data / PAGE_BYTES == page)
            return PAGE_O_ALLOCATED;
        __atomic_store_n(&f->empty_from, page, __ATOMIC_RELAXED);
        __atomic_store_n(&f->empty_to, data / PAGE_BYTES, __ATOMIC_RELAXED);
    }
    return allocate_o(f, page, 1) < 0 ? -1 : (int)PAGE_O_ALLOCATED;
}

int space_look_r(struct file *f, uint64_t page, const struct page_state *s)
{
    const uint64_t at = (uint64_t)(file_homes_of(f, page, s).r - f->r);
    uint64_t data;
    if (!f->r_holes_fault)
        return 0;
    if (find_data(f, f->pairing.reflection, at, &data) < 0)
        return -1;
    return data < at + PAGE_BYTES ? 0 : allocate(f, f->r, at, PAGE_BYTES, "the reflection of");
}

int space_make_meta(struct file *f, uint64_t chunk)
{
    if (!f->sparse && (__atomic_load_n(&f->chunks[chunk], __ATOMIC_RELAXED) & CHUNK_META_SPACE))
        return 0;
    /* With the RefPage behind it: one extent costs less than two, when it is made durable and when it is removed. */
    if (allocate(f, f->r, layout_meta_page(file_format(f), chunk), 2 * PAGE_BYTES,
                 "a meta page of the reflection of") < 0)
        return -1;
    if (f->sparse)
        return 0;
    __atomic_or_fetch(&f->chunks[chunk], CHUNK_META_SPACE | CHUNK_META_WORDS, __ATOMIC_RELAXED);
    return 0;
}

/* ---- places in a sparse reflection ---- */

/* Space for n places of one chunk. */
static int allocate_places(struct file *f, uint64_t place, uint64_t n)
{
    /* The meta page got its space with the chunk's first place; in a page cache it may have lost that before the file was mapped, or
     * since an unmap failed. */
    const bool known = place % CHUNK_SPARSE && !domain_is_cached(f->persist.domain);
    if (!known && space_make_meta(f, place / CHUNK_SPARSE) < 0)
        return -1;
    return allocate(f, f->r, layout_refpage(LAYOUT_SPARSE, place), n * PAGE_BYTES,
                    "the reflection of");
}

/* Takes *n or fewer places that were never used, with space. Space first, so that a failed try uses nothing up; racing callers
 * need no lock, in other processes too. Returns the first; FILE_NO_PLACE with ENOSPC, ESTALE. */
static uint64_t take_new(struct file *f, uint64_t *n)
{
    uint64_t *next = &f->shared.header->next_place, most = *n;
    uint64_t place = __atomic_load_n(next, __ATOMIC_RELAXED);
    do {
        *n = lesser(most, CHUNK_SPARSE - place % CHUNK_SPARSE);
        const uint64_t places = file_places(f, 0),
                       least = layout_reflection_bytes(LAYOUT_SPARSE, file_size(f));
        if (places == UINT64_MAX)
            return FILE_NO_PLACE;
        if (place >= places) {
            if (places < lesser(layout_chunks(LAYOUT_SPARSE, least) * CHUNK_SPARSE, LAYOUT_PLACES))
                (void)say_truncated(f, f->pairing.reflection, fsops_length(f->pairing.reflection));
            else
                report_error(ENOSPC,
                             "the sparse reflection of %s has no place left: bring the file's "
                             "slices home ('ato deploy')",
                             f->pairing.path);
            return FILE_NO_PLACE;
        }
        if (allocate_places(f, place, *n) < 0)
            return FILE_NO_PLACE;
    } while (!__atomic_compare_exchange_n(next, &place, place + *n, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return place;
}

/* Gives n held pages, CHUNK_SPARSE at most, places and space there. */
static int make_places(struct file *f, uint64_t page, uint64_t n)
{
    uint64_t places[CHUNK_SPARSE], done = 0;
    int r = 0;
    while (done < n && r == 0) {
        uint64_t first = file_place(f, page + done), more = 1;
        if (first != FILE_NO_PLACE) {
            r = allocate_places(f, first, 1);
        } else {
            while (done + more < n && file_place(f, page + done + more) == FILE_NO_PLACE)
                more++;
            first = take_new(f, &more);
            r = first == FILE_NO_PLACE ? -1 : 0;
        }
        for (uint64_t k = 0; r == 0 && k < more; k++)
            places[done++] = first + k;
    }
    /* After an error too: a place that is taken, and that no page has, is lost until the reflection is removed. */
    const int why = errno;
    if (place_give(f, page, done, places) < 0)
        return -1;
    errno = why;
    return r;
}

int space_run_end(struct space_run *r)
{
    struct file *f = r->file;
    const uint64_t end = r->page + r->n, each = layout_chunk(file_format(f));
    if (f->logged) /* the commit stores to the original */
        r->need |= PAGE_O_ALLOCATED;
    if (r->n && (r->need & PAGE_O_ALLOCATED) && allocate_o(f, r->page, r->n) < 0)
        return -1;
    for (uint64_t page = r->page, next; !f->logged && (r->need & PAGE_R_ALLOCATED) && page < end;
         page = next) {
        next = lesser((page / each + 1) * each, end);
        if (f->sparse ? make_places(f, page, next - page) < 0
                      : space_make_meta(f, page / CHUNK_PAGES) < 0 ||
                            allocate(f, f->r, layout_refpage(LAYOUT_DENSE, page),
                                     (next - page) * PAGE_BYTES, "the reflection of") < 0)
            return -1;
    }
    for (; r->n; r->n--) {
        struct page_state *s = shared_held(&f->shared, r->page++);
        __atomic_store_n(&s->flags, s->flags | r->need, __ATOMIC_RELEASE);
    }
    return 0;
}

int space_run_add(struct space_run *r, uint64_t page, uint8_t need)
{
    if (r->n && (need != r->need || page != r->page + r->n) && space_run_end(r) < 0)
        return -1;
    if (!r->n) {
        r->page = page;
        r->need = need;
    }
    r->n += need != 0;
    return 0;
}

int space_make(struct file *f, uint64_t page, uint8_t need)
{
    struct space_run r = {.file = f, .page = page, .n = 1, .need = need};
    return space_run_end(&r);
}

int space_keep(const struct file *f, uint64_t page, uint64_t n)
{
    const uint32_t known = __atomic_load_n(&f->chunks[page / CHUNK_PAGES], __ATOMIC_RELAXED);
    char *const at = file_o(f, page);
    if (f->holes_fault || page % CHUNK_PAGES + n <= (known & CHUNK_O_PAGES) ||
        domain_make_storable(f->persist.domain, at, n * PAGE_BYTES) == 0)
        return 0;
    /* What cannot be read either is no matter of space: the store meets it (fault.h). */
    return madvise(at, n * PAGE_BYTES, MADV_POPULATE_READ) < 0
               ? 0
               : report_error(ENOSPC, "no space for the pages beside %llu bytes at %llu of %s",
                              (unsigned long long)(n * PAGE_BYTES),
                              (unsigned long long)(page * PAGE_BYTES), f->pairing.path);
}

/* Returns the state of the page that has a place; NULL: none has. */
static struct page_state *state_at(const struct file *f, uint64_t place)
{
    const uint64_t page = f->sparse ? place_page(f, place) : place;
    struct page_state *s = page < f->shared.capacity ? shared_peek(&f->shared, page) : NULL;
    return s && file_place_of(f, page, s) == place ? s : NULL;
}

int space_give_back(struct file *f, uint64_t place, uint64_t n)
{
    struct page_state *s;
    /* First: after a kill in between, space that a page has is allocated again. The other way round the next writer would store
     * into a hole. */
    for (uint64_t i = place; i < place + n; i++)
        if ((s = state_at(f, i)))
            __atomic_store_n(&s->flags, s->flags & (uint8_t)~PAGE_R_ALLOCATED, __ATOMIC_RELEASE);
    /* I2: as a store to invalid homes. */
    return fsops_punch(f->pairing.reflection, (off_t)layout_refpage(file_format(f), place),
                       (off_t)(n * PAGE_BYTES)) < 0
               ? report_errno(errno, "cannot give space of the reflection of %s back",
                              f->pairing.path)
               : 0;
}

void space_forget(struct file *f, uint64_t page, uint64_t end)
{
    for (struct page_state *s; (s = shared_next_state(&f->shared, &page, end));) {
        __atomic_store_n(&s->flags, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&s->version, 0, __ATOMIC_RELEASE);
    }
}

/* Returns the first page from `page` on with a bitmap other than 0; UINT64_MAX: there is none; *r is -1 with errno. */
static uint64_t next_word(const struct file *f, uint64_t page, struct space_words *w, int *r)
{
    while (w->next < w->n && w->pages[w->next] < page)
        w->next++;
    if (w->next == w->n && !w->all &&
        f->pairing.reflection >= 0) { /* a reader's plain file has none */
        w->n = meta_find(f->pairing.reflection, file_format(f), page, w->end, w->pages, META_FOUND);
        w->next = 0;
        w->all = w->n < META_FOUND;
        *r = w->n < 0 ? -1 : 0;
    }
    return w->next < w->n ? w->pages[w->next] : UINT64_MAX;
}

int space_skip_zeros(const struct file *f, uint64_t *page, uint64_t end, struct space_words *w)
{
    /* The words first: a thread that read before the file got shorter may be deploying a page. It stores to the
     * original before the word becomes 0. */
    int r = 0;
    const uint64_t word = next_word(f, *page, w, &r);
    const off_t data =
        r < 0 ? -1 : lseek(f->pairing.original, (off_t)(*page * PAGE_BYTES), SEEK_DATA);
    if (r < 0 || (data < 0 && errno != ENXIO))
        return report_errno(errno, "cannot find out which parts of %s have space", f->pairing.path);
    *page = lesser(end, lesser(word, data < 0 ? end : (uint64_t)data / PAGE_BYTES));
    return 0;
}
