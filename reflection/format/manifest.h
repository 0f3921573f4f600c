/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manifest's bytes: they identify the pairing of original and reflection, and say its state.
 *
 * File `<inode>.manifest`, 12288 bytes and the areas of the slots that were used:
 *
 *   offset  bytes  what
 *   0       4096   copy A: struct manifest_record, then zeros
 *   4096    4096   copy B
 *   8192    8      size word: bits 0-47 logical size of the original, bits 48-63 their check
 *   8200    8      growth word: in the same way, the size of the last growth; 0: there was none,
 *                  or it was withdrawn
 *   8208    8      shrink word: in the same way, the size before the file was made shorter, which it
 *                  may still have. Counts while it is more than the size word. 0: none
 *   8216    4072   zeros
 *   12288   ...    area of slot 0, then of slot 1, ...: 16384 bytes each, the small lanes (lane.h) of the
 *                  process in this slot
 *   16789504 ...   the long lane, of whole MiB, up to the end of the file; missing until a commit needs it, and
 *                  cut off when the last process unmaps the file
 *
 * Areas that were never used are holes, or lie behind the end.
 *
 * A record is valid if and only if (1) its magic and version are the ones below, and its format is 0 or 1, (2) its
 * checksum fits, (3) domain and state are known values, (4) its guard and sizes are within bounds. Of two valid copies
 * the one with the higher sequence holds (by the sign of their 64-bit difference: 0 follows the highest
 * number, which only another program can have written). An update writes the other copy, so that an
 * interrupted update leaves the older one. Copy A is written first in a manifest's life, B only with or after
 * the state `in use`. So a manifest without a valid copy and with zeros in all but copy A's record and the
 * words has never seen a store, and may be born anew.
 *
 * Byte 0 carries the attach lock, byte 1 + s the lock of slot s (open file description locks; pairing.h). The
 * locks have nothing to do with the content.
 *
 * This module works on byte ranges from any source, and takes no lock. I5: nothing in them is used before it
 * is checked.
 */
#ifndef ATO_REFLECTION_FORMAT_MANIFEST_H
#define ATO_REFLECTION_FORMAT_MANIFEST_H

#include "reflection/media/persist.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define MANIFEST_BYTES       12288
#define MANIFEST_COPY_BYTES  4096
#define MANIFEST_SIZE_WORD   8192
#define MANIFEST_GROWTH_WORD 8200
#define MANIFEST_SHRINK_WORD 8208
#define MANIFEST_MAGIC       0x545345464e414d41ull /* "AMANFEST", little-endian */
#define MANIFEST_VERSION     3
#define MANIFEST_SLOTS       1024 /* most processes that map one file */

#define MANIFEST_AREA_BYTES 16384 /* of a slot */
#define MANIFEST_BORN_BYTES (MANIFEST_BYTES + MANIFEST_AREA_BYTES)

/* Offset of a slot's area; of MANIFEST_SLOTS: of the long lane. */
static inline uint64_t manifest_area(unsigned slot)
{
    return MANIFEST_BYTES + (uint64_t)slot * MANIFEST_AREA_BYTES;
}

enum manifest_state {
    MANIFEST_IN_USE = 2,   /* mapped, or its last user died */
    MANIFEST_CLEAN = 3,    /* cleanly unmapped, reflection kept */
    MANIFEST_DEPLOYED = 4, /* all is deployed; the reflection is being removed */
};

/* `known` bits */
#define MANIFEST_KNOWS_BIRTH      1u
#define MANIFEST_KNOWS_GENERATION 2u
#define MANIFEST_KNOWS_ATTRIBUTE  4u /* the original carries the attribute */

#define MANIFEST_GUARD_MAX 16

/* Bytes of the original that have other values while it is not plain. */
struct manifest_guard {
    uint64_t offset;
    uint32_t bytes; /* 0: no guard */
    uint32_t first; /* 1: its mask comes before any other byte */
    uint8_t plain[MANIFEST_GUARD_MAX];
};

/*
 *   offset  field
 *   0       magic, version, format
 *   16      domain, state
 *   24      sequence
 *   32      id
 *   48      inode, device
 *   64      birth_sec, birth_nsec, generation
 *   80      known, slots
 *   88      clean_size, clean_mtime_sec, clean_mtime_nsec
 *   112     boot_id
 *   128     shm_generation
 *   136     guard
 *   168     guarded
 *   184     own_inode, own_birth_sec, own_birth_nsec
 *   208     log_bytes
 *   216     reserved, zeros
 *   504     checksum of bytes 0..503
 */
struct manifest_record {
    uint64_t magic;
    uint32_t version;
    uint32_t format; /* enum layout_format */
    uint32_t domain; /* enum persist_domain */
    uint32_t state;  /* enum manifest_state */
    uint64_t sequence;
    uint8_t id[16]; /* of this pairing, random */
    uint64_t inode;
    uint64_t device; /* information only: it changes across boots */
    int64_t birth_sec;
    uint32_t birth_nsec;
    uint32_t generation; /* of the inode, if the file system tells it */
    uint32_t known;
    uint32_t slots; /* MANIFEST_SLOTS when it was written */
    /* in state `clean`: size and mtime of the original at the unmapping */
    uint64_t clean_size;
    int64_t clean_mtime_sec;
    uint64_t clean_mtime_nsec;
    /* in state `in use`: the shared memory object of the file */
    uint8_t boot_id[16];
    uint64_t shm_generation;
    struct manifest_guard guard;
    uint8_t guarded
        [MANIFEST_GUARD_MAX]; /* in state `deployed`: the file's bytes there; at a birth: what they become */
    /* Of the manifest itself: a copy of it is another file. 0: not noted; birth 0: not known. */
    uint64_t own_inode;
    int64_t own_birth_sec;
    uint32_t own_birth_nsec;
    uint32_t unused;
    uint64_t log_bytes; /* the most that the ring of its log may have; 0: not bounded */
    uint8_t reserved[288];
    uint64_t checksum;
};

static_assert(sizeof(struct manifest_guard) == 32, "format");
static_assert(sizeof(struct manifest_record) == 512, "format");
static_assert(offsetof(struct manifest_record, id) == 32, "format");
static_assert(offsetof(struct manifest_record, known) == 80, "format");
static_assert(offsetof(struct manifest_record, boot_id) == 112, "format");
static_assert(offsetof(struct manifest_record, guard) == 136, "format");
static_assert(offsetof(struct manifest_record, own_inode) == 184, "format");
static_assert(offsetof(struct manifest_record, log_bytes) == 208, "format");
static_assert(offsetof(struct manifest_record, checksum) == 504, "format");

enum manifest_finding {
    MANIFEST_VALID,
    MANIFEST_UNBORN,  /* no valid copy, zeros around A's record and the words: never used */
    MANIFEST_DAMAGED, /* no valid copy */
    MANIFEST_FOREIGN, /* a valid checksum, but another version or format */
};

/* Finds the record that holds in `bytes` (MANIFEST_BYTES of them). *which is its copy, 0 or 1; if no copy is
 * valid, 1, so that the first write goes to copy A. */
enum manifest_finding manifest_read(const void *bytes, struct manifest_record *record, int *which);

/* Returns what a user can do about a manifest of another version: the end of a sentence. */
const char *manifest_advice(uint32_t version);

/* Writes `record`, with the next sequence and its checksum, over the copy that is not *which, and changes
 * *which to that copy. Durable when it returns 0. -1 and errno (EIO) when the medium fails. */
int manifest_write(const struct persist *p, void *bytes, struct manifest_record *record,
                   int *which);

/* The size word, and other words of its form. manifest_decode_size() returns false for a word that manifest_encode_size() cannot have
 * made. */
uint64_t manifest_encode_size(uint64_t size);
bool manifest_decode_size(uint64_t word, uint64_t *size);

/* The content of the three words. */
struct manifest_sizes {
    uint64_t size;
    uint64_t growth; /* 0: no growth is under way */
    uint64_t shrunk; /* size before it was made shorter; 0: no shrink word counts */
};

/* Reads the words; `bytes` is 8-byte aligned. Returns false if one of them is damaged. */
bool manifest_sizes(const void *bytes, struct manifest_sizes *sizes);

#endif
