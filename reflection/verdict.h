/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is the pairing that lies there the file's? Attribute, manifest and what the file system tells of the inode
 * have to agree. Where they do not, and nothing can be lost by it, a new one is made; else the file is refused,
 * with a sentence that says what does not fit.
 *
 * For pairing.c and what it calls: the caller holds the attach lock.
 */
#ifndef ATO_REFLECTION_VERDICT_H
#define ATO_REFLECTION_VERDICT_H

#include "place.h"

enum verdict {
    VERDICT_ADOPT,
    VERDICT_BEAR,       /* there is none */
    VERDICT_START_OVER, /* what is there holds nothing, or was set aside */
    VERDICT_FORGET,     /* what is there is not wanted */
    VERDICT_REFUSE,     /* with a sentence */
};

/* `found` is what the manifest was found to be; *pr has its record, and learns what the attribute tells. Only who
 * is alone (not pr->joined) sets one aside. */
enum verdict verdict_of(struct pairing *pr, const struct place_names *n,
                        enum manifest_finding found, const struct pairing_wish *wish);

/* A manifest gets its length before its bytes. Anything else is not one of ours: it may be somebody's file
 * that was renamed, and is not to be written over. 1, 0; -1 with a sentence. */
int verdict_may_be_unborn(const struct pairing *pr, const struct place_names *n, const char *bytes);

#endif
