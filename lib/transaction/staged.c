/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/staged.h"

#include "lib/commit/store.h"
#include "reflection/media/copy.h"

uint64_t staged_put(struct tx *t, const struct held_page *at, unsigned begin, unsigned n,
                    const char *bytes, unsigned flags)
{
    struct file *f = at->file;
    struct page_state *s = at->state;
    struct target target = {.file = f,
                            .o = file_o(f, at->page),
                            .r = file_r(f, at->page),
                            .bitmap = s->bitmap,
                            .pending = at->pending,
                            .skip_equal = flags & ATO_SKIP_EQUAL,
                            .cold = store_is_cold(f, s, n)};
    store_begin(s);
    store_bytes(&target, begin, n, bytes);
    if (__builtin_expect(at->pending & ~target.pending, 0))
        t->set.forgotten = &f->persist; /* W4 */
    return target.pending;
}

void staged_get(const struct held_page *at, unsigned begin, unsigned n, char *dst)
{
    const struct file *f = at->file;
    copy_gather_range(f->persist.kernel, dst, file_o(f, at->page), file_r(f, at->page),
                      at->state->bitmap ^ at->pending, begin, n);
}
