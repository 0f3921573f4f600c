/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who a file is: what the kernel tells of an original, and the attribute it carries.
 *
 * An inode number alone is no identity: it is given out again. The attribute `user.ato` on the
 * original holds the random id of its pairing, the inode it was put on (a copy of the file carries
 * the attribute along and is found out by this), and where the reflection lies:
 *
 *   "ato1 <id, 32 hex digits> <inode, decimal> <folder>"
 *
 * folder: relative to the original's own folder when it is below it, else absolute. No NUL.
 */
#ifndef ATO_REFLECTION_IDENTITY_H
#define ATO_REFLECTION_IDENTITY_H

#include "manifest.h"
#include "trust.h"

#include <limits.h>
#include <sys/types.h>

struct identity {
    uint64_t inode, device, size, links;
    bool has_birth, has_generation;
    int64_t birth_sec;
    uint32_t birth_nsec;
    uint32_t generation;
    int64_t mtime_sec;
    uint32_t mtime_nsec;
    mode_t mode;
    uid_t owner;
    gid_t group;
};

/* Errors: EINVAL with a sentence for what is no regular file or has no name; stat's. */
int identity_of(int fd, struct identity *who);

/* The path of an open file and its folder, checked to name that very file still. `path` has room
 * for PATH_MAX bytes; *name points into it behind the last slash. */
int identity_path(int fd, const struct identity *who, char *path, char **name);

void identity_to_record(const struct identity *who, struct manifest_record *record);

static inline struct trust identity_trust(const struct identity *who)
{
    return (struct trust){who->owner, who->group, who->mode};
}

/* Same inode object, as far as birth time and generation tell; only what both sides know counts. */
bool identity_same_inode(const struct identity *who, const struct manifest_record *record);

/* Size and mtime are those that a record `clean` holds. */
bool identity_unwritten(const struct identity *who, const struct manifest_record *record);

struct attribute {
    uint8_t id[16];
    uint64_t inode;
    char folder[PATH_MAX];
};

enum attribute_finding {
    ATTRIBUTE_FOUND,
    ATTRIBUTE_NONE,
    ATTRIBUTE_UNSUPPORTED, /* this file system has no user attributes */
    ATTRIBUTE_BAD,         /* errno and sentence are set */
};

enum attribute_finding attribute_read(int fd, const char *path, struct attribute *a);
int attribute_write(int fd, const char *path, const struct attribute *a);
int attribute_remove(int fd, const char *path);

/* Parses `n` bytes of an attribute's value (no NUL behind them). */
bool attribute_parse(const char *value, size_t n, struct attribute *a);

void identity_hex(const uint8_t id[16], char out[33]);
int identity_random(void *bytes, size_t n);

/* This process, by a random number that is not 0: a pid is not the same in every pid namespace, and is given
 * out again. -1: there is no randomness. */
int identity_process(uint64_t *process);
void identity_forget_process(void); /* in a forked child: it is another one */

/* The kernel's boot id, zeros where it cannot be read. */
void identity_boot(uint8_t boot_id[16]);

#endif
