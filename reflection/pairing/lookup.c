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

/* Opens, as *f, the next folder in which the pairing may lie, from the *i-th place on. Returns 1; 0: there is no more, and none is open;
 * -1. */
static int next_folder(const struct pairing *pr, const struct attribute *a, const char *wish,
                       unsigned *i, struct folder *f)
{
    char *path HEAP = malloc(PATH_MAX);
    struct stat st;
    folder_close(f);
    if (!path)
        return report_error(ENOMEM, "no memory to look for the reflection of %s", pr->path);
    while (*i < LOOKUP_PLACES) {
        const int there = lookup_place(pr->path, a, wish, (*i)++, path);
        if (there < 0)
            return -1;
        if (there > 0 && stat(path, &st) == 0)
            return folder_open(f, path, false) < 0 ? -1 : 1;
        if (there > 0 && errno != ENOENT && errno != ENOTDIR)
            return report_errno(errno, "cannot look at the reflection folder %s of %s", path,
                                pr->path);
    }
    return 0;
}

/* Whose the manifest of the file's inode number is, as far as can be seen without a lock. */
enum owner { NOBODY, SOMEBODY, THE_FILE };

/* In pr->folder. SOMEBODY also if it cannot be read: that is told when it is locked. */
static enum owner owner_of(const struct pairing *pr, const struct attribute *a)
{
    struct manifest_record r;
    const int found = area_read_at(&pr->folder, pr->names.manifest, &r);
    if (found < 0 && errno == ENOENT)
        return NOBODY;
    const bool named = a && a->inode == pr->identity.inode;
    return found == MANIFEST_VALID &&
                   (named ? memcmp(r.id, a->id, 16) == 0 : identity_same_inode(&pr->identity, &r))
               ? THE_FILE
               : SOMEBODY;
}

/* Looks for the manifest of the file's inode number. Returns 1 with its folder open: it is the file's, or, if `any`, it may be; 0; -1. */
static int find_own(struct pairing *pr, const struct attribute *a, bool any,
                    const struct pairing_wish *wish)
{
    unsigned first = LOOKUP_PLACES; /* with a manifest */
    int there;
    for (unsigned i = 0; (there = next_folder(pr, a, wish->folder, &i, &pr->folder)) > 0;) {
        const enum owner owner = owner_of(pr, a);
        if (owner == THE_FILE)
            return 1;
        if (owner == SOMEBODY && first == LOOKUP_PLACES)
            first = i - 1;
    }
    return there < 0 || !any ? there : next_folder(pr, a, wish->folder, &first, &pr->folder);
}

uint64_t lookup_stamp(const struct pairing *pr, const char *wish)
{
    char *path HEAP = malloc(PATH_MAX);
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
    uint64_t number = 0;
    int there = 1;
    enum orphan_finding found = ORPHAN_NONE;
    for (unsigned i = 0; there > 0 && found == ORPHAN_NONE;)
        if ((there = next_folder(pr, a, wish->folder, &i, &pr->folder)) > 0)
            found = orphan_find(&pr->folder, &of, &number);
    if (there < 0 || found == ORPHAN_FAILED)
        return -1;
    if (found == ORPHAN_NONE || (found == ORPHAN_SEVERAL && wish->prefer_file))
        return 0;
    pr->names = pairing_names(number);
    const bool chosen = found == ORPHAN_BEGUN ||
                        (found == ORPHAN_FOUND && (wish->prefer_file || wish->prefer_reflection));
    if (wish->only_looks || !chosen)
        return refuse_orphan(pr, found);
    /* If its place is taken, that pairing comes first. */
    const struct pairing_names own = pairing_names(pr->identity.inode);
    pr->orphan = found == ORPHAN_BEGUN || number == pr->identity.inode ||
                 !folder_has(&pr->folder, own.manifest);
    if (!pr->orphan)
        pr->names = own;
    pr->orphan_waits = !pr->orphan && wish->prefer_reflection;
    return 1;
}

/* ---- a copy ---- */

/* Returns 1 if the source of a copy, whose attribute that is, is known to have had all slices in O when it was copied; 0 if not; -1. Its present
 * state is not enough: it may have been deployed since. But each session with stores leaves a new mtime, and a tool that copies
 * attributes copies mtime too. The first manifest of the source that has this mtime decides; that in the folder that the attribute
 * names comes before one that was copied at an earlier moment. */
static int source_was_plain(const struct pairing *pr, const struct attribute *a, const char *wish)
{
    const struct pairing_names n = pairing_names(a->inode);
    struct folder *f HEAP = malloc(sizeof(*f));
    struct manifest_record r;
    struct stat st = {0};
    int plain = 0, there, named = 0, found = 0;
    bool knows = false;
    if (!f)
        return report_error(ENOMEM, "no memory to look for the source of %s", pr->path);
    f->fd = -1;
    for (unsigned i = 0; plain == 0 && !knows && (there = next_folder(pr, a, wish, &i, f)) != 0;) {
        const int fd CLOSING = there < 0 ? -1
                                         : folder_open_file(f, n.manifest, O_RDONLY,
                                                            &pr->identity.trust, "the manifest");
        if (fd < 0) {
            plain = there < 0 || errno != ENOENT ? -1 : 0;
            continue;
        }
        /* First the words: a process may have mapped the source meanwhile, and brought slices home, which the record says; or be
         * just setting it aside. */
        const int holds = meta_holds_slices(f, a->inode);
        if (holds < 0 || (named = folder_names(f, n.manifest, fd)) < 0 ||
            (found = area_read(fd, &r, NULL, NULL)) < 0 ||
            (fstatat(f->fd, n.reflection, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT))
            plain = folder_error(f, n.manifest, "cannot read the pairing of");
        else {
            knows = found == MANIFEST_VALID && memcmp(r.id, a->id, 16) == 0 &&
                    r.inode == a->inode && identity_unwritten(&pr->identity, &r);
            plain = knows && !holds && named && st.st_mode && r.state == MANIFEST_CLEAN;
        }
    }
    folder_close(f);
    return plain;
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

/* The file carries an attribute: that of another one, or its own, and there is no manifest. Returns 0 if it may be mapped as it is, and
 * removes the attribute; -1. */
static int judge_attribute(const struct pairing *pr, const struct attribute *a,
                           const struct pairing_wish *wish)
{
    const bool copied = a->inode != pr->identity.inode;
    if (copied && wish->only_looks)
        return report_error(
            EAGAIN,
            "%s carries the attribute user.ato of the file that it was copied from: a process has "
            "to map it for writing, or 'ato deploy' it, before it can be read",
            pr->path);
    /* The copied bytes may differ from the content of the source. And if the file was moved to another file system, the attribute
     * may be the only trace of its reflection. */
    const int plain = !copied || wish->prefer_file ? 1 : source_was_plain(pr, a, wish->folder);
    if (plain < 0)
        return -1;
    if (!plain)
        return report_error(
            ESTALE,
            "%s was copied or moved while it was not plain: the reflection of its source (inode "
            "%" PRIu64 ", in '%s') may have held parts of the content, so its bytes may be "
            "outdated. Make the source plain and copy it again; or bring the source's reflection "
            "and manifest to .ato beside this file and map it with "
            "ATO_PREFER_REFLECTION; " PAIRING_KEEP_FILE ", or remove the attribute user.ato",
            pr->path, a->inode, a->folder);
    if (!copied && !wish->prefer_file)
        return report_error(
            ESTALE,
            "the reflection of %s is missing: it is neither in '%s', which the "
            "attribute user.ato names, nor in %.*s" FOLDER_NAME ". " PAIRING_BRING_BACK,
            pr->path, a->folder, (int)(strrchr(pr->path, '/') + 1 - pr->path), pr->path);
    if ((!copied && lookup_check_unused(pr, a->id, wish) < 0) ||
        attribute_remove(pr->original, pr->path) < 0)
        return -1;
    report_log(REPORT_WARNING, "%s %s: it is mapped as it is, without its attribute user.ato%s",
               pr->path, copied ? "was copied from another file" : "has lost its reflection",
               wish->prefer_file ? ", as ATO_PREFER_FILE asks" : "");
    return 0;
}

int lookup(struct pairing *pr, const struct pairing_wish *wish)
{
    char *beside HEAP = malloc(PATH_MAX);
    struct attribute *a HEAP = malloc(2 * sizeof(*a));
    if (!beside || !a)
        return report_error(ENOMEM, "no memory to look for the reflection of %s", pr->path);
    const enum attribute_finding found = attribute_read(pr->original, pr->path, a);
    const bool named = found == ATTRIBUTE_FOUND, copied = named && a->inode != pr->identity.inode;
    const struct attribute *const carried = named ? a : NULL;
    pr->names = pairing_names(pr->identity.inode);
    pr->orphan = pr->orphan_waits = false;
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
    /* A process that makes the file plain removes the attribute first, the manifest last. So if the manifest is missing, the attribute is
     * read again. */
    if (named && !copied &&
        (attribute_read(pr->original, pr->path, a + 1) != ATTRIBUTE_FOUND ||
         memcmp(a, a + 1, sizeof(*a)) != 0))
        return lookup(pr, wish);
    if (!named || copied)
        there = find_orphan(pr, copied ? a : NULL, wish);
    if (there == 0 && !named && (found == ATTRIBUTE_UNSUPPORTED || wish->only_looks))
        there = find_own(pr, NULL, true, wish);
    /* An ordinary path, for sentences. */
    char *const slash = named ? strstr(a->folder, "//") : NULL;
    if (slash)
        memmove(slash, slash + 1, strlen(slash));
    if (there == 0 && named)
        there = judge_attribute(pr, a, wish);
    if (there != 0)
        return there;
    folder_close(&pr->folder);
    if (wish->only_looks)
        return 0;
    if (lookup_place(pr->path, NULL, NULL, 2, beside) < 0)
        return -1;
    return folder_open(&pr->folder, wish->folder ? wish->folder : beside, true);
}
