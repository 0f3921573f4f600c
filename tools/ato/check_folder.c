/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks a folder of files, and a reflection folder. Files with a reflection are checked one by
 * one; other entries of the reflection folder belong to no file that was found.
 */
#include "check.h"

#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/lookup.h"
#include "reflection/recovery/redo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = PATH_MAX + NAME_MAX + 2 };

/* ---- names ---- */

/* Reads "123" at the beginning of `name`, and sets *rest to what follows. Returns false if there
 * is no number. */
static bool starts_with_inode(const char *name, uint64_t *inode, const char **rest)
{
    char *end;
    if (name[0] < '1' || name[0] > '9')
        return false;
    errno = 0;
    *inode = strtoull(name, &end, 10);
    *rest = end;
    return errno == 0;
}

static bool is_of_reflection_folder(const char *name)
{
    uint64_t inode;
    const char *rest;
    if (redo_name_of(name, NULL))
        return true;
    return starts_with_inode(name, &inode, &rest) && strcmp(rest, ".manifest") == 0;
}

/* ---- the reflection folder ---- */

struct around {
    struct check *check;
    const struct folder *folder;
    bool beside;           /* the originals are in the folder around `folder` */
    struct seen originals; /* by inode */
};

/* Checks a manifest whose file was not found, or may be in any folder. */
static void check_alone(struct around *a, const char *name, uint64_t inode)
{
    static struct look_manifest m;
    struct findings *f = &a->check->findings;
    struct look_holders h;
    struct pairing_names n = pairing_names(inode);
    struct stat st;
    int there = look_manifest(a->folder, inode, &m);
    if (there < 0)
        finding_add(f, FINDING_BLIND, name, "%s", report_sentence());
    if (there != 1)
        return;
    bool busy = look_holders(&m, &h) == 0 && (h.count || h.attaching);
    if (busy && m.found != MANIFEST_VALID)
        goto out; /* being made */
    check_manifest(a->check, name, &m);
    int fd = look_into(a->folder, n.reflection, &st);
    const int error = errno;
    (void)check_lanes(a->check, name, a->folder, &m, NULL, fd < 0 ? 0 : (uint64_t)st.st_size);
    if (m.found != MANIFEST_VALID) {
        if (fd >= 0)
            close(fd);
        goto out;
    }
    if (fd >= 0) {
        check_reflection(a->check, name, fd, (uint64_t)st.st_size, &m, busy);
        close(fd);
    } else if (error == EACCES) {
        finding_add(f, FINDING_BLIND, name, "no permission to read its reflection");
    } else if (m.record.state != MANIFEST_DEPLOYED && !busy) {
        finding_add(f, FINDING_WARNING, name, "the reflection of this manifest is missing");
    }
    if (a->beside && !busy)
        finding_add(f, FINDING_WARNING, name,
                    "an orphan: no file of the folder around it has inode %" PRIu64 "; %s", inode,
                    area_is_copy(m.fd, &m.record)
                        ? "it was restored, and no file is known to be its own"
                        : "the file was removed or moved");
    else if (!a->beside && !busy && m.record.state == MANIFEST_IN_USE)
        finding_add(f, FINDING_NOTE, name, "recovery due: the last user of inode %" PRIu64 " died",
                    inode);
out:
    look_manifest_close(&m);
}

static void check_name(struct around *a, const char *entry)
{
    struct findings *f = &a->check->findings;
    struct pairing_names n;
    char name[PATH_ROOM];
    uint64_t inode;
    const char *rest;
    snprintf(name, sizeof(name), "%s/%s", a->folder->path, entry);
    if (redo_name_of(entry, NULL) || strcmp(entry, FOLDER_NOTE) == 0)
        return; /* visit_journal(); the note */
    if (!starts_with_inode(entry, &inode, &rest)) {
        finding_add(f, FINDING_NOTE, name, "not a name that libato uses");
        return;
    }
    n = pairing_names(inode);
    if (*rest == '\0') {
        if (!folder_has(a->folder, n.manifest) && folder_has(a->folder, entry))
            finding_add(f, FINDING_WARNING, name, "an orphan: a reflection without a manifest");
    } else if (strcmp(rest, ".manifest") == 0) {
        if (!seen_has(&a->originals, 0, inode))
            check_alone(a, name, inode);
    } else if (folder_is_unfinished(rest, ".manifest")) {
        struct stat st;
        if (fstatat(a->folder->fd, entry, &st, AT_SYMLINK_NOFOLLOW) == 0 && look_is_old(&st))
            finding_add(f, FINDING_NOTE, name,
                        "left over: a process died while it made this manifest; may be removed");
    } else if (strncmp(rest, ".stale-", 7) == 0) {
        finding_add(
            f, FINDING_NOTE, name,
            "set aside: it belonged to another file that had this inode number before, or "
            "ATO_PREFER_FILE preferred the file; may be removed if its content is not needed");
    } else {
        finding_add(f, FINDING_NOTE, name, "not a name that libato uses");
    }
}

/* Calls `visit` for each name. Returns 0; -1 with errno if the folder cannot be listed. */
static int each_name(int folder, void (*visit)(void *arg, const char *name), void *arg)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            visit(arg, entry->d_name);
    closedir(dir);
    return 0;
}

static void visit_name(void *arg, const char *name)
{
    check_name(arg, name);
}

static void visit_journal(void *arg, const char *name)
{
    const struct around *a = arg;
    if (redo_name_of(name, NULL))
        check_leftover(a->check, a->folder, name);
}

static void check_reflections(struct around *a)
{
    if (each_name(a->folder->fd, visit_name, a) < 0 ||
        each_name(a->folder->fd, visit_journal, a) < 0)
        finding_add(&a->check->findings, FINDING_BLIND, a->folder->path,
                    "cannot list the folder: %s", report_reason(errno));
}

/* ---- the folder of the files ---- */

struct listing {
    struct around *around;
    const char *name; /* as given by the user */
    int fd;
    bool reflections; /* the folder itself holds reflections */
};

static bool has_manifest(const struct around *a, uint64_t inode)
{
    struct pairing_names n = pairing_names(inode);
    return a->folder->fd >= 0 && folder_has(a->folder, n.manifest);
}

static void visit_kind(void *arg, const char *entry)
{
    struct listing *l = arg;
    if (is_of_reflection_folder(entry))
        l->reflections = true;
}

static void visit_file(void *arg, const char *entry)
{
    static struct look look;
    struct listing *l = arg;
    struct check *c = l->around->check;
    struct stat st;
    char name[PATH_ROOM];
    uint64_t inode;
    const char *rest;
    snprintf(name, sizeof(name), "%s/%s", l->name, entry);
    if (l->reflections && (starts_with_inode(entry, &inode, &rest) || redo_name_of(entry, NULL) ||
                           strcmp(entry, FOLDER_NOTE) == 0))
        return; /* check_reflections() */
    if (fstatat(l->fd, entry, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (folder_is_unfinished(entry, FOLDER_NAME)) {
        if (look_is_old(&st))
            finding_add(
                &c->findings, FINDING_NOTE, name,
                "left over: a process died while it made this reflection folder; may be removed");
        return;
    }
    if (!S_ISREG(st.st_mode))
        return;
    (void)seen_before(&l->around->originals, 0, st.st_ino);
    if (look_at(&look, name) < 0) {
        /* A file that cannot be read and has no manifest here is not a finding. */
        if (errno != ENOENT && (errno != EACCES || has_manifest(l->around, st.st_ino)))
            finding_add(&c->findings, FINDING_BLIND, name, "%s", report_sentence());
        return;
    }
    if (look.manifest.fd >= 0)
        (void)seen_before(&l->around->originals, 0, look.number);
    if (!seen_before(&c->files, look.identity.device, look.identity.inode))
        check_look(c, name, &look);
    look_close(&look);
}

void check_folder(struct check *c, const char *name)
{
    struct folder ato = {.fd = -1}, own = {.fd = -1};
    struct around around = {.check = c, .folder = &ato, .beside = true};
    struct listing l = {.around = &around, .name = name};
    char path[PATH_ROOM];
    l.fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l.fd < 0) {
        finding_add(&c->findings, FINDING_BLIND, name, "cannot open the folder: %s",
                    report_reason(errno));
        return;
    }
    snprintf(path, sizeof(path), "%s/" FOLDER_NAME, name);
    int there = look_folder(&ato, path);
    if (there < 0)
        finding_add(&c->findings, there == -2 ? FINDING_ERROR : FINDING_BLIND, path, "%s",
                    report_sentence());
    if (each_name(l.fd, visit_kind, &l) < 0 || (there != -2 && each_name(l.fd, visit_file, &l) < 0))
        finding_add(&c->findings, FINDING_BLIND, name, "cannot list the folder: %s",
                    report_reason(errno));
    if (there == 1)
        check_reflections(&around);
    if (l.reflections) {
        /* The files of these reflections are elsewhere, or in the folder around this one. */
        seen_free(&around.originals);
        around.folder = &own;
        around.beside = false;
        there = look_folder(&own, name);
        if (there == 1)
            check_reflections(&around);
        else
            finding_add(&c->findings, there == -2 ? FINDING_ERROR : FINDING_BLIND, name, "%s",
                        report_sentence());
    }
    seen_free(&around.originals);
    folder_close(&ato);
    folder_close(&own);
    close(l.fd);
}
