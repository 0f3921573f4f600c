/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/private_pages.h"

#include "lib/file/mutex.h"
#include "reflection/format/layout.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

bool private_pages_scan = true;

/* ---- the runs ---- */

struct found {
    struct private_run *runs;
    uint64_t n, room;
};

static int add(struct found *to, uint64_t first, uint64_t end)
{
    if (to->n && to->runs[to->n - 1].end == first) {
        to->runs[to->n - 1].end = end;
        return 0;
    }
    if (to->n == to->room) {
        const uint64_t room = 2 * to->room + 16;
        struct private_run *runs = realloc(to->runs, room * sizeof(*runs));
        if (!runs)
            return report_error(ENOMEM, "no memory to note which pages were stored to");
        to->runs = runs;
        to->room = room;
    }
    to->runs[to->n++] = (struct private_run){first, end};
    return 0;
}

/* ---- by the ioctl ---- */

/* As the kernel has them: headers of older kernels lack them. */
struct region {
    uint64_t start, end, categories;
};
struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN_IOCTL _IOWR('f', 16, struct scan)
enum { IS_FILE = 1 << 2, IS_PRESENT = 1 << 3, IS_SWAPPED = 1 << 4, IS_ZERO = 1 << 5 };

/* Returns 0; 1: the kernel does not have it; -1 with ENOMEM. */
static int find_by_scan(int fd, uint64_t base, uint64_t n, struct found *found)
{
    struct region regions[128];
    const uint64_t end = base + n * PAGE_BYTES;
    struct scan s = {.size = sizeof(s),
                     .start = base,
                     .end = end,
                     .vec = (uint64_t)(uintptr_t)regions,
                     .vec_len = sizeof(regions) / sizeof(*regions),
                     .category_inverted = IS_FILE | IS_ZERO,
                     .category_mask = IS_FILE | IS_ZERO,
                     .category_anyof_mask = IS_PRESENT | IS_SWAPPED,
                     .return_mask = IS_PRESENT};
    while (s.start < end) {
        const int got = private_pages_scan ? ioctl(fd, PAGEMAP_SCAN_IOCTL, &s) : -1;
        if (got < 0)
            return 1;
        for (int i = 0; i < got; i++)
            if (add(found, (regions[i].start - base) / PAGE_BYTES,
                    (regions[i].end - base) / PAGE_BYTES) < 0)
                return -1;
        s.start = s.walk_end;
    }
    return 0;
}

/* ---- by the table ---- */

static bool is_private(uint64_t entry)
{
    const uint64_t present = 1ull << 63, swapped = 1ull << 62, of_file = 1ull << 61;
    return (entry & (present | swapped)) && !(entry & of_file);
}

static int find_by_table(int fd, uint64_t base, uint64_t n, struct found *found)
{
    enum { MANY = 4096 };
    uint64_t *entries HEAP = malloc(MANY * sizeof(*entries));
    if (!entries)
        return report_error(ENOMEM, "no memory to look which pages were stored to");
    for (uint64_t i = 0; i < n;) {
        const uint64_t more = n - i < MANY ? n - i : MANY;
        const ssize_t got = pread(fd, entries, more * sizeof(*entries),
                                  (off_t)((base / PAGE_BYTES + i) * sizeof(*entries)));
        if (got < (ssize_t)sizeof(*entries))
            return report_errno(got < 0 ? errno : EIO, "cannot read /proc/self/pagemap");
        for (uint64_t k = 0; k < (uint64_t)got / sizeof(*entries); k++, i++)
            if (is_private(entries[k]) && add(found, i, i + 1) < 0)
                return -1;
    }
    return 0;
}

/* ---- this process ---- */

/* A descriptor of /proc/self/pagemap, which the process keeps: to open it takes half as long as the search, and later it may not be possible
 * (chroot(2), rights that were given up, no free descriptor). The program may have closed it, and have another file there now. With
 * MUTEX_PAGEMAP. */
static struct kept {
    int fd; /* -1: none */
    dev_t dev;
    ino_t ino;
} kept = {.fd = -1};

void private_pages_forget(void)
{
    kept.fd = -1; /* not closed: it may be another file */
}

/* Returns the descriptor; -1 with a sentence. */
static int take_kept(void)
{
    struct stat is;
    mutex_lock(MUTEX_PAGEMAP);
    if (kept.fd < 0 || fstat(kept.fd, &is) < 0 || is.st_dev != kept.dev || is.st_ino != kept.ino) {
        kept.fd = private_pages_open(0);
        if (kept.fd >= 0 && fstat(kept.fd, &is) == 0)
            kept = (struct kept){kept.fd, is.st_dev, is.st_ino};
    }
    const int fd = kept.fd;
    mutex_unlock(MUTEX_PAGEMAP);
    return fd >= 0
               ? fd
               : report_errno(errno, "cannot open /proc/self/pagemap, which tells what was stored");
}

int private_pages_find(const void *base, uint64_t n, struct private_run **runs, uint64_t *count)
{
    const uint64_t at = (uint64_t)(uintptr_t)base;
    struct found found = {0};
    const int fd = take_kept();
    int r = fd < 0 ? -1 : find_by_scan(fd, at, n, &found);
    if (r > 0) {
        found.n = 0;
        r = find_by_table(fd, at, n, &found);
    }
    if (r < 0) {
        free(found.runs);
        found = (struct found){0};
    }
    *runs = found.runs;
    *count = found.n;
    return r;
}

/* ---- any process ---- */

int private_pages_open(uint32_t pid)
{
    char name[32] = "/proc/self/pagemap";
    if (pid)
        snprintf(name, sizeof(name), "/proc/%u/pagemap", pid);
    return open(name, O_RDONLY | O_CLOEXEC);
}

bool private_page_is(int pagemap, uint64_t address)
{
    uint64_t entry;
    return pread(pagemap, &entry, sizeof(entry), (off_t)(address / PAGE_BYTES * sizeof(entry))) !=
               sizeof(entry) ||
           is_private(entry);
}
