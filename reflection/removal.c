/* SPDX-License-Identifier: BSD-3-Clause */
#include "removal.h"

#include "birth.h"
#include "fsops.h"
#include "growth.h"
#include "guard.h"
#include "report.h"
#include "shrink.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct makers {
    const struct folder *folder;
    const char *manifest;
};

static int remove_unfinished(void *arg, const char *name)
{
    const struct makers *m = arg;
    if (folder_is_unfinished(name, m->manifest))
        (void)fsops->unlinkat(m->folder->fd, name, 0);
    return 0;
}

/* What makers of its manifest left that died in between. One that lives finds that its own is gone, and begins
 * anew. */
static void remove_all_unfinished(const struct pairing *pr, const struct place_names *n)
{
    struct makers m = {&pr->folder, n->manifest};
    (void)folder_each_name(&pr->folder, remove_unfinished,
                           &m); /* what stays is nothing but litter */
}

/* persist-order P2 (reader: verdict_of()): `deployed` is durable before the first removal, so that a
 * reflection is never missed by a file that still needs it; the manifest goes last, because it is
 * what tells how far the removal came. */
static int finish_removal(struct pairing *pr, const struct place_names *n)
{
    if (pr->has_attributes && attribute_remove(pr->original, pr->path) < 0)
        return -1;
    if (fsops->unlinkat(pr->folder.fd, n->reflection, 0) < 0 && errno != ENOENT)
        return report_errno(errno, "cannot remove the reflection %s/%s", pr->folder.path,
                            n->reflection);
    if (folder_sync(&pr->folder) < 0)
        return -1;
    if (fsops->unlinkat(pr->folder.fd, n->manifest, 0) < 0 && errno != ENOENT)
        return report_errno(errno, "cannot remove the manifest %s/%s", pr->folder.path,
                            n->manifest);
    remove_all_unfinished(pr, n);
    return folder_sync(&pr->folder);
}

int removal_start_over(struct pairing *pr, const struct place_names *n)
{
    /* persist-order R3 (writer: M1): `born` or `deployed` may be visible and not durable, when its writer
     * was killed between its store and its fence. After a power cut the record before it, `in use`,
     * would miss what is removed now. */
    if (fsops_fsync(pr->lock) < 0)
        return report_errno(errno, "cannot make the manifest %s/%s durable", pr->folder.path,
                            n->manifest);
    /* P4: when the attribute is gone that is done already, and the bytes may be anybody's. */
    struct attribute a;
    bool carried = pr->record.known & MANIFEST_KNOWS_ATTRIBUTE;
    if (pr->record.state == MANIFEST_DEPLOYED &&
        (!carried || attribute_read(pr->original, pr->path, &a) == ATTRIBUTE_FOUND) &&
        guard_put_back(pr) < 0)
        return -1;
    return finish_removal(pr, n);
}

int pairing_remove(struct pairing *pr)
{
    struct place_names n = place_names(pr->identity.inode);
    /* The length that others gave it while it was mapped stays. */
    int r = growth_settle(pr, growth_last(pr), shrink_from(pr));
    if (r < 0 && errno != ESTALE)
        return -1;
    if ((r < 0 ? shrink_wipe(pr) : shrink_finish(pr)) < 0)
        return -1;
    pr->record.state = MANIFEST_DEPLOYED;
    if (guard_note(pr) < 0 || birth_write_record(pr) < 0 || guard_put_back(pr) < 0)
        return -1;
    return finish_removal(pr, &n);
}

/* Names that nothing has yet: a setting aside of this very pairing may have been cut so that one of
 * its two renames lasted, and a birth have begun since. */
static void choose_stale_name(const struct pairing *pr, const struct place_names *n, char to[80])
{
    char id[33], manifest[96];
    bool reflection = folder_has(&pr->folder, n->reflection);
    identity_hex(pr->record.id, id);
    snprintf(to, 80, "%s.stale-%.8s", n->reflection, id);
    for (int i = 1;; i++) {
        strcpy(stpcpy(manifest, to), ".manifest");
        if (!folder_has(&pr->folder, manifest) && !(reflection && folder_has(&pr->folder, to)))
            return;
        snprintf(to, 80, "%s.stale-%.8s-%d", n->reflection, id, i);
    }
}

int removal_set_aside(struct pairing *pr, const struct place_names *n, const char *why)
{
    char to[96];
    choose_stale_name(pr, n, to);
    if (fsops->renameat(pr->folder.fd, n->reflection, to) < 0 && errno != ENOENT)
        return report_errno(errno, "cannot set the stale reflection %s/%s aside", pr->folder.path,
                            n->reflection);
    /* persist-order P3 (reader: verdict_of()): the manifest goes last, because without it a birth takes the
     * reflection for its own predecessor's and removes it. */
    if (folder_sync(&pr->folder) < 0)
        return -1;
    report_log(REPORT_WARNING, "the reflection %s/%s %s; set aside as %s", pr->folder.path,
               n->reflection, why, to);
    strcat(to, ".manifest");
    if (fsops->renameat(pr->folder.fd, n->manifest, to) < 0)
        return report_errno(errno, "cannot set the stale manifest %s/%s aside", pr->folder.path,
                            n->manifest);
    return 0; /* durable with the birth that follows (P1) */
}

int removal_forget(struct pairing *pr, const struct place_names *n)
{
    const struct manifest_guard *g = &pr->record.guard;
    char plain[33];
    identity_hex(g->plain, plain);
    if (g->bytes)
        report_log(REPORT_WARNING,
                   "%s has guarded bytes, %u at %" PRIu64
                   ": they stay as they are in the file; plain "
                   "they were %.*s",
                   pr->path, g->bytes, g->offset, (int)g->bytes * 2, plain);
    /* First: cut before the rest, it is one whose attribute was taken away, and to be forgotten again. */
    if (pr->has_attributes && attribute_remove(pr->original, pr->path) < 0)
        return -1;
    return removal_set_aside(pr, n, "is not wanted, since the file is preferred to it");
}
