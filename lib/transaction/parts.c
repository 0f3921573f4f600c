/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/parts.h"

#include "lib/commit/journals.h"
#include "lib/page/handle.h"
#include "lib/page/page_set.h"
#include "lib/transaction/again.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>

static int more_parts(struct tx *t)
{
    unsigned room = t->parts_room ? t->parts_room * 2 : 4;
    struct part *parts = realloc(t->parts, room * sizeof(*parts));
    if (!parts)
        return report_error(ENOMEM, "no memory for a transaction over %u mappings", room);
    t->parts = parts;
    t->parts_room = room;
    return 0;
}

const struct part *parts_first_written(const struct tx *t)
{
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].written)
            return &t->parts[i];
    return NULL;
}

struct part *parts_add_first(struct tx *t, struct mapping *m, bool to_write)
{
    struct part *part = parts_find(t, m);
    const struct part *written = to_write ? parts_first_written(t) : NULL;
    /* All files that a transaction writes to are alike, so comparing with one suffices. */
    if (written && journals_alike(written->mapping->file, m->file) < 0)
        return NULL;
    if (part)
        return part;
    if (t->nparts == t->parts_room && more_parts(t) < 0)
        return NULL;
    again_let_first(t, m->file);
    count_open(m, 1);
    t->parts[t->nparts] = (struct part){.mapping = m};
    return &t->parts[t->nparts++];
}

void parts_drop(struct tx *t, unsigned n)
{
    /* A release, so that all that was done through the mapping comes before the count. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    while (t->nparts > n)
        count_open(t->parts[--t->nparts].mapping, UINT64_MAX);
}
