/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes of a lane: a redo list, which turns the flips of several words of one file into one step.
 *
 * A commit uses one lane, which no other commit uses meanwhile. All lanes of a file are in its manifest (manifest.h): each
 * process has LANE_SMALL small ones there, and all processes together have a long one.
 *
 *   0       64      struct lane_commit: one cache line
 *   64      8       retired: the sequence of the last commit that needs no replay any more
 *   72      56      zeros
 *   128     16 n    struct lane_word, one for each word
 *
 * A lane holds a commit if and only if (1) its sequence is `retired` + 1, (2) its count is within the lane,
 * (3) its checksum, over sequence, count and words, fits. A lane with the sequence `retired` is idle.
 * The writing of a lane with a wrong checksum was interrupted: it was never committed. Any other sequence, or a
 * count out of bounds, is damage.
 *
 * The protocol (persist-order tags J1..J3, in lib/commit/commit.c and below):
 *   data, words             | fence
 *   commit line             | fence    <- the commit point
 *   every word flipped      | fence
 *   retired := sequence     | fence    <- only now may pages be released: a lane that is retired
 *                                         later could be replayed over a newer flip
 *
 * Callers hold the lane, and the reservations of all pages named. No lock is taken here.
 */
#ifndef ATO_REFLECTION_FORMAT_LANE_H
#define ATO_REFLECTION_FORMAT_LANE_H

#include "reflection/media/persist.h"

#include <assert.h>

struct lane_commit {
    uint64_t sequence;
    uint64_t words;
    uint64_t reserved[5]; /* 0; ignored */
    uint64_t checksum;
};

/* `word`: the offset of a bitmap word in the reflection; or LANE_SIZE for the size word of the manifest. */
#define LANE_SIZE (1ull << 49)

struct lane_word {
    uint64_t word;
    uint64_t value;
};

static_assert(sizeof(struct lane_commit) == 64, "format");
static_assert(sizeof(struct lane_word) == 16, "format");

/* A small lane holds 248 words, so a commit of almost a MiB fits. The long one takes more in steps of a MiB, up to so many words
 * that a commit may be of a TiB. */
#define LANE_SMALL       4u
#define LANE_SMALL_BYTES 4096ull
#define LANE_HEAD_BYTES  128ull
#define LANE_SMALL_WORDS ((LANE_SMALL_BYTES - LANE_HEAD_BYTES) / sizeof(struct lane_word))
#define LANE_MAX_WORDS   (1ull << 28)
#define LANE_MAX_BYTES   (8ull << 30)

/* Returns the bytes of a long lane for so many words: whole MiB. */
static inline uint64_t lane_bytes(uint64_t words)
{
    const uint64_t mib = 1 << 20;
    return (LANE_HEAD_BYTES + words * sizeof(struct lane_word) + mib - 1) & ~(mib - 1);
}

struct lane {
    char *at; /* 64-byte aligned */
    uint64_t bytes;
};

/* Returns the i-th small lane of a process's area. */
static inline struct lane lane_small(char *area, unsigned i)
{
    return (struct lane){area + i * LANE_SMALL_BYTES, LANE_SMALL_BYTES};
}

/* ---- writing ---- */

struct lane_writer {
    const struct persist *persist;
    char *lane;
    char *at;                /* where the next word goes */
    struct lane_commit line; /* its checksum: of what was stored so far */
};

/* Returns the sequence of the last commit that needs no replay any more. */
static inline uint64_t lane_retired(const struct lane *lane)
{
    return *(const uint64_t *)(lane->at + 64);
}

/* Starts a commit of `words` words, for which an idle lane has room. All of them are added before lane_commit(). `retired`:
 * lane_retired(). */
void lane_begin(struct lane_writer *w, const struct persist *p, const struct lane *lane,
                uint64_t retired, uint64_t words);

/* `offset`: LANE_SIZE for the file's size word, whose value is manifest_encode_size()'s. */
void lane_add(struct lane_writer *w, uint64_t offset, uint64_t value);

/* The commit point: durable when it returns 0. To be called after a fence that covers the words and the data (J1). -1 with EIO:
 * the commit is in doubt. */
int lane_commit(struct lane_writer *w);

/* To be called when every word is durable. Returns 0; -1 with EIO: the lane must not be used again. Of a commit that
 * lane_look() found, `w` needs persist, lane and line.sequence. */
int lane_retire(struct lane_writer *w);

/* ---- reading ---- */

/* CUT: a commit may have been cut here while it was written, and never was one. A recovery retires it like a commit, so that
 * the next one has another sequence: otherwise its list, half written, could complete what is left of that commit's list,
 * and the old commit line would be valid. */
enum lane_finding { LANE_IDLE, LANE_CUT, LANE_COMMITTED, LANE_DAMAGED };

struct lane_view {
    uint64_t sequence; /* of the commit that is to be retired */
    /* Of a commit: */
    const struct lane_word *words;
    uint64_t nwords;
};

enum lane_finding lane_look(const struct lane *lane, struct lane_view *v);

/* Flushes what a dead process left visible in the lane. To be called for each lane, and then a fence, before the result of
 * lane_look() is used. */
int lane_settle(const struct lane *lane, const struct persist *p);

#endif
