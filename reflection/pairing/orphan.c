/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/orphan.h"

#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/guard.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <fcntl.h>
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

bool orphan_is_due(struct folder *f, const struct orphan_of *of)
{
    return of->attribute || was_restored(of->identity) || !folder_is_marked(f);
}

int orphan_holds(const struct folder *f, uint64_t number, int lock,
                 const struct manifest_record *record, int file)
{
    if (record->guard.bytes && (file < 0 || !guard_is_off(file, &record->guard)))
        return 1;
    const int slices = meta_holds_slices(f, number);
    return slices || record->state != MANIFEST_IN_USE ? slices : area_holds_commits(lock, record);
}

/* A growth or a shrink of it may not be finished. */
static bool size_fits(const struct manifest_sizes *s, uint64_t is)
{
    return is == s->size || (is > s->size && (is <= s->shrunk || is <= s->growth));
}

/* Some backups keep seconds only. */
static bool time_fits(const struct manifest_record *r, const struct identity *is)
{
    return r->state == MANIFEST_CLEAN && is->mtime_sec == r->clean_mtime_sec &&
           (is->mtime_nsec == 0 || is->mtime_nsec == r->clean_mtime_nsec);
}

/* Returns true if a file without an attribute may be the manifest's, by size and times. */
static bool may_be(const struct manifest_record *r, const struct manifest_sizes *s,
                   const struct identity *is)
{
    return size_fits(s, is->size) &&
           (r->state != MANIFEST_CLEAN || !was_restored(is) || time_fits(r, is));
}

/* Looks at the folder around, apart from the file itself. */
struct around {
    const struct folder *folder;
    const struct orphan_of *of;
    const struct manifest_record *record;
    const struct manifest_sizes *sizes;
    bool owner; /* it has the manifest's file */
    bool rival; /* it has a file that may be the manifest's as well */
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
               may = !a->of->attribute && may_be(record, a->sizes, &is);
    if (!S_ISREG(sx.stx_mode) || is.inode == a->of->identity->inode || !(numbered || may))
        return 0;
    const enum attribute_finding carries = attribute_read_at(a->folder->fd, path, &carried);
    /* Its birth time is another one in the upper layer of an overlay. */
    a->owner |= (numbered && (identity_same_inode(&is, record) || carries == ATTRIBUTE_BAD)) ||
                (carries == ATTRIBUTE_FOUND && memcmp(carried.id, record->id, 16) == 0);
    a->rival |= may && carries != ATTRIBUTE_FOUND;
    return 0;
}

struct claim {
    const struct folder *folder;
    const uint8_t *id;
    uint64_t inode; /* of the file that is not meant */
};

static int visit_claim(void *arg, const char *name)
{
    const struct claim *c = arg;
    struct attribute carried;
    struct stat st;
    char path[NAME_MAX + 4];
    snprintf(path, sizeof(path), "../%s", name);
    return fstatat(c->folder->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           st.st_ino != c->inode &&
           attribute_read_at(c->folder->fd, path, &carried) == ATTRIBUTE_FOUND &&
           memcmp(carried.id, c->id, sizeof(carried.id)) == 0;
}

int orphan_is_claimed(const struct folder *f, const char *path, uint64_t inode,
                      const struct manifest_record *record)
{
    struct claim claim = {f, record->id, inode};
    return orphan_is_beside(f, path) ? folder_each_around(f, visit_claim, &claim) : 0;
}

/* How well a manifest fits: the best one is the file's, if there is only one. */
enum fit { FIT_FAILED = -1, FIT_NOT, FIT_SIZE, FIT_TIME, FIT_BEGUN };

/* *rival: so does it another file. */
static enum fit fit_of(const struct folder *f, const struct orphan_of *of, uint64_t number,
                       int lock, bool *rival)
{
    const struct identity *is = of->identity;
    const bool beside = orphan_is_beside(f, of->path);
    struct manifest_record r;
    struct manifest_sizes sizes;
    struct around around = {.folder = f, .of = of, .record = &r, .sizes = &sizes};
    struct stat st;
    *rival = false;
    if (fstat(lock, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 ||
        !ownership_maker(&is->trust, &st))
        return FIT_NOT; /* I5: not believed */
    const int found = area_read(lock, &r, &sizes);
    if (found < 0)
        return (enum fit)report_errno(errno, "cannot read a manifest in %s", f->path);
    if (found != MANIFEST_VALID || r.state == MANIFEST_DEPLOYED)
        return FIT_NOT;
    const bool same = identity_same_inode(is, &r);
    if (r.inode != number)
        return same && (of->attribute ||
                        (is->known & r.known & (MANIFEST_KNOWS_BIRTH | MANIFEST_KNOWS_GENERATION)))
                   ? FIT_BEGUN
                   : FIT_NOT;
    if (same)
        return FIT_NOT;
    if (of->attribute
            ? memcmp(of->attribute->id, r.id, 16) != 0
            : !may_be(&r, &sizes, is) || (r.guard.bytes && guard_is_off(of->file, &r.guard)))
        return FIT_NOT;
    const int copy = area_is_copy(lock, &r);
    if (copy < 0)
        return (enum fit)report_errno(errno, "cannot stat a manifest in %s", f->path);
    if (!copy && (!beside || !(of->attribute || was_restored(is))))
        return FIT_NOT;
    const enum locks_answer lives = locks_ask(lock, 1, PAIRING_LIVES);
    if (lives != LOCKS_FREE)
        return lives == LOCKS_TAKEN
                   ? FIT_NOT
                   : (enum fit)report_errno(errno, "cannot ask for the locks of a manifest in %s",
                                            f->path);
    const int holds = orphan_holds(f, number, lock, &r, of->file);
    if (holds < 0 || (holds && beside && folder_each_around(f, visit_around, &around) < 0))
        return FIT_FAILED;
    *rival = around.rival;
    if (!holds || around.owner)
        return FIT_NOT;
    return of->attribute || time_fits(&r, is) ? FIT_TIME : FIT_SIZE;
}

enum orphan_finding orphan_look(const struct folder *f, const struct orphan_of *of, uint64_t number,
                                int lock)
{
    bool rival;
    const enum fit fit = fit_of(f, of, number, lock, &rival);
    return fit == FIT_FAILED  ? ORPHAN_FAILED
           : fit == FIT_NOT   ? ORPHAN_NONE
           : fit == FIT_BEGUN ? ORPHAN_BEGUN
           : rival            ? ORPHAN_SEVERAL
                              : ORPHAN_FOUND;
}

struct search {
    const struct folder *folder;
    const struct orphan_of *of;
    uint64_t number; /* of the best one */
    enum fit best;
    unsigned count; /* that fit as well; and files */
};

static int open_manifest(const struct folder *f, const char *name)
{
    return openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static int visit(void *arg, const char *name)
{
    struct search *s = arg;
    const uint64_t number = pairing_number(name);
    const int fd = number ? open_manifest(s->folder, name) : -1;
    if (fd < 0) /* one that may not be opened is not the caller's */
        return !number || errno == ENOENT || errno == EACCES || errno == EPERM || errno == ELOOP
                   ? 0
                   : folder_error(s->folder, name, "cannot open the manifest");
    bool rival;
    const enum fit fit = fit_of(s->folder, s->of, number, fd, &rival);
    KEEP_ERRNO();
    close(fd);
    if (fit > s->best) {
        s->best = fit;
        s->number = number;
        s->count = 0;
    }
    if (fit == s->best)
        s->count += 1 + rival;
    return fit == FIT_FAILED ? -1 : 0;
}

enum orphan_finding orphan_find(struct folder *f, const struct orphan_of *of, uint64_t *number)
{
    struct search s = {.folder = f, .of = of, .best = FIT_NOT};
    if (!orphan_is_due(f, of))
        return ORPHAN_NONE;
    const struct pairing_names told = pairing_names(of->attribute ? of->attribute->inode : 0);
    const int r = of->attribute ? visit(&s, told.manifest) : folder_each_name(f, visit, &s);
    *number = s.number;
    if (r < 0 || s.best == FIT_NOT)
        return r < 0 ? ORPHAN_FAILED : ORPHAN_NONE;
    return s.best == FIT_BEGUN ? ORPHAN_BEGUN : s.count > 1 ? ORPHAN_SEVERAL : ORPHAN_FOUND;
}

static int visit_copy(void *arg, const char *name)
{
    const struct folder *f = arg;
    const uint64_t number = pairing_number(name);
    struct manifest_record r;
    const int fd = number ? open_manifest(f, name) : -1;
    if (fd < 0)
        return number != 0;
    const int found = area_read(fd, &r, NULL);
    const bool may = found < 0 || (found == MANIFEST_VALID && r.state != MANIFEST_DEPLOYED &&
                                   area_is_copy(fd, &r) && orphan_holds(f, number, fd, &r, -1));
    close(fd);
    return may;
}

bool orphan_any(const struct folder *f)
{
    return folder_each_name(f, visit_copy, (void *)(uintptr_t)f) != 0;
}
