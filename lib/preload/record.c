/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/preload/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maps the file open as `fd` if it is the record with this token. */
static struct record *map(int fd, const uint8_t token[16])
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != RECORD_BYTES)
        return NULL;
    void *r = mmap(NULL, RECORD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (r == MAP_FAILED || memcmp(r, token, 16) == 0)
        return r == MAP_FAILED ? NULL : r;
    (void)munmap(r, RECORD_BYTES);
    return NULL;
}

struct record *record_open(const char *value)
{
    char path[64];
    uint8_t token[16];
    unsigned number;
    int end = 0, fd;
    if (!value || sscanf(value, "%63s %n", path, &end) != 1 || strlen(value + end) != 32 ||
        sscanf(path, "/proc/%*u/fd/%u", &number) != 1)
        return NULL;
    for (unsigned i = 0; i < 16; i++)
        if (sscanf(value + end + 2 * i, "%2hhx", &token[i]) != 1)
            return NULL;
    struct record *r = NULL;
    struct stat st;
    /* The process of that number may be another one by now: no device and no pipe is opened. */
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
        (fd = open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) >= 0) {
        r = map(fd, token);
        close(fd);
    }
    return r ? r : map((int)number, token);
}

/* Returns whether the bytes that are taken have the entry. */
static bool has(const struct record *r, const char *entry, size_t n)
{
    const uint32_t used = __atomic_load_n(&r->used, __ATOMIC_ACQUIRE);
    const char *at = r->entries,
               *end = at + (used < sizeof(r->entries) ? used : sizeof(r->entries));
    while ((size_t)(end - at) >= n) {
        const char *next = memchr(at, 0, (size_t)(end - at));
        if (!next || (size_t)(next + 1 - at) > n || memcmp(at, entry, n) != 0)
            at = next ? next + 1 : end;
        else
            return true;
    }
    return false;
}

void record_add(struct record *r, const char *entry)
{
    const size_t n = strlen(entry) + 1;
    if (has(r, entry, n))
        return;
    uint32_t at = __atomic_load_n(&r->used, __ATOMIC_RELAXED);
    do {
        if (at > sizeof(r->entries) || n > sizeof(r->entries) - at) {
            __atomic_store_n(&r->lost, 1, __ATOMIC_RELAXED);
            return;
        }
    } while (!__atomic_compare_exchange_n(&r->used, &at, at + (uint32_t)n, false, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
    memcpy(r->entries + at, entry, n);
}

const char *record_next(const struct record *r, const char *at)
{
    const char *end = r->entries + (r->used < sizeof(r->entries) ? r->used : sizeof(r->entries));
    at = at ? at + strnlen(at, (size_t)(end - at)) : r->entries;
    while (at < end && !*at) /* a process may have died before it filled its bytes */
        at++;
    return at < end && memchr(at, 0, (size_t)(end - at)) ? at : NULL;
}

/* ---- of this process ---- */

static struct record *own; /* NULL: there is none */

static void open_own(void)
{
    const int error = errno;
    own = record_open(secure_getenv(RECORD_VARIABLE));
    errno = error;
}

static struct record *get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_own);
    return own;
}

void record_set(size_t fact)
{
    struct record *r = get();
    if (r)
        __atomic_store_n((uint32_t *)((char *)r + fact), 1, __ATOMIC_RELAXED);
}

bool record_entry(const char *entry)
{
    struct record *r = get();
    if (r)
        record_add(r, entry);
    return r;
}

void record_database(dev_t device, ino_t inode, const char *path)
{
    char entry[PATH_MAX + 64];
    if (snprintf(entry, sizeof(entry), "%ju:%ju:%s", (uintmax_t)device, (uintmax_t)inode, path) <
        (int)sizeof(entry))
        (void)record_entry(entry);
}
