/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The journals of a reflection folder, read into memory: whether the owner lives, and what the lanes hold.
 */
#ifndef ATO_TOOLS_LANES_H
#define ATO_TOOLS_LANES_H

#include "reflection/recovery/found.h"

enum lanes_kind {
    LANES_READ,       /* `journal` is valid */
    LANES_UNFINISHED, /* journal-ID.tmp: has no content yet */
    LANES_DAMAGED,    /* contains no journal */
    LANES_FORBIDDEN,  /* cannot be read: `error` is the errno */
};

struct lanes {
    struct found_journal at;
    enum lanes_kind kind;
    int error;
    bool alive; /* the owner's byte is locked: a lane may be in the middle of a commit */
    struct journal journal; /* in the module's own memory */
    /* While the owner lives, a second reading: a lane is damaged if it is in both. */
    struct journal again;
};

/* Returns what the lane holds. A living owner's lane counts as damaged only if both readings say
 * so. */
enum journal_finding lanes_look(const struct lanes *j, unsigned lane, struct journal_view *v);

/* Calls `visit` for the journals of the folder whose owner is dead; with `all`, for those with a
 * living owner too. Returns 0; -1 with errno and a sentence. */
int lanes_each(const struct folder *f, bool all, void (*visit)(void *arg, const struct lanes *j),
               void *arg);

/* Returns how many lanes of dead processes' journals hold a commit of the pairing `id`; -1 on
 * error. */
int lanes_count_due(const struct folder *f, const uint8_t id[16]);

#endif
