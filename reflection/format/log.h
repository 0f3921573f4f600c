/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log of a file, in the place of a reflection: what was committed and may not be durable in the file itself.
 *
 *   offset   what
 *   0        header, copy A: struct log_header
 *   512      copy B; then zeros up to 4096
 *   4096     ring of `capacity` bytes, a multiple of 4096; all of it has been written since it got its space
 *
 * A position counts the bytes that were ever appended. The byte at a position lies at offset 4096 + (position - origin) modulo
 * capacity. A record begins at a position that is a multiple of 64:
 *
 *   bytes                   what
 *   64                      struct log_record
 *   16 for each page        struct log_page: its number, and which slices of it follow
 *   up to a multiple of 64  zeros
 *   64 for each slice       the slices of the first page, in ascending order, then those of the second, ...
 *
 * A copy of the header is valid if and only if its magic, version and checksum fit, and capacity and positions are within bounds. Of two
 * valid ones that with the higher edition holds; a change writes the other one. A record is valid if
 * and only if (1) magic and salt are those of the log, (2) its position is the one where it was found, (3) its length is that of its pages
 * and slices and fits into the ring, (4) its checksum fits. The first one is at `start`. The log ends before the first record that is
 * not valid.
 *
 * Recovery copies the slices of all records, in their order, to the file, which is synced; then `start` moves behind
 * them, and the salt changes: so a record that was appended behind one that a power cut has torn never counts. All of that can be
 * done again after an interruption.
 *
 * The checksums are CRC-32C, begun with all ones and inverted at the end. I5: nothing that is read here is used before it is checked.
 */
#ifndef ATO_REFLECTION_FORMAT_LOG_H
#define ATO_REFLECTION_FORMAT_LOG_H

#include "reflection/media/bitmap.h"
#include "reflection/media/persist.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_MAGIC        0x474f4c4f5441ull /* "ATOLOG", little-endian */
#define LOG_RECORD_MAGIC 0x4345524f5441ull /* "ATOREC" */
#define LOG_VERSION      1
#define LOG_NO_SIZE      UINT64_MAX
#define LOG_MOST         (1ull << 62) /* positions */

enum { LOG_RING_AT = 4096, LOG_COPY_AT = 512, LOG_UNIT = 64 };

struct log_header {
    uint64_t magic;
    uint32_t version, checksum; /* of the header, with 0 in place of the checksum */
    uint64_t edition;
    uint64_t salt;
    uint64_t capacity, origin;
    uint64_t start;
};

struct log_record {
    uint64_t magic, salt, position;
    uint64_t bytes; /* of the record */
    uint64_t pages;
    uint64_t size;     /* of the file from this commit on; LOG_NO_SIZE: as before */
    uint32_t checksum; /* of the record, with 0 in place of the checksum */
    uint32_t unused;
    uint64_t reserved;
};

struct log_page {
    uint64_t page, slices;
};

static_assert(sizeof(struct log_header) == 56, "format");
static_assert(sizeof(struct log_record) == 64 && sizeof(struct log_page) == 16, "format");

/* Where the slices of a record begin. */
static inline uint64_t log_slices_at(uint64_t pages)
{
    return sizeof(struct log_record) +
           (pages * sizeof(struct log_page) + LOG_UNIT - 1) / LOG_UNIT * LOG_UNIT;
}

static inline uint64_t log_record_bytes(uint64_t pages, uint64_t slices)
{
    return log_slices_at(pages) + slices * LOG_UNIT;
}

/* Returns false if the CPU lacks CRC32 (SSE4.2): then nothing else here may be called. */
bool log_is_possible(void);

/* Continues a checksum; the first one continues 0. */
uint32_t log_checksum(uint32_t before, const void *bytes, size_t n);

/* ---- files ---- */

/* A log file, and what its header says. */
struct log_file {
    int fd;
    /* Where it is mapped, if log_write() is to store there, as `persist` does: a fence makes that durable. NULL: it writes to `fd`. */
    char *map;
    const struct persist *persist;
    struct log_header header;
};

/* Reads the header, by `fd`. Returns 1 if it is valid, for a file of `length` bytes, 0 if not; -1 with errno. */
int log_read_header(struct log_file *log, uint64_t length);

/* Writes the header, as the next edition. Not durable yet. Returns 0; -1 with errno. */
int log_write_header(struct log_file *log);

/* Read and write at a position; n is at most the capacity. Return 0; -1 with errno. */
int log_read(const struct log_file *log, uint64_t position, void *to, uint64_t n);
int log_write(const struct log_file *log, uint64_t position, const void *from, uint64_t n);

/* A record that was found valid. */
struct log_view {
    struct log_record record;
    struct log_page *pages; /* freed by the next log_look(), or by the caller; NULL at first */
};

/* Looks at the record at a position. `most`: bytes that it may have. Returns 1 if it is valid, 0 if not; -1 with
 * errno: ENOMEM, EIO. */
int log_look(const struct log_file *log, uint64_t position, uint64_t most, struct log_view *v);

/* Writes zeros to n bytes of the ring that has `header`, from offset `at` in it. Returns 0; -1 with errno. */
int log_clear(const struct log_file *log, uint64_t at, uint64_t n);

/* Called for each record of log_walk(), with the position of its first slice. Returns 0: go on. */
typedef int log_visit(const struct log_file *log, const struct log_view *v, uint64_t slices,
                      void *arg);

/* Visits the valid records from *position on, as far as the ring reaches and records begin before `end`; `visit` may be NULL. Then *position is
 * behind the last one that was visited with 0. Returns 0; what `visit` has returned; LOG_UNREADABLE with errno and no sentence. */
enum { LOG_UNREADABLE = -2 };
int log_walk(const struct log_file *log, uint64_t *position, uint64_t end, log_visit *visit,
             void *arg);

/* Finds the header of a log file. Returns as log_read_header(); -1 with ENOTSUP without log_is_possible(). */
int log_open(struct log_file *log, int fd);

/* Returns 1 if a log has a record, whole or not, that may not be home, or has no valid header and was used; else
 * 0; -1 with errno. */
int log_holds_records(int fd);

#endif
