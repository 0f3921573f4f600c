/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The records of the demonstration, and their states after a kill.
 *
 * A record is 64 KiB, 16 pages. Each of its slices is stamped with the record's number and version, so that a
 * mixture of two versions differs from both.
 */
#ifndef ATO_TOOLS_RECORD_H
#define ATO_TOOLS_RECORD_H

#include <stdint.h>

#define RECORD_SIZE 65536u

enum record_state {
    RECORD_OLD,  /* the bytes of the last acknowledged write */
    RECORD_NEW,  /* the bytes of the write that the kill interrupted */
    RECORD_LOST, /* whole, but older than the last acknowledged write */
    RECORD_TORN, /* anything else: no write ever left these bytes */
};

/* The bytes of `record` at `version` (from 1). */
void record_fill(void *out, uint32_t record, uint64_t version);

/* The checker's knowledge of a record before it looks. */
struct record_history {
    const unsigned char *committed; /* its bytes as acknowledged last */
    const unsigned char *pending;   /* its bytes in the interrupted write; NULL: not this record */
    const unsigned char *before;    /* its bytes when the killed process began */
    const unsigned char *original;  /* its bytes before the first write of all */
};

enum record_state record_judge(const unsigned char *found, uint32_t record,
                               const struct record_history *known);

#endif
