/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reflection folder: found or made, and checked before anything in it is believed.
 *
 * Refused: a symbolic link in its place, and a folder that belongs to neither the caller, nor root,
 * nor the owner of the folder it lies in: its owner could swap reflections under our feet.
 */
#ifndef ATO_REFLECTION_FOLDER_H
#define ATO_REFLECTION_FOLDER_H

#include "seam.h"

#include <limits.h>
#include <stdbool.h>

#define FOLDER_NAME ".ato"

struct folder {
    int fd;              /* open for reading: names are looked up and synced through it */
    char path[PATH_MAX]; /* absolute, for the attribute and for sentences */
};

/* Opens `path`; makes it (one level, owner, group and mode of its parent) when `make` is set.
 * Relative paths begin at the working directory. 0, or -1 with errno: EACCES (also: not to be
 * trusted), ENOENT, ... */
int folder_open(struct folder *f, const char *path, bool make);
void folder_close(struct folder *f);

/* Is `name` in it (still) the name of the file that is open as `fd`? 1, 0; -1 with a sentence: not
 * known. */
int folder_names(const struct folder *f, const char *name, int fd);

/* Another open file of what is open as `fd`, for reading and writing, whatever its name leads to by now. -1
 * and errno. */
int folder_reopen(int fd);

/* Is there such a name in it? */
bool folder_has(const struct folder *f, const char *name);

/* Calls `visit` for each name in it until one answers other than 0, which is returned. -1 with a sentence, too. */
int folder_each_name(const struct folder *f, int (*visit)(void *arg, const char *name), void *arg);

/* What is to become `name` is made under another one, NAME.R.tmp, R: 16 random hex digits. NULL: no randomness,
 * or too long. */
char *folder_unfinished(char to[NAME_MAX + 1], const char *name);

/* Is `found` one of these for `name`, anybody's? */
bool folder_is_unfinished(const char *found, const char *name);

/* Its own name is durable. Whoever made the folder may have died before that: so this is for everyone
 * who is about to rely on finding it again, not for its maker. */
int folder_sync_name(const struct folder *f);

/* Names in it are durable as they are now. */
#define folder_sync(f) folder_sync_from(f, SEAM_SITE("fsync"))
int folder_sync_from(const struct folder *f, const char *site);

#endif
