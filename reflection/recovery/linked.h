/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the folder that an entry of a journal's table means, and the journal that a pointer means.
 *
 * A name is not enough: a folder may have been moved, copied, restored from a backup, or be covered by a
 * mount. Journal and folder belong together if each leads to the other. The folder has a pointer, made by a
 * user that may write to the journal, with the number of the entry, and this pointer leads to this journal.
 * And the journal's entry leads to the folder. If the entry does not lead to the folder, the folder may
 * have been moved: then the entry leads to no linked folder, the journal was found from this folder, and
 * the folder has the inode in the entry and lies on the journal's own file system. (In a snapshot all
 * inodes are the same as before.)
 *
 * Files of a folder that is lost for good are given up by a mark: a file `journal-ID.gone` in the place of
 * the folder, made by a user that may write to the journal.
 */
#ifndef ATO_REFLECTION_RECOVERY_LINKED_H
#define ATO_REFLECTION_RECOVERY_LINKED_H

#include "reflection/format/journal.h"
#include "reflection/pairing/folder.h"
#include "reflection/recovery/pointer.h"

#include <sys/stat.h>

/* A journal that was found. */
struct linked {
    const struct folder *folder; /* the folder that it lies in */
    const char *name;
    struct stat st;
    /* The folder with the pointer, for entry `index` of the table, that led here; NULL: none did. */
    const struct folder *from;
    unsigned index;
};

enum linked_answer {
    LINKED_FAILED = -1,  /* with errno and a sentence: it is missing or unreachable */
    LINKED_GONE = 0,     /* a mark at its place says that its files are lost; `to` is that place */
    LINKED_OPEN = 1,     /* `to` is open */
    LINKED_STRANGER = 2, /* also failed: there is a folder, without a pointer to this journal */
    LINKED_ASTRAY = 3,   /* also failed: the folder's pointer leads to another place */
};

/* Opens folder `k` of a table, from 1 on. The caller closes `to` in each case. */
enum linked_answer linked_open(const struct linked *j, const struct journal *table, unsigned k,
                               struct folder *to);

/* Returns 1 if the journal names the folder that led to it; 0 if not: the pointer is a copy of
 * another folder's, or forged; -1 with a sentence. */
int linked_knows_origin(const struct linked *j, const struct journal *table);

/* Removes the pointer in folder `k`, or the mark there, durably: also if another process has removed it and
 * was killed before syncing (J6). Returns 0; -1 with errno and a sentence: the pointer may still be there, or
 * elsewhere. */
int linked_remove(const struct linked *j, const struct journal *table, unsigned k);

#endif
