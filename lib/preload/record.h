/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the processes below a command tell it: `ato sqlite`, whether they use the VFS, and for which databases; `ato run`, which files
 * they have mapped.
 *
 * The record is memory that the command makes (memfd_create(2)) and all of its processes map. A variable names it in two ways:
 * by a path in the /proc folder of the command, for programs that close descriptors; and by the descriptor of that number in the
 * process itself, for programs that may not look there because they run as another user. A token tells that a file found so is
 * the record. Without one, or when the command is gone, every call here does nothing.
 *
 * Trust: all of these processes can write anything to it. So its reader checks what it finds. Its size is sealed.
 */
#ifndef ATO_LIB_PRELOAD_RECORD_H
#define ATO_LIB_PRELOAD_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Each preloaded library has a variable of its own. */
#ifndef RECORD_VARIABLE
#define RECORD_VARIABLE "ATO_SQLITE_RECORD"
#endif

enum { RECORD_BYTES = 1 << 20 };

struct record {
    uint8_t token[16];
    /* Atomic, and only ever set: */
    uint32_t loaded; /* a process has preloaded the library */
    uint32_t
        reached; /* a process has registered SQLite's VFS, or made a mapping that could be served */
    uint32_t wanted; /* of ato run: one of a file that is to be served */
    uint32_t opened; /* a process has opened a database through it, or mapped a file */
    uint32_t lost;   /* no room for another entry */
    /* Bytes of `entries` that are taken; atomic. A writer takes its bytes, which are 0, and then fills them. */
    uint32_t used;
    char entries[RECORD_BYTES - 40]; /* strings; of each database "DEVICE:INODE:PATH", in decimal */
};
_Static_assert(sizeof(struct record) == RECORD_BYTES, "the layout of the record");

/* Maps the record that a value of the variable names. Returns NULL if there is none. */
struct record *record_open(const char *value);

/* Adds an entry, unless it is there. */
void record_add(struct record *r, const char *entry);

/* Returns the entry after `at`, NULL at first; NULL: there is none. */
const char *record_next(const struct record *r, const char *at);

/* For processes that may be below a command: in the record that the environment names, if there is one. */
void record_set(size_t fact);         /* offsetof() one of those that are only ever set */
bool record_entry(const char *entry); /* false: there is none */
void record_database(dev_t device, ino_t inode, const char *path);

/* An entry of this and a sentence: stores to a file, which it names, are lost. */
#define RECORD_LOSS "lost:"

#endif
