/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What snapshots need: the numbers of commits, the table of open snapshots, and the undo area with pages as they were.
 *
 * The first snapshot of a file numbers its commits: from then on, until the shared memory goes, each commit that changes content
 * becomes visible while its thread holds `showing`, one after the other, and the pages and the size that it changes get its number:
 * that is the number of their content (page_content()). A snapshot with number s sees what the commits up to s have made. A page
 * whose number is s or less is as the snapshot has to see it. Before a commit with number n changes a page that has number m, it
 * saves the page for the snapshots from m to n - 1, if there are any.
 *
 * How a snapshot and a commit find each other, modelled in snapshot.pml:
 *
 *   the snapshot                                        the commit, which holds `showing`
 *   stores `beginning` in its entry                     stores its number n in `begun`
 *   full barrier                                        full barrier
 *   loads `begun`: b; waits until `shown` is b          looks at all entries, saves pages
 *   stores b in its entry                               changes the pages; stores n in `shown`
 *
 * Either the commit sees the entry, and saves what it changes; or the snapshot sees the commit's number, and comes after it.
 *
 * The table is an object of its own in shared memory, `/ato-<id>-<generation>-s`: 512 lines of 8 words. The first line tells how
 * many are in use. Each other line belongs to a process, which keeps a lock on the byte of the object that has the line's number.
 * The words of such a line are entries, one for each snapshot of the process. An entry is a value of enum undo_entry; or UNDO_BEGINNING
 * with a number, while the snapshot begins; then the number of the snapshot. All who may read the file may write to the table. So
 * nothing in it is trusted: a wrong value can cost other processes memory, or their snapshots, and can lead to no wrong byte.
 *
 * The undo area ends the object of the page states: UNDO_BUCKETS heads of lists, then copies of pages. The holder of `showing` changes it;
 * others read without a lock. A reader copies the bytes of a copy and looks then whether it still is the one that it was. If it
 * finds none, and `edition` is the same even number before and after that, there is none: the snapshot was given up, since the area was full.
 */
#ifndef ATO_LIB_FILE_UNDO_H
#define ATO_LIB_FILE_UNDO_H

#include "lib/file/file.h"

/* In a word of the table; a number is UNDO_FIRST at least. */
enum undo_entry { UNDO_FREE, UNDO_TAKEN, UNDO_LOST }; /* LOST: given up */
#define UNDO_BEGINNING (1ull << 63) /* the rest is the number that was shown before */

enum {
    UNDO_WORDS = 8, /* of a line */
    UNDO_LINES = 512,
    UNDO_TABLE_BYTES = UNDO_LINES * UNDO_WORDS * sizeof(uint64_t),
    UNDO_BUCKETS = 1 << 15,
};

/* shared_header.numbered. While it is UNDO_BEGUN, commits may be under way that have no number. */
enum { UNDO_BEGUN = 1, UNDO_READY };

/* The default of snapshot_bytes. */
#define UNDO_BYTES (256ull << 20)

/* Makes the table and the undo area, of `bytes` at most, unless there are, and lets commits have numbers from now on. With the attach
 * lock. Returns 0; -1 with a sentence. */
int undo_number(struct file *f, uint64_t bytes);

/* Maps the table and the undo area, unless they are mapped. Returns 0; -1 with a sentence. */
int undo_map(struct file *f);

/* Returns an entry of the table, with UNDO_TAKEN, that is this process's; NULL with EAGAIN, or other errors. With MUTEX_SNAPSHOTS. */
uint64_t *undo_take_entry(struct file *f);

/* A commit that is about to become visible, or what a dead process has committed. The caller holds `showing`. */
struct undo {
    struct file *f;
    uint64_t number; /* 0: commits have none */
    bool saves;      /* the table and the undo area are mapped */
};

/* Gives the commit its number, and looks at the snapshots. */
void undo_begin(struct undo *u, struct file *f);

/* Saves the page, which the caller holds, and changes after undo_saved(). */
void undo_save(struct undo *u, uint64_t page, const struct page_state *s);
void undo_saved(const struct undo *u);

/* The commit is visible. The caller releases `showing` then. */
static inline void undo_end(struct file *f, uint64_t number)
{
    __atomic_store_n(&f->shared.header->undo.shown, number, __ATOMIC_RELEASE);
}

/* Copies n bytes of a saved page as the snapshot with that number has to see it. Returns enum undo_found; -1 with ENOMEM. */
enum undo_found { UNDO_NONE, UNDO_FOUND, UNDO_AGAIN };
int undo_find(struct file *f, uint64_t number, uint64_t page, unsigned begin, unsigned n,
              char *dst);

#endif
