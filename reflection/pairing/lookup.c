/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/lookup.h"

#include "reflection/format/layout.h"
#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct lookup_names lookup_names(uint64_t inode)
{
    struct lookup_names n;
    snprintf(n.reflection, sizeof(n.reflection), "%" PRIu64, inode);
    snprintf(n.manifest, sizeof(n.manifest), "%" PRIu64 ".manifest", inode);
    return n;
}

/* ---- reading manifests without locking them ---- */

/* Reads the manifest of `inode` in a folder, if it is trusted for the file `whose`. Returns 1 if there
 * is one, valid or not (see *found); 0 if there is none; -1 on error. */
static int peek(const struct folder *f, uint64_t inode, const struct identity *whose,
                struct manifest_record *record, enum manifest_finding *found)
{
    struct lookup_names n = lookup_names(inode);
    struct trust trust = identity_trust(whose);
    /* O_NONBLOCK: opening a named pipe of that name would block. */
    int fd = openat(f->fd, n.manifest, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT
                   ? 0
                   : report_errno(errno, "cannot open the manifest %s/%s", f->path, n.manifest);
    char *bytes = calloc(1, MANIFEST_BYTES);
    int result = -1, which;
    if (ownership_check(&trust, fd, f->path, n.manifest) < 0)
        ;
    else if (!bytes)
        report_error(ENOMEM, "no memory to read the manifest %s/%s", f->path, n.manifest);
    else if (pread(fd, bytes, MANIFEST_BYTES, 0) < 0)
        report_errno(errno, "cannot read the manifest %s/%s", f->path, n.manifest);
    else
        result = 1;
    if (result == 1)
        *found = manifest_read(bytes, record, &which);
    /* Without a lock, both copies may have been written, one after the other, while they were
     * read. */
    for (int i = 0; i < 3 && result == 1 && *found == MANIFEST_DAMAGED; i++)
        if (pread(fd, bytes, MANIFEST_BYTES, 0) >= 0)
            *found = manifest_read(bytes, record, &which);
    free(bytes);
    close(fd);
    return result;
}

static int slices_in(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -1;
    uint64_t words[CHUNK_PAGES], chunks = (uint64_t)st.st_size / CHUNK_BYTES + 1;
    for (uint64_t chunk = 0;; chunk++) {
        chunk = meta_next(fd, chunk, chunks);
        if (chunk == chunks)
            return 0;
        if (chunk == UINT64_MAX)
            return -1;
        ssize_t got = pread(fd, words, sizeof(words), (off_t)layout_meta_page(chunk));
        if (got < 0)
            return -1;
        for (ssize_t i = 0; i < got / 8; i++)
            if (words[i])
                return 1;
    }
}

int lookup_holds_slices(const struct folder *f, uint64_t inode)
{
    struct lookup_names n = lookup_names(inode);
    int fd = openat(f->fd, n.reflection, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    int result = fd < 0 ? -1 : slices_in(fd);
    if (result < 0)
        report_errno(errno, "cannot read the bitmaps of the reflection %s/%s", f->path,
                     n.reflection);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return result;
}

/* ---- which folder ---- */

/* The absolute path of the folder that the attribute names. */
static int attribute_folder(const struct pairing *pr, const char *name, const struct attribute *a,
                            char out[PATH_MAX])
{
    int n;
    if (a->folder[0] == '/')
        n = snprintf(out, PATH_MAX, "%s", a->folder);
    else
        n = snprintf(out, PATH_MAX, "%.*s/%s", (int)(name - 1 - pr->path), pr->path, a->folder);
    if (n >= PATH_MAX)
        return report_error(
            ENAMETOOLONG,
            "the attribute user.ato of %s names a reflection folder whose path is too long",
            pr->path);
    return 0;
}

/* peek() in the folder `path`. If it returns 1, the folder is left open. */
static int look_in(struct folder *f, const char *path, uint64_t inode, const struct identity *whose,
                   struct manifest_record *record, enum manifest_finding *found)
{
    struct stat st;
    f->fd = -1;
    if (stat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (folder_open(f, path, false) < 0)
        return -1;
    int there = peek(f, inode, whose, record, found);
    if (there != 1)
        folder_close(f);
    return there;
}

/* Returns 1 if the pairing with the attribute's id is in this folder, which is left open; 0 if not; -1. */
static int holds_pairing(struct folder *f, const char *path, const struct attribute *a,
                         const struct identity *whose, struct manifest_record *record)
{
    enum manifest_finding found = MANIFEST_UNBORN;
    int there = look_in(f, path, a->inode, whose, record, &found);
    if (there != 1)
        return there;
    if (found == MANIFEST_DAMAGED)
        there = report_error(EUCLEAN, "the manifest %s/%" PRIu64 ".manifest is damaged", f->path,
                             a->inode);
    else if (found == MANIFEST_FOREIGN)
        there = report_error(
            EUCLEAN, "the manifest %s/%" PRIu64 ".manifest has version %u, this library reads %d",
            f->path, a->inode, record->version, MANIFEST_VERSION);
    else
        there = found == MANIFEST_VALID && memcmp(record->id, a->id, 16) == 0 &&
                record->inode == a->inode;
    if (there != 1)
        folder_close(f);
    return there;
}

/* Returns 1 if a pairing of this very inode is in this folder, which is left open; 0 if not; -1. */
static int holds_inode(struct folder *f, const char *path, const struct identity *identity)
{
    struct manifest_record record;
    enum manifest_finding found = MANIFEST_UNBORN;
    int there = look_in(f, path, identity->inode, identity, &record, &found);
    if (there == 1 && !(found == MANIFEST_VALID && identity_same_inode(identity, &record))) {
        folder_close(f);
        there = 0;
    }
    return there;
}

/* Returns whether the source of a copy had all slices in O when it was copied; -1 on error. The present
 * state of the source is not enough: it may have been deployed since. But each session with stores leaves
 * a new mtime, and a tool that copies attributes copies mtime too. */
static int was_plain(const struct pairing *copy, const struct folder *f,
                     const struct manifest_record *source)
{
    if (source->state == MANIFEST_BORN)
        return true;
    if (source->state != MANIFEST_CLEAN || !identity_unwritten(&copy->identity, source))
        return false;
    int holds = lookup_holds_slices(f, source->inode);
    return holds < 0 ? -1 : !holds;
}

/* For an attribute that was copied with the bytes of another file. Removes it if the source is found
 * and had no slice in R, or with ATO_PREFER_FILE. Else fails and keeps it: the copied bytes may differ
 * from the content of the source. */
static int drop_copied(struct pairing *pr, const char *name, const char *sibling,
                       const struct attribute *a, const struct pairing_wish *wish)
{
    char path[PATH_MAX];
    const char *places[2] = {path, sibling};
    bool found = false;
    int plain = 0, failed = 0;
    if (attribute_folder(pr, name, a, path) < 0)
        return -1;
    for (int i = 0; i < 2 && !found; i++) {
        struct folder f;
        struct manifest_record source;
        int there = holds_pairing(&f, places[i], a, &pr->identity, &source);
        if (there < 0)
            failed = errno;
        if (there == 1) {
            found = true;
            plain = was_plain(pr, &f, &source);
            folder_close(&f);
        }
    }
    if (plain < 0 && !wish->prefer_file)
        return -1;
    /* The file was copied far away, or moved to another file system: the attribute may be the only trace of a
     * reflection, so it stays. */
    if (!found && wish->prefer_file)
        return attribute_remove(pr->original, pr->path);
    if (!found && failed) { /* the source may exist */
        errno = failed;
        return -1;
    }
    if (!found)
        return report_error(ESTALE,
                            "%s was copied or moved while it was not plain, and the reflection of "
                            "its source (inode %" PRIu64
                            ", in '%s') is not found from here: it may hold parts of the content. "
                            "Make the source plain and copy it again; to keep the bytes of this "
                            "file, map it with ATO_PREFER_FILE, or remove the attribute user.ato",
                            pr->path, a->inode, a->folder);
    if (plain != 1 && !wish->prefer_file)
        return report_error(ESTALE,
                            "%s is a copy of a file that was mapped or fast-unmapped, and whose "
                            "reflection may have held parts of the content: the bytes of the copy "
                            "may be outdated. Make the source plain and copy it again; to keep the "
                            "bytes of this file, map it with ATO_PREFER_FILE",
                            pr->path);
    if (attribute_remove(pr->original, pr->path) < 0)
        return -1;
    report_log(REPORT_WARNING,
               "removed from %s the attribute user.ato of the file that it was copied from",
               pr->path);
    return 0;
}

bool lookup_is_own(const struct pairing *pr, const struct pairing_wish *wish)
{
    struct stat is, own;
    int saved = errno;
    bool found = false;
    char sibling[PATH_MAX];
    const char *slash = strrchr(pr->path, '/');
    int n = snprintf(sibling, sizeof(sibling), "%.*s/%s", (int)(slash - pr->path), pr->path,
                     FOLDER_NAME);
    const char *const places[] = {n < PATH_MAX ? sibling : NULL, wish->folder};
    for (int i = 0; i < 2 && !found; i++)
        found = places[i] && fstat(pr->folder.fd, &is) == 0 && stat(places[i], &own) == 0 &&
                is.st_ino == own.st_ino && is.st_dev == own.st_dev;
    errno = saved;
    return found;
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

static int sibling_of(const struct pairing *pr, const char *name, char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%.*s/%s", (int)(name - 1 - pr->path), pr->path, FOLDER_NAME) >=
        PATH_MAX)
        return report_error(ENAMETOOLONG, "the path of %s is too long", pr->path);
    return 0;
}

/* Finds the folder with the pairing that the file's attribute names. Returns 1, with the folder open; 0 if it
 * is neither in `told`, nor in `sibling`, nor in the wished folder; AGAIN if the attribute is gone or another
 * one by now; -1. */
enum { AGAIN = 2 };

static int find_by_attribute(struct pairing *pr, const char *sibling, const char *told,
                             const struct attribute *a, const struct pairing_wish *wish)
{
    struct manifest_record record;
    int there = holds_pairing(&pr->folder, told, a, &pr->identity, &record);
    if (there == 0)
        there = holds_pairing(&pr->folder, sibling, a, &pr->identity, &record);
    if (there == 0 && wish->folder)
        there = holds_pairing(&pr->folder, wish->folder, a, &pr->identity, &record);
    return there == 0 && !still_says(pr, a) ? AGAIN : there;
}

static int say_missing(const struct pairing *pr, const char *told, const char *sibling)
{
    return report_error(
        ESTALE,
        "the reflection of %s is missing: it is neither in %s, which the attribute user.ato names, "
        "nor in %s. Bring it back; to keep the bytes of the file, map it with ATO_PREFER_FILE",
        pr->path, told, sibling);
}

/* Reads the file's attribute, and sets `sibling` to the folder beside the file. Returns ATTRIBUTE_BAD with a sentence. */
static enum attribute_finding look_at_attribute(struct pairing *pr, const char *name,
                                                char sibling[PATH_MAX], struct attribute *a)
{
    if (sibling_of(pr, name, sibling) < 0)
        return ATTRIBUTE_BAD;
    const enum attribute_finding found = attribute_read(pr->original, pr->path, a);
    if (found != ATTRIBUTE_BAD)
        pr->has_attributes = found != ATTRIBUTE_UNSUPPORTED;
    return found;
}

int lookup_find(struct pairing *pr, const char *name, const struct pairing_wish *wish)
{
    char sibling[PATH_MAX], told[PATH_MAX];
    struct attribute a;
    const enum attribute_finding found = look_at_attribute(pr, name, sibling, &a);
    if (found == ATTRIBUTE_BAD)
        return -1;
    if (found == ATTRIBUTE_FOUND && a.inode != pr->identity.inode)
        return report_error(
            EAGAIN,
            "%s carries the attribute user.ato of the file that it was copied from: a process has "
            "to map it for writing, or 'ato deploy' it, before it can be read",
            pr->path);
    if (found == ATTRIBUTE_FOUND) {
        if (attribute_folder(pr, name, &a, told) < 0)
            return -1;
        int there = find_by_attribute(pr, sibling, told, &a, wish);
        if (there == AGAIN)
            return lookup_find(pr, name, wish);
        return there ? there : say_missing(pr, told, sibling);
    }
    int there = holds_inode(&pr->folder, sibling, &pr->identity);
    if (there == 0 && wish->folder)
        there = holds_inode(&pr->folder, wish->folder, &pr->identity);
    return there;
}

/* Opens the folder that holds the pairing, or in which it is to be made. */
int lookup_open(struct pairing *pr, const char *name, const struct pairing_wish *wish)
{
    char sibling[PATH_MAX], told[PATH_MAX];
    struct attribute a;
    const enum attribute_finding found = look_at_attribute(pr, name, sibling, &a);
    if (found == ATTRIBUTE_BAD)
        return -1;
    if (found == ATTRIBUTE_FOUND && a.inode != pr->identity.inode) {
        if (drop_copied(pr, name, sibling, &a, wish) < 0)
            return -1;
    } else if (found == ATTRIBUTE_FOUND) {
        if (attribute_folder(pr, name, &a, told) < 0)
            return -1;
        int there = find_by_attribute(pr, sibling, told, &a, wish);
        if (there == AGAIN)
            return lookup_open(pr, name, wish);
        if (there == 0 && !wish->prefer_file)
            return say_missing(pr, told, sibling);
        if (there != 0)
            return there < 0 ? -1 : 0;
        if (attribute_remove(pr->original, pr->path) < 0)
            return -1;
        report_log(
            REPORT_WARNING,
            "the reflection of %s is missing; the file is mapped as it is, as ATO_PREFER_FILE asks",
            pr->path);
    }
    if (wish->folder && !pr->has_attributes) {
        /* Without attributes the file does not name the folder of a reflection that a crash left: look
         * beside the file before another one is made elsewhere. */
        int there = holds_inode(&pr->folder, sibling, &pr->identity);
        if (there != 0)
            return there < 0 ? -1 : 0;
    }
    return folder_open(&pr->folder, wish->folder ? wish->folder : sibling, true);
}
