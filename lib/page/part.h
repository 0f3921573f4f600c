/* SPDX-License-Identifier: BSD-3-Clause */
/* A mapping as a part of an operation. */
#ifndef ATO_LIB_PAGE_PART_H
#define ATO_LIB_PAGE_PART_H

#include "lib/file/file.h"

/* What an operation does with a mapping. Of several mappings of one file the first one stands for the file:
 * it has `size` and the counts. */
struct part {
    struct mapping *mapping;
    bool written, eager; /* used by transactions only */
    /* For a transaction that changes the file's size (resize.h): */
    bool sized;    /* it holds `sizing`, and the next fields are valid */
    bool resizes;  /* `size` is not the file's: the commit makes it so */
    uint64_t size; /* bytes, as the transaction sees it */
    uint64_t old;  /* before the transaction */
    uint64_t low;  /* the smallest in between: others are kept from whole pages behind it */
    /* For the commit itself: */
    uint64_t pages, slices; /* that flip */
    unsigned index;         /* of the file in a lane */
    bool under_way;         /* under_way_begin() was called */
};

#endif
