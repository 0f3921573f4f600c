/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a dead process held of one file: its pages and its size, in shared memory. The steps of a takeover (takeover.h).
 * The caller holds the file's attach lock.
 */
#ifndef ATO_LIB_RECOVERY_DEAD_H
#define ATO_LIB_RECOVERY_DEAD_H

#include "lib/file/shared.h"
#include "reflection/recovery/participants.h"

#define DEAD_SIZE UINT64_MAX

struct dead_page {
    struct page_state *state;
    uint64_t page;  /* DEAD_SIZE: this is `sizing`, the state of the size */
    uint64_t value; /* its bitmap, or the size, as on the media */
    bool showed;    /* marked as flipping when its holder died */
    bool left;      /* stays with the dead process */
};

/* What the dead process held of one file, in memory. */
struct dead {
    struct participant *file;
    int original;         /* -1: this process does not have it open */
    struct shared shared; /* .header NULL: no process has the file mapped */
    uint32_t holder;
    struct dead_page *pages;
    uint64_t n, room;
    bool unsettled; /* some words must be made durable */
    bool in_place;  /* a word of the original, too */
    bool left;      /* some pages are */
};

/* Opens the shared memory of a file, and finds what the dead process holds there. `holder`: as in page_state.holder; 0 if
 * it is not known. Returns 0; -1 with a sentence. */
int dead_find(struct dead *d, const struct trust *trust, uint32_t holder);

/* The others expect shared memory. Marks all of it as flipping; or, after a failed replay, takes these marks off. */
void dead_mark(struct dead *d);
void dead_take_marks_off(struct dead *d);

/* Reloads all from the media, and changes it in memory; marks stay. A failure poisons the file: it is then unknown what the
 * media have. */
void dead_reload(struct dead *d);
void dead_show(struct dead *d);    /* takes all marks off */
void dead_release(struct dead *d); /* frees pages and size */
void dead_free_slot(struct dead *d);

#endif
