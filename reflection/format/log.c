/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/format/log.h"

#include "reflection/format/layout.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- checksum ---- */

bool log_is_possible(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) uint32_t log_checksum(uint32_t before, const void *bytes,
                                                        size_t n)
{
    const char *at = bytes;
    uint64_t crc = (uint32_t)~before;
    for (; n >= 8; at += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; n; at++, n--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, (unsigned char)*at);
    return ~(uint32_t)crc;
}

/* ---- reading and writing ---- */

/* Runs a read or a write of all bytes, in two parts where the ring ends. */
static int move(const struct log_file *log, uint64_t position, char *bytes, uint64_t n, bool write)
{
    const struct log_header *h = &log->header;
    while (n) {
        const uint64_t in_ring = (position - h->origin) % h->capacity, left = h->capacity - in_ring,
                       some = n < left ? n : left;
        const off_t at = (off_t)(LOG_RING_AT + in_ring);
        ssize_t done = (ssize_t)some;
        if (write && log->map)
            persist_copy(log->persist, log->map + at, bytes, some);
        else
            done =
                write ? fsops->pwrite(log->fd, bytes, some, at) : pread(log->fd, bytes, some, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done == 0)
            errno = EIO;
        if (done <= 0)
            return -1;
        position += (uint64_t)done;
        bytes += done;
        n -= (uint64_t)done;
    }
    return 0;
}

int log_read(const struct log_file *log, uint64_t position, void *to, uint64_t n)
{
    return move(log, position, to, n, false);
}

int log_write(const struct log_file *log, uint64_t position, const void *from, uint64_t n)
{
    return move(log, position, (char *)(uintptr_t)from, n, true);
}

int log_clear(const struct log_file *log, uint64_t at, uint64_t n)
{
    enum { PIECE = 64 << 10 };
    char *zeros HEAP = calloc(1, PIECE);
    if (!zeros)
        return -1;
    for (const uint64_t end = at + n; at < end; at += PIECE)
        if (log_write(log, log->header.origin + at, zeros, end - at < PIECE ? end - at : PIECE) < 0)
            return -1;
    return 0;
}

/* ---- header ---- */

static uint32_t header_checksum(const struct log_header *h)
{
    struct log_header copy = *h;
    copy.checksum = 0;
    return log_checksum(0, &copy, sizeof(copy));
}

static bool is_valid(const struct log_header *h, uint64_t length)
{
    return h->magic == LOG_MAGIC && h->version == LOG_VERSION &&
           h->checksum == header_checksum(h) && h->capacity && h->capacity % LOG_RING_AT == 0 &&
           length > LOG_RING_AT && h->capacity <= length - LOG_RING_AT &&
           h->start % LOG_UNIT == 0 && h->start >= h->origin && h->origin % LOG_UNIT == 0 &&
           h->start < LOG_MOST; /* so that no position of a later record is around */
}

int log_read_header(struct log_file *log, uint64_t length)
{
    char copies[2][LOG_COPY_AT];
    struct log_header *h = &log->header, a, b;
    const ssize_t n = pread(log->fd, copies, sizeof(copies), 0);
    if (n < (ssize_t)sizeof(copies))
        return n < 0 ? -1 : 0;
    memcpy(&a, copies[0], sizeof(a));
    memcpy(&b, copies[1], sizeof(b));
    const bool a_counts = is_valid(&a, length), b_counts = is_valid(&b, length);
    *h = b_counts && (!a_counts || b.edition > a.edition) ? b : a;
    return a_counts || b_counts;
}

int log_open(struct log_file *log, int fd)
{
    const off_t length = fsops_length(fd);
    *log = (struct log_file){.fd = fd};
    if (!log_is_possible()) {
        errno = ENOTSUP;
        return -1;
    }
    return length < 0 ? -1 : log_read_header(log, (uint64_t)length);
}

int log_write_header(struct log_file *log)
{
    struct log_header *h = &log->header;
    h->magic = LOG_MAGIC;
    h->version = LOG_VERSION;
    h->edition++;
    h->checksum = header_checksum(h);
    const ssize_t done =
        fsops->pwrite(log->fd, h, sizeof(*h), (off_t)(h->edition % 2 * LOG_COPY_AT));
    if (done >= 0 && done < (ssize_t)sizeof(*h))
        errno = EIO;
    return done == sizeof(*h) ? 0 : -1;
}

/* ---- records ---- */

static bool is_record(const struct log_file *log, const struct log_record *r, uint64_t position)
{
    return r->magic == LOG_RECORD_MAGIC && r->salt == log->header.salt && r->position == position;
}

/* Returns 1 if the ring has a byte other than 0; else 0; -1 with errno. */
static int is_used(int fd)
{
    static const char zeros[LOG_RING_AT];
    char piece[LOG_RING_AT];
    ssize_t n = 0;
    for (off_t at = LOG_RING_AT; (n = pread(fd, piece, sizeof(piece), at)) > 0; at += n)
        if (memcmp(piece, zeros, (size_t)n) != 0)
            return 1;
    return (int)n;
}

int log_holds_records(int fd)
{
    struct log_file log;
    struct log_record r;
    const int valid = log_open(&log, fd);
    if (valid <= 0)
        return valid < 0 ? -1 : is_used(fd); /* a birth that was cut may have torn the header */
    return log_read(&log, log.header.start, &r, sizeof(r)) < 0
               ? -1
               : is_record(&log, &r, log.header.start);
}

/* Continues a checksum with bytes of the ring. */
static int sum_up(const struct log_file *log, uint64_t position, uint64_t n, uint32_t *checksum)
{
    enum { PIECE = 64 << 10 };
    char *piece HEAP = malloc(PIECE);
    if (!piece)
        return -1;
    while (n) {
        const uint64_t some = n < PIECE ? n : PIECE;
        if (log_read(log, position, piece, some) < 0)
            return -1;
        *checksum = log_checksum(*checksum, piece, some);
        position += some;
        n -= some;
    }
    return 0;
}

int log_look(const struct log_file *log, uint64_t position, uint64_t most, struct log_view *v)
{
    struct log_record *r = &v->record;
    free(v->pages);
    v->pages = NULL;
    if (most < sizeof(*r))
        return 0;
    if (log_read(log, position, r, sizeof(*r)) < 0)
        return -1;
    if (!is_record(log, r, position) || r->bytes > most ||
        r->pages > r->bytes / sizeof(struct log_page) || log_slices_at(r->pages) > r->bytes ||
        (r->size != LOG_NO_SIZE && r->size > LAYOUT_MAX_BYTES))
        return 0;
    struct log_record zeroed = *r;
    zeroed.checksum = 0;
    uint32_t checksum = log_checksum(0, &zeroed, sizeof(zeroed));
    if (sum_up(log, position + sizeof(*r), r->bytes - sizeof(*r), &checksum) < 0)
        return -1;
    if (checksum != r->checksum)
        return 0;
    const uint64_t n = r->pages * sizeof(struct log_page);
    uint64_t slices = 0;
    v->pages = malloc(n ? n : 1);
    if (!v->pages || log_read(log, position + sizeof(*r), v->pages, n) < 0)
        return -1;
    for (uint64_t i = 0; i < r->pages; i++) {
        if (v->pages[i].page >= layout_pages(LAYOUT_MAX_BYTES))
            return 0;
        slices += bitmap_count(v->pages[i].slices);
    }
    return log_record_bytes(r->pages, slices) == r->bytes;
}

int log_walk(const struct log_file *log, uint64_t *position, uint64_t end, log_visit *visit,
             void *arg)
{
    struct log_view v = {0};
    const uint64_t room = *position + log->header.capacity;
    int r = 0;
    while (r == 0 && *position < end) {
        const int found = log_look(log, *position, room - *position, &v);
        if (found <= 0) {
            r = found < 0 ? LOG_UNREADABLE : 0;
            break;
        }
        r = visit ? visit(log, &v, *position + log_slices_at(v.record.pages), arg) : 0;
        if (r == 0)
            *position += v.record.bytes;
    }
    KEEP_ERRNO();
    free(v.pages);
    return r;
}
