/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The journals of a reflection folder, and those that pointers in it lead to, read into memory: whose
 * owner lives, and what the lanes hold.
 */
#ifndef ATO_TOOLS_LANES_H
#define ATO_TOOLS_LANES_H

#include "reflection/recovery/linked.h"

enum lanes_kind {
    LANES_READ,       /* `journal` can be looked at */
    LANES_UNFINISHED, /* journal-ID.tmp, journal-ID.at.tmp: holds nothing */
    LANES_DAMAGED,    /* no journal is in it */
    LANES_FORBIDDEN,  /* cannot be read: `error` is the errno */
    LANES_NO_POINTER, /* journal-ID.at, and does not say where */
    LANES_ASTRAY, /* journal-ID.at: where it says is no journal, or one that knows another folder */
};

struct lanes {
    struct linked at;     /* or, of a pointer, this and where it lies; st.st_ino 0: not looked at */
    const char *leads_to; /* LANES_ASTRAY: the folder */
    enum lanes_kind kind;
    int error;
    bool alive;             /* its owner's byte is held: lanes may be in the middle of a commit */
    struct journal journal; /* in memory of its own */
    /* While the owner lives: the second reading. A lane that is damaged in both is. */
    struct journal again;
};

/* What the lane holds; a living owner's is damaged only when it stays so. */
enum journal_finding lanes_look(const struct lanes *j, unsigned lane, struct journal_view *v);

/* Calls `visit` for the journals of the folder; `all`: for those too whose owner lives. 0, or -1
 * with errno and a sentence. */
int lanes_each(const struct folder *f, bool all, void (*visit)(void *arg, const struct lanes *j),
               void *arg);

/* Lanes in journals of the dead that hold a commit of the pairing `id`; -1 error. */
int lanes_count_due(const struct folder *f, const uint8_t id[16]);

#endif
