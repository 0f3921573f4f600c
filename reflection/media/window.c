/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/media/window.h"

#include "reflection/media/bitmap.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

pthread_mutex_t window_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- addresses ---- */

/* In units of 1 GiB: from 17 TiB, above the shadow memory of AddressSanitizer, to 85 TiB, below programs and their heaps. */
#define UNIT (1ull << 30)
enum { FIRST = 17 << 10, UNITS = 68 << 10 };

static bool taken[UNITS]; /* by a window, or by something else that was found there */
static unsigned next;     /* where the search begins */

/* Takes n units. Returns the first one; UNITS if there are not so many side by side. */
static unsigned take(unsigned n)
{
    unsigned from = next, found = 0;
    for (unsigned looked = 0; found < n && looked < 2 * UNITS; looked++)
        if (from + found >= UNITS) {
            from = found = 0;
        } else if (taken[from + found]) {
            from += found + 1;
            found = 0;
        } else {
            found++;
        }
    if (found < n)
        return UNITS;
    memset(taken + from, true, n);
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

/* Returns what mmap() has mapped for the hint `at`, if it lies there; NULL: anywhere. Otherwise unmaps it and returns NULL with errno:
 * EEXIST if something else lies at the hint. (With MAP_FIXED_NOREPLACE ThreadSanitizer ends the process, since it wants to choose
 * addresses.) */
static char *only_at(char *at, char *mapped, uint64_t n)
{
    if (mapped == MAP_FAILED)
        return NULL;
    if (!at || mapped == at)
        return mapped;
    munmap(mapped, n);
    errno = EEXIST;
    return NULL;
}

/* Keeps addresses. Returns as only_at(). */
static char *keep(char *at, uint64_t n)
{
    return only_at(at, mmap(at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
                   n);
}

/* Maps what follows in the file at `at`. Returns as only_at(). */
static char *map_with(const struct window *w, int flags, char *at, uint64_t n)
{
    return only_at(
        at, domain_map_with(w->domain, flags, at, n, w->prot, w->fd, (off_t)(w->at + w->bytes)), n);
}

/* The same, where addresses are kept, or (!w->reserved) where nothing may lie yet. */
static char *map(const struct window *w, char *at, uint64_t n)
{
    return map_with(w, w->reserved ? MAP_FIXED : 0, at, n);
}

/* Maps it behind what is mapped. At a hint ext4 and DAX look for 2 MiB more than are asked for, in which another window may lie. */
static char *map_behind(const struct window *w, uint64_t n)
{
    char *at = w->base + w->bytes, *mapped = map(w, at, n);
    return mapped || errno != EEXIST ? mapped : map_with(w, MAP_FIXED_NOREPLACE, at, n);
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
        memset(taken + unit, false, units(room));
        taken[unit] = errno == EEXIST; /* something else lies there: it is not tried again */
    }
    return NULL;
}

/* With the lock. */
static void give_back(const char *at, uint64_t room)
{
    const uint64_t unit = (uint64_t)(uintptr_t)at / UNIT - FIRST;
    /* An address that a program has chosen may lie anywhere (table_reserve()). */
    for (uint64_t i = unit; i < UNITS && i - unit < units(room); i++)
        taken[i] = false;
}

void *window_reserve(uint64_t n)
{
    /* Where the kernel likes, so that the part is left for windows. At the end of what it gives, so that the next one, which it puts
     * below, leaves no gap. */
    char *raw = keep(NULL, n + UNIT);
    if (raw) {
        char *at = (char *)(((uintptr_t)raw + UNIT) & ~(uintptr_t)(UNIT - 1));
        munmap(raw, (size_t)(at - raw));
        if (at < raw + UNIT)
            munmap(at + n, (size_t)(raw + UNIT - at));
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
    for (unsigned i = 0; i < UNITS; i++)
        if (taken[i]) /* else the child would get a copy of each page of the table */
            taken[i] = false;
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
    if (to > w->room || (to > from && !map_behind(w, to - from))) {
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
