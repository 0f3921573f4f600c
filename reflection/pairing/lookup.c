/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/lookup.h"

#include "reflection/format/layout.h"
#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading a folder without locks ---- */

/* Reads a manifest, if it is trusted for the file `whose`. Returns 1 if there is one, valid or not (see *found); 0 if there
 * is none; -1 on error. */
static int peek(const struct folder *f, const struct pairing_names *n, const struct identity *whose,
                struct manifest_record *record, enum manifest_finding *found)
{
    _Alignas(8) char bytes[MANIFEST_BYTES] = {0};
    int result = 1, which;
    const int fd = folder_open_file(f, n->manifest, O_RDONLY, &whose->trust, "the manifest");
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    /* Without a lock, both copies may have been written, one after the other, while they were
     * read. */
    *found = MANIFEST_DAMAGED;
    for (int i = 0; i < 4 && result == 1 && *found == MANIFEST_DAMAGED; i++)
        if (pread(fd, bytes, sizeof(bytes), 0) < 0)
            result = folder_error(f, n->manifest, "cannot read the manifest");
        else
            *found = manifest_read(bytes, record, &which);
    KEEP_ERRNO();
    close(fd);
    return result;
}

int lookup_holds_slices(const struct folder *f, uint64_t inode)
{
    const struct pairing_names n = pairing_names(inode);
    int fd = openat(f->fd, n.reflection, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    uint64_t page;
    int result = fd < 0 ? -1 : meta_find(fd, 0, layout_pages(LAYOUT_MAX_BYTES), &page);
    if (result < 0)
        folder_error(f, n.reflection, "cannot read the bitmaps of the reflection");
    KEEP_ERRNO();
    if (fd >= 0)
        close(fd);
    return result;
}

/* ---- which folder ---- */

/* Makes `folder`, which is absolute or begins at the original's own folder, absolute. */
static int place(const struct pairing *pr, const char *folder, char out[PATH_MAX])
{
    const int own = folder[0] == '/' ? 0 : (int)(strrchr(pr->path, '/') + 1 - pr->path);
    if (snprintf(out, PATH_MAX, "%.*s%s", own, pr->path, folder) < PATH_MAX)
        return 0;
    return report_error(ENAMETOOLONG, "the path of the reflection folder of %s is too long",
                        pr->path);
}

/* Returns 1 if the folder `path` holds the pairing that the attribute `a` names, or may do so, since its manifest cannot be
 * read; if `a` is NULL, a pairing of the very inode of `whose`. The folder is left open then. Returns 0 if not; -1. */
static int holds(struct folder *f, const char *path, const struct attribute *a,
                 const struct identity *whose, struct manifest_record *record)
{
    const struct pairing_names n = pairing_names(a ? a->inode : whose->inode);
    enum manifest_finding found = MANIFEST_UNBORN;
    struct stat st;
    f->fd = -1;
    if (stat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (folder_open(f, path, false) < 0)
        return -1;
    int there = peek(f, &n, whose, record, &found);
    if (there == 1 && found != MANIFEST_VALID)
        there = a && found != MANIFEST_UNBORN;
    else if (there == 1 && a)
        there = memcmp(record->id, a->id, 16) == 0 && record->inode == a->inode;
    else if (there == 1)
        there = identity_same_inode(whose, record);
    if (there != 1)
        folder_close(f);
    return there;
}

/* Returns whether the source of a copy had all slices in O when it was copied; -1 on error. The present
 * state of the source is not enough: it may have been deployed since. But each session with stores leaves
 * a new mtime, and a tool that copies attributes copies mtime too. */
static int was_plain(const struct pairing *copy, const struct folder *f,
                     const struct manifest_record *source)
{
    if (source->version != MANIFEST_VERSION || source->format != 0) /* or damaged */
        return false;
    if (source->state != MANIFEST_CLEAN || !identity_unwritten(&copy->identity, source))
        return false;
    int holds = lookup_holds_slices(f, source->inode);
    return holds < 0 ? -1 : !holds;
}

/* For an attribute that was copied with the bytes of another file. Removes it if its source is found in the
 * folder that it names, and had no slice in R, or with ATO_PREFER_FILE. Else fails and keeps it: the copied bytes may differ
 * from the content of the source; and if the file was moved to another file system, the attribute may be the only trace of
 * its reflection. */
static int drop_copied(struct pairing *pr, const char *told, const struct attribute *a,
                       const struct pairing_wish *wish)
{
    struct folder f;
    struct manifest_record source = {0};
    int plain = holds(&f, told, a, &pr->identity, &source);
    if (plain == 1) {
        plain = was_plain(pr, &f, &source);
        folder_close(&f);
    }
    if (plain < 0 && !wish->prefer_file)
        return -1;
    if (plain != 1 && !wish->prefer_file)
        return report_error(ESTALE,
                            "%s was copied or moved while it was not plain: the reflection of its "
                            "source (inode %" PRIu64
                            ", in '%s') may have held parts of the content, so its bytes may be "
                            "outdated. Make the source plain and copy it again; to keep the bytes "
                            "of this file, map it with ATO_PREFER_FILE, or remove the attribute "
                            "user.ato",
                            pr->path, a->inode, a->folder);
    if (attribute_remove(pr->original, pr->path) < 0)
        return -1;
    report_log(REPORT_WARNING,
               "removed from %s the attribute user.ato of the file that it was copied from",
               pr->path);
    return 0;
}

/* Returns true if the original still carries that attribute. A process that makes the file plain
 * removes the attribute first, the manifest last. So if the manifest is missing, the attribute is read
 * again. */
static bool still_says(const struct pairing *pr, const struct attribute *a)
{
    struct attribute now;
    return attribute_read(pr->original, pr->path, &now) == ATTRIBUTE_FOUND &&
           now.inode == a->inode && memcmp(now.id, a->id, sizeof(now.id)) == 0;
}

/* Finds the folder with the file's pairing. `sibling`: the one beside the file. Returns
 * 1, with pr->folder open; 0 if there is none; -1. */
static int find(struct pairing *pr, const char *sibling, const struct pairing_wish *wish)
{
    char told[PATH_MAX];
    struct attribute a;
    struct manifest_record record;
    const enum attribute_finding found = attribute_read(pr->original, pr->path, &a);
    const bool named = found == ATTRIBUTE_FOUND;
    const char *const places[] = {named ? told : NULL, sibling, wish->folder};
    int there = 0;
    if (found == ATTRIBUTE_BAD || (named && place(pr, a.folder, told) < 0))
        return -1;
    pr->has_attributes = found != ATTRIBUTE_UNSUPPORTED;
    if (named && a.inode != pr->identity.inode && wish->only_looks)
        return report_error(
            EAGAIN,
            "%s carries the attribute user.ato of the file that it was copied from: a process has "
            "to map it for writing, or 'ato deploy' it, before it can be read",
            pr->path);
    if (named && a.inode != pr->identity.inode)
        return drop_copied(pr, told, &a, wish);
    /* Without attributes the file does not name the folder of a reflection that a crash left. */
    if (found == ATTRIBUTE_NONE && !wish->only_looks)
        return 0;
    for (int i = 0; i < 3 && there == 0; i++)
        if (places[i])
            there = holds(&pr->folder, places[i], named ? &a : NULL, &pr->identity, &record);
    if (there != 0 || !named)
        return there;
    if (!still_says(pr, &a))
        return find(pr, sibling, wish);
    if (wish->only_looks || !wish->prefer_file)
        return report_error(ESTALE,
                            "the reflection of %s is missing: it is neither in %s, which the "
                            "attribute user.ato names, nor in %s. Bring it back; to keep the bytes "
                            "of the file, map it with ATO_PREFER_FILE",
                            pr->path, told, sibling);
    if (attribute_remove(pr->original, pr->path) < 0)
        return -1;
    report_log(
        REPORT_WARNING,
        "the reflection of %s is missing; the file is mapped as it is, as ATO_PREFER_FILE asks",
        pr->path);
    return 0;
}

int lookup(struct pairing *pr, const struct pairing_wish *wish)
{
    char sibling[PATH_MAX];
    int there = place(pr, FOLDER_NAME, sibling);
    if (there == 0)
        there = find(pr, sibling, wish);
    if (there == 0 && !wish->only_looks)
        return folder_open(&pr->folder, wish->folder ? wish->folder : sibling, true);
    return there;
}
