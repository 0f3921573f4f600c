/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/identity_check.h"

#include "reflection/media/report.h"
#include "reflection/pairing/removal.h"

#include <errno.h>
#include <string.h>

/* After ESTALE: file and reflection do not belong together as they are. */
static enum verdict stale(const struct pairing_wish *wish)
{
    return wish->prefer_file ? VERDICT_FORGET : VERDICT_REFUSE;
}

/* The manifest has no valid copy. */
static enum verdict of_invalid(const struct pairing *pr, enum manifest_finding found,
                               bool has_attribute, const struct pairing_wish *wish)
{
    if (found == MANIFEST_DAMAGED)
        return report_error(EUCLEAN,
                            "the manifest %s/%s is damaged: neither of its copies is valid",
                            pr->folder.path, pr->names.manifest);
    if (found == MANIFEST_FOREIGN)
        return report_error(EUCLEAN,
                            "the manifest %s/%s is of version %u and format %u, this library reads "
                            "version %d and format 0; %s",
                            pr->folder.path, pr->names.manifest, pr->record.version,
                            pr->record.format, MANIFEST_VERSION,
                            manifest_advice(pr->record.version, MANIFEST_VERSION));
    /* MANIFEST_UNBORN. Another program may have emptied a manifest. (After a birth that was cut the reflection
     * holds nothing.) */
    int holds = wish->prefer_file ? lookup_holds_slices(&pr->folder, pr->identity.inode) : 0;
    if (holds)
        return holds < 0 ? VERDICT_REFUSE : VERDICT_FORGET;
    if (!has_attribute)
        return VERDICT_BEAR;
    report_error(ESTALE,
                 "%s carries the attribute of a reflection, but the manifest %s/%s is "
                 "empty",
                 pr->path, pr->folder.path, pr->names.manifest);
    return stale(wish);
}

/* The file has an attribute. `same`: the manifest is of the file's inode. */
static enum verdict of_attribute(struct pairing *pr, const struct attribute *a, bool same,
                                 const struct pairing_wish *wish)
{
    if (memcmp(a->id, pr->record.id, 16) == 0 && same) {
        pr->record.known |= MANIFEST_KNOWS_ATTRIBUTE; /* a cut birth may not have noted it */
        return pr->record.state == MANIFEST_DEPLOYED ? VERDICT_START_OVER : VERDICT_ADOPT;
    }
    report_error(ESTALE,
                 "the manifest %s/%s belongs to another file or pairing than the attribute of "
                 "%s says: was it copied together with its attribute?",
                 pr->folder.path, pr->names.manifest, pr->path);
    /* In a folder that the attribute names this may be the pairing of a file of another file system, which is in use. */
    return pr->record.device == pr->identity.device ? stale(wish) : VERDICT_REFUSE;
}

/* The file has no attribute, and the manifest is of its inode. */
static enum verdict of_same_inode(const struct pairing *pr, const struct pairing_wish *wish)
{
    if (pr->identity.known)
        return VERDICT_ADOPT;
    report_error(ESTALE,
                 "there is a reflection %s/%s, but neither attribute, birth time nor "
                 "generation tells whether it belongs to %s",
                 pr->folder.path, pr->names.reflection, pr->path);
    return stale(wish);
}

/* The file has no attribute, and the manifest is of another inode. In a folder that the user chose, files of several
 * file systems meet, and one inode number may be in use twice: never set aside the pairing of a file that exists. */
static enum verdict of_another(struct pairing *pr, const struct pairing_wish *wish)
{
    if (pr->record.device != pr->identity.device && wish->folder)
        return report_error(ESTALE,
                            "the reflection %s/%s belongs to a file of another file system with "
                            "the same inode number; choose another reflection folder for %s",
                            pr->folder.path, pr->names.reflection, pr->path);
    if (pr->joined)
        return report_error(EBUSY, "the reflection %s/%s belongs to another file, which is mapped",
                            pr->folder.path, pr->names.reflection);
    if (removal_set_aside(pr, "belonged to another file that had this inode number before") < 0)
        return VERDICT_REFUSE;
    return VERDICT_START_OVER;
}

enum verdict identity_check_of(struct pairing *pr, enum manifest_finding found,
                               const struct pairing_wish *wish)
{
    struct attribute a;
    enum attribute_finding attribute =
        pr->has_attributes ? attribute_read(pr->original, pr->path, &a) : ATTRIBUTE_UNSUPPORTED;
    if (attribute == ATTRIBUTE_BAD)
        return VERDICT_REFUSE;
    if (found != MANIFEST_VALID)
        return of_invalid(pr, found, attribute == ATTRIBUTE_FOUND, wish);
    const bool same = identity_same_inode(&pr->identity, &pr->record);
    if (attribute == ATTRIBUTE_FOUND)
        return of_attribute(pr, &a, same, wish);
    if (same && pr->record.state == MANIFEST_DEPLOYED)
        return VERDICT_START_OVER; /* holds nothing: a removal that was cut */
    /* The file never had one: its file system answers for attributes, but takes none. */
    if (same && attribute == ATTRIBUTE_NONE && !(pr->record.known & MANIFEST_KNOWS_ATTRIBUTE))
        pr->has_attributes = false;
    if (same)
        return of_same_inode(pr, wish);
    return of_another(pr, wish);
}
