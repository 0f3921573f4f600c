/* SPDX-License-Identifier: BSD-3-Clause */
/* The write lock of an SQLite database: who has it, since when, and who waits. It is in memory that the processes share
 * (lib/sqlite/locks.h), which is only read. */
#ifndef ATO_TOOLS_WRITE_LOCK_H
#define ATO_TOOLS_WRITE_LOCK_H

#include "look.h"

#include "lib/sqlite/lock_words.h"

struct json;

/* A process whose connections share the database. Times are in nanoseconds, those of holds by the kernel's tick. */
struct lock_user {
    uint64_t owner;          /* in its words */
    struct look_holder name; /* .slot: its door */
    bool holds;              /* one of them has the write lock */
    unsigned waiting;
    uint64_t held, waited; /* until now, if one holds it; if some wait, the longest */
    /* Of the connections that are open; the longest: also of what is not over. */
    uint64_t holds_ended, waits, longest_hold, longest_wait;
};

struct write_lock {
    bool is_known;  /* processes share it in memory, and that could be read */
    unsigned count; /* of these processes that live */
    struct lock_user users[DOORS];
    /* Of all since the first one came, in nanoseconds: */
    uint64_t holds, waits, longest_hold, longest_wait;
};

void write_lock_look(struct write_lock *w, const struct look *l);

/* Writes the object "write_lock": null if it is not known. */
void write_lock_write(const struct write_lock *w, struct json *j);

/* Stores a sentence about the process: "has it for 1.204 s", "waits for 0.310 s", or "". */
enum { WRITE_LOCK_TEXT = 96 };
const char *write_lock_text(char to[WRITE_LOCK_TEXT], const struct lock_user *u);

#endif
