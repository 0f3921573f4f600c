/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/media/window.h"

#include "reflection/media/bitmap.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include <sys/mman.h>
#include <sys/resource.h>

pthread_mutex_t window_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- addresses ---- */

/* In units of 1 GiB: from 17 TiB, above the shadow memory of AddressSanitizer, to 85 TiB, below programs and their heaps. */
#define UNIT (1ull << 30)
enum { FIRST = 17 << 10, UNITS = 68 << 10 };

static uint64_t taken[UNITS / 64]; /* one bit for each */
static unsigned next;              /* where the search begins */

static bool is_taken(unsigned unit)
{
    return taken[unit / 64] >> unit % 64 & 1;
}

static void mark(unsigned unit, unsigned n, bool taken_now)
{
    for (; n > 0; n--, unit++)
        taken[unit / 64] = (taken[unit / 64] & ~(1ull << unit % 64)) | (uint64_t)taken_now
                                                                           << unit % 64;
}

/* Takes n units. Returns the first one; UNITS if there are not so many side by side. */
static unsigned take(unsigned n)
{
    unsigned from = next, found = 0;
    for (unsigned looked = 0; found < n && looked < 2 * UNITS; looked++) {
        if (from + found >= UNITS) {
            from = found = 0;
            continue;
        }
        if (is_taken(from + found)) {
            from += found + 1;
            found = 0;
        } else {
            found++;
        }
    }
    if (found < n)
        return UNITS;
    mark(from, n, true);
    next = from + n;
    return from;
}

static char *address(unsigned unit)
{
    return (char *)(uintptr_t)((FIRST + unit) * UNIT);
}

static unsigned units(uint64_t n)
{
    const uint64_t all = (n + UNIT - 1) / UNIT;
    return all < UNITS ? (unsigned)all : UNITS;
}

/* Keeps addresses, at a given place or (NULL) where the kernel likes. Returns NULL with errno: EEXIST if something else lies there. */
static char *keep(char *at, uint64_t n)
{
    /* A hint, as in domain_map_beside(). */
    char *kept = mmap(at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (kept == MAP_FAILED)
        return NULL;
    if (!at || kept == at)
        return kept;
    munmap(kept, n);
    errno = EEXIST;
    return NULL;
}

/* Maps what follows in the file at `at`, which is kept, or (!w->reserved) where nothing may lie yet. Returns NULL with errno: EEXIST
 * if something lies there. */
static char *map(const struct window *w, char *at, uint64_t n)
{
    const off_t from = (off_t)(w->at + w->bytes);
    char *mapped = w->reserved ? domain_map(w->domain, at, n, w->prot, w->fd, from)
                               : domain_map_beside(w->domain, at, n, w->prot, w->fd, from);
    if (mapped == MAP_FAILED)
        return NULL;
    if (w->no_dump)
        madvise(mapped, n, MADV_DONTDUMP);
    return mapped;
}

/* Maps, or (w: NULL) keeps, the first `bytes` of `room`. Returns NULL with errno: ENOMEM, for the address space is limited, or something
 * else if another place may do. With the lock. */
static char *use_part(const struct window *w, uint64_t bytes, uint64_t room)
{
    enum { TRIES = 16 };
    if (!next) /* so that addresses differ from process to process, as those of the kernel do */
        next = 1 + (unsigned)((uintptr_t)&next >> 12) % (UNITS / 8);
    errno = EEXIST;
    for (unsigned i = 0; i < TRIES && errno == EEXIST; i++) {
        const unsigned unit = take(units(room));
        if (unit == UNITS)
            return NULL;
        char *used = w ? map(w, address(unit), bytes) : keep(address(unit), bytes);
        if (used)
            return used;
        /* Something else lies there, and that unit is not tried again. */
        KEEP_ERRNO();
        mark(unit, units(room), false);
        mark(unit, errno == EEXIST, true);
    }
    return NULL;
}

/* With the lock. */
static void give_back(const char *at, uint64_t room)
{
    const uint64_t unit = (uint64_t)(uintptr_t)at / UNIT - FIRST;
    if (unit < UNITS)
        mark((unsigned)unit, units(room), false);
}

/* Where reservations end that were made last: the next one may lie below. NULL: not known. A guess. Atomic. */
static char *beneath;

void *window_reserve(uint64_t n)
{
    /* Where the kernel likes, so that the part is left for windows. */
    char *low = __atomic_load_n(&beneath, __ATOMIC_RELAXED),
         *raw = low && low >= address(UNITS) + n ? keep(low - n, n) : NULL;
    if (raw) {
        __atomic_store_n(&beneath, raw, __ATOMIC_RELAXED);
        return raw;
    }
    raw = keep(NULL, n + UNIT);
    if (raw) {
        char *at = (char *)(((uintptr_t)raw + UNIT - 1) & ~(uintptr_t)(UNIT - 1));
        if (at > raw)
            munmap(raw, (size_t)(at - raw));
        munmap(at + n, (size_t)(raw + UNIT - at));
        __atomic_store_n(&beneath, at, __ATOMIC_RELAXED);
        return at;
    }
    /* Not a GiB more than is needed. */
    pthread_mutex_lock(&window_lock);
    raw = use_part(NULL, n, n);
    pthread_mutex_unlock(&window_lock);
    if (!raw)
        errno = ENOMEM; /* also if something else lies wherever it was tried */
    return raw;
}

void window_give_back(void *at, uint64_t n)
{
    KEEP_ERRNO();
    pthread_mutex_lock(&window_lock);
    fault_unmap(at, n);
    give_back(at, n);
    if (at == __atomic_load_n(&beneath, __ATOMIC_RELAXED))
        __atomic_store_n(&beneath, (char *)at + n, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&window_lock);
}

int window_no_room(int error, uint64_t n, const char *what, const char *path)
{
    struct rlimit limit;
    if (error != ENOMEM)
        return report_errno(error, "cannot map %s%s", what, path);
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return report_error(ENOMEM,
                            "no address space for %llu bytes of %s%s: this process may have %llu "
                            "bytes of it (RLIMIT_AS, 'ulimit -v')",
                            (unsigned long long)n, what, path, (unsigned long long)limit.rlim_cur);
    return report_error(ENOMEM,
                        "no address space for %llu bytes of %s%s, or this process has as many "
                        "mappings as vm.max_map_count lets it have",
                        (unsigned long long)n, what, path);
}

void window_forget_all(void)
{
    for (unsigned i = 0; i < UNITS / 64; i++)
        taken[i] = 0;
}

/* ---- windows ---- */

static uint64_t whole(uint64_t n)
{
    return (n + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

/* With the lock. */
static void close_held(struct window *w)
{
    KEEP_ERRNO();
    fault_unmap(w->base, w->reserved ? w->room : w->bytes);
    give_back(w->base, w->room);
    w->base = NULL;
    w->bytes = w->room = 0;
}

int window_open(struct window *w, uint64_t bytes, uint64_t room, struct fault_target *faults)
{
    const uint64_t first = whole(bytes);
    w->room = whole(room > bytes ? room : bytes);
    w->bytes = 0;
    w->reserved = false;
    pthread_mutex_lock(&window_lock);
    w->base = use_part(w, first, w->room);
    if (!w->base && errno != ENOMEM) {
        w->reserved = true;
        w->base = keep(NULL, w->room);
        if (!w->base) /* whatever it says: EINVAL, if it is Valgrind */
            errno = ENOMEM;
        else if (!map(w, w->base, first))
            close_held(w);
    }
    const int r = w->base ? 0 : -1;
    if (r == 0)
        __atomic_store_n(&w->bytes, first, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&window_lock);
    if (r == 0)
        fault_watch(w->base, first, faults);
    return r;
}

int window_reach(struct window *w, uint64_t bytes)
{
    const uint64_t to = whole(bytes);
    int r = 0;
    pthread_mutex_lock(&window_lock);
    const uint64_t from = w->bytes;
    if (to > w->room || (to > from && !map(w, w->base + from, to - from))) {
        if (to > w->room || errno == EEXIST)
            errno = ENOMEM;
        r = -1;
    } else if (to > from) {
        __atomic_store_n(&w->bytes, to, __ATOMIC_RELEASE);
        fault_lengthen(w->base, to);
    }
    pthread_mutex_unlock(&window_lock);
    return r;
}

void window_close(struct window *w)
{
    if (!w->base)
        return;
    pthread_mutex_lock(&window_lock);
    close_held(w);
    pthread_mutex_unlock(&window_lock);
}
