/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reflection folder: found or made, and checked before any content is used.
 *
 * Refused: a symbolic link, and a folder that belongs neither to the caller, nor to root, nor to the owner of
 * the folder around it: its owner could replace reflections at any time. Accepted too is a folder with the
 * group of the one around it, if that group may rename names there.
 */
#ifndef ATO_REFLECTION_PAIRING_FOLDER_H
#define ATO_REFLECTION_PAIRING_FOLDER_H

#include "reflection/media/persist.h"
#include "reflection/media/seam.h"
#include "reflection/pairing/ownership.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#define FOLDER_NAME ".ato"

/* A text in a folder that libato has made, for a user that finds the folder and does not know libato. */
#define FOLDER_NOTE "README"

struct folder {
    int fd; /* open for reading: for looking up and syncing names */
    dev_t device;
    ino_t inode;
    int marked;          /* folder_is_marked(); -1: not looked yet */
    char path[PATH_MAX]; /* absolute, for the attribute and for sentences */
};

/* Opens `path`; makes it (one level, with owner, group and mode of its parent) if `make` is set.
 * Relative paths begin at the working directory. Returns 0, or -1 with errno: EACCES (also if it is
 * not trusted), ENOENT, ... */
int folder_open(struct folder *f, const char *path, bool make);
void folder_close(struct folder *f);

/* Returns the advice to name another folder, in brackets behind a blank; "" if that does not help against this errno. */
const char *folder_advice(int error);

/* Reports errno with the sentence "WHAT folder/name: ...". Returns -1. */
int folder_error(const struct folder *f, const char *name, const char *what);

/* Returns 1 if `name` in the folder is (still) the name of the file open as `fd`, else 0; -1 with a
 * sentence on error. */
int folder_names(const struct folder *f, const char *name, int fd);

/* Opens a file of the folder (`access`: O_RDWR, ...) that must be trusted for a file with these writers (ownership.h). Returns
 * a descriptor; -1 with errno and, unless that is ENOENT, a sentence in which `what` is before the path. */
int folder_open_file(const struct folder *f, const char *name, int access, const struct trust *file,
                     const char *what);

/* The same of a manifest; and locks byte 0 (shared, and without a wait, if `access` is O_RDONLY: ENOENT too if it is locked), and checks that
 * the file still has its name. Locks on a file that is not trusted do not count. */
int folder_lock_manifest(const struct folder *f, const char *name, int access,
                         const struct trust *file);

/* Opens the file that is open as `fd` once more, independently of its name. `access`: O_RDWR or O_RDONLY. Returns
 * a descriptor, or -1 and errno. */
int folder_reopen(int fd, int access);

/* Maps n bytes of a file for such an access, with MAP_SYNC if the medium has it, through a descriptor of its own: a mapping of a
 * locked one would keep its locks in a child that is being forked. (Through fd itself if there is none: a process may have given up its
 * rights.) The child does not inherit the mapping. Returns NULL with errno. */
void *folder_map(int fd, int access, size_t n, off_t at);

/* Returns true if the folder has the name `name`. */
bool folder_has(const struct folder *f, const char *name);

/* Calls `visit` for each name in the folder, `where` ".", or in the one around it, "..", until one returns other than 0, and returns that.
 * -1 with a sentence also if the folder cannot be read. */
int folder_each_name(const struct folder *f, const char *where,
                     int (*visit)(void *arg, const char *name), void *arg);

/* Makes a file or folder `name` in the folder open as `around`, with owner, group and mode of `like`. It is made as NAME.R.tmp
 * (R: 16 random hex digits) and renamed when it is complete: even if its maker dies, no user finds a name that it cannot open.
 * Returns 0, also if the name is taken, or another process removed the unfinished one; -1 and errno. */
int folder_make(int around, const char *name, const struct trust *like, bool is_folder);

/* Returns true if `found` is such an unfinished name for `name`, of any process. */
bool folder_is_unfinished(const char *found, const char *name);

/* Removes the unfinished manifests. A living maker of one finds that its file is gone, and starts again. What cannot be removed stays. */
void folder_sweep(const struct folder *f);

/* Returns true if the folder has its attribute: its name is durable, and it is the one to which libato gave the name. (A folder that was
 * copied or moved has none, or another one's.) */
bool folder_is_marked(struct folder *f);

/* Makes the folder's own name durable, unless it is marked. The maker may have died before that: so each process that relies on
 * the folder calls this. Then marks it, if `marks`. */
int folder_sync_name(struct folder *f, bool marks);

/* Gives a folder FOLDER_NAME owner, group and mode of the folder around it, which may have changed, as far as the caller may. */
void folder_follow(const struct folder *f);

/* Makes the names in the folder durable as they are now. */
#define folder_sync(f) SEAM_AT("fsync", folder_sync_names(f))
int folder_sync_names(const struct folder *f);

#endif
