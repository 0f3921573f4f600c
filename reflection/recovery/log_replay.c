/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/log_replay.h"

#include "reflection/format/layout.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"
#include "reflection/recovery/homecoming.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- records ---- */

/* Notes the size that a record says. */
static void note_size(struct log_range *range, const struct log_view *v)
{
    if (v->record.size != LOG_NO_SIZE)
        range->size = v->record.size;
}

/* log_walk(), with a sentence for a log that cannot be read. */
static int walk(struct log_range *range, log_visit *visit, void *arg, const char *path)
{
    const int r = log_walk(&range->log, &range->position, range->end, visit, arg);
    return r == LOG_UNREADABLE ? report_errno(errno, "cannot read the log of %s", path) : r;
}

/* Reads the slices of a page, which are at `at` in the log, to where they are in the page. Returns the position behind them; 0 with a
 * sentence. */
static uint64_t read_page(const struct log_file *log, uint64_t at, const struct log_page *p,
                          char *page, const char *path)
{
    char slices[PAGE_BYTES], *from = slices;
    const uint64_t n = (uint64_t)bitmap_count(p->slices) * SLICE_BYTES;
    if (log_read(log, at, slices, n) < 0) {
        report_errno(errno, "cannot read the log of %s", path);
        return 0;
    }
    for (uint64_t left = p->slices; left; left &= left - 1, from += SLICE_BYTES)
        memcpy(page + (unsigned)__builtin_ctzll(left) * SLICE_BYTES, from, SLICE_BYTES);
    return at + n;
}

struct copying {
    struct log_range *range;
    struct homecoming to;
    uint64_t said; /* when it was said how far this is, in ms; 0: not yet asked */
};

/* Says it at most once in a second, so not at all of a short recovery. */
static void say_progress(struct copying *c)
{
    const struct log_header *h = &c->range->log.header;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    if (c->said && now - c->said < 1000)
        return;
    if (c->said)
        report_log(REPORT_INFO,
                   "recovering %s: %" PRIu64 " KiB of its log are done, of at most %" PRIu64,
                   c->to.path, (c->range->position - h->start) >> 10, h->capacity >> 10);
    c->said = now;
}

static int copy_record(const struct log_file *log, const struct log_view *v, uint64_t at, void *arg)
{
    struct copying *c = arg;
    char page[PAGE_BYTES];
    note_size(c->range, v);
    say_progress(c);
    for (uint64_t i = 0; i < v->record.pages; i++) {
        const struct log_page *p = &v->pages[i];
        at = read_page(log, at, p, page, c->to.path);
        if (!at || homecoming_write(&c->to, p->page, p->slices, page) < 0)
            return -1;
    }
    return 0;
}

/* ---- the last slices of some pages ---- */

struct image {
    struct log_page of;
    char bytes[PAGE_BYTES];
};

struct gathering {
    struct log_range *range;
    bool (*wants)(void *arg, uint64_t page);
    void *arg;
    struct image *images;
    uint64_t n;
    const char *path;
};

static struct image *image_of(struct gathering *g, uint64_t page)
{
    for (uint64_t i = 0; i < g->n; i++)
        if (g->images[i].of.page == page)
            return &g->images[i];
    struct image *more = realloc(g->images, (g->n + 1) * sizeof(*more));
    if (!more)
        return report_null(ENOMEM, "no memory to read the log of %s", g->path);
    g->images = more;
    more[g->n] = (struct image){.of.page = page};
    return &more[g->n++];
}

static int gather_record(const struct log_file *log, const struct log_view *v, uint64_t at,
                         void *arg)
{
    struct gathering *g = arg;
    note_size(g->range, v);
    for (uint64_t i = 0; i < v->record.pages; i++) {
        const struct log_page *p = &v->pages[i];
        if (g->wants(g->arg, p->page)) {
            struct image *to = image_of(g, p->page);
            if (!to || !read_page(log, at, p, to->bytes, g->path))
                return -1;
            to->of.slices |= p->slices;
        }
        at += (uint64_t)bitmap_count(p->slices) * SLICE_BYTES;
    }
    return 0;
}

int log_replay_last(struct log_range *range, int original, bool (*wants)(void *arg, uint64_t page),
                    void *arg, const uint64_t *start, const char *path)
{
    struct gathering g = {range, wants, arg, NULL, 0, path};
    const uint64_t first = range->position;
    const off_t length = fsops_length(original); /* a growth has given it before its record */
    const struct homecoming to = {original, length < 0 ? 0 : (uint64_t)length, path};
    int r = length < 0 ? report_errno(errno, "cannot find the length of %s", path)
                       : walk(range, gather_record, &g, path);
    if (__atomic_load_n(start, __ATOMIC_ACQUIRE) != first)
        r = 1;
    else if (r == 0 && range->position != range->end)
        r = report_error(EUCLEAN, "a record in the log of %s is damaged", path);
    for (uint64_t i = 0; r == 0 && i < g.n; i++)
        r = homecoming_write(&to, g.images[i].of.page, g.images[i].of.slices, g.images[i].bytes);
    free(g.images);
    return r;
}

/* ---- all of a log ---- */

static int open_range(const struct pairing *pr, int fd, struct log_range *range)
{
    *range = (struct log_range){.log.fd = fd, .end = UINT64_MAX, .size = LOG_NO_SIZE};
    const int valid = log_open(&range->log, fd);
    if (valid < 0)
        return report_errno(errno, "cannot read the log of %s", pr->path);
    if (!valid)
        return report_error(EUCLEAN, "the header of the log %s/%s is damaged. " PAIRING_BRING_BACK,
                            pr->folder.path, pr->names.reflection);
    range->position = range->log.header.start;
    return 0;
}

/* Writes a record again, as it is. */
static int rewrite(const struct log_file *log, const struct log_view *v, uint64_t at, void *arg)
{
    struct copying *c = arg;
    char piece[PAGE_BYTES];
    (void)at;
    note_size(c->range, v);
    say_progress(c);
    for (uint64_t done = 0, n; done < v->record.bytes; done += n) {
        const uint64_t left = v->record.bytes - done, position = v->record.position + done;
        n = left < sizeof(piece) ? left : sizeof(piece);
        if (log_read(log, position, piece, n) < 0 || log_write(log, position, piece, n) < 0)
            return LOG_UNREADABLE;
    }
    return 0;
}

/* Writes both copies of the header again, as they are. */
static int rewrite_header(const struct pairing *pr, int fd)
{
    char copies[2 * LOG_COPY_AT];
    if (pread(fd, copies, sizeof(copies), 0) == sizeof(copies) &&
        fsops->pwrite(fd, copies, sizeof(copies), 0) == sizeof(copies))
        return 0;
    return report_errno(errno, "cannot make the log of %s durable", pr->path);
}

int log_recover_size(struct pairing *pr)
{
    struct log_range range;
    const int fd CLOSING =
        folder_open_file(&pr->folder, pr->names.reflection, O_RDWR, &pr->identity.trust, "the log");
    if (fd < 0)
        return errno != ENOENT
                   ? -1
                   : report_error(ESTALE, "the log %s/%s, which has to be recovered, is missing",
                                  pr->folder.path, pr->names.reflection);
    /* persist-order L2 (reader: a later recovery): a killed process may have written records, or a header, and not synced them. They are
     * durable before anything is copied to the file, and before the other copy of the header is overwritten. A sync may have
     * failed before: then the page cache takes what no disk has for written, unless it is written again. On persistent memory that
     * would be a second store to lines whose first one no fence has followed: so they are synced before. */
    struct copying c = {.range = &range, .to.path = pr->path};
    int r = open_range(pr, fd, &range);
    if (r == 0 && domain_of(fd) < PERSIST_DISK && fsops_fdatasync(fd) < 0)
        r = report_errno(errno, "cannot make the log of %s durable", pr->path);
    if (r == 0)
        r = walk(&range, rewrite, &c, pr->path);
    if (r == 0)
        r = rewrite_header(pr, fd);
    if (r == 0 && fsops_fdatasync(fd) < 0)
        r = report_errno(errno, "cannot make the log of %s durable", pr->path);
    uint64_t *word = (uint64_t *)(pr->manifest + MANIFEST_SIZE_WORD);
    /* explorer: tear word survives: the records say the size until log_recover() is done, and settle_manifest() came before that. */
    if (r == 0 && range.size != LOG_NO_SIZE)
        persist_store_word(&pr->persist, word, manifest_encode_size(range.size));
    return r;
}

int log_recover(struct pairing *pr)
{
    struct log_range range;
    if (open_range(pr, pr->reflection, &range) < 0)
        return -1;
    struct copying c = {&range, {pr->original, pr->size, pr->path}, 0};
    if (walk(&range, copy_record, &c, pr->path) < 0)
        return -1;
    struct log_header *h = &range.log.header;
    /* persist-order L4 (reader: a later recovery): the file has what the records say before the header says that they are home. */
    if (fsops_fdatasync(pr->original) < 0)
        return report_errno(errno, "cannot make %s durable", pr->path);
    h->start = range.position;
    /* What a power cut has left behind the last valid record must never count. */
    if (identity_random(&h->salt, sizeof(h->salt)) < 0)
        return -1;
    if (log_write_header(&range.log) < 0 || fsops_fdatasync(pr->reflection) < 0)
        return report_errno(errno, "cannot make the log of %s durable", pr->path);
    return 0;
}
