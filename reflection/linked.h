/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which folder does a journal mean by an entry of its table? And which journal does a pointer mean?
 *
 * Names prove nothing: a folder may have been moved, copied, restored from a backup, or be covered by
 * another one that was mounted there. Journal and folder belong together when each leads to the other: the
 * folder has a pointer that somebody made who may write to the journal, with the number of the entry,
 * from which one comes to this journal; and the journal's entry leads to the folder. Or to none that
 * is linked with it, if one came from there, and the folder was only moved: it is the inode that the entry
 * says, on the journal's own file system. (In a snapshot all inodes are what they were.)
 *
 * Files of a folder that is lost for good are given up with a mark: `journal-ID.gone` in the place where the
 * folder was, by somebody who may write to the journal.
 */
#ifndef ATO_REFLECTION_LINKED_H
#define ATO_REFLECTION_LINKED_H

#include "folder.h"
#include "journal.h"
#include "pointer.h"

#include <sys/stat.h>

/* A journal, as it was found. */
struct linked {
    const struct folder *folder; /* where it lies */
    const char *name;
    struct stat st;
    /* The folder with the pointer that led to it, as entry `index` of the table; NULL: none did. */
    const struct folder *from;
    unsigned index;
};

enum linked_answer {
    LINKED_FAILED = -1,  /* with errno and a sentence: it cannot be had, or reached */
    LINKED_GONE = 0,     /* a mark in its place says that its files are gone; `to` is that place */
    LINKED_OPEN = 1,     /* `to` is open */
    LINKED_STRANGER = 2, /* as the first: there is a folder, without a pointer for this journal */
    LINKED_ASTRAY = 3, /* as the first: there is a folder with one, which leads to another place */
};

/* Folder `k` of a table, from 1 on. `to` is the caller's to close in each case. */
enum linked_answer linked_open(const struct linked *j, const struct journal *table, unsigned k,
                               struct folder *to);

/* Does the journal know the folder that one came from? 1; 0 no: its pointer is a copy of another one's, or
 * made up; -1 with a sentence. */
int linked_knows_origin(const struct linked *j, const struct journal *table);

/* Takes the pointer in folder `k` away, or the mark; durably, also if somebody did it before, who may have been
 * killed then (J6). -1 with errno and a sentence: it may be there still, or somewhere else. */
int linked_remove(const struct linked *j, const struct journal *table, unsigned k);

#endif
