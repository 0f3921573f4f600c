/* SPDX-License-Identifier: BSD-3-Clause */
#include "mask.h"

#include "ato.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { AT = 19, BYTES = 9, VERSION = 19, COUNTER = 24, AHEAD = 1 << 20 };

/* SQLite's PENDING lock. A connection holds it for a moment while it gets SHARED, and until EXCLUSIVE is given back once it
 * waits for that. */
enum { PENDING_BYTE = 0x40000000, TRIES = 100 };

/* Bytes of a slice. The header lies in the first slice. */
enum { SLICE = 64 };

static bool is_header(const unsigned char *h)
{
    static const unsigned char fractions[3] = {64, 32, 32};
    return memcmp(h, "SQLite format 3", 16) == 0 && memcmp(h + 21, fractions, 3) == 0;
}

bool mask_is_on(const void *header)
{
    const unsigned char *h = header;
    return is_header(h) && h[VERSION] >= 255 - 2;
}

bool mask_is_plain(const void *header)
{
    return is_header(header) && !mask_is_on(header);
}

bool mask_is_wal(const void *header)
{
    const unsigned char *h = header;
    return is_header(h) && h[VERSION] == 2;
}

void mask_translate(void *bytes, size_t n, off_t offset)
{
    unsigned char *b = bytes;
    if (offset <= VERSION && VERSION - offset < (off_t)n)
        b[VERSION - offset] = (unsigned char)(255 - b[VERSION - offset]);
    if (offset <= COUNTER && COUNTER - offset < (off_t)n)
        b[COUNTER - offset] ^= 0x80;
}

/* Reads the header through the view. `length` is the length of the file: a load behind its end raises SIGBUS. Returns 1 if
 * the file is too short for a header. */
static int read_header(char *view, off_t length, unsigned char h[MASK_HEADER])
{
    if (length < MASK_HEADER || ato_size(view) < MASK_HEADER)
        return 1;
    return ato_memcpy(h, view, MASK_HEADER) ? 0 : -1;
}

static int read_guard(char *view, struct ato_stat *st)
{
    *st = (struct ato_stat){.struct_size = sizeof(*st)};
    return ato_stat(view, st);
}

static int write_home(char *view, const unsigned char *h)
{
    if (!ato_memcpy_opt(view + AT, h + AT, BYTES, ATO_EAGER))
        return -1;
    return ato_deploy(view + AT, BYTES);
}

static void count_ahead(unsigned char *h)
{
    unsigned long counter = 0;
    for (int i = COUNTER; i < COUNTER + 4; i++)
        counter = counter << 8 | h[i];
    counter += AHEAD;
    for (int i = COUNTER + 3; i >= COUNTER; i--, counter >>= 8)
        h[i] = (unsigned char)counter;
}

int mask_set_plain(char *view, const void *header)
{
    unsigned char h[MASK_HEADER];
    memcpy(h, header, sizeof(h));
    if (mask_is_on(h))
        mask_translate(h, sizeof(h), 0);
    return ato_set_guard(view, AT, h + AT, BYTES);
}

int mask_put_on(char *view, off_t length, bool *guarded)
{
    unsigned char now[MASK_HEADER], plain[MASK_HEADER];
    struct ato_stat st = {.guard_bytes = *guarded};
    int r = read_header(view, length, now);
    if (r != 0 || !is_header(now))
        return r < 0 ? -1 : 0;
    memcpy(plain, now, sizeof(plain));
    if (mask_is_on(now)) {
        if (!*guarded && read_guard(view, &st) < 0)
            return -1;
        r = st.guard_bytes ? 0 : mask_set_plain(view, now);
    } else {
        count_ahead(plain);
        mask_translate(now, sizeof(now), 0);
        r = mask_set_plain(view, plain) < 0 ? -1 : write_home(view, now);
    }
    *guarded |= r == 0;
    return r;
}

/* A process that was killed while it put the mask on may leave the mask in the reflection only. The reflection holds that
 * one slice then, and the file is complete without it; other programs may have written to the file since. */
int mask_is_half_on(char *view, const void *header, const void *in_file)
{
    struct ato_stat st;
    if (!mask_is_on(header) || !mask_is_plain(in_file))
        return 0;
    return read_guard(view, &st) < 0 ? -1 : st.slices_in_reflection == 1;
}

/* Reads the header through the view, after an interrupted mask_put_on() was undone. Returns 1 if the file is too short for a
 * header. */
static int read_settled(char *view, int fd, unsigned char h[MASK_HEADER])
{
    unsigned char slice[SLICE], masked[SLICE];
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -1;
    int r = read_header(view, st.st_size, h);
    if (r != 0 || pread(fd, slice, sizeof(slice), 0) != sizeof(slice))
        return r;
    r = mask_is_half_on(view, h, slice);
    if (r <= 0)
        return r;
    if (!ato_memcpy(masked, view, sizeof(masked)))
        return -1;
    /* The kill may also have come between the two words of the file's slice, after the counter was masked. If the slice
     * differs from the unmasked one in the counter's highest bit only, that bit is turned back; else other programs wrote
     * the counter since. */
    mask_translate(masked, sizeof(masked), 0);
    slice[COUNTER] ^= 0x80;
    if (memcmp(slice, masked, sizeof(slice)) != 0)
        slice[COUNTER] ^= 0x80;
    if (!ato_memcpy(view, slice, sizeof(slice)) || ato_deploy(view, sizeof(slice)) < 0)
        return -1;
    return read_header(view, st.st_size, h);
}

static int refresh(char *view, int fd)
{
    unsigned char h[MASK_HEADER];
    struct ato_stat st;
    const int r = read_settled(view, fd, h);
    if (r != 0)
        return r < 0 ? -1 : 0;
    if (read_guard(view, &st) < 0)
        return -1;
    if (st.guard_offset != AT || st.guard_bytes != BYTES)
        return 0; /* no guard, or one that this VFS did not set */
    /* Without a mask the guard is left over from a process that was killed before it put the mask on or after it took it
     * off. Other programs may have written the header since, so that the bytes in the guard are out of date. */
    return mask_is_on(h) ? mask_set_plain(view, h) : ato_set_guard(view, 0, NULL, 0);
}

int mask_lock(int fd)
{
    struct flock pending = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = PENDING_BYTE, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &pending);
}

void mask_unlock(int fd)
{
    const int saved = errno;
    struct flock pending = {
        .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = PENDING_BYTE, .l_len = 1};
    (void)fcntl(fd, F_OFD_SETLK, &pending);
    errno = saved;
}

int mask_refresh(char *view, int fd)
{
    struct ato_stat st;
    if (read_guard(view, &st) < 0)
        return -1;
    if (!st.guard_bytes)
        return 0;
    int tries = 0;
    while (mask_lock(fd) < 0) {
        if (++tries == TRIES)
            return 1;
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    const int r = refresh(view, fd);
    mask_unlock(fd);
    return r;
}

int mask_take_off(char *view, int fd)
{
    unsigned char h[MASK_HEADER];
    struct stat st;
    const int r = read_settled(view, fd, h);
    if (r != 0 || fstat(fd, &st) < 0)
        return r > 0 ? 0 : -1;
    const bool is_on = mask_is_on(h);
    if (is_on)
        mask_translate(h, sizeof(h), 0);
    if (st.st_size > ato_size(view) && ato_ftruncate(view, st.st_size) < 0)
        return -1;
    const off_t size = ato_size(view), length = size < st.st_size ? size : st.st_size;
    if (is_on && mask_set_plain(view, h) < 0)
        return -1;
    /* Deploys also if the view has no mask: a process that was killed between the two steps of write_home() leaves the mask
     * in the file only. */
    if (ato_deploy(view, (size_t)length) < 0 || (is_on && write_home(view, h) < 0))
        return -1;
    return is_on ? ato_set_guard(view, 0, NULL, 0) : refresh(view, fd);
}
