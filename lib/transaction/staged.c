/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/staged.h"

#include "lib/commit/store.h"
#include "reflection/media/copy.h"

uint64_t staged_put(struct tx *t, const struct held_page *at, unsigned begin, unsigned n,
                    const char *bytes, unsigned flags)
{
    store_begin(at->state);
    const uint64_t pending = store_page(at, begin, n, bytes, flags);
    if (__builtin_expect(at->pending & ~pending, 0))
        t->set.forgotten = &at->file->persist; /* W4 */
    return pending;
}

void staged_get(const struct held_page *at, unsigned begin, unsigned n, char *dst)
{
    const struct file *f = at->file;
    copy_gather_range(f->persist.kernel, dst, file_o(f, at->page), file_r(f, at->page),
                      at->state->bitmap ^ at->pending, begin, n);
}
