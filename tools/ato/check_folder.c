/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks a folder of files, and a reflection folder. Files with a reflection are checked one by
 * one; other entries of the reflection folder belong to no file that was found.
 */
#include "check.h"

#include "entry.h"

#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/lookup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the reflection folder ---- */

struct around {
    struct check *check;
    const struct folder *folder;
    bool beside;           /* the originals are in the folder around `folder` */
    struct seen originals; /* by inode */
};

/* Checks a manifest whose file was not found, or may be in any folder. Its bitmaps are checked with the file. */
static void check_alone(struct around *a, const char *name, uint64_t inode)
{
    static struct look_manifest m;
    struct findings *f = &a->check->findings;
    struct look_holders h;
    const int there = look_manifest(a->folder, inode, &m);
    if (there < 0)
        finding_add(f, FINDING_BLIND, name, "%s", report_sentence());
    if (there != 1)
        return;
    const bool busy = look_holders(&m, &h) == 0 && (h.count || h.attaching);
    if (!busy || m.found == MANIFEST_VALID) /* else it is being made */
        check_manifest(a->check, name, &m);
    (void)check_lanes(a->check, name, a->folder, &m, 0);
    if (m.found == MANIFEST_VALID && !busy && m.record.state != MANIFEST_DEPLOYED &&
        !folder_has(a->folder, pairing_names(inode).reflection))
        finding_add(f, FINDING_WARNING, name, "the reflection of this manifest is missing");
    if (m.found == MANIFEST_VALID && !busy && a->beside)
        finding_add(f, FINDING_WARNING, name,
                    "an orphan: no file of the folder around it has inode %" PRIu64 "; %s", inode,
                    area_is_copy(m.fd, &m.record)
                        ? "it was restored, and no file is known to be its own"
                        : "the file was removed or moved");
    else if (m.found == MANIFEST_VALID && !busy && m.record.state == MANIFEST_IN_USE)
        finding_add(f, FINDING_NOTE, name, "recovery due: the last user of inode %" PRIu64 " died",
                    inode);
    look_manifest_close(&m);
}

static int check_entry(void *arg, const char *entry)
{
    struct around *a = arg;
    struct findings *f = &a->check->findings;
    struct stat st;
    char name[ENTRY_PATH];
    uint64_t inode;
    snprintf(name, sizeof(name), "%s/%s", a->folder->path, entry);
    switch (entry_of(entry, &inode)) {
    case ENTRY_COMMON:
        break;
    case ENTRY_REFLECTION:
        if (!folder_has(a->folder, pairing_names(inode).manifest) && folder_has(a->folder, entry))
            finding_add(f, FINDING_WARNING, name, "an orphan: a reflection without a manifest");
        break;
    case ENTRY_MANIFEST:
        if (!seen_has(&a->originals, 0, inode))
            check_alone(a, name, inode);
        break;
    case ENTRY_UNFINISHED:
        if (fstatat(a->folder->fd, entry, &st, AT_SYMLINK_NOFOLLOW) == 0 && look_is_old(&st))
            finding_add(f, FINDING_NOTE, name,
                        "left over: a process died while it made this manifest; may be removed");
        break;
    case ENTRY_SET_ASIDE:
        finding_add(
            f, FINDING_NOTE, name,
            "set aside: it belonged to another file that had this inode number before, or "
            "ATO_PREFER_FILE preferred the file; may be removed if its content is not needed");
        break;
    case ENTRY_OTHER:
        finding_add(f, FINDING_NOTE, name, "not a name that libato uses");
        break;
    }
    return 0;
}

/* Opens a reflection folder as look_folder() does, and says so if that is not possible. */
static int open_reflections(struct check *c, struct folder *f, const char *path)
{
    const int there = look_folder(f, path);
    if (there < 0)
        finding_add(&c->findings, there == -2 ? FINDING_ERROR : FINDING_BLIND, path, "%s",
                    report_sentence());
    return there;
}

static void check_reflections(struct around *a, const struct folder *f)
{
    a->folder = f;
    if (folder_each_name(f, ".", check_entry, a) < 0)
        finding_add(&a->check->findings, FINDING_BLIND, f->path, "%s", report_sentence());
    seen_free(&a->originals);
}

/* ---- the folder of the files ---- */

struct listing {
    struct around *around;
    struct folder folder;
    bool reflections; /* the folder itself holds reflections */
};

static int find_kind(void *arg, const char *entry)
{
    struct listing *l = arg;
    uint64_t number;
    l->reflections |= entry_of(entry, &number) == ENTRY_MANIFEST;
    return 0;
}

static int check_named(void *arg, const char *entry)
{
    static struct look look;
    struct listing *l = arg;
    struct check *c = l->around->check;
    struct stat st;
    char name[ENTRY_PATH];
    uint64_t number;
    snprintf(name, sizeof(name), "%s/%s", l->folder.path, entry);
    if ((l->reflections && entry_of(entry, &number) != ENTRY_OTHER) ||
        fstatat(l->folder.fd, entry, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* check_reflections() */
    if (folder_is_unfinished(entry, FOLDER_NAME) && look_is_old(&st))
        finding_add(
            &c->findings, FINDING_NOTE, name,
            "left over: a process died while it made this reflection folder; may be removed");
    if (!S_ISREG(st.st_mode))
        return 0;
    (void)seen_before(&l->around->originals, 0, st.st_ino);
    if (look_at(&look, name) < 0) {
        if (errno != ENOENT)
            finding_add(&c->findings, FINDING_BLIND, name, "%s", report_sentence());
        return 0;
    }
    if (look.manifest.fd >= 0)
        (void)seen_before(&l->around->originals, 0, look.number);
    if (!seen_before(&c->files, look.identity.device, look.identity.inode))
        check_look(c, name, &look);
    look_close(&look);
    return 0;
}

void check_folder(struct check *c, const char *name)
{
    struct folder ato = {.fd = -1}, own = {.fd = -1};
    struct around around = {.check = c, .beside = true};
    struct listing l = {.around = &around};
    char path[PATH_MAX + sizeof("/" FOLDER_NAME)];
    snprintf(l.folder.path, sizeof(l.folder.path), "%s", name);
    snprintf(path, sizeof(path), "%s/" FOLDER_NAME, l.folder.path);
    l.folder.fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l.folder.fd < 0) {
        finding_add(&c->findings, FINDING_BLIND, name, "cannot open the folder: %s",
                    report_reason(errno));
        return;
    }
    const int there = open_reflections(c, &ato, path);
    if (folder_each_name(&l.folder, ".", find_kind, &l) < 0 ||
        (there != -2 && folder_each_name(&l.folder, ".", check_named, &l) < 0))
        finding_add(&c->findings, FINDING_BLIND, name, "%s", report_sentence());
    if (there == 1)
        check_reflections(&around, &ato);
    /* The files of these reflections are elsewhere, or in the folder around this one. */
    around.beside = false;
    seen_free(&around.originals);
    if (l.reflections && open_reflections(c, &own, name) == 1)
        check_reflections(&around, &own);
    folder_close(&ato);
    folder_close(&own);
    close(l.folder.fd);
}
