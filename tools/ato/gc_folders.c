/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reflections whose file is gone, what was set aside, and manifests that were never finished.
 *
 * A reflection may hold the only copy of content of a file that was moved, or restored with another inode number. What holds content is
 * removed only if the user says so.
 */
#include "gc.h"

#include "check.h"
#include "look.h"

#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = PATH_MAX + NAME_MAX + 2 };

struct suspect {
    size_t folder;  /* index */
    uint64_t inode; /* in its name */
    uint64_t file;  /* of its file: another one, if a reunion was interrupted */
    bool restored;  /* copied by a backup: the number tells nothing of its file */
    bool found;     /* its file is below the folder, or may be */
    bool reused;    /* another file has its inode number */
    struct look_manifest manifest;
};

struct search {
    struct gc *gc;
    char **folders;
    size_t folder_count;
    struct suspect **all;
    size_t count;
    struct seen inodes; /* of the suspects */
};

/* ---- names ---- */

/* Reads a number without leading zeros at the beginning of a name. Returns what follows; NULL if there is none. */
static const char *after_inode(const char *name, uint64_t *inode)
{
    char *end;
    errno = 0;
    *inode = name[0] >= '1' && name[0] <= '9' ? strtoull(name, &end, 10) : 0;
    return *inode && !errno ? end : NULL;
}

static bool is_manifest(const char *name, uint64_t *inode)
{
    const char *rest = after_inode(name, inode);
    return rest && strcmp(rest, ".manifest") == 0;
}

static bool is_set_aside(const char *name)
{
    uint64_t inode;
    const char *rest = after_inode(name, &inode);
    if (!rest || strncmp(rest, ".stale-", 7) != 0 || strspn(rest + 7, "0123456789abcdef") != 8)
        return false;
    return rest[15] == '\0' || strcmp(rest + 15, ".manifest") == 0;
}

/* Beside its files, under the name that only libato uses. */
static bool is_beside(const char *folder)
{
    const char *slash = strrchr(folder, '/');
    return strcmp(slash ? slash + 1 : folder, FOLDER_NAME) == 0;
}

/* ---- the walks ---- */

static bool no_memory(struct gc *gc)
{
    gc->lost = true;
    return false;
}

static void add_folder(struct search *s, const char *path, size_t length)
{
    for (size_t i = 0; i < s->folder_count; i++)
        if (strlen(s->folders[i]) == length && memcmp(s->folders[i], path, length) == 0)
            return;
    char **more = reallocarray(s->folders, s->folder_count + 1, sizeof(*more));
    if (more)
        s->folders = more;
    if (!more || !(more[s->folder_count] = strndup(path, length)))
        no_memory(s->gc);
    else
        s->folder_count++;
}

static bool has_record(const struct suspect *p)
{
    return p->manifest.fd >= 0 && p->manifest.found == MANIFEST_VALID;
}

static void note_folder(struct search *s, const FTSENT *e)
{
    uint64_t inode;
    if (e->fts_info == FTS_D && strcmp(e->fts_name, FOLDER_NAME) == 0)
        add_folder(s, e->fts_path, e->fts_pathlen);
    if (e->fts_info == FTS_F && is_manifest(e->fts_name, &inode))
        add_folder(s, e->fts_path, (size_t)(strrchr(e->fts_path, '/') - e->fts_path));
}

/* Compares a file with the suspects of its inode number. */
static void note_file(struct search *s, const FTSENT *e)
{
    struct identity identity;
    struct attribute a;
    struct stat folder;
    if (e->fts_info != FTS_F || !seen_has(&s->inodes, 0, e->fts_statp->st_ino))
        return;
    int fd = look_open(e->fts_accpath, O_RDONLY);
    if (fd < 0 && errno == ENOENT)
        return;
    const bool known = fd >= 0 && identity_of(fd, &identity) == 0;
    const bool carries = known && attribute_read(fd, e->fts_path, &a) == ATTRIBUTE_FOUND;
    for (size_t i = 0; i < s->count; i++) {
        struct suspect *p = s->all[i];
        const struct manifest_record *r = &p->manifest.record;
        if (p->file != e->fts_statp->st_ino)
            continue;
        const bool valid = has_record(p);
        const bool near = is_beside(s->folders[p->folder]) &&
                          stat(s->folders[p->folder], &folder) == 0 &&
                          folder.st_dev == e->fts_statp->st_dev;
        if (!known || !valid || identity_same_inode(&identity, r) ||
            (carries && memcmp(a.id, r->id, 16) == 0))
            p->found = true;
        else if (near && !p->restored)
            p->reused = true;
    }
    if (fd >= 0)
        close(fd);
}

static void walk(struct search *s, const char *name, void (*visit)(struct search *, const FTSENT *),
                 bool reports)
{
    char *const names[] = {(char *)(uintptr_t)name, NULL};
    FTS *tree = fts_open(names, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    FTSENT *e;
    if (!tree) {
        no_memory(s->gc);
        return;
    }
    while (errno = 0, (e = fts_read(tree))) {
        gc_step(s->gc);
        if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS) {
            if (reports && e->fts_errno != ENOENT)
                gc_add(s->gc, GC_BLIND, "folder", e->fts_path, 0, "cannot look at it: %s",
                       report_reason(e->fts_errno));
        } else {
            visit(s, e);
        }
    }
    if (errno)
        gc_add(s->gc, GC_BLIND, "folder", name, 0, "cannot list it: %s", report_reason(errno));
    fts_close(tree);
}

/* ---- pairings ---- */

static void add_suspect(struct search *s, size_t folder, const struct folder *f, uint64_t inode)
{
    struct suspect *p = calloc(1, sizeof(*p));
    struct suspect **more = reallocarray(s->all, s->count + 1, sizeof(*more));
    if (more)
        s->all = more;
    if (!p || !more) {
        free(p);
        no_memory(s->gc);
        return;
    }
    p->folder = folder;
    p->inode = inode;
    if (look_manifest(f, inode, &p->manifest) < 0) {
        gc_add(s->gc, GC_BLIND, "folder", f->path, 0, "%s", report_sentence());
        free(p);
        return;
    }
    p->file = has_record(p) ? p->manifest.record.inode : inode;
    p->restored = has_record(p) && area_is_copy(p->manifest.fd, &p->manifest.record);
    s->all[s->count++] = p;
    (void)seen_before(&s->inodes, 0, p->file);
}

static uint64_t storage(const struct folder *f, const char *name)
{
    struct stat st;
    return fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

/* Removes the files of a pairing that no process uses. Returns 0; -1 with errno; 1 if a process uses it, or used it
 * since it was looked at. */
static int remove_pairing(const struct folder *f, const struct suspect *p)
{
    const struct pairing_names n = pairing_names(p->inode);
    static char now[MANIFEST_BYTES];
    struct stat st;
    /* Without a manifest there is no lock, and a process could be just making a reflection of this name. */
    if (p->manifest.fd < 0) {
        if (fstatat(f->fd, n.reflection, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return errno == ENOENT ? 1 : -1;
        const struct trust like = {st.st_uid, st.st_gid, st.st_mode};
        if (folder_has(f, n.manifest))
            return 1;
        if (folder_make(f->fd, n.manifest, &like, false) < 0)
            return -1;
    }
    int fd = openat(f->fd, n.manifest, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 1 : -1;
    locks_keep(fd);
    memset(now, 0, sizeof(now));
    /* Each process that maps the file writes a record: an equal one means that none did since. */
    int r = 1;
    if (locks_try(fd, F_WRLCK, 0, 1 + PAIRING_LIVES) == LOCKS_MINE &&
        folder_names(f, n.manifest, fd) == 1 && pread(fd, now, sizeof(now), 0) >= 0 &&
        memcmp(now, p->manifest.bytes, sizeof(now)) == 0)
        r = (fsops->unlinkat(f->fd, n.reflection, 0) < 0 && errno != ENOENT) ||
                    fsops->unlinkat(f->fd, n.manifest, 0) < 0
                ? -1
                : 0;
    locks_close(fd);
    return r;
}

/* Returns NULL if nothing of a file's content is lost without the pairing; else what may be. */
static const char *what_it_holds(const struct folder *f, const struct suspect *p)
{
    const struct look_manifest *m = &p->manifest;
    const int slices = meta_holds_slices(f, p->inode);
    if (slices)
        return slices < 0 ? "its bitmaps cannot be read" : "it holds slices";
    if (m->fd < 0 || m->found == MANIFEST_UNBORN || m->record.state == MANIFEST_DEPLOYED)
        return m->fd >= 0 && m->record.guard.bytes ? "it keeps guarded bytes" : NULL;
    if (m->record.guard.bytes)
        return "it keeps guarded bytes";
    if (!m->has_size || m->shrunk || m->growth)
        return "a change of the size is not finished";
    return m->record.state == MANIFEST_IN_USE && area_next(m->fd, 0) < AREA_END
               ? "commits may not be finished"
               : NULL;
}

/* Notes whose shared memory is looked at. */
static void add_id(struct gc *gc, const struct folder *f, const struct suspect *p, bool stays)
{
    const struct pairing_names n = pairing_names(p->inode);
    char path[PATH_ROOM];
    if (!has_record(p))
        return;
    snprintf(path, sizeof(path), "%s/%s", f->path, n.manifest);
    if (gc->id_count == gc->id_room) {
        size_t room = gc->id_room ? 2 * gc->id_room : 64;
        struct gc_id *more = reallocarray(gc->ids, room, sizeof(*more));
        if (!more) {
            no_memory(gc);
            return;
        }
        gc->ids = more;
        gc->id_room = room;
    }
    struct gc_id *next = &gc->ids[gc->id_count];
    memcpy(next->id, p->manifest.record.id, 16);
    next->manifest = stays ? strdup(path) : NULL;
    if (next->manifest || !stays)
        gc->id_count++;
    else
        no_memory(gc);
}

static bool judge(struct gc *gc, const struct folder *f, const struct suspect *p)
{
    const struct look_manifest *m = &p->manifest;
    const struct pairing_names n = pairing_names(p->inode);
    const bool beside = is_beside(f->path), has = m->fd >= 0;
    const uint64_t bytes = storage(f, n.reflection) + storage(f, n.manifest);
    const char *holds, *kind = has && !folder_has(f, n.reflection) ? "manifest" : "reflection";
    char path[PATH_ROOM], why[256];
    struct stat st;
    if (p->found || (has && locks_ask(m->fd, 0, 1 + PAIRING_LIVES) != LOCKS_FREE))
        return false; /* not garbage */
    snprintf(path, sizeof(path), "%s/%s", f->path, has ? n.manifest : n.reflection);
    if (has && (fstat(m->fd, &st) < 0 || (m->found == MANIFEST_UNBORN && !look_is_old(&st))))
        return false;
    enum gc_fate fate = GC_USELESS;
    if (has && m->found != MANIFEST_VALID && m->found != MANIFEST_UNBORN) {
        fate = GC_KEPT;
        snprintf(why, sizeof(why), "its manifest cannot be read, see 'ato check'");
    } else if (p->reused) {
        holds = what_it_holds(f, p);
        if (holds) /* that file may have been restored without its attribute */
            fate = GC_UNSURE;
        snprintf(why, sizeof(why), "another file has inode number %" PRIu64 " now%s%s", p->inode,
                 holds ? "; " : ": its file is gone", holds ? holds : "");
    } else {
        holds = what_it_holds(f, p);
        if (holds || !beside)
            fate = GC_UNSURE;
        snprintf(why, sizeof(why), "no file here has inode %" PRIu64 ": it %s%s%s", p->file,
                 p->restored
                     ? "was restored, and 'ato check' names its file, if one is known to be its own"
                     : "was removed, or is elsewhere",
                 holds    ? "; "
                 : beside ? "; it holds nothing of it"
                          : "",
                 holds ? holds : "");
    }
    const int removed = gc_wanted(gc, fate) ? remove_pairing(f, p) : 0;
    if (removed < 0)
        gc_add(gc, GC_FAILED, kind, path, bytes, "cannot remove it: %s", report_reason(errno));
    else if (removed > 0)
        gc_add(gc, GC_KEPT, kind, path, bytes, "a process is just using it");
    else
        gc_add(gc, gc_wanted(gc, fate) ? GC_REMOVED : fate, kind, path, bytes, "%s", why);
    return removed == 0 && (gc_wanted(gc, fate) || fate == GC_USELESS);
}

/* ---- the other names in a reflection folder ---- */

struct entries {
    struct search *search;
    struct folder *folder;
    size_t index;
};

static int visit_pairing(void *arg, const char *name)
{
    struct entries *e = arg;
    uint64_t inode;
    const char *rest = after_inode(name, &inode);
    struct pairing_names n = pairing_names(inode);
    struct stat st;
    if (is_manifest(name, &inode))
        add_suspect(e->search, e->index, e->folder, inode);
    /* In another folder a file with a number for a name may be the user's. */
    else if (rest && !*rest && is_beside(e->folder->path) && !folder_has(e->folder, n.manifest) &&
             fstatat(e->folder->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
             st.st_nlink == 1)
        add_suspect(e->search, e->index, e->folder, inode);
    return 0;
}

static int visit_set_aside(void *arg, const char *name)
{
    const struct entries *e = arg;
    struct gc *gc = e->search->gc;
    char path[PATH_ROOM];
    struct stat st;
    if (!is_set_aside(name) || fstatat(e->folder->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(st.st_mode))
        return 0;
    snprintf(path, sizeof(path), "%s/%s", e->folder->path, name);
    if (gc_wanted(gc, GC_UNSURE) && fsops->unlinkat(e->folder->fd, name, 0) < 0)
        gc_add(gc, GC_FAILED, "set aside", path, (uint64_t)st.st_blocks * 512,
               "cannot remove it: %s", report_reason(errno));
    else
        gc_add(gc, gc_wanted(gc, GC_UNSURE) ? GC_REMOVED : GC_UNSURE, "set aside", path,
               (uint64_t)st.st_blocks * 512,
               "it belonged to another file that had this inode number before, or a user chose the "
               "file without it: is its content needed?");
    return 0;
}

static int visit_unfinished(void *arg, const char *name)
{
    const struct entries *e = arg;
    struct gc *gc = e->search->gc;
    char path[PATH_ROOM];
    struct stat st;
    if (!folder_is_unfinished(name + strspn(name, "0123456789"), ".manifest") ||
        fstatat(e->folder->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !look_is_old(&st))
        return 0;
    snprintf(path, sizeof(path), "%s/%s", e->folder->path, name);
    const bool removes = gc_wanted(gc, GC_USELESS),
               failed = removes && fsops->unlinkat(e->folder->fd, name, 0) < 0 && errno != ENOENT;
    gc_add(gc,
           failed    ? GC_FAILED
           : removes ? GC_REMOVED
                     : GC_USELESS,
           "unfinished", path, (uint64_t)st.st_blocks * 512, failed ? "cannot remove it: %s" : "%s",
           failed ? report_reason(errno) : "a process died while it made this manifest");
    return 0;
}

/* Opens folder `index`, and calls `visit` for its names. Returns false if that is not possible. */
static bool each_entry(struct search *s, size_t index, int (*visit)(void *, const char *))
{
    struct folder f = {.fd = -1};
    struct entries e = {s, &f, index};
    const int there = look_folder(&f, s->folders[index]);
    if (there == 0)
        return true;
    const bool good = there == 1 && folder_each_name(&f, visit, &e) == 0;
    if (!good)
        gc_add(s->gc, GC_BLIND, "folder", s->folders[index], 0, "%s", report_sentence());
    folder_close(&f);
    return good;
}

static void judge_all(struct search *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct suspect *p = s->all[i];
        struct folder f = {.fd = -1};
        gc_step(s->gc);
        if (look_folder(&f, s->folders[p->folder]) == 1)
            add_id(s->gc, &f, p, !judge(s->gc, &f, p));
        folder_close(&f);
        look_manifest_close(&p->manifest);
        free(p);
    }
}

void gc_folders(struct gc *gc, const char *name)
{
    struct search s = {.gc = gc};
    char *path = realpath(name, NULL);
    if (!path) {
        gc_add(gc, GC_BLIND, "folder", name, 0, "cannot look at it: %s", report_reason(errno));
        return;
    }
    /* The files of a reflection folder are around it. */
    if (is_beside(path))
        *(strrchr(path, '/') + (strrchr(path, '/') == path)) = '\0';
    const size_t n = strlen(path);
    gc->all_shared = n == 1 || (strncmp("/dev/shm", path, n) == 0 && (n == 4 || n == 8));
    walk(&s, path, note_folder, true);
    for (size_t i = 0; i < s.folder_count; i++)
        (void)each_entry(&s, i, visit_pairing);
    gc->total = gc->done + s.count;
    gc->done = 0;
    if (s.count)
        walk(&s, path, note_file, false);
    if (gc->lost) /* not everything was compared */
        gc->delete = GC_NOTHING;
    judge_all(&s);
    for (size_t i = 0; i < s.folder_count; i++) {
        if (each_entry(&s, i, visit_set_aside))
            (void)each_entry(&s, i, visit_unfinished);
        free(s.folders[i]);
    }
    free(s.folders);
    free(s.all);
    free(s.inodes.all);
    free(path);
}
