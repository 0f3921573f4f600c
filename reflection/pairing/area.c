/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/area.h"

#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/folder.h"
#include "reflection/pairing/identity.h"
#include "reflection/pairing/pairing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

char *area_map_manifest(int lock, int access, const char *path)
{
    const off_t length = fsops_length(lock);
    if (length >= 0 && length < MANIFEST_BYTES) /* a load would be SIGBUS */
        return report_null(EUCLEAN,
                           "the manifest of %s is %lld bytes long, it must have at least %d. Bring "
                           "it back; " PAIRING_KEEP_FILE,
                           path, (long long)length, MANIFEST_BYTES);
    char *manifest = length < 0 ? NULL : folder_map(lock, access, MANIFEST_BYTES, 0);
    if (!manifest)
        report_errno(errno, "cannot map the manifest of %s", path);
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

char *area_map(int lock, unsigned slot, const char *path)
{
    const off_t at = (off_t)manifest_area(slot);
    char *area =
        make_space(lock, at) < 0 ? NULL : folder_map(lock, O_RDWR, MANIFEST_AREA_BYTES, at);
    if (area && domain_make_storable(PERSIST_MSYNC, area, MANIFEST_AREA_BYTES) == 0)
        return area;
    report_errno(errno, "no space for commits of several pages in the manifest of %s", path);
    KEEP_ERRNO();
    area_unmap(area);
    return NULL;
}

void area_unmap(char *area)
{
    if (area)
        munmap(area, MANIFEST_AREA_BYTES);
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
