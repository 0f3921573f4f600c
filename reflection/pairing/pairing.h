/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pairing of an original with its reflection: its parts, and the locks of a process that has it open.
 *
 * lookup.h finds a pairing, adoption.h checks whether it is the file's, and adopts it, birth.h makes one, removal.h ends it.
 * pairing_open.h does all this for a process that maps the file, or only looks.
 *
 * Names, all in the reflection folder: `<inode>` the reflection, `<inode>.manifest` its manifest (made as
 * `<inode>.manifest.<random>.tmp`); and on the original the attribute `user.ato`.
 *
 * Birth:  reflection and names, manifest (state `in use`), attribute, each durable before the next one begins (and a mask
 *         together with the attribute); only then may anything be stored. A process that finds the first ones alone sets the attribute.   (persist-order P1)
 * Death:  all slices deployed; state `deployed` durable (persist-order P2); guarded bytes put back (P4), attribute
 *         removed, both durable; reflection removed, then the manifest. A process that finds `deployed`
 *         finishes the removal.
 *
 * Identity (I5), checked in this order:
 *   attribute with the file's inode, and a manifest with its id and inode
 *                                         -> the reflection is the file's, whatever else was moved
 *   an orphan (orphan.h): the manifest of a file that is not there, of which this one is a restored copy
 *                                         -> ESTALE; with ATO_PREFER_REFLECTION the two are reunited
 *   attribute with another inode          -> ESTALE: the file is a copy
 *   attribute, but no such manifest       -> ESTALE: never an empty reflection in its place
 *   no attribute, but the manifest says that there is one: by birth time and generation
 *       of another file (reused inode number) -> set aside as `<inode>.stale-...`, a warning
 *       of this file, never used          -> born anew
 *       of this file, used                -> ESTALE: the attribute was removed
 *   no attributes on this file system     -> birth time and generation decide; one link only
 *   the file's, but another program wrote to the file
 *                                         -> ESTALE; begun anew if the reflection holds nothing of it
 *   the file's, but manifest, lanes or reflection are damaged
 *                                         -> EUCLEAN
 *
 * A wish for one side decides instead of ESTALE; a wish for the file also instead of EUCLEAN.
 *
 * Locks on the manifest's bytes, through a descriptor that is never mapped: byte 0 is the attach lock. Slot s
 * has byte 1 + s, held while its process lives. The last one, PAIRING_READERS, is shared by the processes
 * that may only read. PAIRING_RECOVERY, behind them, is held while a file that no process has mapped is made plain before it is opened.
 * After locking, the name must still be that of the locked file.
 *
 * A process that gets all bytes but byte 0 is the first: all processes that had the file mapped have left or
 * died. Later ones join what the first one made: then nothing is recovered, chosen or set aside.
 */
#ifndef ATO_REFLECTION_PAIRING_PAIRING_H
#define ATO_REFLECTION_PAIRING_PAIRING_H

#include "reflection/format/manifest.h"
#include "reflection/media/fault.h"
#include "reflection/pairing/folder.h"
#include "reflection/pairing/identity.h"

#include <fcntl.h>
#include <string.h>

/* Of the two files in the reflection folder. */
struct pairing_names {
    char reflection[24], manifest[40];
};

struct pairing {
    int original;   /* the file, opened again; if `borrowed`, the caller's descriptor */
    int reflection; /* open for reading and writing */
    int lock;       /* the manifest, for locks only */
    struct folder folder;
    struct pairing_names names;
    bool orphan;       /* the names are those of an orphan (orphan.h), not the original's */
    bool orphan_waits; /* the original shall be joined with an orphan whose place is taken */
    struct persist persist;
    struct identity identity;
    struct manifest_record record;
    /* The record that pairing_open() found last, of this or of a pairing that it ended: it names shared memory that dead
     * processes may have left. Inode and device are the original's; inode 0: none was found. */
    struct manifest_record before;
    uint64_t size;              /* logical size of the original by the manifest */
    int copy;                   /* the manifest's copy that `record` is in */
    char *manifest;             /* the manifest's mapping, MANIFEST_BYTES */
    struct fault_target faults; /* of this and all other views of the files */
    bool borrowed;              /* the caller keeps the original open and closes it */
    bool has_attributes;
    bool needs_attribute; /* without it no later map would find the log */
    bool settled;         /* what is visible is durable: cleanly unmapped before, or just born */
    bool newborn;         /* made by this pairing_open(): it holds nothing until a process writes */
    bool joined;          /* other processes have the file mapped, or had when this one opened it */
    unsigned slot;
    char path[PATH_MAX]; /* of the original, when it was opened */
};

/* The byte that readers lock, and the number of bytes after byte 0. */
#define PAIRING_READERS (1 + MANIFEST_SLOTS)
#define PAIRING_LIVES   (MANIFEST_SLOTS + 1)

#define PAIRING_RECOVERY (1 + PAIRING_READERS) /* lib/run/recover.c */

struct pairing_wish {
    const char *folder;         /* NULL: beside the file */
    bool for_log;               /* a new pairing there has a log, or is refused */
    uint64_t log_bytes;         /* of a new log: manifest_record.log_bytes */
    enum persist_domain domain; /* auto: detected */
    int format;                 /* enum layout_format, of a new reflection; not in domain disk */
    bool borrow;                /* open and close no descriptor of the original */
    bool only_looks;            /* change nothing: the descriptor is read-only */
    bool prefer_file;           /* set the reflection aside */
    /* Use it, if the file was written and kept its size, or lost its attribute; reunite an orphan. */
    bool prefer_reflection;
    bool any_file_system; /* use it where domain_refused() says that libato is not safe */
    /* Returns 1 if a living process uses a pairing with this id, although its folder cannot be found; else 0; -1. NULL: none. */
    int (*is_used)(const uint8_t id[16], const struct trust *file);
    /* Called if other processes have the file mapped: joins what they share, and takes a slot. Returns 0;
     * PAIRING_NOT_YET with a sentence if nothing is shared (yet), or all of them are about to end; -1. */
    int (*join)(struct pairing *pr, void *arg);
    void *arg;
};

/* The next step, at the end of sentences. */
#define PAIRING_KEEP_FILE                                                                          \
    "to keep the bytes of the file, map it with ATO_PREFER_FILE ('ato deploy --prefer=file')"
#define PAIRING_BRING_BACK "Bring back the reflection and its manifest; " PAIRING_KEEP_FILE
#define PAIRING_CHOOSE                                                                             \
    "choose a side, with ATO_PREFER_FILE or ATO_PREFER_REFLECTION ('ato deploy --prefer=')"

#define PAIRING_BUSY    1
#define PAIRING_NOT_YET 2

/* How the files of the pairing are opened. */
static inline int pairing_access(const struct pairing_wish *wish)
{
    return wish->only_looks ? O_RDONLY : O_RDWR;
}

struct pairing_names pairing_names(uint64_t inode);

/* Returns the number in the name of a manifest; 0: it is no such name. */
uint64_t pairing_number(const char *name);

/* Returns the next step where calls on a mapped file fail, at the end of sentences. A reflection that was removed ends with its last
 * mapping. */
const char *pairing_way_out(const struct pairing *pr);

/* Returns 0; -1 with a sentence: no other process can attach as long as this one has the file mapped. */
int pairing_unlock_attach(struct pairing *pr);

/* Updates pr->record from the manifest, which other processes may have written. The caller holds the attach
 * lock. Returns 0; -1 with EUCLEAN. */
int pairing_refresh(struct pairing *pr);

/* Updates pr->size from the manifest. The caller ensures that the size does not change meanwhile. Returns 0;
 * -1 with EUCLEAN. */
int pairing_refresh_size(struct pairing *pr);

/* Returns 1 if another process has the file mapped, else 0; -1 with a sentence. The caller holds the attach
 * lock. */
int pairing_others(struct pairing *pr);

/* Gives up the attach lock and the slot, and closes manifest and reflection. Original and folder stay open. Keeps errno. */
void pairing_let_go(struct pairing *pr);

/* As pairing_let_go(), and closes folder and original too. */
void pairing_close(struct pairing *pr);

#endif
