/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/birth.h"

#include "reflection/format/layout.h"
#include "reflection/format/log.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>

static int make_reflection(struct pairing *pr, uint32_t format)
{
    /* A reflection that an interrupted birth or removal left has no content: begin with a new
     * file, with bitmaps of zeros. */
    if (fsops->unlinkat(pr->folder.fd, pr->names.reflection, 0) < 0 && errno != ENOENT)
        return folder_error(&pr->folder, pr->names.reflection,
                            "cannot remove the leftover reflection");
    pr->reflection = fsops->create(pr->folder.fd, pr->names.reflection, O_RDWR | O_EXCL, 0600);
    if (pr->reflection < 0)
        return folder_error(&pr->folder, pr->names.reflection, "cannot make the reflection");
    uint64_t bytes = layout_reflection_bytes(format, pr->identity.size);
    if (fsops->ftruncate(pr->reflection, (off_t)bytes) < 0)
        return report_errno(errno, "cannot make the reflection %s/%s %" PRIu64 " bytes long",
                            pr->folder.path, pr->names.reflection, bytes);
    if (ownership_give(&pr->identity.trust, pr->reflection) < 0)
        return folder_error(&pr->folder, pr->names.reflection, "cannot set the mode of");
    return 0;
}

/* With four times as much an open, an update and a close took a quarter to a half longer. */
uint64_t birth_ring_bytes = 64 << 10;

/* Fills the new log with zeros: it has its space then, and the sync of a commit changes nothing but bytes. Durable with the birth. */
static int make_log(const struct pairing *pr)
{
    const uint64_t wished = pr->record.log_bytes;
    struct log_file log = {.fd = pr->reflection,
                           .header = {.capacity = wished ? wished : birth_ring_bytes}};
    if (!log_is_possible())
        return report_error(ENOTSUP,
                            "%s is on a disk, where libato needs a CPU with SSE4.2, for the "
                            "checksums of its log",
                            pr->path);
    int r = identity_random(&log.header.salt, sizeof(log.header.salt)) < 0 ? -1
            : wished ? fsops->fallocate(log.fd, 0, 0,
                                        (off_t)(LOG_RING_AT + wished)) /* at once, or not */
                     : 0;
    if (r == 0)
        r = log_clear(&log, 0, log.header.capacity);
    return r == 0 && log_write_header(&log) == 0
               ? 0
               : report_errno(errno, "cannot make the log of %s, %s/%s, %" PRIu64 " bytes long",
                              pr->path, pr->folder.path, pr->names.reflection,
                              LOG_RING_AT + log.header.capacity);
}

/* A log in a folder that the user has named. Returns 0; -1 with ENOTSUP. */
static int check_log_folder(const struct pairing *pr)
{
    if (pr->persist.domain == PERSIST_DISK)
        return 0;
    return report_error(ENOTSUP,
                        "the log of %s would be in %s, which is in memory: a power cut would take "
                        "it. Name a folder on persistent memory or on a disk; or ask for domain "
                        "disk (ATO_DURABILITY=disk), which takes this one for persistent memory",
                        pr->path, pr->folder.path);
}

void birth_choose_domain(struct pairing *pr, const struct pairing_wish *wish)
{
    /* The manifest lies beside the reflection, which may not be there yet. */
    enum persist_domain medium = domain_weaker(domain_of(pr->original), domain_of(pr->lock));
    enum persist_domain domain = wish->domain == PERSIST_AUTO ? medium : wish->domain;
    if (pr->record.format == LAYOUT_LOG) /* adopted */
        domain = PERSIST_DISK;
    if (domain != medium && domain_weaker(medium, domain) == medium)
        report_log(REPORT_WARNING,
                   "%s is mapped in domain %s, as asked, but its medium offers only %s", pr->path,
                   domain_name(domain), domain_name(medium));
    persist_init(&pr->persist, domain);
}

static int report_no_fallocate(const char *path)
{
    return report_error(EOPNOTSUPP,
                        "the file system of %s has no fallocate(2), which libato needs to write: "
                        "files and their reflections have to be on another one",
                        path);
}

int birth_allocate(struct pairing *pr)
{
    if (fsops->fallocate(pr->lock, 0, 0, MANIFEST_BORN_BYTES) == 0)
        return 0;
    if (errno == EOPNOTSUPP)
        return report_no_fallocate(pr->folder.path);
    return folder_error(&pr->folder, pr->names.manifest, "cannot allocate the manifest");
}

int birth_write_record(struct pairing *pr)
{
    if (manifest_write(&pr->persist, pr->manifest, &pr->record, &pr->copy) < 0)
        return report_errno(errno, "cannot make the manifest of %s in %s durable", pr->path,
                            pr->folder.path);
    return 0;
}

int birth_set_attribute(struct pairing *pr, uint64_t inode)
{
    struct attribute a = {.inode = inode};
    memcpy(a.id, pr->record.id, 16);
    const char *folder = pr->folder.path;
    const size_t base =
        (size_t)(strrchr(pr->path, '/') + 1 - pr->path); /* its folder and a slash */
    const bool below = strncmp(folder, pr->path, base) == 0 && folder[base];
    if (!below || snprintf(a.folder, sizeof(a.folder), "%.*s/%s", (int)base, folder,
                           folder + base) >= (int)sizeof(a.folder))
        memcpy(a.folder, folder, sizeof(a.folder));
    if (attribute_write(pr->original, pr->path, &a) == 0)
        return 0;
    if (errno != ENOTSUP && errno != EPERM)
        return -1;
    /* On some file systems a read reports that there is no attribute, although none can be set. */
    pr->has_attributes = false;
    pr->record.known &= ~MANIFEST_KNOWS_ATTRIBUTE;
    return 0;
}

static int check_links(const struct pairing *pr)
{
    if (!pr->has_attributes && pr->needs_attribute)
        return report_error(ENOTSUP,
                            "%s is on a file system without extended attributes, where no later "
                            "map would find its log in %s: map it without log_dir (ATO_LOG_DIR)",
                            pr->path, pr->folder.path);
    if (pr->has_attributes || pr->identity.links <= 1)
        return 0;
    return report_error(EINVAL,
                        "%s has %" PRIu64
                        " links on a file system without extended attributes, where its "
                        "reflection is found by one name only: remove the other links",
                        pr->path, pr->identity.links);
}

int birth_give(struct pairing *pr, const struct pairing_wish *wish)
{
    pr->needs_attribute = wish->for_log;
    if (check_links(pr) < 0)
        return -1;
    birth_choose_domain(pr, wish);
    if (wish->for_log && check_log_folder(pr) < 0)
        return -1;
    const uint32_t format =
        pr->persist.domain == PERSIST_DISK ? LAYOUT_LOG : (uint32_t)wish->format;
    /* What is found without a reflection on the same file system: without fallocate(2) there slices could not come home. */
    if (wish->folder && pr->identity.size &&
        fsops->fallocate(pr->original, FALLOC_FL_KEEP_SIZE, 0, 1) < 0 && errno == EOPNOTSUPP)
        return report_no_fallocate(pr->path);
    if (make_reflection(pr, format) < 0)
        return -1;
    /* An incomplete manifest may exist: it is zeroed first. */
    if (fsops->ftruncate(pr->lock, 0) < 0)
        return folder_error(&pr->folder, pr->names.manifest, "cannot clear the manifest");
    if (birth_allocate(pr) < 0)
        return -1;
    pr->manifest = folder_map(pr->lock, O_RDWR, MANIFEST_BYTES, 0);
    if (!pr->manifest)
        return folder_error(&pr->folder, pr->names.manifest, "cannot map the manifest");
    fault_watch(pr->manifest, MANIFEST_BYTES, &pr->faults);
    if (ownership_give(&pr->identity.trust, pr->lock) < 0)
        return folder_error(&pr->folder, pr->names.manifest, "cannot set the mode of");
    memset(&pr->record, 0, sizeof(pr->record));
    pr->record.slots = MANIFEST_SLOTS;
    pr->record.format = format;
    if (format == LAYOUT_LOG)
        pr->record.log_bytes = (wish->log_bytes + LOG_RING_AT - 1) / LOG_RING_AT * LOG_RING_AT;
    pr->copy = 1;
    identity_to_record(&pr->identity, &pr->record);
    if (area_note_own(pr->lock, &pr->record) < 0)
        return folder_error(&pr->folder, pr->names.manifest, "cannot stat the manifest");
    if (identity_random(pr->record.id, sizeof(pr->record.id)) < 0 ||
        (format == LAYOUT_LOG && make_log(pr) < 0))
        return -1;
    pr->size = pr->identity.size;
    pr->newborn = pr->settled = true;
    return 0;
}

/* persist-order P1 (readers: adopt(), in a later pairing_open; lookup()): reflection and names are durable before the
 * record, which says `in use`; that before the attribute; and that before anything is stored. So if a birth is cut, a manifest
 * without the attribute holds nothing, and an attribute has all that it needs. */
int birth_finish(struct pairing *pr, bool marks)
{
    struct persist p = pr->persist;
    if (fsops_fsync(pr->reflection) < 0)
        return folder_error(&pr->folder, pr->names.reflection, "cannot sync the reflection");
    if (folder_sync(&pr->folder) < 0 || folder_sync_name(&pr->folder, marks) < 0)
        return -1;
    if (p.domain == PERSIST_DISK)
        persist_init(&p, PERSIST_PROCESS); /* the record needs no flush of its own */
    persist_copy(&p, pr->manifest + MANIFEST_SIZE_WORD, &(uint64_t){manifest_encode_size(pr->size)},
                 sizeof(uint64_t));
    /* So that the sync makes the space of copy B's page durable too, and its first flush need not. */
    persist_copy(&p, pr->manifest + MANIFEST_COPY_BYTES, &(uint64_t){0}, sizeof(uint64_t));
    if (pr->has_attributes)
        pr->record.known |= MANIFEST_KNOWS_ATTRIBUTE;
    /* Flushes nothing that could fail: birth_end() does. */
    (void)manifest_write(&p, pr->manifest, &pr->record, &pr->copy);
    return birth_end(pr);
}

int birth_end(struct pairing *pr)
{
    if (fsops_fsync(pr->lock) < 0) /* P1 */
        return report_errno(errno, "cannot make the manifest of %s in %s durable", pr->path,
                            pr->folder.path);
    if (!pr->has_attributes)
        return 0;
    if (birth_set_attribute(pr, pr->identity.inode) < 0)
        return -1;
    if (!pr->has_attributes)
        return check_links(pr) < 0 ? -1 : birth_write_record(pr);
    return fsops_fsync(pr->original) == 0
               ? 0
               : report_errno(errno, "cannot make the attribute user.ato of %s durable", pr->path);
}
