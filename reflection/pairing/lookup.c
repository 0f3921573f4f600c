/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/lookup.h"

#include "reflection/format/checksum.h"
#include "reflection/format/layout.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/meta.h"
#include "reflection/pairing/orphan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where ---- */

/* Returns memory for a path; NULL with ENOMEM. */
static char *new_path(const struct pairing *pr)
{
    char *path = malloc(PATH_MAX);
    return path ? path
                : report_null(ENOMEM, "no memory to look for the reflection of %s", pr->path);
}

int lookup_place(const char *path, const struct attribute *a, const char *wish, unsigned i,
                 char to[PATH_MAX])
{
    enum { BELOW, MADE, BESIDE, WISHED };
    const char *told = a ? a->folder : NULL, *below = told ? strstr(told, "//") : NULL;
    const char *const places[LOOKUP_PLACES] = {
        [BELOW] = below                    ? below + 2
                  : told && told[0] != '/' ? told
                                           : NULL,
        [MADE] = told && told[0] == '/' ? told : NULL,
        [BESIDE] = FOLDER_NAME,
        [WISHED] = wish,
    };
    if (!places[i] || (i == BESIDE && places[BELOW] && strcmp(places[BELOW], FOLDER_NAME) == 0))
        return 0;
    const int own = i == BELOW || i == BESIDE ? (int)(strrchr(path, '/') + 1 - path) : 0;
    if (snprintf(to, PATH_MAX, "%.*s%s", own, path, places[i]) < PATH_MAX)
        return 1;
    return report_error(ENAMETOOLONG, "the path of the reflection folder of %s is too long", path);
}

/* Opens a folder that may not exist as pr->folder. Returns 1; 0; -1. */
static int enter(struct pairing *pr, const char *path)
{
    struct stat st;
    folder_close(&pr->folder);
    if (stat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : report_errno(errno, "cannot look at the reflection folder %s of %s", path,
                                  pr->path);
    return folder_open(&pr->folder, path, false) < 0 ? -1 : 1;
}

/* Whose the manifest of the file's inode number is, as far as can be seen without a lock. */
enum owner { NOT_KNOWN = -1, NOBODY, SOMEBODY, THE_FILE };

/* In pr->folder. SOMEBODY also if it cannot be opened: that is told when it is locked. NOT_KNOWN: with a sentence. */
static enum owner owner_of(const struct pairing *pr, const struct attribute *a)
{
    struct manifest_record r;
    const int fd =
        openat(pr->folder.fd, pr->names.manifest, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? NOBODY : SOMEBODY;
    const int found = area_read(fd, &r, NULL);
    const bool named = a && a->inode == pr->identity.inode;
    const bool own = found == MANIFEST_VALID && (named ? memcmp(r.id, a->id, 16) == 0
                                                       : identity_same_inode(&pr->identity, &r));
    if (found < 0)
        folder_error(&pr->folder, pr->names.manifest, "cannot read the manifest");
    KEEP_ERRNO();
    close(fd);
    return found < 0 ? NOT_KNOWN : own ? THE_FILE : SOMEBODY;
}

/* Looks for the manifest of the file's inode number. Returns 1 with its folder open: it is the file's, or, if `any`, it may be; 0; -1. */
static int find_own(struct pairing *pr, const struct attribute *a, bool any,
                    const struct pairing_wish *wish)
{
    char *path HEAP = new_path(pr);
    unsigned first = LOOKUP_PLACES; /* with a manifest */
    if (!path)
        return -1;
    for (unsigned i = 0; i < LOOKUP_PLACES; i++) {
        int there = lookup_place(pr->path, a, wish->folder, i, path);
        if (there > 0)
            there = enter(pr, path);
        const enum owner owner = there > 0 ? owner_of(pr, a) : NOBODY;
        if (there < 0 || owner == NOT_KNOWN)
            return -1;
        if (owner == THE_FILE)
            return 1;
        if (owner == SOMEBODY && first == LOOKUP_PLACES)
            first = i;
    }
    folder_close(&pr->folder);
    if (!any || first == LOOKUP_PLACES)
        return 0;
    return lookup_place(pr->path, a, wish->folder, first, path) < 0 ? -1 : enter(pr, path);
}

uint64_t lookup_stamp(const struct pairing *pr, const char *wish)
{
    char *path HEAP = new_path(pr);
    struct stat st;
    uint64_t stamp = 1;
    for (unsigned i = 0; path && i < LOOKUP_PLACES; i++) {
        if (lookup_place(pr->path, NULL, wish, i, path) <= 0 || stat(path, &st) < 0)
            continue;
        /* A name that is made or removed changes the ctime of its folder. */
        const uint64_t parts[] = {st.st_dev, st.st_ino, (uint64_t)st.st_ctim.tv_sec,
                                  (uint64_t)st.st_ctim.tv_nsec};
        stamp = checksum_add(stamp, parts, sizeof(parts));
        const size_t n = strlen(path);
        if (snprintf(path + n, PATH_MAX - n, "/%s", pr->names.manifest) < (int)(PATH_MAX - n) &&
            stat(path, &st) == 0)
            return 0;
    }
    return path ? stamp ? stamp : 1 : 0;
}

/* Returns true if the original still carries that attribute. A process that makes the file plain
 * removes the attribute first, the manifest last. So if the manifest is missing, the attribute is read
 * again. */
static __attribute__((noinline)) bool still_says(const struct pairing *pr,
                                                 const struct attribute *a)
{
    struct attribute now;
    return attribute_read(pr->original, pr->path, &now) == ATTRIBUTE_FOUND &&
           memcmp(&now, a, sizeof(now)) == 0;
}

/* ---- a file that was restored ---- */

/* Says why the file is refused that has an orphan. */
static int refuse_orphan(const struct pairing *pr, enum orphan_finding found)
{
    if (found == ORPHAN_BEGUN)
        return report_error(EAGAIN,
                            "%s is just being joined with its reflection %s/%s, or that was "
                            "interrupted: a process that may write to it has to map it first",
                            pr->path, pr->folder.path, pr->names.reflection);
    if (found == ORPHAN_SEVERAL)
        return report_error(
            ESTALE,
            "%s was restored without its attribute user.ato, and it is not known which reflection "
            "in %s is its own: several files or reflections have that size. Restore it with its "
            "attributes (tar --xattrs, rsync -X), or move the other files, and the other "
            "reflections (NUMBER and NUMBER.manifest), to another folder",
            pr->path, pr->folder.path);
    return report_error(
        ESTALE,
        "%s was restored or copied, and its reflection %s/%s, made for another inode number, holds "
        "parts of the content: choose a side with ATO_PREFER_REFLECTION, which joins the two, or "
        "ATO_PREFER_FILE, which keeps the bytes of the file ('ato deploy --prefer=')",
        pr->path, pr->folder.path, pr->names.reflection);
}

/* Looks for an orphan. Returns 1 with its folder open and pr->orphan set: the user has chosen, or had; 0: there is none, or
 * the file is preferred to one of several; -1. */
static int find_orphan(struct pairing *pr, const struct attribute *a,
                       const struct pairing_wish *wish)
{
    const struct orphan_of of = {&pr->identity, pr->path, pr->original, a};
    char *path HEAP = new_path(pr);
    uint64_t number = 0;
    enum orphan_finding found = ORPHAN_NONE;
    if (!path)
        return -1;
    for (unsigned i = 0; i < LOOKUP_PLACES && found == ORPHAN_NONE; i++) {
        int there = lookup_place(pr->path, a, wish->folder, i, path);
        if (there > 0)
            there = enter(pr, path);
        if (there < 0 || (there > 0 && (found = orphan_find(&pr->folder, &of, &number)) < 0))
            return -1;
    }
    if (found == ORPHAN_NONE || (found == ORPHAN_SEVERAL && wish->prefer_file))
        return 0;
    pr->names = pairing_names(number);
    const bool chosen = found == ORPHAN_BEGUN ||
                        (found == ORPHAN_FOUND && (wish->prefer_file || wish->prefer_reflection));
    if (wish->only_looks || !chosen)
        return refuse_orphan(pr, found);
    pr->orphan = true;
    const struct pairing_names own = pairing_names(pr->identity.inode);
    if (found == ORPHAN_FOUND && number != pr->identity.inode &&
        folder_has(&pr->folder, own.manifest)) {
        /* Its place is taken: that pairing comes first. */
        pr->names = own;
        pr->orphan = false;
    }
    return 1;
}

/* ---- a copy ---- */

/* Looks for the manifest of the source, by which a folder is left open as *f. Returns a descriptor; -1: there is none, with ENOENT;
 * or another errno. */
static int open_source(const struct pairing *pr, const struct attribute *a, const char *wish,
                       struct folder *f)
{
    const struct pairing_names n = pairing_names(a->inode);
    char *path HEAP = new_path(pr);
    struct stat st;
    int fd = -1;
    f->fd = -1;
    if (!path)
        return -1;
    for (unsigned i = 0; i < LOOKUP_PLACES && fd < 0; i++) {
        const int there = lookup_place(pr->path, a, wish, i, path);
        folder_close(f);
        if (there < 0)
            return -1;
        if (there == 0 || (stat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR)))
            continue;
        if (folder_open(f, path, false) < 0)
            return -1;
        fd = folder_open_file(f, n.manifest, O_RDONLY, &pr->identity.trust, "the manifest");
        if (fd < 0 && errno != ENOENT)
            return -1;
    }
    if (fd < 0)
        errno = ENOENT;
    return fd;
}

/* Returns 1 if the source of a copy, whose attribute that is, is known to have had all slices in O when it was copied; 0
 * if not; -1. Its present state is not enough: it may have been deployed since. But each session with stores leaves a new mtime,
 * and a tool that copies attributes copies mtime too. */
static int source_was_plain(const struct pairing *pr, const struct attribute *a, const char *wish)
{
    const struct pairing_names n = pairing_names(a->inode);
    struct manifest_record r;
    struct folder *f HEAP = malloc(sizeof(*f));
    struct stat st = {0};
    int named, found;
    if (!f)
        return report_error(ENOMEM, "no memory to look for the source of %s", pr->path);
    const int fd = open_source(pr, a, wish, f);
    if (fd < 0) {
        folder_close(f);
        return errno == ENOENT ? 0 : -1;
    }
    int holds = meta_holds_slices(f, a->inode);
    /* After the words: a process may have mapped the source meanwhile, and brought slices home, which the record says; or be just
     * setting it aside. Read without a lock: a record that is being written may count as damaged. */
    if (holds == 0 &&
        ((named = folder_names(f, n.manifest, fd)) < 0 || (found = area_read(fd, &r, NULL)) < 0 ||
         (fstatat(f->fd, n.reflection, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)))
        holds = folder_error(f, n.manifest, "cannot read the pairing of");
    else if (holds == 0 && (!named || !st.st_mode || found != MANIFEST_VALID ||
                            memcmp(r.id, a->id, 16) != 0 || r.inode != a->inode ||
                            r.state != MANIFEST_CLEAN || !identity_unwritten(&pr->identity, &r)))
        holds = 1;
    KEEP_ERRNO();
    close(fd);
    folder_close(f);
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

/* The file carries the attribute of another one. */
static int judge_copy(const struct pairing *pr, const struct attribute *a,
                      const struct pairing_wish *wish)
{
    if (wish->only_looks)
        return report_error(
            EAGAIN,
            "%s carries the attribute user.ato of the file that it was copied from: a process has "
            "to map it for writing, or 'ato deploy' it, before it can be read",
            pr->path);
    /* The copied bytes may differ from the content of the source. And if the file was moved to another file system, the attribute
     * may be the only trace of its reflection. */
    const int known = wish->prefer_file ? 1 : source_was_plain(pr, a, wish->folder);
    if (known != 0)
        return known < 0 ? -1 : drop(pr, "was copied from another file", wish);
    return report_error(
        ESTALE,
        "%s was copied or moved while it was not plain: the reflection of its source (inode "
        "%" PRIu64 ", in '%s') may have held parts of the content, so its bytes may be outdated. "
        "Make the source plain and copy it again; or bring the source's reflection and manifest to "
        ".ato beside this file and map it with ATO_PREFER_REFLECTION; " PAIRING_KEEP_FILE
        ", or remove the attribute user.ato",
        pr->path, a->inode, a->folder);
}

int lookup_check_unused(const struct pairing *pr, const uint8_t id[16],
                        const struct pairing_wish *wish)
{
    const int used = wish->is_used ? wish->is_used(id, &pr->identity.trust) : 0;
    return used <= 0
               ? used
               : report_error(EBUSY,
                              "a process has %s mapped by another name, with a reflection that "
                              "is not to be found from this one: unmap the file there first",
                              pr->path);
}

/* The attribute is the file's, and there is no manifest. */
static int judge_lost(const struct pairing *pr, const struct attribute *a,
                      const struct pairing_wish *wish)
{
    if (!wish->prefer_file)
        return report_error(
            ESTALE,
            "the reflection of %s is missing: it is neither in '%s', which the "
            "attribute user.ato names, nor in %.*s" FOLDER_NAME ". " PAIRING_BRING_BACK,
            pr->path, a->folder, (int)(strrchr(pr->path, '/') + 1 - pr->path), pr->path);
    return lookup_check_unused(pr, a->id, wish) < 0 ? -1
                                                    : drop(pr, "has lost its reflection", wish);
}

/* Makes an ordinary path of an attribute's folder. */
static void drop_slash(char *folder)
{
    char *at = strstr(folder, "//");
    if (at)
        memmove(at, at + 1, strlen(at));
}

int lookup(struct pairing *pr, const struct pairing_wish *wish)
{
    char *beside HEAP = new_path(pr);
    struct attribute *a HEAP = malloc(sizeof(*a));
    if (!beside || !a)
        return report_error(ENOMEM, "no memory to look for the reflection of %s", pr->path);
    const enum attribute_finding found = attribute_read(pr->original, pr->path, a);
    const bool named = found == ATTRIBUTE_FOUND, copied = named && a->inode != pr->identity.inode;
    const struct attribute *const carried = named ? a : NULL;
    pr->names = pairing_names(pr->identity.inode);
    pr->orphan = false;
    if (found == ATTRIBUTE_BAD)
        return -1;
    pr->has_attributes = found != ATTRIBUTE_UNSUPPORTED;
    /* Without an attribute the pairing, if there is one, lies where a new one would be made. (A reader makes none, and a file
     * system without attributes tells nothing.) A copy has none, unless a reunion was cut before its last step. */
    int there = found != ATTRIBUTE_NONE || wish->only_looks
                    ? find_own(pr, carried, named && !copied, wish)
                    : 0;
    if (there != 0)
        return there;
    if (named && !copied && !still_says(pr, a))
        return lookup(pr, wish);
    if (!named || copied)
        there = find_orphan(pr, copied ? a : NULL, wish);
    if (there == 0 && !named && (found == ATTRIBUTE_UNSUPPORTED || wish->only_looks))
        there = find_own(pr, NULL, true, wish);
    if (named) /* for sentences */
        drop_slash(a->folder);
    if (there == 0 && named)
        there = copied ? judge_copy(pr, a, wish) : judge_lost(pr, a, wish);
    if (there != 0)
        return there;
    folder_close(&pr->folder);
    if (wish->only_looks)
        return 0;
    if (lookup_place(pr->path, NULL, NULL, 2, beside) < 0)
        return -1;
    return folder_open(&pr->folder, wish->folder ? wish->folder : beside, true);
}
