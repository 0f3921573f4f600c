/* SPDX-License-Identifier: BSD-3-Clause */
/* The layout of the memory in which processes share SQLite's locks on a database (locks.h). `ato top` and `ato info` read it, too. */
#ifndef ATO_SQLITE_LOCK_WORDS_H
#define ATO_SQLITE_LOCK_WORDS_H

#include "ato_engine.h"

#include <assert.h>
#include <stdint.h>

/* SQLite's bytes for SHARED. */
enum { FIRST_DOOR = 0x40000002, DOORS = 510 };

/*
 * A word, the writer's or a line's:
 *
 *   bits 0-1    a line's: SEES or SHARES; the writer's: RESERVED, FOR_COMMIT or FOR_ALL
 *   bits 2-15   the line
 *   bits 16-31  the door
 *   bits 32-63  the number of the process
 *
 * 0: nobody's.
 */
enum { SEES = 1, SHARES, RESERVED = 1, FOR_COMMIT, FOR_ALL, STATE = 3 };
#define OWNER (~0ull << 16)

struct line {
    uint64_t word;
    uint64_t ticket; /* of a writer that waits; 0 */
    uint32_t asleep; /* 1: it sleeps, and this is its futex */
    uint32_t woke;   /* its commits beside readers */
    /* Of the connection, for `ato top`: */
    uint32_t pid;
    uint32_t waits;
    uint64_t since; /* when it got the write lock, or began to wait */
    uint64_t holds;
    uint64_t longest_hold, longest_wait; /* ns */
};

enum { LINES = 1020 };

#define LOCK_WORDS 0x314b434f4c51534full

struct lock_words {
    uint64_t writer;
    uint64_t uses;    /* how often RESERVED was given back */
    uint64_t since;   /* when the turn of `next` began */
    uint64_t refused; /* locks_note_refusal() */
    uint64_t longest_hold;
    uint64_t kind; /* LOCK_WORDS: tells these from other memory of ato_shared() */
    uint64_t pad[2];
    uint64_t tickets;   /* given out */
    uint32_t next;      /* the line that nobody overtakes, plus 1; 0 */
    uint32_t used;      /* lines from this one on were never used */
    uint32_t processes; /* numbers given out */
    uint32_t readers;   /* 1: readers sleep, and this is their futex */
    uint32_t facts[3];  /* of enum locks_fact */
    uint32_t padding[37];
    uint64_t longest_wait;
    struct line lines[LINES];
};

static_assert(sizeof(struct line) == 64, "a cache line");
static_assert(sizeof(struct lock_words) == ATO_SHARED_MAX, "layout");

#endif
