/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a journal lies that is not in this folder: the text `journal-<id>.at`.
 *
 *   "ato-journal-at 1 <K> <folder>\0<way>\n"
 *
 * K: which entry of the journal's folder table this folder is, decimal, from 1 on; folder: the absolute
 * path of the one where `journal-<id>` lies; way: how one comes there from here (route.h), which may be
 * missing with the 0 before it. One to eight blanks stand before the folder, so that the whole is a
 * multiple of eight bytes.
 *
 * Made after the entry and before the first commit that names a file of this folder (J5); removed before
 * the journal (J6). So a pointer without its journal says that a journal was lost, or cannot be
 * reached. It has owner, group and mode of the journal: who may not open the one may not open the other.
 */
#ifndef ATO_REFLECTION_POINTER_H
#define ATO_REFLECTION_POINTER_H

#include "folder.h"
#include "persist.h"
#include "route.h"
#include "trust.h"

/* What is said of a journal: its name, and where it lies. */
struct pointer {
    unsigned index; /* of the folder that the pointer is in */
    struct route route;
    char journal[64];
};

/* Makes a pointer in `at`, as entry `index`, to the journal `journal` where `route` leads; durable when it
 * returns. `like`: owner, group and mode. ENOSPC, EACCES, ...: it is not there. */
int pointer_make(const struct folder *at, const char *journal, unsigned index,
                 const struct route *route, const struct persist *p, const struct trust *like);

/* Removes the pointer to `journal` from `at`, durably; none there is good, too. -1 with errno and a
 * sentence. */
int pointer_remove(const struct folder *at, const char *journal);

/* Its name, of the journal's. */
void pointer_name(const char *journal, char name[80]);

/* Reads what is open as `fd` and has the name `name` in `at`. -1 with EUCLEAN, or errno, and a
 * sentence. */
int pointer_read(struct pointer *to, int fd, const struct folder *at, const char *name);

#endif
