/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does the pairing that was found belong to the file? Attribute, manifest and what the file system tells of
 * the inode have to agree. If they do not, a new pairing is made where nothing can be lost by that; else the
 * file is refused, with a sentence that says what does not fit.
 *
 * For pairing_open.c and what it calls. The caller holds the attach lock.
 */
#ifndef ATO_REFLECTION_PAIRING_IDENTITY_CHECK_H
#define ATO_REFLECTION_PAIRING_IDENTITY_CHECK_H

#include "reflection/pairing/lookup.h"

enum verdict {
    VERDICT_REFUSE = -1, /* as report_error() returns */
    VERDICT_ADOPT,
    VERDICT_BEAR,       /* there is none: make one */
    VERDICT_START_OVER, /* it holds nothing, or was set aside */
    VERDICT_FORGET,     /* to be set aside, since the file is preferred */
};

/* `found` is manifest_read()'s result; *pr has the record, and is updated by what the attribute tells. Sets a
 * pairing aside only if no other process has the file mapped (not pr->joined). */
enum verdict identity_check_of(struct pairing *pr, enum manifest_finding found,
                               const struct pairing_wish *wish);

#endif
