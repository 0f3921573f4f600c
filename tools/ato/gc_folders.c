/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reflections whose file is gone, what was set aside, and manifests that were never finished.
 *
 * A reflection may hold the only copy of content of a file that was moved, or restored with another inode number. What holds content is
 * removed only if the user says so.
 */
#include "gc.h"

#include "entry.h"
#include "look.h"
#include "seen.h"
#include "tree.h"

#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A folder with reflections. */
struct place {
    struct place *next;
    bool beside; /* its files, under the name that only libato uses */
    char path[];
};

struct suspect {
    struct suspect *next;
    const struct place *place;
    uint64_t inode; /* in its name */
    uint64_t file;  /* of its file: another one, if a reunion was interrupted */
    bool restored;  /* copied by a backup: the number tells nothing of its file */
    bool found;     /* its file is below the folder, or may be */
    bool reused;    /* another file has its inode number */
    struct look_manifest manifest;
};

struct search {
    struct gc *gc;
    struct place *places;
    struct suspect *suspects;
    struct seen inodes; /* of the suspects */
};

/* ---- the walks ---- */

static void add_place(struct search *s, const char *path, size_t length)
{
    static const char last[] = "/" FOLDER_NAME;
    const size_t n = sizeof(last) - 1;
    for (const struct place *p = s->places; p; p = p->next)
        if (strlen(p->path) == length && memcmp(p->path, path, length) == 0)
            return;
    struct place *p = seen_memory(sizeof(*p) + length + 1);
    memcpy(p->path, path, length);
    p->beside = length >= n && memcmp(path + length - n, last, n) == 0;
    p->next = s->places;
    s->places = p;
}

static bool has_record(const struct suspect *p)
{
    return p->manifest.found == MANIFEST_VALID;
}

static void note_place(void *arg, const char *path, enum tree_kind kind, int error)
{
    struct search *s = arg;
    const char *name = strrchr(path, '/') + 1;
    uint64_t number;
    if (kind == TREE_UNREADABLE)
        gc_add(s->gc, GC_BLIND, "folder", path, 0, "cannot look at it: %s", report_reason(error));
    else if (kind == TREE_FOLDER && strcmp(name, FOLDER_NAME) == 0)
        add_place(s, path, strlen(path));
    else if (kind == TREE_FILE && entry_of(name, &number) == ENTRY_MANIFEST)
        add_place(s, path, (size_t)(name - 1 - path));
}

/* Compares a file with the suspects of its inode number. */
static void note_file(void *arg, const char *path, enum tree_kind kind, int error)
{
    const struct search *s = arg;
    struct identity identity;
    struct attribute a;
    struct stat st, folder;
    (void)error;
    if (kind != TREE_FILE || lstat(path, &st) < 0 || !seen_has(&s->inodes, 0, st.st_ino))
        return;
    const int fd CLOSING = look_open(path, O_RDONLY);
    if (fd < 0 && errno == ENOENT)
        return;
    const bool known = fd >= 0 && identity_of(fd, &identity) == 0;
    const bool carries = known && attribute_read(fd, path, &a) == ATTRIBUTE_FOUND;
    for (struct suspect *p = s->suspects; p; p = p->next) {
        const struct manifest_record *r = &p->manifest.record;
        if (p->file != st.st_ino)
            continue;
        if (!known || !has_record(p) || identity_same_inode(&identity, r) ||
            (carries && memcmp(a.id, r->id, 16) == 0))
            p->found = true;
        else if (p->place->beside && !p->restored && stat(p->place->path, &folder) == 0 &&
                 folder.st_dev == st.st_dev)
            p->reused = true;
    }
}

/* ---- pairings ---- */

static void add_suspect(struct search *s, const struct place *place, const struct folder *f,
                        uint64_t inode)
{
    struct suspect *p = seen_memory(sizeof(*p));
    p->place = place;
    p->inode = inode;
    const int there = look_manifest(f, inode, &p->manifest);
    if (there < 0)
        gc_add(s->gc, GC_BLIND, "folder", f->path, 0, "%s", report_sentence());
    if (there != 1) {
        free(p);
        return;
    }
    p->file = has_record(p) ? p->manifest.record.inode : inode;
    p->restored = has_record(p) && area_is_copy(p->manifest.fd, &p->manifest.record);
    p->next = s->suspects;
    s->suspects = p;
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
    if (m->record.guard.bytes)
        return "it keeps guarded bytes";
    if (m->found == MANIFEST_UNBORN || m->record.state == MANIFEST_DEPLOYED)
        return NULL;
    if (!m->has_size || m->shrunk || m->growth)
        return "a change of the size is not finished";
    return m->record.state == MANIFEST_IN_USE && area_next(m->fd, 0) < AREA_END
               ? "commits may not be finished"
               : NULL;
}

/* Returns true if the pairing stays. */
static bool judge(struct gc *gc, const struct folder *f, const struct suspect *p)
{
    const struct look_manifest *m = &p->manifest;
    const struct pairing_names n = pairing_names(p->inode);
    const bool beside = p->place->beside;
    const uint64_t bytes = storage(f, n.reflection) + storage(f, n.manifest);
    const char *holds, *kind = folder_has(f, n.reflection) ? "reflection" : "manifest";
    char path[ENTRY_PATH], why[256];
    struct stat st;
    if (p->found || locks_ask(m->fd, 0, 1 + PAIRING_LIVES) != LOCKS_FREE)
        return true; /* not garbage */
    snprintf(path, sizeof(path), "%s/%s", f->path, n.manifest);
    if (fstat(m->fd, &st) < 0 || (m->found == MANIFEST_UNBORN && !look_is_old(&st)))
        return true;
    if (m->found != MANIFEST_VALID && m->found != MANIFEST_UNBORN) {
        gc_add(gc, GC_KEPT, kind, path, bytes, "its manifest cannot be read, see 'ato check'");
        return true;
    }
    holds = what_it_holds(f, p);
    /* A file that has the number may have been restored without its attribute. */
    const enum gc_fate fate = holds || (!p->reused && !beside) ? GC_UNSURE : GC_USELESS;
    if (p->reused)
        snprintf(why, sizeof(why), "another file has inode number %" PRIu64 " now%s%s", p->inode,
                 holds ? "; " : ": its file is gone", holds ? holds : "");
    else
        snprintf(why, sizeof(why), "no file here has inode %" PRIu64 ": it %s%s%s", p->file,
                 p->restored
                     ? "was restored, and 'ato check' names its file, if one is known to be its own"
                     : "was removed, or is elsewhere",
                 holds || beside ? "; " : "",
                 holds    ? holds
                 : beside ? "it holds nothing of it"
                          : "");
    const int removed = gc_wanted(gc, fate) ? remove_pairing(f, p) : 0;
    gc_settle(gc, fate, kind, path, bytes, removed, why);
    return removed != 0 || !(gc_wanted(gc, fate) || fate == GC_USELESS);
}

/* ---- the other names in a reflection folder ---- */

struct entries {
    struct search *search;
    struct folder *folder;
    const struct place *place;
};

static int visit_pairing(void *arg, const char *name)
{
    const struct entries *e = arg;
    uint64_t inode;
    if (entry_of(name, &inode) == ENTRY_MANIFEST)
        add_suspect(e->search, e->place, e->folder, inode);
    return 0;
}

/* What is neither a pairing nor unknown. */
static int visit_other(void *arg, const char *name)
{
    const struct entries *e = arg;
    struct gc *gc = e->search->gc;
    char path[ENTRY_PATH];
    struct stat st;
    uint64_t inode;
    const enum entry entry = entry_of(name, &inode);
    const bool aside = entry == ENTRY_SET_ASIDE;
    if ((!aside && entry != ENTRY_UNFINISHED) ||
        fstatat(e->folder->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !(aside ? S_ISREG(st.st_mode) : look_is_old(&st)))
        return 0;
    snprintf(path, sizeof(path), "%s/%s", e->folder->path, name);
    const enum gc_fate fate = aside ? GC_UNSURE : GC_USELESS;
    const int removed =
        gc_wanted(gc, fate) && fsops->unlinkat(e->folder->fd, name, 0) < 0 && errno != ENOENT ? -1
                                                                                              : 0;
    gc_settle(gc, fate, aside ? "set aside" : "unfinished", path, (uint64_t)st.st_blocks * 512,
              removed,
              aside ? "it belonged to another file that had this inode number before, or a user "
                      "chose the file without it: is its content needed?"
                    : "a process died while it made this manifest");
    return 0;
}

/* Opens the folder, and calls `visit` for its names. */
static void each_entry(struct search *s, const struct place *place,
                       int (*visit)(void *, const char *))
{
    struct folder f = {.fd = -1};
    struct entries e = {s, &f, place};
    const int there = look_folder(&f, place->path);
    if (there < 0 || (there == 1 && folder_each_name(&f, ".", visit, &e) < 0))
        gc_add(s->gc, GC_BLIND, "folder", place->path, 0, "%s", report_sentence());
    folder_close(&f);
}

/* Judges a suspect, and notes it for gc_shared(). */
static void settle(struct gc *gc, struct suspect *p)
{
    struct folder f = {.fd = -1};
    if (look_folder(&f, p->place->path) == 1) {
        const bool stays = judge(gc, &f, p);
        struct gc_id *id = seen_memory(sizeof(*id) + ENTRY_PATH);
        memcpy(id->id, p->manifest.record.id, 16);
        id->stays = stays;
        snprintf(id->manifest, ENTRY_PATH, "%s/%s", f.path, pairing_names(p->inode).manifest);
        id->next = has_record(p) ? gc->ids : NULL;
        if (has_record(p))
            gc->ids = id;
        else
            free(id);
    }
    folder_close(&f);
    look_manifest_close(&p->manifest);
    free(p);
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
    if (strcmp(strrchr(path, '/') + 1, FOLDER_NAME) == 0)
        *(strrchr(path, '/') + (strrchr(path, '/') == path)) = '\0';
    const size_t n = strlen(path);
    gc->all_shared = n == 1 || (strncmp("/dev/shm", path, n) == 0 && (n == 4 || n == 8));
    tree_walk(path, true, note_place, &s);
    for (const struct place *p = s.places; p; p = p->next)
        each_entry(&s, p, visit_pairing);
    if (s.suspects)
        tree_walk(path, true, note_file, &s);
    while (s.suspects) {
        struct suspect *first = s.suspects;
        s.suspects = first->next;
        settle(gc, first);
    }
    while (s.places) {
        struct place *first = s.places;
        each_entry(&s, first, visit_other);
        s.places = first->next;
        free(first);
    }
    seen_free(&s.inodes);
    free(path);
}
