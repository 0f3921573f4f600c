/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What snapshots need: the numbers of commits, the table of open snapshots, and the undo area with pages as they were; and, with a log,
 * as they are before that is durable (lib/commit/early.h).
 *
 * The first snapshot of a file numbers its commits: from then on, until the shared memory goes, each commit that changes content
 * becomes visible while its thread holds `showing`, one after the other, and the pages and the size that it changes get its number:
 * that is the number of their content (page_content()). A snapshot with number s sees what the commits up to s have made. A page
 * whose number is s or less is as the snapshot has to see it. Before a commit with number n changes a page that has number m, it
 * saves the page for the snapshots from m to n - 1, if there are any.
 *
 * `moment` is the number up to which readers see the commits: new snapshots have it, or a later one. All of them are durable, but for relaxed
 * ones and what came before those. Only early commits, which are visible to writers before they are durable, are not part of it at once:
 * they save every page that they change, so no snapshot waits for them or has to find them. A copy is free when no snapshot needs it
 * and `until` is not behind `moment`.
 *
 * How a snapshot and a commit find each other, modelled in snapshot.pml, and with early commits in early.pml:
 *
 *   the snapshot                                        the commit, which holds `showing`
 *   stores `beginning` in its entry                     stores its number n in `begun`
 *   full barrier                                        full barrier
 *   loads `begun`; waits until `moment` is as much      looks at all entries, saves pages
 *   stores `moment` in its entry                        changes the pages; stores n in `shown`, then in `moment`
 *
 * Either the commit sees the entry, and saves what it changes; or the snapshot sees the commit's number, and comes after it.
 *
 * The table is an object of its own in shared memory, `/ato-<id>-<generation>-s`: 512 lines of 8 words. The first line tells how
 * many lines are in use. Each other line belongs to one process, which locks the byte of the object at the offset of the line's number. Its words
 * are entries, one for each snapshot of the process:
 *
 *   a value of enum undo_entry      no snapshot, or it was given up
 *   UNDO_BEGINNING, or'ed with n    a snapshot begins; `moment` was n
 *   n, from UNDO_FIRST on           the snapshot with number n
 *
 * Every user who may read the file may write to the table, so nothing in it is trusted: a wrong value can cost other processes memory, or
 * their snapshots, but leads to no wrong byte.
 *
 * The undo area ends the object of the page states: UNDO_BUCKETS heads of lists, then copies of pages. The holder of `showing` changes it;
 * others read without a lock. A reader copies the bytes of a copy, and then checks that the copy has not changed. If it finds no copy, and
 * `edition` is the same even number before and after the search, there is none: the snapshot was given up, since the area was full.
 */
#ifndef ATO_LIB_FILE_UNDO_H
#define ATO_LIB_FILE_UNDO_H

#include "lib/file/file.h"

enum undo_entry { UNDO_FREE, UNDO_TAKEN, UNDO_LOST }; /* LOST: given up */
#define UNDO_BEGINNING (1ull << 63)

enum {
    UNDO_WORDS = 8, /* of a line */
    UNDO_LINES = 512,
    UNDO_TABLE_BYTES = UNDO_LINES * UNDO_WORDS * sizeof(uint64_t),
    UNDO_BUCKETS = 1 << 15,
};

/* shared_header.numbered. While it is UNDO_BEGUN, commits may be under way that have no number. */
enum { UNDO_BEGUN = 1, UNDO_READY };

/* A saved page. */
struct undo_copy {
    uint64_t page, from; /* `from`: the number of its content */
    uint64_t until;  /* of the commit that has changed it then; UNDO_EARLY, UNDO_PRIVATE; 0: free */
    uint32_t next;   /* in the list of its bucket: an index of a copy, + 1; 0: none */
    uint64_t views;  /* UNDO_PRIVATE: for which views of plain stores it is kept, a mask */
    uint64_t unsure; /* of these: their copies may be of this content, or of what came next */
    char pad[64 - 48];
    char bytes[PAGE_BYTES];
};

static_assert(sizeof(struct undo_copy) == 64 + PAGE_BYTES, "layout");

/* undo_copy.until: the copy is the newest content of the page (early.h); it is kept for mappings with plain stores (store_views.h). */
#define UNDO_EARLY   UINT64_MAX
#define UNDO_PRIVATE (UINT64_MAX - 2)

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
    bool early;      /* it gives up no snapshots for its copies */
};

/* Gives the commit its number. Unless it is early, snapshots that begin wait until it is visible. */
void undo_begin(struct undo *u, struct file *f, bool early);

/* Saves the page, which the caller holds, and changes after undo_saved(), if a snapshot needs it; or `always`. Returns false: it is not
 * saved, though it should be. */
bool undo_save(struct undo *u, uint64_t page, struct page_state *s, bool always);
void undo_saved(const struct undo *u);

/* Readers see all commits up to this number from now on. */
void undo_raise(struct file *f, uint64_t number);

/* The commit is visible; not an early one: to readers, too, as all before it. The caller releases `showing` then. */
static inline void undo_end(struct file *f, uint64_t number, bool early)
{
    __atomic_store_n(&f->shared.header->undo.shown, number, __ATOMIC_RELEASE);
    if (!early)
        undo_raise(f, number);
}

/* ---- early copies (early.h) ---- */

/* Is the newest content of the page in an early copy? Shared memory is not trusted: it may not be there. */
static inline bool undo_is_early(const struct file *f, const struct page_state *s)
{
    return f->logged && __atomic_load_n(&s->bitmap, __ATOMIC_ACQUIRE) && file_is_numbered(f);
}

/* Returns room for the newest content of the page: a copy that does not count until undo_put(); NULL: there is none. */
struct undo_copy *undo_room(const struct undo *u, uint64_t page);

void undo_put(const struct undo *u, struct undo_copy *c);

/* The early copy of a page that has this version becomes a saved one: a commit is about to change the page. */
void undo_outdate(const struct undo *u, uint64_t page, uint64_t version);

/* Copies bytes of the early copy of a page that had this version, which is valid if it still has it. Returns 0; 1: wait for the holder of
 * `showing`, and try again; -1 with ENOMEM, EUCLEAN. */
int undo_newest(struct file *f, uint64_t page, const struct page_state *s, uint64_t version,
                unsigned begin, unsigned n, char *dst);

/* Forgets the early copy of a page whose newest content is in the file: left by a process that was killed. With `showing`. */
void undo_forget(struct file *f, uint64_t page, struct page_state *s);

/* Calls `visit` for each page with an early copy, and its content, with `showing`. Unless it returns 1, the copy is not used any more.
 * Returns 0; -1: visit() has, or not all copies can be mapped. */
int undo_each_early(struct file *f, int (*visit)(struct file *f, uint64_t page,
                                                 struct page_state *s, const char *bytes));

/* ---- the copies themselves. With `showing`, as those above ---- */

/* A walk along all copies of a page. The last three are 0 at the start. */
struct undo_walk {
    struct file *f;
    uint64_t page;
    struct undo_copy *at;
    unsigned looks;
    bool failed; /* no memory to map the next one */
};
bool undo_next(struct undo_walk *w); /* after undo_map() */

/* Returns room for content of the page: a copy that does not count until something is stored in `until`, and comes first in a walk; NULL:
 * there is none. */
struct undo_copy *undo_first_room(struct file *f, uint64_t page);

/* Returns the i-th copy of all pages; NULL: there are less, or no memory. */
struct undo_copy *undo_at(struct file *f, uint64_t i);

/* ---- a snapshot ---- */

/* Copies n bytes of a saved page as the snapshot with that number has to see it. Returns enum undo_found; -1 with ENOMEM. */
enum undo_found { UNDO_NONE, UNDO_FOUND, UNDO_AGAIN };
int undo_find(struct file *f, uint64_t number, uint64_t page, unsigned begin, unsigned n,
              char *dst);

#endif
