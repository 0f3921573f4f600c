/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/area.h"

#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"
#include "reflection/pairing/folder.h"
#include "reflection/pairing/identity.h"
#include "reflection/pairing/pairing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int area_read(int lock, struct manifest_record *record, struct manifest_sizes *sizes)
{
    char *bytes HEAP = calloc(1, MANIFEST_BYTES);
    int which;
    if (!bytes || (pread(lock, bytes, MANIFEST_BYTES, 0) < 0 && errno != ESPIPE && errno != EISDIR))
        return -1;
    if (sizes && !manifest_sizes(bytes, sizes))
        memset(sizes, 0, sizeof(*sizes));
    return (int)manifest_read(bytes, record, &which);
}

int area_note_own(int lock, struct manifest_record *record)
{
    struct statx sx;
    if (statx(lock, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &sx) < 0)
        return -1;
    const bool has_birth = sx.stx_mask & STATX_BTIME;
    record->own_inode = sx.stx_ino;
    record->own_birth_sec = has_birth ? sx.stx_btime.tv_sec : 0;
    record->own_birth_nsec = has_birth ? sx.stx_btime.tv_nsec : 0;
    return 0;
}

int area_is_copy(int lock, const struct manifest_record *record)
{
    struct manifest_record is = {0};
    if (!record->own_inode)
        return 0;
    if (area_note_own(lock, &is) < 0)
        return -1;
    const bool known = (is.own_birth_sec || is.own_birth_nsec) &&
                       (record->own_birth_sec || record->own_birth_nsec);
    return is.own_inode != record->own_inode ||
           (known && (is.own_birth_sec != record->own_birth_sec ||
                      is.own_birth_nsec != record->own_birth_nsec));
}

char *area_map_manifest(int lock, int access, const char *path, struct fault_target *faults)
{
    const off_t length = fsops_length(lock);
    if (length >= 0 && length < MANIFEST_BYTES) /* a load would be SIGBUS */
        return report_null(
            EUCLEAN,
            "the manifest of %s is %lld bytes long, it must have at least %d. " PAIRING_BRING_BACK,
            path, (long long)length, MANIFEST_BYTES);
    char *manifest = length < 0 ? NULL : folder_map(lock, access, MANIFEST_BYTES, 0);
    if (!manifest)
        report_errno(errno, "cannot map the manifest of %s", path);
    else
        fault_watch(manifest, MANIFEST_BYTES, faults);
    return manifest;
}

/* The first area has zeros since the manifest's birth. Others may lie behind its end: recovery looks no further than that, but
 * the first flush of a lane, or with MAP_SYNC the first store to it, makes the length durable too. Never shortens the file:
 * other processes may use areas behind this one. */
static int make_space(int lock, off_t at, uint64_t n)
{
    if (lseek(lock, at, SEEK_HOLE) >= at + (off_t)n)
        return 0;
    return fsops->fallocate(lock, 0, at, (off_t)n);
}

char *area_map(int lock, unsigned slot, const char *path, struct fault_target *faults)
{
    const off_t at = (off_t)manifest_area(slot);
    char *area = make_space(lock, at, MANIFEST_AREA_BYTES) < 0
                     ? NULL
                     : folder_map(lock, O_RDWR, MANIFEST_AREA_BYTES, at);
    if (area)
        fault_watch(area, MANIFEST_AREA_BYTES, faults);
    if (area && domain_make_storable(PERSIST_MSYNC, area, MANIFEST_AREA_BYTES) == 0)
        return area;
    if (fsops_length(lock) < at + (off_t)MANIFEST_AREA_BYTES)
        report_error(ESTALE, "another program made the manifest of %s shorter", path);
    else
        report_errno(errno, "cannot use the manifest of %s for commits of several pages", path);
    KEEP_ERRNO();
    area_unmap(area);
    return NULL;
}

void area_unmap(char *area)
{
    fault_unmap(area, MANIFEST_AREA_BYTES);
}

/* Returns how much of a long lane matters, in whole pages: as its commit line asks for, if there is so much. */
static uint64_t long_bytes(const struct lane_commit *line, uint64_t there)
{
    const uint64_t words = line->words < LANE_MAX_WORDS ? line->words : LANE_MAX_WORDS,
                   wanted = LANE_HEAD_BYTES + words * sizeof(struct lane_word),
                   n = wanted < there ? wanted : there;
    return n ? (n + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1) : PAGE_BYTES;
}

/* Maps the first n bytes of the long lane, which the file has. */
static int map_long(int lock, uint64_t n, struct fault_target *faults, struct lane *lane)
{
    char *at = folder_map(lock, O_RDWR, n, (off_t)manifest_area(MANIFEST_SLOTS));
    if (!at)
        return -1;
    fault_watch(at, n, faults);
    area_unmap_long(lane);
    *lane = (struct lane){at, n};
    return 0;
}

int area_map_long(int lock, uint64_t words, enum persist_domain domain, const char *path,
                  struct fault_target *faults, struct lane *lane)
{
    const uint64_t n = lane_bytes(words);
    /* persist-order J0 (reader: area_map_found): the length is durable before a commit line that needs it: such a line in a shorter
     * file is damage. With MAP_SYNC the first store behind the old end does that, before the line is stored. In domain msync the
     * kernel may write the page of the line first. */
    if (n > lane->bytes &&
        (fsops->fallocate(lock, 0, (off_t)manifest_area(MANIFEST_SLOTS), (off_t)n) < 0 ||
         (domain == PERSIST_MSYNC && fsops_fsync(lock) < 0) || map_long(lock, n, faults, lane) < 0))
        return report_errno(
            errno,
            "cannot make the manifest of %s larger by %llu bytes, which a commit of "
            "%llu pages needs",
            path, (unsigned long long)(n - lane->bytes), (unsigned long long)words);
    return 0;
}

int area_map_found(int lock, const char *path, struct fault_target *faults, struct lane *lane)
{
    const off_t at = (off_t)manifest_area(MANIFEST_SLOTS), end = fsops_length(lock);
    const uint64_t there = end > at ? (uint64_t)(end - at) & ~(PAGE_BYTES - 1) : 0;
    struct lane_commit line = {0};
    if (end < 0 || pread(lock, &line, sizeof(line), at) < 0)
        return report_errno(errno, "cannot read the long lane in the manifest of %s", path);
    const uint64_t n = long_bytes(&line, UINT64_MAX);
    if (n > there)
        return report_error(
            EUCLEAN,
            "the long lane in the manifest of %s is damaged, or was cut off. " PAIRING_BRING_BACK,
            path);
    /* In a copy of the file there may be holes instead of zeros; on a full tmpfs even a load from a hole is SIGBUS. */
    if (make_space(lock, at, n) < 0 || map_long(lock, n, faults, lane) < 0)
        return report_errno(errno, "cannot map the long lane in the manifest of %s", path);
    return 0;
}

void area_unmap_long(struct lane *lane)
{
    fault_unmap(lane->at, lane->bytes);
    *lane = (struct lane){0};
}

int area_cut(int lock)
{
    const off_t length = fsops_length(lock);
    return length <= MANIFEST_BORN_BYTES ? (length < 0 ? -1 : 0)
                                         : fsops->ftruncate(lock, MANIFEST_BORN_BYTES);
}

bool area_are_lost(const struct manifest_record *record)
{
    return record->domain == PERSIST_PROCESS && identity_restarted(record);
}

unsigned area_next(int lock, unsigned slot)
{
    if (slot >= AREA_END)
        return AREA_END;
    const off_t at = lseek(lock, (off_t)manifest_area(slot), SEEK_DATA);
    if (at < 0 && errno == ENXIO) /* holes to the end */
        return AREA_END;
    if (at < 0) { /* the file system does not tell */
        const off_t length = fsops_length(lock);
        return length >= 0 && length <= (off_t)manifest_area(slot) ? AREA_END : slot;
    }
    const uint64_t next = ((uint64_t)at - MANIFEST_BYTES) / MANIFEST_AREA_BYTES;
    return next < MANIFEST_SLOTS ? (unsigned)next : MANIFEST_SLOTS;
}

char *area_copy_lanes(int lock, unsigned slot, struct lane lanes[LANE_SMALL], unsigned *n)
{
    const off_t at = (off_t)manifest_area(slot), end = fsops_length(lock);
    struct lane_commit line = {0};
    uint64_t bytes = MANIFEST_AREA_BYTES;
    if (end < 0 || pread(lock, &line, sizeof(line), at) < 0)
        return NULL;
    if (slot == MANIFEST_SLOTS)
        bytes = long_bytes(&line, end > at ? (uint64_t)(end - at) : 0);
    char *copy = aligned_alloc(PAGE_BYTES, bytes);
    if (!copy)
        return NULL;
    memset(copy, 0, bytes);
    for (uint64_t got = 0; got < bytes;) {
        const ssize_t more = pread(lock, copy + got, bytes - got, at + (off_t)got);
        if (more == 0)
            break; /* zeros behind the end */
        if (more < 0) {
            KEEP_ERRNO();
            free(copy);
            return NULL;
        }
        got += (uint64_t)more;
    }
    *n = slot == MANIFEST_SLOTS ? 1 : LANE_SMALL;
    lanes[0] = (struct lane){copy, bytes};
    for (unsigned i = 0; i<*n && * n> 1; i++)
        lanes[i] = lane_small(copy, i);
    return copy;
}

int area_holds_commits(int lock, const struct manifest_record *record)
{
    struct lane lanes[LANE_SMALL];
    struct lane_view v;
    unsigned n;
    int holds = 0;
    for (unsigned slot = 0;
         !holds && !area_are_lost(record) && (slot = area_next(lock, slot)) < AREA_END; slot++) {
        char *copy HEAP = area_copy_lanes(lock, slot, lanes, &n);
        if (!copy)
            return -1;
        for (unsigned i = 0; i < n && !holds; i++) {
            const enum lane_finding found = lane_look(&lanes[i], &v);
            holds = found == LANE_COMMITTED || found == LANE_DAMAGED;
        }
    }
    return holds;
}
