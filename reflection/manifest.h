/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manifest's bytes: what a pairing of original and reflection is, and the state it is in.
 *
 * File `<inode>.manifest`, 12288 bytes:
 *
 *   offset  bytes  what
 *   0       4096   copy A: struct manifest_record, then zeros
 *   4096    4096   copy B
 *   8192    8      the size word: bits 0-47 logical size of the original, bits 48-63 its check
 *   8200    8      the growth word: the same of the size it was last to grow to; 0: it never was
 *   8208    8      the shrink word: the same of the size that it had before it was made shorter, and may
 *                  still have; counts while it is more than the size word. 0: none
 *   8216    4072   zeros
 *
 * A record is valid if and only if (1) its magic and version are the ones below, (2) its checksum
 * fits, (3) format, domain and state are known values, (4) its guard is within bounds. Of two
 * valid copies the one with the higher sequence holds (as a difference of 64 bits with a sign: 0 follows
 * the highest, which only others can have written); an update writes the other one, so that a
 * cut in the middle leaves the older. Copy A is written first in a manifest's life, B only with or
 * after the state `in use`: a manifest whose copy B is all zeros has never seen a store, and may be
 * born anew.
 *
 * Its byte 0 carries the attach lock and byte 1 + s the lock of slot s (open file description
 * locks; pairing.c), which has nothing to do with what the bytes hold.
 *
 * This file works on byte ranges, wherever they came from, and takes no lock. I5: nothing here is
 * used before it was checked.
 */
#ifndef ATO_REFLECTION_MANIFEST_H
#define ATO_REFLECTION_MANIFEST_H

#include "persist.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define MANIFEST_BYTES       12288
#define MANIFEST_COPY_BYTES  4096
#define MANIFEST_SIZE_WORD   8192
#define MANIFEST_GROWTH_WORD 8200
#define MANIFEST_SHRINK_WORD 8208
#define MANIFEST_MAGIC       0x545345464e414d41ull /* "AMANFEST", little-endian */
#define MANIFEST_VERSION     1
#define MANIFEST_SLOTS       1024 /* most processes on one file */

enum manifest_state {
    MANIFEST_BORN = 1,     /* being made: nothing was ever stored */
    MANIFEST_IN_USE = 2,   /* mapped, or its last user died */
    MANIFEST_CLEAN = 3,    /* cleanly unmapped, reflection kept */
    MANIFEST_DEPLOYED = 4, /* everything is home; the reflection is being removed */
};

/* `known` bits */
#define MANIFEST_KNOWS_BIRTH      1u
#define MANIFEST_KNOWS_GENERATION 2u
#define MANIFEST_KNOWS_ATTRIBUTE  4u /* the original carries the attribute */

#define MANIFEST_GUARD_MAX 16

/* Bytes of the original that are others while it is not plain. */
struct manifest_guard {
    uint64_t offset;
    uint32_t bytes; /* 0: no guard */
    uint32_t reserved;
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
 *   184     reserved, zeros
 *   504     checksum of bytes 0..503
 */
struct manifest_record {
    uint64_t magic;
    uint32_t version;
    uint32_t format; /* enum ato_format */
    uint32_t domain; /* enum persist_domain */
    uint32_t state;  /* enum manifest_state */
    uint64_t sequence;
    uint8_t id[16]; /* random, of this pairing */
    uint64_t inode;
    uint64_t device; /* information only: it changes across boots */
    int64_t birth_sec;
    uint32_t birth_nsec;
    uint32_t generation; /* of the inode, where the file system tells it */
    uint32_t known;
    uint32_t slots; /* MANIFEST_SLOTS of the writer */
    /* in state `clean`: the original as it was left */
    uint64_t clean_size;
    int64_t clean_mtime_sec;
    uint64_t clean_mtime_nsec;
    /* in state `in use`: the shared memory object that goes with it */
    uint8_t boot_id[16];
    uint64_t shm_generation;
    struct manifest_guard guard;
    uint8_t guarded[MANIFEST_GUARD_MAX]; /* in state `deployed`: what the file has in their place */
    uint8_t reserved[320];
    uint64_t checksum;
};

static_assert(sizeof(struct manifest_guard) == 32, "format");
static_assert(sizeof(struct manifest_record) == 512, "format");
static_assert(offsetof(struct manifest_record, id) == 32, "format");
static_assert(offsetof(struct manifest_record, known) == 80, "format");
static_assert(offsetof(struct manifest_record, boot_id) == 112, "format");
static_assert(offsetof(struct manifest_record, guard) == 136, "format");
static_assert(offsetof(struct manifest_record, checksum) == 504, "format");

enum manifest_finding {
    MANIFEST_VALID,
    MANIFEST_UNBORN, /* no valid copy, but all is zeros beside record A and the words: never used */
    MANIFEST_DAMAGED, /* no valid copy */
    MANIFEST_FOREIGN, /* a checksummed copy of another version */
};

/* Finds the record that holds in `bytes` (MANIFEST_BYTES of them). *which is its copy, 0 or 1;
 * where nothing is valid, 1, so that the first write goes to copy A. */
enum manifest_finding manifest_read(const void *bytes, struct manifest_record *record, int *which);

/* Writes `record` with the next sequence and its checksum over the copy that is not *which, durable
 * when it returns, and turns *which. -1 and errno (EIO) when the medium fails. */
int manifest_write(const struct persist *p, void *bytes, struct manifest_record *record,
                   int *which);

/* The size word. Decoding answers false for a word that was not encoded here. */
uint64_t manifest_encode_size(uint64_t size);
bool manifest_decode_size(uint64_t word, uint64_t *size);

/* What the three words say. */
struct manifest_sizes {
    uint64_t size;
    uint64_t growth; /* 0: it never grew */
    uint64_t
        shrunk; /* from that size it was made shorter, and may not be cut yet; 0: it was not, or is.
                        What the word says while it does not count is no matter */
};

/* False: one of the words is damaged. `bytes` is 8-byte aligned. */
bool manifest_sizes(const void *bytes, struct manifest_sizes *sizes);

/* Stores the size word of a manifest that is being born: durable with the rest of it. */
void manifest_put_size(const struct persist *p, void *bytes, uint64_t size);

#endif
