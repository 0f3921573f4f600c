/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/adoption.h"

#include "reflection/format/layout.h"
#include "reflection/format/log.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/birth.h"
#include "reflection/pairing/guard.h"
#include "reflection/pairing/length.h"
#include "reflection/pairing/meta.h"
#include "reflection/pairing/orphan.h"
#include "reflection/pairing/removal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- does it belong to the file? ---- */

/* The manifest has no valid copy. */
static enum verdict of_invalid(const struct pairing *pr, enum manifest_finding found,
                               bool has_attribute, const struct pairing_wish *wish)
{
    if (found == MANIFEST_DAMAGED) {
        report_error(
            EUCLEAN,
            "the manifest %s/%s is damaged: neither of its copies is valid. " PAIRING_BRING_BACK,
            pr->folder.path, pr->names.manifest);
        return VERDICT_FORGET;
    }
    if (found == MANIFEST_FOREIGN)
        return report_error(EUCLEAN,
                            "the manifest %s/%s is of version %u and format %u, this library reads "
                            "version %d and formats 0 and 1; %s",
                            pr->folder.path, pr->names.manifest, pr->record.version,
                            pr->record.format, MANIFEST_VERSION,
                            manifest_advice(pr->record.version));
    /* MANIFEST_UNBORN. Another program may have emptied a manifest. (After a birth that was cut the reflection
     * holds nothing.) */
    const bool looks = wish->prefer_file || pr->orphan_waits;
    const int holds = looks ? meta_holds_slices(&pr->folder, pr->identity.inode) : 0;
    if (holds < 0 || (holds && wish->prefer_file))
        return holds < 0 ? VERDICT_REFUSE : VERDICT_FORGET;
    if (!has_attribute && !pr->orphan_waits)
        return VERDICT_BEAR;
    if (!holds && looks)
        return VERDICT_START_OVER;
    return report_error(
        ESTALE, "the reflection of %s is missing: its manifest %s/%s is empty. " PAIRING_BRING_BACK,
        pr->path, pr->folder.path, pr->names.manifest);
}

/* `a`: with another inode; NULL: there is none. */
static enum verdict of_orphan(const struct pairing *pr, enum manifest_finding found,
                              const struct attribute *a, const struct pairing_wish *wish)
{
    const struct orphan_of of = {&pr->identity, pr->path, pr->original, a};
    if (pr->joined || found != MANIFEST_VALID)
        return VERDICT_AGAIN;
    switch (orphan_look(&pr->folder, &of, pairing_number(pr->names.manifest), pr->lock)) {
    case ORPHAN_FAILED:
        return VERDICT_REFUSE;
    case ORPHAN_FOUND:
        return wish->prefer_file ? VERDICT_FORGET : VERDICT_REUNITE;
    case ORPHAN_BEGUN:
        return VERDICT_REUNITE;
    default:
        return VERDICT_AGAIN;
    }
}

/* The manifest is of another file, which had this inode number; and no attribute says that it is this file's. */
static enum verdict of_another_file(const struct pairing *pr, const struct pairing_wish *wish)
{
    const struct manifest_record *r = &pr->record;
    const uint64_t inode = pr->identity.inode;
    /* In a folder that the user chose, files of several file systems meet, and one inode number may be in use twice: never set
     * aside the pairing of a file that exists. */
    if (r->device != pr->identity.device && wish->folder)
        return report_error(ESTALE,
                            "the reflection %s/%s belongs to a file of another file system with "
                            "the same inode number; choose another reflection folder for %s",
                            pr->folder.path, pr->names.reflection, pr->path);
    if (pr->joined)
        return report_error(EBUSY, "the reflection %s/%s belongs to another file, which is mapped",
                            pr->folder.path, pr->names.reflection);
    /* It may hold content of a file that was restored with another number. */
    const int holds = orphan_holds(&pr->folder, inode, pr->lock, r, -1);
    const int claimed = holds > 0 ? orphan_is_claimed(&pr->folder, pr->path, inode, r) : holds;
    const int copy = holds > 0 && claimed == 0 ? area_is_copy(pr->lock, r) : claimed;
    if (copy < 0)
        return folder_error(&pr->folder, pr->names.manifest, "cannot tell whose the manifest is");
    if (!copy || (!claimed && wish->prefer_file))
        return VERDICT_SET_ASIDE;
    return report_error(
        ESTALE,
        "the reflection %s/%s has the inode number of %s, and belongs to another restored file: "
        "copy this file with its attributes and times to a new name, and rename the copy to the "
        "old one ('cp -a', 'mv'), so that it has another inode number",
        pr->folder.path, pr->names.reflection, pr->path);
}

enum verdict adoption_verdict(struct pairing *pr, enum manifest_finding found,
                              const struct pairing_wish *wish)
{
    struct attribute a;
    const enum attribute_finding attribute =
        pr->has_attributes ? attribute_read(pr->original, pr->path, &a) : ATTRIBUTE_UNSUPPORTED;
    const bool has_one = attribute == ATTRIBUTE_FOUND,
               carries = has_one && a.inode == pr->identity.inode;
    if (attribute == ATTRIBUTE_BAD)
        return VERDICT_REFUSE;
    if (pr->orphan)
        return carries ? VERDICT_AGAIN : of_orphan(pr, found, has_one ? &a : NULL, wish);
    if (carries && found != MANIFEST_VALID)
        memcpy(pr->record.id, a.id, sizeof(a.id)); /* for its name when it is set aside */
    if (found != MANIFEST_VALID)
        return of_invalid(pr, found, carries, wish);
    struct manifest_record *r = &pr->record;
    const bool same = identity_same_inode(&pr->identity, r);
    /* A folder beside the file was copied with it, or moved; another one may serve a file of another file system, which is in use. */
    const bool beside = orphan_is_beside(&pr->folder, pr->path);
    const int moved = same || beside ? 1 : area_is_copy(pr->lock, r);
    if (moved < 0)
        return folder_error(&pr->folder, pr->names.manifest, "cannot stat the manifest");
    if (carries && (r->inode != a.inode || memcmp(a.id, r->id, 16) != 0 || !moved)) {
        report_error(ESTALE,
                     "the manifest %s/%s belongs to another file or pairing than the attribute of "
                     "%s says: was it copied together with its attribute?",
                     pr->folder.path, pr->names.manifest, pr->path);
        const bool may = r->device == pr->identity.device || beside;
        return may && wish->prefer_file && lookup_check_unused(pr, a.id, wish) == 0
                   ? VERDICT_FORGET
                   : VERDICT_REFUSE;
    }
    if (carries)
        r->known |= MANIFEST_KNOWS_ATTRIBUTE; /* a cut birth may not have noted it */
    if ((same || carries) && r->state == MANIFEST_DEPLOYED)
        return VERDICT_START_OVER; /* holds nothing: a removal that was cut */
    /* The file never had one: its file system answers for attributes, but takes none. */
    if (same && attribute == ATTRIBUTE_NONE && !(r->known & MANIFEST_KNOWS_ATTRIBUTE))
        pr->has_attributes = false;
    if (carries || (same && pr->identity.known))
        return VERDICT_ADOPT;
    if (!same)
        return of_another_file(pr, wish);
    report_error(ESTALE,
                 "there is a reflection %s/%s, but neither attribute, birth time nor "
                 "generation tells whether it belongs to %s",
                 pr->folder.path, pr->names.reflection, pr->path);
    return VERDICT_FORGET;
}

/* ---- may it be used? ---- */

enum { WHEN = 64 };

static const char *tell_time(char to[WHEN], int64_t seconds, uint64_t nanoseconds)
{
    const time_t at = (time_t)seconds;
    struct tm tm;
    size_t n = 0;
    if (localtime_r(&at, &tm))
        n = strftime(to, WHEN, "%Y-%m-%d %H:%M:%S", &tm);
    (void)snprintf(to + n, WHEN - n, ".%09" PRIu64, nanoseconds);
    return to;
}

/* Returns 0 if the reflection is preferred; else -1 with ESTALE. `what`, about "it", makes the two sides differ. */
static int prefer(const struct pairing *pr, const struct pairing_wish *wish, const char *what)
{
    if (!wish->prefer_reflection)
        return report_error(
            ESTALE, "%s: %s, and its reflection %s/%s holds parts of the content: " PAIRING_CHOOSE,
            pr->path, what, pr->folder.path, pr->names.reflection);
    report_log(REPORT_WARNING,
               "%s: %s; its reflection is used all the same, as ATO_PREFER_REFLECTION asks",
               pr->path, what);
    return 0;
}

static int check_not_written(const struct pairing *pr, const struct pairing_wish *wish)
{
    const struct manifest_record *r = &pr->record;
    const struct identity *identity = &pr->identity;
    char is[WHEN], was[WHEN], what[2 * WHEN + 100];
    if (identity_unwritten(identity, r))
        return 0;
    (void)snprintf(what, sizeof(what),
                   "another program wrote to it since it was unmapped (its time of modification is "
                   "%s, and was %s)",
                   tell_time(is, identity->mtime_sec, identity->mtime_nsec),
                   tell_time(was, r->clean_mtime_sec, r->clean_mtime_nsec));
    return prefer(pr, wish, what);
}

static int check_reflection(struct pairing *pr, const struct pairing_wish *wish, uint64_t size)
{
    struct stat st, own;
    if (pr->reflection < 0)
        pr->reflection = folder_open_file(&pr->folder, pr->names.reflection, pairing_access(wish),
                                          &pr->identity.trust, "the reflection");
    if (pr->reflection < 0)
        return errno != ENOENT
                   ? -1
                   : report_error(ESTALE,
                                  "the reflection %s/%s of %s is missing. " PAIRING_BRING_BACK,
                                  pr->folder.path, pr->names.reflection, pr->path);
    if (fstat(pr->reflection, &st) < 0 || fstat(pr->lock, &own) < 0)
        return folder_error(&pr->folder, pr->names.reflection, "cannot stat");
    /* A user with permission to rename other users' files could put such a file here. libato, running as
     * the owner of that file, would then open it to all users of the original, and write to it. So it must
     * have owner, group and mode of its manifest; or those of the original, if follow() was
     * interrupted, or if the makers of manifest and reflection were two users that may both write to the
     * original: then it is open to these users already. */
    const struct identity *identity = &pr->identity;
    if ((st.st_uid != own.st_uid || st.st_gid != own.st_gid || (st.st_mode ^ own.st_mode) & 0777) &&
        ((st.st_uid != identity->trust.owner && !(identity->trust.mode & (S_IWGRP | S_IWOTH))) ||
         st.st_gid != identity->trust.group ||
         (st.st_mode & 0777) != (identity->trust.mode & 0666)))
        return report_error(EACCES,
                            "%s/%s differs from its manifest in owner, group or mode: the two were "
                            "not made together, and are refused",
                            pr->folder.path, pr->names.reflection);
    if (!layout_fits(pr->record.format, size, (uint64_t)st.st_size))
        return report_error(
            EUCLEAN,
            "the reflection %s/%s is %lld bytes long, it must have at least %" PRIu64
            "%s. " PAIRING_BRING_BACK,
            pr->folder.path, pr->names.reflection, (long long)st.st_size,
            layout_reflection_bytes(pr->record.format, size),
            pr->record.format == LAYOUT_DENSE ? "" : ", and whole chunks");
    return 0;
}

/* Returns 0 if the file has the attribute, or need not have it; 1 if it is to be set: a birth was cut before that, and nothing is
 * stored; or a reunion, before its last step; or it was taken away, and the reflection is preferred; -1 with ESTALE if it was taken
 * away, or another errno. */
static int look_for_attribute(const struct pairing *pr, const struct pairing_wish *wish)
{
    struct attribute a;
    if (pr->orphan || !pr->has_attributes)
        return 0;
    const enum attribute_finding attribute = attribute_read(pr->original, pr->path, &a);
    if (attribute == ATTRIBUTE_FOUND)
        return a.inode != pr->identity.inode;
    if (attribute == ATTRIBUTE_BAD)
        return -1;
    const int holds = meta_holds_slices(&pr->folder, pr->identity.inode);
    return holds < 0 || (holds && prefer(pr, wish, "its attribute user.ato was taken away") < 0)
               ? -1
               : 1;
}

/* Gives the files of the pairing owner, group and mode of the original, which may have changed: the
 * reflection holds content of the original. If the caller has no permission for that, logs a warning. */
static void follow(const struct pairing *pr)
{
    const int files[] = {pr->reflection, pr->lock};
    struct stat st;
    for (int i = 0; i < 2; i++)
        if (ownership_give(&pr->identity.trust, files[i]) < 0 && fstat(files[i], &st) == 0 &&
            (st.st_mode & 0666 & ~pr->identity.trust.mode))
            report_log(REPORT_WARNING,
                       "%s/%s has mode %03o, which permits more than the mode of %s: its owner has "
                       "to change it",
                       pr->folder.path, i ? pr->names.manifest : pr->names.reflection,
                       (unsigned)st.st_mode & 0777, pr->path);
}

/* persist-order R3 (writer: M1): the record that was read may be visible and not durable, if its writer was
 * killed between store and fence. */
static int settle_manifest(const struct pairing *pr)
{
    if (persist_flush_any(&pr->persist, pr->manifest, MANIFEST_BYTES) < 0)
        return folder_error(&pr->folder, pr->names.manifest, "cannot sync the manifest");
    persist_fence(&pr->persist);
    return 0;
}

int adopt_joined(struct pairing *pr, const struct pairing_wish *wish)
{
    if (pr->record.state != MANIFEST_IN_USE || identity_restarted(&pr->record)) {
        report_quietly(EBUSY,
                       "the manifest of %s is locked by another process, which does not have the "
                       "file mapped; end that process, or try again",
                       pr->path);
        return PAIRING_NOT_YET;
    }
    if (domain_check(pr->record.domain, (int)wish->domain, pr->path) < 0)
        return -1;
    persist_init(&pr->persist, pr->record.domain);
    /* The size may change at any time: it is read from the mapping, as one word. */
    if (pairing_refresh_size(pr) < 0 || check_reflection(pr, wish, pr->size) < 0)
        return -1;
    if (wish->only_looks)
        return wish->join(pr, wish->arg);
    follow(pr);
    return settle_manifest(pr) < 0 ? -1 : wish->join(pr, wish->arg);
}

int adopt(struct pairing *pr, const struct pairing_wish *wish)
{
    const struct manifest_record *const r = &pr->record;
    const bool was_used = r->state == MANIFEST_IN_USE;
    const int unfinished = look_for_attribute(pr, wish), copy = area_is_copy(pr->lock, r);
    if (copy < 0)
        return folder_error(&pr->folder, pr->names.manifest, "cannot stat the manifest");
    if (unfinished < 0)
        return -1;
    /* After a kill, the file was replaced by one with its attribute and, by chance, its inode number. (A manifest that is a copy
     * came with the file.) */
    if (!copy && !pr->orphan && was_used && !identity_same_inode(&pr->identity, r) &&
        prefer(pr, wish, "it was replaced, by a backup of an earlier moment") < 0)
        return -1;
    /* A folder with reflections was copied, and lies beside another name of the file, which a process has mapped by the folder's
     * source. */
    if (copy && r->device == pr->identity.device && r->inode == pr->identity.inode &&
        lookup_check_unused(pr, r->id, wish) < 0)
        return -1;
    if (pairing_refresh_size(pr) < 0) {
        if (unfinished) /* of a cut birth the record may be durable, and the size not */
            errno = ESTALE;
        return -1;
    }
    /* Nothing is cut off before it is known that the file is as it was left. */
    if (r->state == MANIFEST_CLEAN && (growth_check(pr) < 0 || check_not_written(pr, wish) < 0))
        return -1;
    if (growth_settle(pr) < 0)
        return -1;
    pr->identity.size = pr->size;
    if (check_reflection(pr, wish, pr->size) < 0)
        return -1;
    /* I5: a bitmap must not name slices beyond the end, or beyond that of what was cut off. Sparse: place_build() checks it. */
    uint64_t page;
    const uint64_t longest = growth_longest(pr->size, shrink_from(pr));
    const int beyond =
        r->format != LAYOUT_DENSE ? 0 : meta_find_beyond(pr->reflection, longest, &page);
    if (beyond < 0)
        return folder_error(&pr->folder, pr->names.reflection, "cannot read the bitmaps of");
    if (beyond)
        return report_error(EUCLEAN,
                            "the reflection %s/%s is damaged: it has slices of page %" PRIu64
                            " that lie beyond the end of the file. " PAIRING_BRING_BACK,
                            pr->folder.path, pr->names.reflection, page);
    /* After an unmap, times tell whether the file was overwritten; after a kill, the guard. The guard is looked at after an unmap, too:
     * each unmap looks at it, and would refuse what was written since this map. */
    if ((was_used || r->state == MANIFEST_CLEAN || wish->prefer_reflection) &&
        guard_check(pr, &r->guard, pr->size) < 0) {
        if (errno != ESTALE || !wish->prefer_reflection)
            return -1;
        report_log(REPORT_WARNING,
                   "another program overwrote %s; its reflection is used all the same, as "
                   "ATO_PREFER_REFLECTION asks",
                   pr->path);
        if (guard_renew(pr) < 0)
            return -1;
    }
    /* Before the attribute is one of this file's: later would leave a pairing that cannot be used. */
    struct log_file log;
    const int valid = unfinished && r->format == LAYOUT_LOG ? log_open(&log, pr->reflection) : 1;
    if (valid <= 0)
        return report_error(valid < 0 ? errno : EUCLEAN,
                            "the header of the log %s/%s is damaged. " PAIRING_BRING_BACK,
                            pr->folder.path, pr->names.reflection);
    birth_choose_domain(pr, wish);
    if (birth_allocate(pr) < 0)
        return -1;
    follow(pr);
    if (was_used && area_are_lost(r))
        report_log(REPORT_WARNING,
                   "the machine was restarted while %s was mapped in domain process, which "
                   "promises nothing for that case: writes may be lost",
                   pr->path);
    /* After a kill, what is visible of the original may not be durable.
     * persist-order R6 (writer: W6 in lib/api/write.c): a word that was stored in place.
     * persist-order R3 (writer: P1): the attribute, if a birth was interrupted right after setting it.
     * In domain process nothing was flushed; nor, perhaps, was what a restore has copied. Before the record has another domain, bytes
     * become durable before the words that make them valid (I1), and lanes, or that they are cut off (recover_slots()), before they
     * count after a power cut. */
    const bool used = pr->record.state != MANIFEST_CLEAN || copy;
    const bool unflushed = used && (copy || pr->record.domain == PERSIST_PROCESS);
    if ((used && fsops_fsync(pr->original) < 0) ||
        (unflushed && (fsops_fsync(pr->reflection) < 0 || fsops_fsync(pr->lock) < 0)))
        return report_errno(errno, "cannot make what was stored to %s durable", pr->path);
    if (settle_manifest(pr) < 0 || (unfinished && orphan_end(pr) < 0))
        return -1;
    /* persist-order S2 (writer: the size word of a shrink): settle_manifest() made the size word durable,
     * with the record, before what lies behind the end is cleared. */
    if (shrink_finish(pr) < 0)
        return -1;
    pr->settled = pr->record.state == MANIFEST_CLEAN;
    return 0;
}

int adopt_anew(struct pairing *pr, const struct pairing_wish *wish)
{
    struct manifest_sizes sizes;
    struct report_kept why;
    report_keep(&why);
    pr->size = manifest_sizes(pr->manifest, &sizes) ? sizes.size : 0;
    const int complete = check_reflection(pr, wish, pr->size) < 0 ? 0 : pairing_is_complete(pr);
    if (complete < 0)
        return -1;
    if (!complete) {
        report_again(&why);
        return wish->prefer_file ? removal_forget(pr) : -1;
    }
    report_log(REPORT_INFO,
               "another program wrote to %s; its reflection %s/%s holds no part of the content, "
               "and is replaced",
               pr->path, pr->folder.path, pr->names.reflection);
    /* A power cut in a birth after removal_set_aside() can leave the manifest, which was to follow, beside an empty reflection:
     * what was set aside needs it. */
    if (removal_is_set_aside(&pr->folder, &pr->record))
        return removal_set_aside(pr, "is empty: an older one");
    /* persist-order P2: an interrupted removal is recognized. */
    birth_choose_domain(pr, wish);
    if (birth_allocate(pr) < 0)
        return -1;
    pr->record.state = MANIFEST_DEPLOYED;
    memset(&pr->record.guard, 0, sizeof(pr->record.guard));
    return birth_write_record(pr) < 0 ? -1 : removal_start_over(pr);
}
