/* SPDX-License-Identifier: BSD-3-Clause */
/* The mappings of a transaction: one part each. */
#ifndef ATO_LIB_TRANSACTION_PARTS_H
#define ATO_LIB_TRANSACTION_PARTS_H

#include "lib/page/handle.h"
#include "lib/page/page_set.h"

/* Returns the part of a mapping; NULL if there is none. */
static inline struct part *parts_find(struct tx *t, const struct mapping *m)
{
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].mapping == m)
            return &t->parts[i];
    return NULL;
}

struct part *parts_add_first(struct tx *t, struct mapping *m, bool to_write);

/* The same, but makes the part if necessary: the mapping cannot be unmapped from then on. NULL with ENOMEM; or, if `to_write`,
 * with EXDEV: the file cannot be in one commit with the others. */
static inline struct part *parts_add(struct tx *t, struct mapping *m, bool to_write)
{
    struct part *part = parts_find(t, m);
    return part && (part->written || !to_write) ? part : parts_add_first(t, m, to_write);
}

/* Returns a part that the transaction has written to; NULL if it has only read. */
const struct part *parts_first_written(const struct tx *t);

/* Removes the parts from the n-th on, since the call for which they were made has failed. */
void parts_drop(struct tx *t, unsigned n);

/* Returns the part that speaks for a file, if it changes the file's size; else NULL. */
static inline const struct part *parts_sizing(const struct tx *t, const struct file *f)
{
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].sized && t->parts[i].mapping->file == f)
            return &t->parts[i];
    return NULL;
}

/* Returns the file's size as the transaction sees it. */
static inline uint64_t parts_size(const struct tx *t, const struct file *f)
{
    const struct part *part = parts_sizing(t, f);
    return part ? part->size : file_size(f);
}

#endif
