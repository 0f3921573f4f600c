/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/area.h"

#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int area_read(int lock, struct manifest_record *record, struct manifest_sizes *sizes, int *copy)
{
    static const char zeros[MANIFEST_BYTES];
    char *bytes HEAP = calloc(1, MANIFEST_BYTES);
    const off_t length = fsops_length(lock);
    int which;
    if (!bytes || length < 0 ||
        (pread(lock, bytes, MANIFEST_BYTES, 0) < 0 && errno != ESPIPE && errno != EISDIR))
        return -1;
    if (sizes && !manifest_sizes(bytes, sizes))
        memset(sizes, 0, sizeof(*sizes));
    const enum manifest_finding found = manifest_read(bytes, record, copy ? copy : &which);
    /* A manifest gets its length before its bytes. Any other file is not libato's: it may be a user's file that was renamed, and
     * must not be overwritten. */
    const bool is_ours = length == MANIFEST_BYTES || length == MANIFEST_BORN_BYTES ||
                         (length < MANIFEST_BYTES && memcmp(bytes, zeros, MANIFEST_BYTES) == 0);
    return found == MANIFEST_UNBORN && !is_ours ? MANIFEST_DAMAGED : (int)found;
}

int area_read_at(const struct folder *f, const char *manifest, struct manifest_record *record)
{
    const int fd CLOSING = openat(f->fd, manifest, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -1 : area_read(fd, record, NULL, NULL);
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

/* Never shortens the file: other processes may use areas behind this one. */
int area_make_space(int lock, unsigned slot, uint64_t n)
{
    const off_t at = (off_t)manifest_area(slot);
    return lseek(lock, at, SEEK_HOLE) >= at + (off_t)n ? 0
                                                       : fsops->fallocate(lock, 0, at, (off_t)n);
}

int area_map(struct pairing *pr, unsigned slot, uint64_t n, struct lane *area)
{
    const off_t at = (off_t)manifest_area(slot);
    /* persist-order J0 (reader: replay_slots): the length is durable before a commit line that needs it: such a line in a shorter
     * file is damage. With MAP_SYNC the first store behind the old end does that, before the line is stored. */
    char *map = area_make_space(pr->lock, slot, n) < 0 ? NULL : folder_map(pr->lock, O_RDWR, n, at);
    if (map)
        fault_watch(map, n, &pr->faults);
    if (map && domain_make_storable(PERSIST_DISK, map, MANIFEST_AREA_BYTES) == 0) {
        fault_unmap(area->at, area->bytes);
        *area = (struct lane){map, n};
        return 0;
    }
    if (fsops_length(pr->lock) < at + (off_t)n && map)
        report_error(ESTALE, "another program made the manifest of %s shorter", pr->path);
    else
        report_errno(errno,
                     "cannot use %llu bytes of the manifest of %s, for commits of several pages",
                     (unsigned long long)n, pr->path);
    KEEP_ERRNO();
    fault_unmap(map, n);
    return -1;
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

int64_t area_bytes(int lock, unsigned slot, uint64_t length)
{
    const uint64_t at = manifest_area(slot), there = length > at ? length - at : 0;
    uint64_t asked = MANIFEST_AREA_BYTES;
    if (slot == MANIFEST_SLOTS) {
        struct lane_commit line = {0};
        if (pread(lock, &line, sizeof(line), (off_t)at) < 0)
            return -1;
        const uint64_t words = line.words < LANE_MAX_WORDS ? line.words : LANE_MAX_WORDS;
        /* With room for a word if a torn line has a sequence alone. */
        asked = LANE_HEAD_BYTES + (words ? words : 1) * sizeof(struct lane_word);
    }
    return (int64_t)(asked < there ? asked : there);
}

unsigned area_lanes(unsigned slot, char *at, uint64_t bytes, struct lane lanes[LANE_SMALL])
{
    const uint64_t each = slot == MANIFEST_SLOTS ? bytes : LANE_SMALL_BYTES;
    unsigned n = 0;
    for (uint64_t from = 0; from < bytes; from += each)
        lanes[n++] = (struct lane){at + from, bytes - from < each ? bytes - from : each};
    return n;
}

char *area_copy_lanes(int lock, unsigned slot, struct lane lanes[LANE_SMALL], unsigned *n)
{
    const off_t length = fsops_length(lock);
    const int64_t bytes = length < 0 ? -1 : area_bytes(lock, slot, (uint64_t)length);
    char *copy = bytes < 0 ? NULL : calloc(1, (size_t)bytes + LANE_HEAD_BYTES);
    ssize_t more = 1;
    for (int64_t got = 0; copy && more > 0 && got < bytes; got += more)
        more = pread(lock, copy + got, (size_t)(bytes - got), (off_t)manifest_area(slot) + got);
    if (copy && more < 0) {
        KEEP_ERRNO();
        free(copy);
        return NULL;
    }
    *n = copy ? area_lanes(slot, copy, (uint64_t)bytes, lanes) : 0;
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
