/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A dead process's commit to several files, while it is finished: others may have one of them mapped, and must not see
 * that as it was when another one is seen as it is.
 *
 * What the process held of each file, and the commit names, is hidden before the first word is stored: who comes to
 * it waits. When all words are durable it is shown. With the attach locks of all. Whoever does this may be
 * killed: then it stays hidden until somebody frees it, who has to finish the commit before that.
 */
#ifndef ATO_REFLECTION_VISIBLE_H
#define ATO_REFLECTION_VISIBLE_H

#include "named.h"

enum { VISIBLE_KEPT = 8 };

struct visible {
    const struct named *named; /* NULL: nobody sees anything */
    uint64_t process;
    struct {
        const struct named_file *file;
        void *memory; /* NULL: there is none */
    } kept[VISIBLE_KEPT];
    unsigned next;
};

/* Of the files that were acquired. -1 with a sentence: somebody has one mapped, and his memory cannot be had:
 * nothing is changed. visible_end() follows in each case. */
int visible_begin(struct visible *v, const struct named *n);
void visible_end(struct visible *v);

/* What a lane names. -1 with a sentence: nothing is to be stored. */
int visible_hide(struct visible *v, const struct journal_view *lane);

/* The same when it is durable. A file whose size is among it stays hidden until somebody frees it. */
void visible_show(struct visible *v, const struct journal_view *lane);

#endif
