/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The identity of a file: what the kernel tells of an original, and the attribute that it carries.
 *
 * An inode number alone does not identify a file: it is reused. The attribute `user.ato` on the original
 * holds the random id of its pairing, the inode that it was put on (a copy of the file has the attribute too,
 * and is detected by this), and where the reflection lies:
 *
 *   "ato1 <id, 32 hex digits> <inode, decimal> <folder>"
 *
 * folder: absolute. If it is below the original's own folder, a double slash separates that folder from the rest: a file that was
 * moved along with its folder has its reflection below its present folder, and one that has another name elsewhere has it
 * where it was made (lookup_place()). Older ones have only the rest, relative. No NUL.
 */
#ifndef ATO_REFLECTION_PAIRING_IDENTITY_H
#define ATO_REFLECTION_PAIRING_IDENTITY_H

#include "reflection/format/manifest.h"
#include "reflection/pairing/ownership.h"

#include <limits.h>
#include <string.h>
#include <time.h>

struct identity {
    uint64_t inode, device, size, links;
    uint32_t known; /* MANIFEST_KNOWS_BIRTH, MANIFEST_KNOWS_GENERATION */
    int64_t birth_sec;
    uint32_t birth_nsec;
    uint32_t generation;
    int64_t mtime_sec;
    uint32_t mtime_nsec;
    struct timespec asked, ctime; /* asked: when, by the clock that stamps files */
    struct trust trust;           /* owner, group and mode */
};

/* Returns 0; -1 with a sentence: EINVAL for a file that is not regular or has no name; errors of statx(). */
int identity_of(int fd, struct identity *identity);

/* Finds the path of an open file, which is absolute, and checks that it still names that file. `path` has room for PATH_MAX
 * bytes. Returns 0; -1 with a sentence. */
int identity_path(int fd, const struct identity *identity, char *path);

void identity_to_record(const struct identity *identity, struct manifest_record *record);

/* Returns true if both are the same inode, in the same use of its number, by birth time and generation.
 * Only values that both sides have are compared. */
bool identity_same_inode(const struct identity *identity, const struct manifest_record *record);

/* Returns true if size and mtime are those in a record of state `clean`. */
bool identity_unwritten(const struct identity *identity, const struct manifest_record *record);
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
/* The same of a file in a folder, without opening it. Follows no symbolic link. */
enum attribute_finding attribute_read_at(int folder, const char *name, struct attribute *a);
/* The caller syncs the file. */
int attribute_write(int fd, const char *path, const struct attribute *a);
int attribute_remove(int fd, const char *path);

/* Parses `n` bytes of an attribute's value, which no NUL follows. Returns false if they are not
 * a valid attribute. */
bool attribute_parse(const char *value, size_t n, struct attribute *a);

void identity_hex(const uint8_t id[16], char out[33]);
int identity_random(void *bytes, size_t n);

/* The kernel's boot id; zeros if it cannot be read. */
void identity_boot(uint8_t boot_id[16]);

/* Returns true if the machine was restarted since the record was written. Inline, so that tests can replace
 * identity_boot(). */
static inline bool identity_restarted(const struct manifest_record *record)
{
    static const uint8_t unknown[16] = {0};
    uint8_t boot[16];
    identity_boot(boot);
    return memcmp(boot, unknown, 16) != 0 && memcmp(boot, record->boot_id, 16) != 0;
}

#endif
