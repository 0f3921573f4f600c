/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pointers to journals in other folders: the text `journal-<id>.at`.
 *
 *   "ato-journal-at 1 <K> <folder>\0<way>\n"
 *
 * K: the entry for this folder in the journal's folder table, decimal, from 1 on. folder: the absolute path
 * of the folder where `journal-<id>` lies. way: its path relative to this folder (route.h); it may be
 * missing, with the 0 before it. One to eight blanks stand before the folder, so that the whole is a multiple
 * of eight bytes.
 *
 * Made after the entry and before the first commit that names a file of this folder (J5); removed before the
 * journal (J6). So a pointer without its journal means that a journal was lost, or cannot be reached. It has
 * owner, group and mode of the journal: a user that may not open one of them may not open the other.
 */
#ifndef ATO_REFLECTION_RECOVERY_POINTER_H
#define ATO_REFLECTION_RECOVERY_POINTER_H

#include "reflection/format/route.h"
#include "reflection/media/persist.h"
#include "reflection/pairing/folder.h"
#include "reflection/pairing/ownership.h"

/* The content of a pointer: the name of a journal, and its folder. */
struct pointer {
    unsigned index; /* the entry for the pointer's folder */
    struct route route;
    char journal[64];
};

/* Makes a pointer in `at`, with index `index`, to the journal `journal` in the folder that `route` leads to.
 * Durable when it returns 0. `like`: owner, group and mode. -1 with a sentence (ENOSPC, EACCES, ...): there
 * is no pointer. */
int pointer_make(const struct folder *at, const char *journal, unsigned index,
                 const struct route *route, const struct persist *p, const struct trust *like);

/* Removes the pointer to `journal` from `at`, durably. Returns 0, also if there is none; -1 with errno and a
 * sentence. */
int pointer_remove(const struct folder *at, const char *journal);

/* Makes a pointer's name from the journal's. */
void pointer_name(const char *journal, char name[80]);

/* Reads the pointer `name` in `at`, which is open as `fd`. Returns 0; -1 with a sentence: EUCLEAN or errno of
 * reading. */
int pointer_read(struct pointer *to, int fd, const struct folder *at, const char *name);

#endif
