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

/* Returns the format of a reflection by its manifest; -1. Dense if that does not tell: then a sparse reflection that was ever written
 * to seems to hold slices. */
static int format_of(const struct folder *f, const char *manifest)
{
    _Alignas(8) char bytes[MANIFEST_BYTES] = {0};
    struct manifest_record r;
    int which;
    const int fd = openat(f->fd, manifest, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? LAYOUT_DENSE : -1;
    const ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
    KEEP_ERRNO();
    close(fd);
    if (n < 0)
        return -1;
    return manifest_read(bytes, &r, &which) == MANIFEST_VALID ? (int)r.format : LAYOUT_DENSE;
}

int lookup_holds_slices(const struct folder *f, uint64_t inode)
{
    const struct pairing_names n = pairing_names(inode);
    int fd = openat(f->fd, n.reflection, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    uint64_t page;
    const int format = fd < 0 ? -1 : format_of(f, n.manifest);
    int result = format < 0 ? -1 : meta_find(fd, (uint32_t)format, 0, UINT64_MAX, &page, 1);
    if (result < 0)
        folder_error(f, n.reflection, "cannot read the bitmaps of the reflection");
    KEEP_ERRNO();
    if (fd >= 0)
        close(fd);
    return result;
}

/* Makes `folder`, which is absolute or begins at the original's own folder, absolute. */
static int place(const struct pairing *pr, const char *folder, char out[PATH_MAX])
{
    const int own = folder[0] == '/' ? 0 : (int)(strrchr(pr->path, '/') + 1 - pr->path);
    if (snprintf(out, PATH_MAX, "%.*s%s", own, pr->path, folder) < PATH_MAX)
        return 0;
    return report_error(ENAMETOOLONG, "the path of the reflection folder of %s is too long",
                        pr->path);
}

/* Returns 1 if the folder `path` has a manifest for the file's inode number, or cannot be looked at, and is left open as
 * pr->folder. Returns 0 if not; -1. */
static int is_in(struct pairing *pr, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (folder_open(&pr->folder, path, false) < 0)
        return -1;
    if (fstatat(pr->folder.fd, pr->names.manifest, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
        errno != ENOENT)
        return 1;
    folder_close(&pr->folder);
    return 0;
}

/* Returns true if the original still carries that attribute. A process that makes the file plain
 * removes the attribute first, the manifest last. So if the manifest is missing, the attribute is read
 * again. */
static bool still_says(const struct pairing *pr, const struct attribute *a)
{
    struct attribute now;
    return attribute_read(pr->original, pr->path, &now) == ATTRIBUTE_FOUND &&
           memcmp(&now, a, sizeof(now)) == 0;
}

/* Returns 1 if the source of a copy, whose attribute names this folder, is known to have had all slices in O when it was copied; 0
 * if not; -1. Its present state is not enough: it may have been deployed since. But each session with stores leaves a new mtime,
 * and a tool that copies attributes copies mtime too. */
static int source_was_plain(const struct pairing *pr, const char *folder, const struct attribute *a)
{
    const struct pairing_names n = pairing_names(a->inode);
    _Alignas(8) char bytes[MANIFEST_BYTES] = {0};
    struct manifest_record r;
    struct folder f;
    struct stat st = {0};
    int which, named;
    if (folder_open(&f, folder, false) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    const int fd = folder_open_file(&f, n.manifest, O_RDONLY, &pr->identity.trust, "the manifest");
    const int missing = errno == ENOENT ? 1 : -1;
    int holds = fd < 0 ? missing : lookup_holds_slices(&f, a->inode);
    /* After the words: a process may have mapped the source meanwhile, and brought slices home, which the record says; or be just
     * setting it aside. Read without a lock: a record that is being written may count as damaged. */
    if (holds == 0 &&
        ((named = folder_names(&f, n.manifest, fd)) < 0 || pread(fd, bytes, sizeof(bytes), 0) < 0 ||
         (fstatat(f.fd, n.reflection, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)))
        holds = folder_error(&f, n.manifest, "cannot read the pairing of");
    else if (holds == 0 &&
             (!named || !st.st_mode || manifest_read(bytes, &r, &which) != MANIFEST_VALID ||
              memcmp(r.id, a->id, 16) != 0 || r.inode != a->inode || r.state != MANIFEST_CLEAN ||
              !identity_unwritten(&pr->identity, &r)))
        holds = 1;
    KEEP_ERRNO();
    if (fd >= 0)
        close(fd);
    folder_close(&f);
    return holds < 0 ? -1 : !holds;
}

/* Drops an attribute that names another file's reflection, or one that is lost. Returns 0: there is no pairing; -1. */
static int drop(const struct pairing *pr, const char *why, const struct pairing_wish *wish)
{
    if (attribute_remove(pr->original, pr->path) < 0)
        return -1;
    report_log(REPORT_WARNING, "%s %s: it is mapped as it is, without its attribute user.ato%s",
               pr->path, why, wish->prefer_file ? ", as ATO_PREFER_FILE asks" : "");
    return 0;
}

int lookup(struct pairing *pr, const struct pairing_wish *wish)
{
    char told[PATH_MAX], sibling[PATH_MAX];
    struct attribute a;
    const enum attribute_finding found = attribute_read(pr->original, pr->path, &a);
    const bool named = found == ATTRIBUTE_FOUND, copied = named && a.inode != pr->identity.inode;
    const char *const places[] = {named ? told : NULL, sibling, wish->folder};
    if (found == ATTRIBUTE_BAD || place(pr, FOLDER_NAME, sibling) < 0 ||
        (named && place(pr, a.folder, told) < 0))
        return -1;
    pr->has_attributes = found != ATTRIBUTE_UNSUPPORTED;
    if (copied && wish->only_looks)
        return report_error(
            EAGAIN,
            "%s carries the attribute user.ato of the file that it was copied from: a process has "
            "to map it for writing, or 'ato deploy' it, before it can be read",
            pr->path);
    /* The copied bytes may differ from the content of the source. And if the file was moved to another file system, the attribute
     * may be the only trace of its reflection. */
    const int known = !copied || wish->prefer_file ? 1 : source_was_plain(pr, told, &a);
    if (known < 0)
        return -1;
    if (!known)
        return report_error(ESTALE,
                            "%s was copied or moved while it was not plain: the reflection of its "
                            "source (inode %" PRIu64
                            ", in '%s') may have held parts of the content, so its bytes may be "
                            "outdated. Make the source plain and copy it again; to keep the bytes "
                            "of this file, map it with ATO_PREFER_FILE, or remove the attribute "
                            "user.ato",
                            pr->path, a.inode, a.folder);
    /* Without an attribute the pairing, if there is one, lies where a new one would be made. (A reader makes none, and a file
     * system without attributes tells nothing.) */
    int there = 0;
    for (int i = 0; i < 3 && there == 0 && !copied; i++)
        if (places[i] && (found != ATTRIBUTE_NONE || wish->only_looks))
            there = is_in(pr, places[i]);
    if (there != 0)
        return there;
    if (named && !copied && !still_says(pr, &a))
        return lookup(pr, wish);
    if (named && !copied && !wish->prefer_file)
        return report_error(
            ESTALE,
            "the reflection of %s is missing: it is neither in %s, which the "
            "attribute user.ato names, nor in %s. Bring it back; " PAIRING_KEEP_FILE,
            pr->path, told, sibling);
    if (named &&
        drop(pr, copied ? "was copied from another file" : "has lost its reflection", wish) < 0)
        return -1;
    return wish->only_looks ? 0
                            : folder_open(&pr->folder, wish->folder ? wish->folder : sibling, true);
}
