/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pairing of an original with its reflection: found, made, checked, taken apart.
 *
 * Names, all in the reflection folder: `<inode>` the reflection, `<inode>.manifest` its manifest (made as
 * `<inode>.manifest.<random>.tmp`), and on the original the attribute `user.ato`.
 *
 * Birth:  reflection, manifest (state `born`), the name of their folder, attribute, each durable;
 *         then state `in use`, durable; only then may anything be stored.   (persist-order P1)
 * Death:  everything home; state `deployed` durable (persist-order P2); guarded bytes put back (P4);
 *         remove attribute, reflection, manifest. Who finds `deployed` finishes the removal.
 *
 * Identity (I5), asked in this order:
 *   attribute there, its inode is this one, manifest with its id and inode found
 *                                         -> the reflection is the file's, whatever else moved
 *   attribute there, but put on another inode -> the file is a copy. Its source is found: the
 *                                            attribute is dropped, and it is an error unless the
 *                                            source had no slice in R when it was copied (told by
 *                                            the copy's mtime). Not found: ESTALE
 *   attribute there, no such manifest     -> ESTALE: never an empty reflection in its place
 *   no attribute, manifest says there is one: by birth time and generation
 *       another file's (inode number reused) -> set aside as `<inode>.stale-...`, a warning
 *       this one's, never used            -> born anew
 *       this one's, used                  -> ESTALE: somebody took the attribute away
 *   no attributes on this file system     -> birth time and generation decide; one link only
 *   the file's, but others wrote to it    -> ESTALE; begun anew where the reflection holds nothing of it
 *
 * Locks on the manifest's bytes, through a descriptor that is never mapped: byte 0 is the attach
 * lock, byte 1 + s the life of slot s, and the last one, PAIRING_READERS, that of all who may only read.
 * After locking, the name must still be that of the locked file.
 *
 * Who obtains all of them but byte 0 is the first: everybody who had the file mapped is gone or dead. Whoever
 * comes later takes part in what the first one made: nothing is recovered, chosen or set aside then.
 */
#ifndef ATO_REFLECTION_PAIRING_H
#define ATO_REFLECTION_PAIRING_H

#include "folder.h"
#include "identity.h"

struct pairing {
    int original;   /* the caller's file, opened again; or his descriptor, `borrowed` */
    int reflection; /* open for reading and writing */
    int lock;       /* manifest: locks only */
    struct folder folder;
    struct persist persist;
    struct identity identity;
    struct manifest_record record;
    uint64_t size;  /* logical size of the original, as the manifest has it */
    int copy;       /* of the manifest, that `record` is in */
    char *manifest; /* its mapping, MANIFEST_BYTES */
    bool borrowed;  /* he keeps it open, and closes it */
    bool has_attributes;
    bool settled;  /* what is visible is durable: cleanly unmapped before, or just born */
    bool orphaned; /* its last user died: mtime is the kernel's */
    bool joined;   /* others have the file mapped, or had when this process came */
    unsigned slot;
    char path[PATH_MAX]; /* of the original, when it was opened */
};

/* Byte of the manifest that they lock, and all bytes behind byte 0. */
#define PAIRING_READERS (1 + MANIFEST_SLOTS)
#define PAIRING_LIVES   (MANIFEST_SLOTS + 1)

struct pairing_wish {
    const char *folder;      /* NULL: beside the file */
    int domain;              /* enum persist_domain; auto: detected, after `environment` */
    const char *domain_word; /* ATO_DURABILITY, or NULL */
    bool borrow;             /* open and close no descriptor of the original */
    /* What to do instead of ESTALE: */
    bool prefer_file;       /* forget the reflection: it is set aside */
    bool prefer_reflection; /* written by others, the same size: believe it */
    /* Others have the file mapped: takes part in what they share, and takes a slot. 0; PAIRING_NOT_YET
     * with a sentence, if there is nothing, or they are all just dying; -1. */
    int (*join)(struct pairing *pr, void *arg);
    void *arg;
};

#define PAIRING_NOT_YET 1

/* Finds or makes the pairing of `fd`. On success the caller holds the attach lock and slot `slot`, and is
 * the file's only user: what a crash left is recovered, and the state is still what it was. Or pr->joined,
 * and wish->join() answered 0.
 * Errors: those of ato_mmap() in ato.h. On failure nothing is held, and what was made stays only
 * if it is worth keeping (a half-made birth is finished by the next one). */
int pairing_open(struct pairing *pr, int fd, const struct identity *who,
                 const struct pairing_wish *wish);

/* State `in use`, with the shared-memory object's generation; durable when it returns. */
int pairing_use(struct pairing *pr, uint64_t shm_generation);

/* State `clean`; call after every mapping of the original is gone (its mtime must not move any
 * more). `written`: the file was written. Durable when it returns. */
int pairing_clean(struct pairing *pr, bool written);

/* The order of death, from `deployed` on. Everything is home and durable. */
int pairing_remove(struct pairing *pr);

/* -1 with a sentence: nobody else can attach as long as this process has the file mapped. The lock does not
 * keep threads of one process apart. */
int pairing_unlock_attach(struct pairing *pr);
int pairing_lock_attach(struct pairing *pr);

/* pr->record as the manifest has it by now: others may have written to it. With the attach lock. EUCLEAN. */
int pairing_refresh(struct pairing *pr);

/* pr->size as the manifest has it by now. Nobody changes it meanwhile. EUCLEAN. */
int pairing_refresh_size(struct pairing *pr);

/* With the attach lock: does anybody else have the file mapped? 1, 0; -1 with a sentence. */
int pairing_others(struct pairing *pr);

/* Gives the slot up and closes everything. */
void pairing_close(struct pairing *pr);

/* In a forked child: closes the descriptors and touches nothing else. An unlock here would drop the
 * parent's locks. */
void pairing_forget(struct pairing *pr);

#endif
