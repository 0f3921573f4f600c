/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/store.h"

#include <string.h>

struct target {
    struct file *file;
    char *o, *r;
    uint64_t bitmap;
    uint64_t pending;
    bool skip_equal;
    bool cold; /* argument of persist_scatter() */
};

/* Stores slice i, of which only bytes [begin, end) are new. The other bytes are those that the operation sees; the
 * slice is stored as a whole. */
static void store_part(struct target *t, unsigned i, unsigned begin, unsigned end, const char *src)
{
    _Alignas(64) char line[SLICE_BYTES];
    uint64_t bit = 1ull << i;
    char *valid = (t->bitmap & bit ? t->r : t->o) + i * SLICE_BYTES;
    char *other = (t->bitmap & bit ? t->o : t->r) + i * SLICE_BYTES;
    memcpy(line, t->pending & bit ? other : valid, SLICE_BYTES);
    if (t->skip_equal && memcmp(line + begin, src, end - begin) == 0)
        return;
    memcpy(line + begin, src, end - begin);
    if (t->skip_equal && (t->pending & bit) && memcmp(line, valid, SLICE_BYTES) == 0) {
        t->pending &= ~bit;
        return;
    }
    persist_line(&t->file->persist, other, line); /* I2 */
    t->pending |= bit;
}

/* Stores the whole slices of `mask`. `base`: where byte 0 of the page would be in the source. */
static void store_whole(struct target *t, uint64_t mask, const char *base)
{
    if (t->skip_equal) {
        uint64_t other = t->bitmap ^ t->pending;
        uint64_t differing = t->file->persist.kernel->differing(t->o, t->r, base, other, mask);
        /* Slices that the operation had changed and now changes back are no longer pending. */
        uint64_t again = t->pending & differing;
        if (__builtin_expect(!!again, 0)) {
            uint64_t back =
                again & ~t->file->persist.kernel->differing(t->o, t->r, base, t->bitmap, again);
            t->pending &= ~back;
            differing &= ~back;
        }
        mask = differing;
    }
    if (mask)
        persist_scatter(&t->file->persist, t->o, t->r, base, t->bitmap, mask, t->cold); /* I2 */
    t->pending |= mask;
}

uint64_t store_slices(struct file *f, struct homes homes, uint64_t bitmap, uint64_t pending,
                      unsigned begin, unsigned n, const char *src, bool skip_equal, bool cold)
{
    struct target t = {f, homes.o, homes.r, bitmap, pending, skip_equal, cold};
    unsigned end = begin + n, first = begin / 64, last = (end - 1) / 64;
    const char *base = src - begin;
    const unsigned head = (unsigned)lesser(64 - begin % 64, n);
    if (head < 64) {
        store_part(&t, first, begin % 64, begin % 64 + head, src);
        first++;
    }
    if (first <= last && end % 64) {
        store_part(&t, last, 0, end % 64, base + last * 64);
        last--;
    }
    if (first <= last)
        store_whole(&t, bitmap_slices(first, last), base);
    return t.pending;
}
