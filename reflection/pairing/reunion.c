/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/reunion.h"

#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/birth.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Returns true if the pairing has the file's inode number in its names. */
static bool is_in_place(const struct pairing *pr)
{
    return pairing_number(pr->names.manifest) == pr->identity.inode;
}

/* A reflection without a manifest has no content: a birth or a removal was interrupted. */
static int clear_place(struct pairing *pr)
{
    const struct pairing_names own = pairing_names(pr->identity.inode);
    if (!is_in_place(pr) && fsops->unlinkat(pr->folder.fd, own.reflection, 0) < 0 &&
        errno != ENOENT)
        return folder_error(&pr->folder, own.reflection, "cannot remove the leftover reflection");
    return 0;
}

int reunion_decide(struct pairing *pr)
{
    struct manifest_record *r = &pr->record;
    struct stat st;
    if (pr->has_attributes && birth_set_attribute(pr, pairing_number(pr->names.manifest)) < 0)
        return -1;
    /* persist-order U1 (readers: lookup(), orphan_look()): the attribute, by which an interrupted reunion is found, the
     * content, which the restore may not have synced, and the folder's names are durable before the record. (So are reflection and
     * manifest, by adopt().) */
    if (clear_place(pr) < 0 || folder_sync(&pr->folder) < 0 ||
        folder_sync_name(&pr->folder, false) < 0)
        return -1;
    if (fsops_fsync(pr->original) < 0 || fstat(pr->original, &st) < 0)
        return report_errno(errno, "cannot make %s durable", pr->path);
    if (!is_in_place(pr) && identity_random(r->id, sizeof(r->id)) < 0)
        return -1;
    identity_to_record(&pr->identity, r);
    r->device = pr->identity.device;
    r->known &= pr->has_attributes ? ~0u : ~MANIFEST_KNOWS_ATTRIBUTE;
    r->clean_size = (uint64_t)st.st_size;
    r->clean_mtime_sec = st.st_mtim.tv_sec;
    r->clean_mtime_nsec = (uint64_t)st.st_mtim.tv_nsec;
    /* persist-order U2 (reader: orphan_look()): the record names the file durably before a name changes: without that the
     * manifest, under the file's number, would be another file's. */
    return birth_write_record(pr);
}

int reunion_end(struct pairing *pr)
{
    /* persist-order U4 (reader: lookup()): both names are durable before the attribute no longer tells the old number.
     * persist-order R3 (writer: reunion_finish()): also if a process that died had renamed them. */
    return folder_sync(&pr->folder) < 0 ? -1 : birth_end(pr);
}

int reunion_finish(struct pairing *pr)
{
    const struct pairing_names was = pr->names, own = pairing_names(pr->identity.inode);
    const struct folder *f = &pr->folder;
    if (!is_in_place(pr)) {
        /* ENOENT: renamed by a process that died. */
        if (fsops->renameat(f->fd, was.reflection, own.reflection) < 0 && errno != ENOENT)
            return folder_error(f, own.reflection, "cannot rename a reflection to");
        /* persist-order U3 (reader: adopt()): the reflection has its new name durably before the manifest, by which it is
         * found. */
        if (folder_sync(f) < 0)
            return -1;
        if (fsops->renameat(f->fd, was.manifest, own.manifest) < 0)
            return folder_error(f, own.manifest, "cannot rename a manifest to");
    }
    pr->names = own;
    pr->orphan = false;
    report_log(REPORT_WARNING,
               "%s, which was restored or copied, is joined with its reflection %s/%s", pr->path,
               f->path, own.reflection);
    return reunion_end(pr);
}
