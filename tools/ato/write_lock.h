/* SPDX-License-Identifier: BSD-3-Clause */
/* The write lock of an SQLite database: which process has it, since when, and which wait. Reads the memory that these processes share
 * (lib/sqlite/lock_words.h), and changes nothing. */
#ifndef ATO_TOOLS_WRITE_LOCK_H
#define ATO_TOOLS_WRITE_LOCK_H

#include "look.h"

#include "lib/sqlite/lock_words.h"

struct json;

/* A process whose connections share the database. Times are in nanoseconds, those of holds by the kernel's tick. */
struct lock_user {
    uint64_t owner;          /* in its words */
    struct look_holder name; /* .slot: its door */
    bool holds;              /* one of its connections has the write lock */
    unsigned waiting;        /* how many of them wait */
    uint64_t held, waited; /* until now: of the one that has it; of those that wait, the longest */
    /* Of all holds and waits of the connections that are open. The longest ones may not be over. */
    uint64_t holds_ended, waits, longest_hold, longest_wait;
};

struct write_lock {
    bool is_known;  /* there is such memory, and it could be read */
    unsigned count; /* of the processes that live */
    struct lock_user users[DOORS];
    /* Of all processes since the first one came: */
    uint64_t holds, waits, longest_hold, longest_wait;
};

void write_lock_look(struct write_lock *w, const struct look *l);

/* Writes the object "write_lock": null if it is not known. */
void write_lock_write(const struct write_lock *w, struct json *j);

/* Stores a sentence about the process: "has it for 1.204 s", "waits for 0.310 s", or "". */
enum { WRITE_LOCK_TEXT = 96 };
const char *write_lock_text(char to[WRITE_LOCK_TEXT], const struct lock_user *u);

#endif
