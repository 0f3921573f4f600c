/* SPDX-License-Identifier: BSD-3-Clause */
#include "mark.h"

#include "reflection/format/checksum.h"
#include "reflection/media/report.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct head {
    char magic[8];
    uint32_t version, page;
    uint64_t key[2], length;
    int64_t seconds, nanoseconds;
};

static_assert(sizeof(struct head) == 56, "format");
static_assert(sizeof(struct mark_digest) == 16, "format");

static const struct head begin = {.magic = "ato-mark", .version = 1, .page = MARK_PAGE};

/* A mark is no longer than that of a file of this length. */
#define LONGEST (1ull << 48)

static uint64_t pages_of(uint64_t length)
{
    return (length + MARK_PAGE - 1) / MARK_PAGE;
}

/* ---- digests ---- */

static uint64_t turn(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void rounds(uint64_t v[4], int n)
{
    while (n--) {
        v[0] += v[1], v[1] = turn(v[1], 13) ^ v[0], v[0] = turn(v[0], 32);
        v[2] += v[3], v[3] = turn(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = turn(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = turn(v[1], 17) ^ v[2], v[2] = turn(v[2], 32);
    }
}

/* SipHash-2-4-128 of a page; {0, 0} if it is all zeros, which no other page has. */
static struct mark_digest digest(const uint64_t key[2], const char bytes[MARK_PAGE])
{
    static const char zeros[MARK_PAGE];
    if (memcmp(bytes, zeros, MARK_PAGE) == 0)
        return (struct mark_digest){0, 0};
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull ^ 0xee,
                     key[0] ^ 0x6c7967656e657261ull, key[1] ^ 0x7465646279746573ull};
    /* The last word has the length in its highest byte, which is 0 for 4096. */
    for (int i = 0; i <= MARK_PAGE; i += 8) {
        uint64_t word = 0;
        if (i < MARK_PAGE)
            memcpy(&word, bytes + i, sizeof(word));
        v[3] ^= word;
        rounds(v, 2);
        v[0] ^= word;
    }
    struct mark_digest d;
    v[2] ^= 0xee;
    rounds(v, 4);
    d.low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    rounds(v, 4);
    d.high = v[0] ^ v[1] ^ v[2] ^ v[3];
    d.low += d.low == 0 && d.high == 0;
    return d;
}

static bool are_equal(struct mark_digest a, struct mark_digest b)
{
    return a.low == b.low && a.high == b.high;
}

/* ---- pages ---- */

static int make_room(struct mark *m, uint64_t pages)
{
    if (pages <= m->room)
        return 0;
    const uint64_t room = pages > 2 * m->room ? pages : 2 * m->room;
    struct mark_digest *digests = realloc(m->digests, room * sizeof(*digests));
    if (digests)
        m->digests = digests;
    uint8_t *flags = digests ? realloc(m->flags, room) : NULL;
    if (!flags)
        return report_error(ENOMEM, "no memory for the mark of %llu pages",
                            (unsigned long long)pages);
    m->flags = flags;
    memset(digests + m->room, 0, (room - m->room) * sizeof(*digests));
    memset(flags + m->room, 0, room - m->room);
    m->room = room;
    return 0;
}

int mark_give(struct mark *m, uint64_t page, const char bytes[MARK_PAGE])
{
    const struct mark_digest is = digest(m->key, bytes);
    if (make_room(m, page + 1) < 0)
        return -1;
    m->flags[page] |= MARK_GIVEN;
    if (are_equal(m->digests[page], is))
        return 0;
    m->digests[page] = is;
    m->flags[page] |= MARK_CHANGED;
    return 1;
}

bool mark_is_zero(const struct mark *m, uint64_t page)
{
    return page >= m->room || are_equal(m->digests[page], (struct mark_digest){0, 0});
}

bool mark_was(const struct mark *m, uint64_t page, uint8_t flag)
{
    return page < m->room && m->flags[page] & flag;
}

bool mark_has(const struct mark *m, uint64_t page, const char bytes[MARK_PAGE])
{
    return page < m->room && are_equal(m->digests[page], digest(m->key, bytes));
}

/* ---- the file ---- */

int mark_make(struct mark *m)
{
    *m = (struct mark){.room = 0};
    if (getrandom(m->key, sizeof(m->key), 0) == (ssize_t)sizeof(m->key))
        return 0;
    return report_errno(errno, "cannot get random bytes");
}

void mark_free(struct mark *m)
{
    free(m->digests);
    free(m->flags);
    *m = (struct mark){.room = 0};
}

static int read_all(int fd, void *to, uint64_t n)
{
    for (char *at = to; n;) {
        const ssize_t got = read(fd, at, n < 1 << 30 ? n : 1 << 30);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? EUCLEAN : errno;
            return -1;
        }
        at += got;
        n -= (uint64_t)got;
    }
    return 0;
}

static int read_from(struct mark *m, int fd, uint64_t bytes, const char *path)
{
    struct head head;
    uint64_t sum;
    if (bytes < sizeof(head) || read_all(fd, &head, sizeof(head)) < 0 ||
        memcmp(head.magic, begin.magic, sizeof(head.magic)) != 0)
        return report_error(EUCLEAN, "%s is not a mark of 'ato cp'", path);
    if (head.version != begin.version || head.page != begin.page)
        return report_error(EUCLEAN, "%s is a mark of version %u, which this 'ato' does not know",
                            path, head.version);
    const uint64_t pages = head.length <= LONGEST ? pages_of(head.length) : 0;
    const uint64_t n = pages * sizeof(struct mark_digest);
    if (head.length > LONGEST || bytes != sizeof(head) + n + sizeof(sum))
        return report_error(EUCLEAN, "%s is damaged: it is not as long as it says", path);
    if (make_room(m, pages) < 0)
        return -1;
    if ((n && read_all(fd, m->digests, n) < 0) || read_all(fd, &sum, sizeof(sum)) < 0)
        return report_errno(errno, "cannot read %s", path);
    if (sum != checksum_add(checksum(&head, sizeof(head)), m->digests, n))
        return report_error(EUCLEAN, "%s is damaged: its checksum is wrong", path);
    memcpy(m->key, head.key, sizeof(m->key));
    m->length = head.length;
    m->seconds = head.seconds;
    m->nanoseconds = head.nanoseconds;
    return 0;
}

int mark_read(struct mark *m, const char *path)
{
    struct stat st;
    *m = (struct mark){.room = 0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int r =
        fd >= 0 && fstat(fd, &st) == 0 ? 0 : report_errno(errno, "cannot open the mark %s", path);
    if (r == 0 && !S_ISREG(st.st_mode))
        r = report_error(EUCLEAN, "%s is not a mark of 'ato cp'", path);
    if (r == 0)
        r = read_from(m, fd, (uint64_t)st.st_size, path);
    KEEP_ERRNO();
    if (fd >= 0)
        close(fd);
    return r;
}

int mark_write(struct mark *m, const struct replacement *to, uint64_t length,
               const struct timespec *mtime)
{
    struct head head = begin;
    const uint64_t pages = pages_of(length), n = pages * sizeof(struct mark_digest);
    if (make_room(m, pages) < 0)
        return -1;
    memcpy(head.key, m->key, sizeof(head.key));
    head.length = length;
    head.seconds = mtime->tv_sec;
    head.nanoseconds = mtime->tv_nsec;
    const uint64_t sum = checksum_add(checksum(&head, sizeof(head)), m->digests, n);
    const bool good = replacement_write(to, &head, sizeof(head), 0) == 0 &&
                      replacement_write(to, m->digests, n, sizeof(head)) == 0 &&
                      replacement_write(to, &sum, sizeof(sum), (off_t)(sizeof(head) + n)) == 0;
    return good ? 0 : report_errno(errno, "cannot write the mark");
}
