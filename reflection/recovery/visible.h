/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Visibility of a dead process's commit to several files while it is finished. Other processes may have some
 * of them mapped. They must not see one file before the commit and another one after it.
 *
 * Before the first word is stored, the pages that the process held and the commit names are hidden: readers
 * and writers of them wait. When all words are durable they become visible. The caller holds the attach locks
 * of all files. If it is killed, they stay hidden until another process frees them, which has to finish the
 * commit first.
 */
#ifndef ATO_REFLECTION_RECOVERY_VISIBLE_H
#define ATO_REFLECTION_RECOVERY_VISIBLE_H

#include "reflection/recovery/participants.h"

/* Access to the page states of a file, for such a commit; the file's attach lock is held. Only what the dead
 * process `process` held is changed. NULL (without the runtime): there are no page states. */
struct visible_memory {
    /* Opens the shared memory of a file. Returns 0; *memory stays NULL if there is none. -1 with a
     * sentence if it cannot be opened and the file is `mapped` by others, or this process lacks memory or
     * descriptors. */
    int (*join)(void **memory, const struct manifest_record *record, const struct trust *file,
                bool mapped);
    void (*leave)(void *memory);
    /* hide() marks a page, hide_all() all that the process holds of the file. Readers and writers of it wait
     * until it is revealed or freed. */
    void (*hide)(void *memory, uint64_t process, uint64_t page);
    void (*hide_all)(void *memory, uint64_t process);
    /* Gives a hidden page its new bitmap, which is durable. */
    void (*flip)(void *memory, uint64_t process, uint64_t page, uint64_t bitmap);
    void (*reveal)(void *memory, uint64_t process, uint64_t page);
};

extern const struct visible_memory *visible_memory;

enum { VISIBLE_KEPT = 8 };

struct visible {
    const struct participants *named; /* NULL: no other process can see anything */
    uint64_t process;
    struct {
        const struct participants_file *file;
        void *memory; /* NULL: the file has none */
    } kept[VISIBLE_KEPT];
    unsigned next;
};

/* Begins, for the files that were acquired. Returns 0; -1 with a sentence if a file is mapped and its shared
 * memory cannot be opened: nothing is changed. visible_end() follows in each case. */
int visible_begin(struct visible *v, const struct participants *n);
void visible_end(struct visible *v);

/* Hides what a lane names. Returns 0; -1 with a sentence: the caller must not store anything. */
int visible_hide(struct visible *v, const struct journal_view *lane);

/* Makes that visible, when it is durable. A file with a new size stays hidden until a process frees it. */
void visible_show(struct visible *v, const struct journal_view *lane);

#endif
