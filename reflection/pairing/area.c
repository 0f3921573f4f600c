/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/area.h"

#include "reflection/format/journal.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"
#include "reflection/pairing/folder.h"
#include "reflection/pairing/identity.h"
#include "reflection/pairing/pairing.h"

#include <errno.h>
#include <fcntl.h>
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
static int make_space(int lock, off_t at)
{
    if (lseek(lock, at, SEEK_HOLE) >= at + (off_t)MANIFEST_AREA_BYTES)
        return 0;
    return fsops->fallocate(lock, 0, at, MANIFEST_AREA_BYTES);
}

char *area_map(int lock, unsigned slot, const char *path, struct fault_target *faults)
{
    const off_t at = (off_t)manifest_area(slot);
    char *area =
        make_space(lock, at) < 0 ? NULL : folder_map(lock, O_RDWR, MANIFEST_AREA_BYTES, at);
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

bool area_are_lost(const struct manifest_record *record)
{
    return record->domain == PERSIST_PROCESS && identity_restarted(record);
}

unsigned area_next(int lock, unsigned slot)
{
    off_t at = lseek(lock, (off_t)manifest_area(slot), SEEK_DATA);
    if (at < 0) /* ENXIO: holes to the end; otherwise the file system does not tell */
        return errno == ENXIO ? MANIFEST_SLOTS : slot;
    const uint64_t next = ((uint64_t)at - MANIFEST_BYTES) / MANIFEST_AREA_BYTES;
    return next < MANIFEST_SLOTS ? (unsigned)next : MANIFEST_SLOTS;
}

int area_holds_commits(int lock, const struct manifest_record *record)
{
    struct journal_view v;
    int holds = 0;
    char *area = area_are_lost(record) ? NULL : aligned_alloc(4096, MANIFEST_AREA_BYTES);
    if (!area)
        return area_are_lost(record) ? 0 : -1;
    for (unsigned slot = 0; !holds && (slot = area_next(lock, slot)) < MANIFEST_SLOTS; slot++) {
        memset(area, 0, MANIFEST_AREA_BYTES);
        if (pread(lock, area, MANIFEST_AREA_BYTES, (off_t)manifest_area(slot)) < 0)
            holds = -1;
        const struct journal j =
            journal_of_slot(area + MANIFEST_AREA_LANES, (enum persist_domain)record->domain);
        holds = holds ? holds : *(const uint64_t *)area != 0;
        for (unsigned lane = 0; lane < j.lanes && !holds; lane++) {
            const enum journal_finding found = journal_look(&j, lane, &v);
            holds = found == JOURNAL_COMMITTED || found == JOURNAL_DAMAGED;
        }
    }
    KEEP_ERRNO();
    free(area);
    return holds;
}

int area_journal(int lock, unsigned slot, const char *path, uint64_t *number)
{
    uint64_t word = 0;
    *number = 0;
    if (pread(lock, &word, sizeof(word), (off_t)manifest_area(slot)) < 0)
        return report_errno(errno, "cannot read the manifest of %s", path);
    if (word == 0 || manifest_decode_size(word, number))
        return 0;
    return report_error(EUCLEAN,
                        "the manifest of %s is damaged: slot %u has 0x%llx as the number of its "
                        "journal",
                        path, slot, (unsigned long long)word);
}

int area_find_journal(int lock, uint64_t *number, const char *path)
{
    uint64_t named = 0;
    for (unsigned slot = 0; (slot = area_next(lock, slot)) < MANIFEST_SLOTS; slot++) {
        if (area_journal(lock, slot, path, &named) < 0)
            return -1;
        if (!named || (*number && named != *number))
            continue;
        *number = named;
        return (int)slot;
    }
    return MANIFEST_SLOTS;
}

int area_set_journal(const struct persist *p, char *area, uint64_t number, const char *path)
{
    uint64_t *word = (uint64_t *)area;
    persist_store_word(p, word, number ? manifest_encode_size(number) : 0);
    if (persist_flush_word(p, word) < 0)
        return report_errno(errno, "cannot make the manifest of %s durable", path);
    /* persist-order N1 (reader: area_journal, by takeover() and area_find_journal): the name of the journal is durable before the
     * first commit in it. persist-order N2 (writer: J3; reader: lock_all in takeover.c): all commits of the file are retired
     * before the journal is no longer named, and that is durable before the journal is removed: recovery finds each journal that
     * is named. */
    persist_fence(p);
    return 0;
}
