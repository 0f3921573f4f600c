/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mark: what a copy by `ato cp` has in each page, as a digest, so that the next copy takes over what has not changed.
 *
 *   offset  bytes  what
 *   0       8      "ato-mark"
 *   8       4      version, 1
 *   12      4      bytes of a page, 4096
 *   16      16     key of the digests, random
 *   32      8      length of the copy
 *   40      16     its mtime: seconds, nanoseconds
 *   56      16*n   digests, n = length / 4096 rounded up; 0: a page of zeros
 *   ...     8      checksum of all before (reflection/format/checksum.h)
 *
 * Numbers are little-endian. A digest is SipHash-2-4 with 128 bits of the page, its end filled up with zeros. Nobody who does
 * not know the key can make two pages with the same digest, so the file is for its owner alone.
 */
#ifndef ATO_TOOLS_MARK_H
#define ATO_TOOLS_MARK_H

#include "replacement.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum { MARK_PAGE = 4096 };

struct mark_digest {
    uint64_t low, high;
};

struct mark {
    uint64_t key[2];
    uint64_t length;
    int64_t seconds, nanoseconds;
    struct mark_digest *digests; /* of `room` pages: those of the copy, then 0 */
    uint8_t *flags;              /* of these pages: MARK_ */
    uint64_t room;
};

enum {
    MARK_GIVEN = 1,  /* mark_give() was called for it */
    MARK_CHANGED = 2 /* and once it had another digest */
};

/* Make a mark of an empty copy; and read one. mark_free() frees it, whatever they return. Return 0; -1 with errno and
 * report_sentence(): EUCLEAN (not a mark, or damaged), ENOMEM, ... */
int mark_make(struct mark *m);
int mark_read(struct mark *m, const char *path);
void mark_free(struct mark *m);

/* Notes what the copy has in a page. Returns 1 if that is something else than before; 0; -1 with ENOMEM and report_sentence(). */
int mark_give(struct mark *m, uint64_t page, const char bytes[MARK_PAGE]);

/* Return whether the page is all zeros; has that flag; has these bytes. */
bool mark_is_zero(const struct mark *m, uint64_t page);
bool mark_was(const struct mark *m, uint64_t page, uint8_t flag);
bool mark_has(const struct mark *m, uint64_t page, const char bytes[MARK_PAGE]);

/* Writes the mark of a copy of that length and mtime. Returns 0; -1 with errno and report_sentence(). */
int mark_write(struct mark *m, const struct replacement *to, uint64_t length,
               const struct timespec *mtime);

#endif
