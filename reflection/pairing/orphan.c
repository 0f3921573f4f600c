/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/orphan.h"

#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/birth.h"
#include "reflection/pairing/guard.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool orphan_is_beside(const struct folder *f, const char *path)
{
    const size_t own = (size_t)(strrchr(path, '/') + 1 - path);
    return strncmp(f->path, path, own) == 0 && strcmp(f->path + own, FOLDER_NAME) == 0;
}

/* Its times are those of another file: the birth is later. */
static bool was_restored(const struct identity *is)
{
    return (is->known & MANIFEST_KNOWS_BIRTH) &&
           (is->mtime_sec < is->birth_sec ||
            (is->mtime_sec == is->birth_sec && is->mtime_nsec < is->birth_nsec));
}

int orphan_holds(const struct folder *f, uint64_t number, int lock,
                 const struct manifest_record *record, int file)
{
    if (record->guard.bytes && (file < 0 || !guard_is_off(file, &record->guard)))
        return 1;
    const int slices = meta_holds_slices(f, number);
    return slices || record->state != MANIFEST_IN_USE ? slices : area_holds_commits(lock, record);
}

/* Some backups keep seconds only. */
static bool time_fits(const struct manifest_record *r, const struct identity *is)
{
    return r->state == MANIFEST_CLEAN && is->mtime_sec == r->clean_mtime_sec &&
           (is->mtime_nsec == 0 || is->mtime_nsec == r->clean_mtime_nsec);
}

/* Returns true if a file without an attribute may be the manifest's, by size and times. A growth or a shrink of it may not be finished. */
static bool may_be(const struct manifest_record *r, const struct manifest_sizes *s,
                   const struct identity *is)
{
    return (is->size == s->size ||
            (is->size > s->size && (is->size <= s->shrunk || is->size <= s->growth))) &&
           (r->state != MANIFEST_CLEAN || !was_restored(is) || time_fits(r, is));
}

/* What the folder around has, apart from the file itself. */
struct around {
    const struct folder *folder;
    uint64_t inode; /* of the file */
    const struct manifest_record *record;
    const struct manifest_sizes *sizes; /* NULL: the file has an attribute */
    bool owner;                         /* the manifest's file */
    bool rival;                         /* a file that may be the manifest's as well */
    bool claimed;                       /* a file that carries the manifest's id */
};

static int visit_around(void *arg, const char *name)
{
    struct around *a = arg;
    const struct manifest_record *record = a->record;
    struct attribute carried;
    struct statx sx;
    char path[NAME_MAX + 4];
    snprintf(path, sizeof(path), "../%s", name);
    if (statx(a->folder->fd, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &sx) < 0)
        return errno == ENOENT ? 0 : folder_error(a->folder, path, "cannot stat");
    const struct identity is = {
        .inode = sx.stx_ino,
        .size = sx.stx_size,
        .known = sx.stx_mask & STATX_BTIME ? MANIFEST_KNOWS_BIRTH : 0,
        .birth_sec = sx.stx_btime.tv_sec,
        .birth_nsec = sx.stx_btime.tv_nsec,
        .mtime_sec = sx.stx_mtime.tv_sec,
        .mtime_nsec = sx.stx_mtime.tv_nsec,
    };
    const bool numbered = is.inode == record->inode,
               may = a->sizes && may_be(record, a->sizes, &is);
    if (!S_ISREG(sx.stx_mode) || is.inode == a->inode)
        return 0;
    const enum attribute_finding carries = attribute_read_at(a->folder->fd, path, &carried);
    const bool claims =
        carries == ATTRIBUTE_FOUND && memcmp(carried.id, record->id, sizeof(carried.id)) == 0;
    /* Its birth time is another one in the upper layer of an overlay. */
    a->owner |= (numbered && (identity_same_inode(&is, record) || carries == ATTRIBUTE_BAD)) ||
                ((numbered || may) && claims);
    a->claimed |= claims;
    a->rival |= may && carries != ATTRIBUTE_FOUND;
    return 0;
}

int orphan_is_claimed(const struct folder *f, const char *path, uint64_t inode,
                      const struct manifest_record *record)
{
    struct around around = {.folder = f, .inode = inode, .record = record};
    if (orphan_is_beside(f, path) && folder_each_name(f, "..", visit_around, &around) < 0)
        return -1;
    return around.claimed;
}

enum orphan_finding orphan_look(const struct folder *f, const struct orphan_of *of, uint64_t number,
                                int lock)
{
    const struct identity *is = of->identity;
    const bool beside = orphan_is_beside(f, of->path);
    struct manifest_record r;
    struct manifest_sizes sizes;
    struct stat st;
    if (fstat(lock, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 ||
        !ownership_maker(&is->trust, &st))
        return ORPHAN_NONE; /* I5: not believed */
    const int found = area_read(lock, &r, &sizes, NULL),
              copy = found < 0 ? -1 : area_is_copy(lock, &r);
    const enum locks_answer lives = locks_ask(lock, 1, PAIRING_LIVES);
    if (found < 0 || copy < 0 || lives == LOCKS_FAILED)
        return (enum orphan_finding)report_errno(
            errno, "cannot read or lock the manifest %s/%" PRIu64 ".manifest", f->path, number);
    if (found != MANIFEST_VALID || r.state == MANIFEST_DEPLOYED)
        return ORPHAN_NONE;
    const bool same = identity_same_inode(is, &r);
    if (r.inode != number)
        return same && (of->attribute ||
                        (is->known & r.known & (MANIFEST_KNOWS_BIRTH | MANIFEST_KNOWS_GENERATION)))
                   ? ORPHAN_BEGUN
                   : ORPHAN_NONE;
    const bool fits = of->attribute ? memcmp(of->attribute->id, r.id, 16) == 0
                                    : may_be(&r, &sizes, is) &&
                                          !(r.guard.bytes && guard_is_off(of->file, &r.guard));
    if (same || !fits || lives == LOCKS_TAKEN ||
        (!copy && (!beside || !(of->attribute || was_restored(is)))))
        return ORPHAN_NONE;
    struct around around = {
        .folder = f, .inode = is->inode, .record = &r, .sizes = of->attribute ? NULL : &sizes};
    const int holds = orphan_holds(f, number, lock, &r, of->file);
    if (holds < 0 || (holds && beside && folder_each_name(f, "..", visit_around, &around) < 0))
        return ORPHAN_FAILED;
    return !holds || around.owner ? ORPHAN_NONE : around.rival ? ORPHAN_SEVERAL : ORPHAN_FOUND;
}

struct search {
    const struct folder *folder;
    const struct orphan_of *of;
    uint64_t number; /* of what is found */
    enum orphan_finding found;
};

static int open_manifest(const struct folder *f, const char *name)
{
    return openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static int visit(void *arg, const char *name)
{
    struct search *s = arg;
    const uint64_t number = pairing_number(name);
    const int fd CLOSING = number ? open_manifest(s->folder, name) : -1;
    if (fd < 0) /* one that may not be opened is not the caller's */
        return !number || errno == ENOENT || errno == EACCES || errno == EPERM || errno == ELOOP
                   ? 0
                   : folder_error(s->folder, name, "cannot open the manifest");
    const enum orphan_finding found = orphan_look(s->folder, s->of, number, fd);
    if (found == ORPHAN_BEGUN || (found > ORPHAN_NONE && s->found == ORPHAN_NONE)) {
        s->found = found;
        s->number = number;
    } else if (found > ORPHAN_NONE && s->found != ORPHAN_BEGUN) {
        s->found = ORPHAN_SEVERAL;
    }
    return found == ORPHAN_FAILED ? -1 : 0;
}

enum orphan_finding orphan_find(struct folder *f, const struct orphan_of *of, uint64_t *number)
{
    struct search s = {.folder = f, .of = of, .found = ORPHAN_NONE};
    /* There is none for most files that carry no attribute, quickly. */
    if (!of->attribute && !was_restored(of->identity) && folder_is_marked(f))
        return ORPHAN_NONE;
    const struct pairing_names told = pairing_names(of->attribute ? of->attribute->inode : 0);
    const int r = of->attribute ? visit(&s, told.manifest) : folder_each_name(f, ".", visit, &s);
    *number = s.number;
    return r < 0 ? ORPHAN_FAILED : s.found;
}

static int visit_copy(void *arg, const char *name)
{
    const struct folder *f = arg;
    const uint64_t number = pairing_number(name);
    struct manifest_record r;
    const int fd CLOSING = number ? open_manifest(f, name) : -1;
    if (fd < 0)
        return number != 0;
    const int found = area_read(fd, &r, NULL, NULL);
    return found < 0 || (found == MANIFEST_VALID && r.state != MANIFEST_DEPLOYED &&
                         area_is_copy(fd, &r) && orphan_holds(f, number, fd, &r, -1));
}

bool orphan_any(const struct folder *f)
{
    return folder_each_name(f, ".", visit_copy, (void *)(uintptr_t)f) != 0;
}

/* ---- reunion ---- */

/* Returns true if the pairing has the file's inode number in its names. */
static bool is_in_place(const struct pairing *pr)
{
    return pairing_number(pr->names.manifest) == pr->identity.inode;
}

int orphan_adopt(struct pairing *pr)
{
    struct manifest_record *r = &pr->record;
    const struct pairing_names own = pairing_names(pr->identity.inode);
    struct stat st;
    if (pr->has_attributes && birth_set_attribute(pr, pairing_number(pr->names.manifest)) < 0)
        return -1;
    /* persist-order U1 (readers: lookup(), orphan_look()): the attribute, by which an interrupted reunion is found, the
     * content, which the restore may not have synced, and the folder's names are durable before the record. (So are reflection and
     * manifest, by adopt().) */
    if (folder_sync(&pr->folder) < 0 || folder_sync_name(&pr->folder, false) < 0)
        return -1;
    if (fsops_fsync(pr->original) < 0 || fstat(pr->original, &st) < 0)
        return report_errno(errno, "cannot make %s durable", pr->path);
    if (!is_in_place(pr) && folder_has(&pr->folder, own.manifest))
        return report_error(EBUSY,
                            "%s cannot be joined with its reflection: another file with this inode "
                            "number has just got the manifest %s/%s. Make that one plain first",
                            pr->path, pr->folder.path, own.manifest);
    if (!is_in_place(pr) && identity_random(r->id, sizeof(r->id)) < 0)
        return -1;
    identity_to_record(&pr->identity, r);
    r->known &= pr->has_attributes ? ~0u : ~MANIFEST_KNOWS_ATTRIBUTE;
    r->clean_size = (uint64_t)st.st_size;
    r->clean_mtime_sec = st.st_mtim.tv_sec;
    r->clean_mtime_nsec = (uint64_t)st.st_mtim.tv_nsec;
    /* persist-order U2 (reader: orphan_look()): the record names the file durably before a name changes: without that the
     * manifest, under the file's number, would be another file's. */
    return birth_write_record(pr);
}

int orphan_end(struct pairing *pr)
{
    /* persist-order U4 (reader: lookup()): both names are durable before the attribute no longer tells the old number.
     * persist-order R3 (writer: orphan_rename()): also if a process that died had renamed them. */
    return folder_sync(&pr->folder) < 0 ? -1 : birth_end(pr);
}

int orphan_rename(struct pairing *pr)
{
    const struct pairing_names was = pr->names, own = pairing_names(pr->identity.inode);
    const struct folder *f = &pr->folder;
    if (!is_in_place(pr)) {
        int r = fsops->renameat(f->fd, was.reflection, own.reflection);
        /* Without a manifest it has no content: a birth or a removal was interrupted. */
        if (r < 0 && errno == EEXIST && !folder_has(f, own.manifest)) {
            (void)fsops->unlinkat(f->fd, own.reflection, 0);
            r = fsops->renameat(f->fd, was.reflection, own.reflection);
        }
        if (r < 0 && errno != ENOENT) /* renamed by a process that died */
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
    return orphan_end(pr);
}
