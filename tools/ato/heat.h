/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many slices of each part of a file have their valid copy in the reflection, and pictures of it.
 */
#ifndef ATO_TOOLS_HEAT_H
#define ATO_TOOLS_HEAT_H

#include "look.h"
#include "progress.h"

enum { HEAT_BINS = 65536 };

struct heat {
    uint64_t size; /* bytes of the file */
    uint64_t pages;
    uint64_t slices;    /* of the file */
    uint64_t reflected; /* valid in the reflection */
    uint64_t bin_pages; /* pages of a bin; the last one may have fewer */
    uint64_t bins;
    uint32_t count[HEAT_BINS]; /* slices of a bin that are valid in the reflection */
    struct progress *progress;
};

static inline double heat_percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* A range of bins, for a cell of a picture. */
struct heat_cell {
    uint64_t page, pages, slices, reflected;
};

/* Reads the bitmaps of a reflection, for a file of `size` bytes; a `reflection` of -1 holds nothing. Shows the progress. Returns 0;
 * -1 with errno and report_sentence(). */
int heat_read(struct heat *h, int reflection, uint64_t length, uint32_t format, uint64_t size,
              struct progress *progress);

/* Returns how many bins each of at most `most` cells gets, and sets *cells. */
uint64_t heat_divide(const struct heat *h, uint64_t most, uint64_t *cells);

/* Returns the cell `i` of such a division. */
struct heat_cell heat_cell(const struct heat *h, uint64_t each, uint64_t i);

/* Write a picture to the file `out`, which is replaced when it is complete. `name` is shown. Return 0; -1 with errno and
 * report_sentence(): EEXIST if `out` is the file itself. */
int heat_write_svg(const struct heat *h, const struct look *l, const char *name, const char *out);
int heat_write_png(const struct heat *h, const struct look *l, const char *out);

#endif
