/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adopts the pairing that was found: checks whether it belongs to the file, and whether it is whole; and makes durable what is
 * visible of it.
 *
 * Attribute, manifest and what the file system tells of the inode have to agree. If they do not, a new pairing is made where
 * nothing can be lost by that; else the file is refused, with a sentence that says what does not fit.
 *
 * For pairing_open.c. The caller holds the attach lock.
 */
#ifndef ATO_REFLECTION_PAIRING_ADOPTION_H
#define ATO_REFLECTION_PAIRING_ADOPTION_H

#include "reflection/pairing/lookup.h"

enum verdict {
    VERDICT_REFUSE = -1, /* as report_error() returns */
    VERDICT_ADOPT,
    VERDICT_BEAR,       /* there is none: make one */
    VERDICT_START_OVER, /* it holds nothing */
    VERDICT_SET_ASIDE,  /* of another file */
    VERDICT_FORGET,     /* as REFUSE; to be set aside if the file is preferred */
    VERDICT_REUNITE,    /* an orphan (orphan.h) */
    VERDICT_AGAIN,      /* it has changed since it was found */
};

/* `found` is manifest_read()'s result; *pr has the record, and is updated by what the attribute tells. SET_ASIDE only if no
 * other process has the file mapped (not pr->joined). */
enum verdict adoption_verdict(struct pairing *pr, enum manifest_finding found,
                              const struct pairing_wish *wish);

/* For a file that no other process has mapped; its manifest is mapped. Returns 0; -1 with a sentence:
 * ESTALE, EUCLEAN, EACCES, ... */
int adopt(struct pairing *pr, const struct pairing_wish *wish);

/* Called after adopt() failed with ESTALE. If the reflection holds no slice of the file, and the guard,
 * if any, is off, then the file is complete, and may get a new reflection, whichever program wrote to
 * it: this one is removed. Otherwise it is set aside if the file is preferred. Returns 0: open the file again; -1 with a
 * sentence, that of adopt() if the file is refused. */
int adopt_anew(struct pairing *pr, const struct pairing_wish *wish);

/* For a file that other processes have mapped: joins them. Its manifest is mapped. Returns 0; PAIRING_NOT_YET, as wish->join(); -1 with a sentence. */
int adopt_joined(struct pairing *pr, const struct pairing_wish *wish);

#endif
