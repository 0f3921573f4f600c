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

/* Page states of the files of a dead process's commit to several, each with its attach lock held: what it
 * held of them is dealt with, of a page or of the file as a whole. NULL: nobody has any. */
struct visible_memory {
    /* *memory stays NULL: there is none. -1 with a sentence: and others have the file `mapped`. */
    int (*join)(void **memory, const struct manifest_record *record, const struct trust *file,
                bool mapped);
    void (*leave)(void *memory);
    /* Marked: who comes to it waits until it is revealed, or freed. */
    void (*hide)(void *memory, uint64_t process, uint64_t page);
    void (*hide_all)(void *memory, uint64_t process);
    /* What is hidden gets its bitmap, which is durable. */
    void (*flip)(void *memory, uint64_t process, uint64_t page, uint64_t bitmap);
    void (*reveal)(void *memory, uint64_t process, uint64_t page);
};

extern const struct visible_memory *visible_memory;

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
