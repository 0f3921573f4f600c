/* SPDX-License-Identifier: BSD-3-Clause */
#include "mask.h"

#include "ato_engine.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Offsets in the header. */
enum { PAGE_SIZE = 16, VERSIONS = 18, FRACTION = 21, COUNTER = 24, PAGES = 28, VALID_FOR = 92 };

/* The guarded bytes: the fractions, of which the first one is masked, and the change counter, whose first byte is. */
enum { AT = FRACTION, BYTES = MASK_GUARDED }; /* up to COUNTER + 3 */

/* Byte 21, and the byte after it. The mask is the complement of the plain byte, as ATO_MASK_FIRST wants it. */
enum { PLAIN = 64, MASKED = 191, AFTER = 32, AFTER_WAL = 33 };

/* What the guard's counter is ahead of the file's when the mask is put on. */
enum { AHEAD = 1 << 20 };

/* SQLite's PENDING lock. A connection holds it for a moment while it gets SHARED, and until EXCLUSIVE is given back once it
 * waits for that. */
enum { PENDING_BYTE = 0x40000000 };

/* How often to try for it, a millisecond apart: others that close the database hold it while they deploy, but no longer than half a
 * second once another process maps the file. A connection that writes may have it for longer: it makes the file plain itself, later. */
enum { TRIES = 2000 };

static bool begins_with(const void *header, unsigned char fraction, unsigned char after)
{
    const unsigned char *h = header, fractions[3] = {fraction, after, 32};
    return memcmp(h, "SQLite format 3", 16) == 0 && memcmp(h + FRACTION, fractions, 3) == 0;
}

bool mask_is_on(const void *header)
{
    return begins_with(header, MASKED, AFTER) || begins_with(header, MASKED, AFTER_WAL);
}

/* Returns whether this is the header of a database, without a mask. */
static bool is_plain(const void *header)
{
    return begins_with(header, PLAIN, AFTER);
}

bool mask_is_wal(const void *header)
{
    return is_plain(header) && ((const unsigned char *)header)[VERSIONS + 1] == 2;
}

static uint32_t number_at(const void *at)
{
    uint32_t number;
    memcpy(&number, at, sizeof(number));
    return be32toh(number);
}

off_t mask_length(const void *header)
{
    const unsigned char *h = header;
    const bool says = is_plain(h) && memcmp(h + COUNTER, h + VALID_FOR, 4) == 0;
    const int page = h[PAGE_SIZE] << 8 | h[PAGE_SIZE + 1];
    return says ? (off_t)number_at(h + PAGES) * (page == 1 ? 65536 : page) : 0;
}

uint32_t mask_counter(const void *header)
{
    return number_at((const unsigned char *)header + COUNTER);
}

static bool counter_is_masked(const unsigned char *h)
{
    return (h[COUNTER] ^ h[VALID_FOR]) & 0x80;
}

bool mask_cover(void *header)
{
    unsigned char *h = header;
    if (!is_plain(h))
        return false;
    const bool is_wal = h[VERSIONS] == 2 && h[VERSIONS + 1] == 2;
    h[FRACTION] = MASKED;
    h[FRACTION + 1] = is_wal ? AFTER_WAL : AFTER;
    if (is_wal)
        h[VERSIONS] = h[VERSIONS + 1] = 1;
    if (!counter_is_masked(h))
        h[COUNTER] ^= 0x80;
    return true;
}

void mask_uncover(void *header)
{
    unsigned char *h = header;
    if (!mask_is_on(h))
        return;
    if (h[FRACTION + 1] == AFTER_WAL)
        h[VERSIONS] = h[VERSIONS + 1] = 2;
    h[FRACTION] = PLAIN;
    h[FRACTION + 1] = AFTER;
    if (counter_is_masked(h))
        h[COUNTER] ^= 0x80;
}

int mask_read(char *view, off_t length, void *h)
{
    if (length < MASK_HEADER || ato_size(view) < MASK_HEADER)
        return 1;
    return ato_read_newest(h, view, MASK_HEADER) ? 0 : -1;
}

bool mask_is_lost(const char *view)
{
    unsigned char is, header[MASK_HEADER];
    if (ato_read_original(&is, view + FRACTION, 1) < 0 || is == MASKED)
        return false;
    /* Of a new file all bytes may be in the reflection. */
    return is != 0 || (ato_read_newest(header, view, sizeof(header)) && !mask_is_on(header));
}

/* What is masked before the counter, and the counter, are in a word each, which an eager write stores in place. */
static int write_part(char *view, const unsigned char *h, size_t begin, size_t end)
{
    return ato_memcpy_opt(view + begin, h + begin, end - begin, ATO_EAGER) ? 0 : -1;
}

static void count_on(unsigned char *h, uint32_t by)
{
    const uint32_t counter = htobe32(number_at(h + COUNTER) + by);
    memcpy(h + COUNTER, &counter, sizeof(counter));
}

int mask_set_plain(char *view, const void *header)
{
    unsigned char h[MASK_HEADER];
    memcpy(h, header, sizeof(h));
    mask_uncover(h);
    return ato_set_guard(view, AT, h + AT, BYTES);
}

void mask_expect(int fd, unsigned char h[MASK_HEADER], struct ato_options *o)
{
    if (pread(fd, h, MASK_HEADER, 0) != MASK_HEADER || !is_plain(h) || mask_is_wal(h))
        return;
    count_on(h, AHEAD);
    o->guard_offset = AT;
    o->guard_plain = h + AT;
    o->guard_bytes = BYTES;
}

/* Masks the counter of a masked header, if it is plain, and raises it: connections of SQLite's own VFS may have cached byte 21
 * with this counter, and would not look at it again once the file is plain. Where the counter is plain the slice is home, so
 * that the file itself has a masked one before the reflection has. */
static int cover_counter(char *view, unsigned char *h)
{
    if (counter_is_masked(h))
        return 0;
    h[COUNTER] ^= 0x80;
    if (write_part(view, h, COUNTER, COUNTER + 4) < 0)
        return -1;
    h[COUNTER] ^= 0x80;
    count_on(h, 1);
    memcpy(h + VALID_FOR, h + COUNTER, 4);
    h[COUNTER] ^= 0x80;
    return write_part(view, h, COUNTER, MASK_HEADER);
}

/* Reads the header of a masked file, in its plain form, after the counter in the file was masked. Returns 1 if there is no mask. */
static int read_masked(char *view, off_t length, unsigned char *h)
{
    int r = mask_read(view, length, h);
    if (r == 0)
        r = mask_is_on(h) ? cover_counter(view, h) : 1;
    if (r == 0)
        mask_uncover(h);
    return r;
}

int mask_put_on(char *view)
{
    unsigned char h[MASK_HEADER], ahead[MASK_HEADER];
    const int r = mask_read(view, MASK_HEADER, h);
    if (r != 0)
        return r;
    if (mask_is_on(h))
        return cover_counter(view, h);
    memcpy(ahead, h, sizeof(h));
    if (!mask_cover(h))
        return 1;
    count_on(ahead, AHEAD);
    if (mask_set_plain(view, ahead) < 0 || ato_deploy(view, MASK_HEADER) < 0 ||
        write_part(view, h, VERSIONS, FRACTION + 2) < 0)
        return -1;
    return write_part(view, h, COUNTER, COUNTER + 4);
}

int mask_lock(int fd, short type)
{
    /* An open file description lock. */
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = PENDING_BYTE, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &l);
}

bool mask_wait_for_lock(int fd)
{
    for (int tries = 0; mask_lock(fd, F_WRLCK) < 0; tries++) {
        struct flock l = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = PENDING_BYTE, .l_len = 1};
        if (fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK && l.l_pid == getpid())
            return true;
        if (tries == TRIES)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    return true;
}

int mask_take_off(char *view, int fd)
{
    unsigned char h[MASK_HEADER];
    struct stat st;
    /* Even at this size: what a growth has left is cut off, so that it does not explain what other programs append. The length may be that
     * of another program. */
    if ((ato_ftruncate(view, ato_size(view)) < 0 && errno != ESTALE) || fstat(fd, &st) < 0)
        return -1;
    if (st.st_size > ato_size(view) && ato_ftruncate(view, st.st_size) < 0)
        return -1;
    const off_t size = ato_size(view), length = size < st.st_size ? size : st.st_size;
    if (length && ato_deploy(view, (size_t)length) < 0)
        return -1;
    const int r = read_masked(view, length, h);
    if (r != 0)
        return r > 0 ? 0 : -1;
    return write_part(view, h, COUNTER, COUNTER + 4) < 0
               ? -1
               : write_part(view, h, VERSIONS, FRACTION + 2);
}

int mask_refresh(char *view, int fd, unsigned char plain[MASK_GUARDED])
{
    unsigned char h[MASK_HEADER];
    struct ato_stat st = {.struct_size = sizeof(st)};
    struct stat file;
    if (pread(fd, h, MASK_HEADER, 0) == MASK_HEADER && is_plain(h))
        return 0;
    if (ato_stat(view, &st) < 0)
        return -1;
    const bool has_guard = st.guard_offset == AT && st.guard_bytes == BYTES;
    if (!has_guard && (st.guard_bytes || !st.slices_in_reflection))
        return 0; /* not this VFS's, or a copy's */
    if (!mask_wait_for_lock(fd))
        return 1;
    const int r = fstat(fd, &file) < 0 ? -1 : read_masked(view, file.st_size, h);
    /* A guard has no version bytes. After a switch to WAL mode the mask could not be taken off. */
    if (r == 0 && mask_is_wal(h))
        return mask_take_off(view, fd);
    if (r == 0 && !has_guard) /* a transaction has ended it, and was not committed */
        return mask_set_plain(view, h);
    if (r == 0)
        memcpy(plain, h + AT, BYTES);
    return r < 0 ? -1 : 0;
}
