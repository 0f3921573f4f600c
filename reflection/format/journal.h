/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes of the redo journal, which turns the flips of several words into one step.
 *
 * A journal consists of lanes; a commit uses one lane, which no other commit uses meanwhile. There are two
 * places for lanes. Each slot of a manifest has JOURNAL_SLOT_LANES of them, for commits to that file alone
 * (manifest.h). A journal by itself, for larger commits and those to several files, is a range of bytes
 * (redo.c keeps it in a file, tests in an array):
 *
 *   offset  bytes   what
 *   0       4096    struct journal_header, then zeros
 *   4096    ...     lanes: `lanes` small ones of `lane_bytes` each, then a large one up to the end of the range
 *
 * A lane:
 *
 *   0       64      struct journal_commit: one cache line
 *   64      8       retired: the sequence of the last commit that needs no replay any more
 *   72      56      zeros
 *   128     32 f    struct journal_file, one for each file named
 *   ...     16 n    struct journal_word, one for each word
 *
 * A lane holds a commit if and only if (1) its sequence is `retired` + 1, (2) its counts are within the lane,
 * (3) its checksum, over sequence, counts, files and words, fits. A lane with the sequence `retired` is idle.
 * The writing of a lane with a wrong checksum was interrupted: it was never committed. Any other sequence, or
 * counts out of bounds, is damage.
 *
 * The protocol (persist-order tags J1..J3, in lib/commit/commit.c and below; in domain msync the list is flushed with the
 * commit line, whose checksum tells whether it is complete):
 *   data, files and words   | fence
 *   commit line             | fence    <- the commit point
 *   every word flipped      | fence
 *   retired := sequence     | fence    <- only now may pages be released: a lane that is retired
 *                                         later could be replayed over a newer flip
 *
 * Callers hold the lane, and the reservations of all pages named. No lock is taken here.
 */
#ifndef ATO_REFLECTION_FORMAT_JOURNAL_H
#define ATO_REFLECTION_FORMAT_JOURNAL_H

#include "reflection/media/persist.h"

#include <assert.h>

#define JOURNAL_MAGIC     0x4c414e52554f4a41ull /* "AJOURNAL", little-endian */
#define JOURNAL_VERSION   4
#define JOURNAL_MAX_FILES 16384

#define JOURNAL_HEADER_BYTES 4096ull

struct journal_header {
    uint64_t magic;
    uint32_t version;
    uint32_t lanes; /* small ones, without the large one */
    uint64_t lane_bytes;
    uint64_t reserved; /* 0; ignored. So are the next ones */
    uint32_t reserved2;
    uint32_t domain; /* enum persist_domain of its commits */
    uint64_t number; /* of the journal: manifests name it so */
    uint64_t reserved3;
    uint64_t checksum; /* of the bytes before */
};

struct journal_commit {
    uint64_t sequence;
    uint32_t files, words;
    uint64_t reserved[5];
    uint64_t checksum;
};

struct journal_file {
    uint8_t id[16]; /* of the file's pairing */
    uint64_t inode;
    uint64_t reserved; /* 0; ignored */
};

/* `word`: bits 0-48 the offset of a bitmap word in the reflection, bit 49 (JOURNAL_WORD_SIZE) 0, bits 50-63
 * the index of its file. If bit 49 is set, it is the size word of the file's manifest instead, and the offset
 * is MANIFEST_SIZE_WORD. */
#define JOURNAL_WORD_OFFSET ((1ull << 49) - 1)
#define JOURNAL_WORD_SIZE   (1ull << 49)
#define JOURNAL_WORD_FILE   50
#define JOURNAL_SIZE        (JOURNAL_WORD_SIZE | MANIFEST_SIZE_WORD) /* both together */

struct journal_word {
    uint64_t word;
    uint64_t value;
};

static_assert(sizeof(struct journal_header) == 64, "format");
static_assert(sizeof(struct journal_commit) == 64, "format");
static_assert(sizeof(struct journal_file) == 32, "format");
static_assert(sizeof(struct journal_word) == 16, "format");

/* The lanes of a slot: 4, each for 242 words, so that a commit of a MiB fits. A new journal has 16 small lanes, each for
 * 4086 words of one file, or two words less for each further file; and a large one, for a number of words beside any
 * number of files. */
#define JOURNAL_LANES      16u
#define JOURNAL_LANE_BYTES (64ull << 10)
#define JOURNAL_MAX_WORDS  (1ull << 28)
#define JOURNAL_MAX_BYTES  (8ull << 30)
#define JOURNAL_SLOT_LANES 4u
#define JOURNAL_SLOT_BYTES 4032ull
#define JOURNAL_SLOT_WORDS ((JOURNAL_SLOT_BYTES - 128 - sizeof(struct journal_file)) / 16)

/* Bytes of a journal whose large lane holds `words` words or, as it takes whole MiB, some more: at least 32,500. */
static inline uint64_t journal_bytes(uint64_t words)
{
    const uint64_t mib = 1 << 20, large = 128 + JOURNAL_MAX_FILES * sizeof(struct journal_file) +
                                          words * sizeof(struct journal_word);
    return (JOURNAL_HEADER_BYTES + JOURNAL_LANES * JOURNAL_LANE_BYTES + large + mib - 1) &
           ~(mib - 1);
}

struct journal {
    char *lanes_at;
    uint64_t lane_bytes, large_bytes;
    enum persist_domain domain;
    unsigned lanes; /* with the large one, which is the last */
};

/* Returns its bytes, with the header. */
static inline uint64_t journal_length(const struct journal *j)
{
    return JOURNAL_HEADER_BYTES + (j->lanes - 1) * j->lane_bytes + j->large_bytes;
}

/* Writes an empty journal over journal_bytes(0) zeros at `bytes`, which is 64-byte aligned. `number`: 48 bits, not 0; no other
 * journal of the folder has it. Not durable when it returns: the caller syncs the whole file before the journal is named (J0). */
void journal_make(const struct persist *p, struct journal *j, void *bytes, uint64_t number);

/* Returns the lanes of a slot of a manifest, which are at `bytes`, 64-byte aligned. */
struct journal journal_of_slot(void *bytes, enum persist_domain domain);

/* Begins to use the journal `number`, which has n bytes. Reads only the header, and from `bytes`; lanes_at is the place
 * behind it there, which the caller changes if the lanes are elsewhere. `name` is for the sentence. Returns 0; -1 with
 * EUCLEAN if it is not a journal, damaged, or another one. */
int journal_take(struct journal *j, void *bytes, uint64_t n, uint64_t number, const char *name);

/* ---- writing ---- */

struct journal_writer {
    const struct persist *persist;
    char *lane;
    char *at;                   /* where the next word goes */
    struct journal_commit line; /* its checksum: of what was stored so far */
};

/* The number of words that lane `lane` holds beside `files` files. */
uint64_t journal_capacity(const struct journal *j, unsigned lane, unsigned files);

/* Starts a commit of `words` words to `files` files, 1 to JOURNAL_MAX_FILES, in an idle lane. Each of them is named before the
 * first word is added. */
void journal_begin(struct journal_writer *w, const struct journal *j, const struct persist *p,
                   unsigned lane, unsigned files, uint64_t words);
void journal_name(struct journal_writer *w, const struct journal_file *file);
/* `word_offset`: JOURNAL_SIZE for the file's size word, whose value is manifest_encode_size()'s. */
void journal_add(struct journal_writer *w, unsigned file, uint64_t word_offset, uint64_t value);

/* The commit point: durable when it returns 0. To be called after a fence that covers the words and the data (J1). -1 with EIO:
 * the commit is in doubt. */
int journal_commit(struct journal_writer *w);

/* To be called when every word is durable. Returns 0; -1 with EIO: the lane must not be used again. Of a commit that
 * journal_look() found, `w` needs persist, lane and line.sequence. */
int journal_retire(struct journal_writer *w);

/* ---- reading ---- */

/* CUT: a commit may have been cut here while it was written, and never was one. A recovery retires it like a commit, so that
 * the next one has another sequence: otherwise its list, half written, could complete what is left of that commit's list,
 * and the old commit line would be valid. */
enum journal_finding { JOURNAL_IDLE, JOURNAL_CUT, JOURNAL_COMMITTED, JOURNAL_DAMAGED };

struct journal_view {
    uint64_t sequence; /* of the commit that is to be retired */
    char *lane;
    /* Of a commit: */
    const struct journal_file *files;
    const struct journal_word *words;
    unsigned nfiles;
    uint64_t nwords;
};

enum journal_finding journal_look(const struct journal *j, unsigned lane, struct journal_view *v);

static inline unsigned journal_word_file(const struct journal_word *w)
{
    return (unsigned)(w->word >> JOURNAL_WORD_FILE);
}

static inline bool journal_word_is_size(const struct journal_word *w)
{
    return w->word & JOURNAL_WORD_SIZE;
}

static inline uint64_t journal_word_offset(const struct journal_word *w)
{
    return w->word & JOURNAL_WORD_OFFSET;
}

/* Flushes what a dead process left visible in the lane. To be called for each lane, and then a fence, before the result of
 * journal_look() is used. */
int journal_settle(const struct journal *j, const struct persist *p, unsigned lane);

#endif
