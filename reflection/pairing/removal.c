/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/removal.h"

#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/birth.h"
#include "reflection/pairing/guard.h"
#include "reflection/pairing/length.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* persist-order P2 (reader: adoption_verdict()): `deployed` is durable before the first removal, so that a
 * file that still needs its reflection never lacks it; so are the guarded bytes and the removal of the attribute before that of
 * the names. The manifest is removed last: without it a removal that a kill interrupts would not be found. A power cut may
 * bring back either of them or both, which nothing needs: the next map of the file removes them. */
static int finish_removal(struct pairing *pr)
{
    /* If an orphan waits, the attribute leads to that. */
    if (pr->has_attributes && !pr->orphan_waits && attribute_remove(pr->original, pr->path) < 0)
        return -1;
    /* explorer: drop fsync survives: its file system has attributes. */
    if (!pr->has_attributes && fsops_fsync(pr->original) < 0)
        return report_errno(errno, "cannot sync %s", pr->path);
    if (fsops->unlinkat(pr->folder.fd, pr->names.reflection, 0) < 0 && errno != ENOENT)
        return folder_error(&pr->folder, pr->names.reflection, "cannot remove the reflection");
    if (fsops->unlinkat(pr->folder.fd, pr->names.manifest, 0) < 0 && errno != ENOENT)
        return folder_error(&pr->folder, pr->names.manifest, "cannot remove the manifest");
    return 0;
}

void removal_of_failed_birth(struct pairing *pr)
{
    KEEP_REPORT();
    /* What is left is removed by the next map: while the file has its mask, only the manifest knows the plain bytes. */
    if (guard_put(pr) == 0)
        (void)finish_removal(pr);
}

int removal_start_over(struct pairing *pr)
{
    /* persist-order R3 (writer: M1): `deployed` may be visible and not durable, if its writer was
     * killed between store and fence. After a power cut the record before it, `in use`, would miss what is
     * removed now. */
    if (fsops_fsync(pr->lock) < 0)
        return folder_error(&pr->folder, pr->names.manifest, "cannot sync the manifest");
    /* P4: if the attribute is gone, the bytes were put back before, and another program may have
     * written to them since; but after a restart of the machine they may be lost. */
    struct attribute a;
    bool carried = pr->record.known & MANIFEST_KNOWS_ATTRIBUTE;
    if (pr->record.state == MANIFEST_DEPLOYED &&
        (!carried || identity_restarted(&pr->record) ||
         attribute_read(pr->original, pr->path, &a) == ATTRIBUTE_FOUND) &&
        guard_put(pr) < 0)
        return -1;
    return finish_removal(pr);
}

int pairing_is_complete(const struct pairing *pr)
{
    if (!guard_is_off(pr->original, &pr->record.guard) || shrink_from(pr))
        return 0;
    const int holds = meta_holds_slices(&pr->folder, pairing_number(pr->names.manifest));
    return holds < 0 ? -1 : !holds;
}

int pairing_remove(struct pairing *pr, bool complete)
{
    const int r = growth_settle(pr);
    if (r < 0 && (errno != ESTALE || !complete))
        return -1;
    if (r == 0 && shrink_finish(pr) < 0)
        return -1;
    pr->record.state = MANIFEST_DEPLOYED;
    if (guard_note(pr) < 0 || birth_write_record(pr) < 0 || guard_put(pr) < 0)
        return -1;
    return finish_removal(pr);
}

/* The name of a reflection when it is set aside. */
enum { STALE_NAME = 64 };
static void stale_name(const struct pairing_names *n, const struct manifest_record *record,
                       char to[STALE_NAME])
{
    char id[33];
    identity_hex(record->id, id);
    snprintf(to, STALE_NAME, "%s.stale-%.8s", n->reflection, id);
}

bool removal_is_set_aside(const struct folder *f, const struct manifest_record *record)
{
    const struct pairing_names n = pairing_names(record->inode);
    char to[STALE_NAME];
    stale_name(&n, record, to);
    return folder_has(f, to);
}

int removal_set_aside(struct pairing *pr, const char *why)
{
    const struct folder *f = &pr->folder;
    char to[STALE_NAME];
    int r = -1;
    stale_name(&pr->names, &pr->record, to);
    if (!folder_has(f, to))
        r = fsops->renameat(f->fd, pr->names.reflection, to);
    else if (meta_holds_slices(f, pairing_number(pr->names.manifest)) == 0)
        /* An earlier renaming was interrupted after this step: this reflection, if any, is that of a birth that was cut. */
        r = fsops->unlinkat(f->fd, pr->names.reflection, 0);
    else
        errno = EEXIST;
    if (r < 0 && errno != ENOENT)
        return folder_error(f, to, "cannot set aside a stale reflection as");
    /* persist-order P3 (reader: adoption_verdict()): the manifest is renamed last, because without it a birth
     * removes the reflection as a leftover. */
    if (folder_sync(f) < 0)
        return -1;
    report_log(REPORT_WARNING, "the reflection %s/%s %s: it is set aside, renamed to %s", f->path,
               pr->names.reflection, why, to);
    strcat(to, ".manifest");
    if (fsops->renameat(f->fd, pr->names.manifest, to) < 0)
        return folder_error(f, to, "cannot set aside a stale manifest as");
    return 0; /* durable with the birth that follows (P1) */
}

int removal_forget(struct pairing *pr)
{
    const struct manifest_guard *g = &pr->record.guard;
    char plain[33];
    identity_hex(g->plain, plain);
    if (g->bytes)
        report_log(REPORT_WARNING,
                   "%s has guarded bytes, %u at %" PRIu64
                   ": they stay as they are in the file; their plain values are %.*s",
                   pr->path, g->bytes, g->offset, (int)g->bytes * 2, plain);
    /* The attribute first: after an interruption the file looks like one whose attribute was removed,
     * and the reflection can be set aside again. */
    if (pr->has_attributes && attribute_remove(pr->original, pr->path) < 0)
        return -1;
    return removal_set_aside(pr, "is not used, as ATO_PREFER_FILE asks");
}
