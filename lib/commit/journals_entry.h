/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One journal of this process: which files it is for, its lanes, and the folders from which recovery finds it.
 * The caller (journals.c) holds the lock of all journals.
 */
#ifndef ATO_LIB_COMMIT_JOURNALS_ENTRY_H
#define ATO_LIB_COMMIT_JOURNALS_ENTRY_H

#include "lib/file/file.h"
#include "reflection/format/journal.h"
#include "reflection/recovery/pool.h"

#include <pthread.h>
#include <sys/stat.h>

/* Another folder with files that the journal served: entry k of the folder table is places[k - 1]. */
struct place {
    dev_t device;
    ino_t inode;
    struct folder folder;
    bool pointed; /* the pointer there is durable */
};

struct journals {
    struct journals *next;
    dev_t device; /* of the folder */
    ino_t inode;
    /* Owner, group and mode of all its files: a process that may recover one may recover all. */
    struct trust like;
    struct folder folder;
    struct pool pool;
    struct place *places;
    unsigned nplaces;
    uint64_t busy, stuck; /* one bit per lane */
    unsigned files;
    pthread_mutex_t medium;
    bool failed;    /* its medium failed: no new commits */
    bool abandoned; /* let go with a commit in doubt: not used any more */
};

/* What a journal has to match: its folder, and owner, group and mode of the original. (Those of its
 * reflection are as near to them as its maker could set them.) */
struct journal_key {
    struct stat folder;
    struct trust like;
};

/* Sets *k for a journal in the file's folder. Returns 0; -1 with errno. */
int journals_entry_key(const struct file *f, struct journal_key *k);

/* Makes a journal in the file's folder, with room for a commit of so many words. Returns NULL with errno. */
struct journals *journals_entry_make(struct file *f, const struct journal_key *k, uint64_t words);

/* Returns true if the journal is for files like `f`, whose key is `k`. */
bool journals_entry_matches(const struct journals *j, const struct journal_key *k,
                            const struct file *f);

/* Returns true if the journal takes no new commits. */
static inline bool journals_entry_is_over(const struct journals *j)
{
    return j->abandoned || __atomic_load_n(&j->failed, __ATOMIC_RELAXED);
}

/* Returns the smallest free lane that holds so many words of so many files; LANE_BUSY if all such lanes are
 * busy; LANE_NONE if there are none. */
enum { LANE_BUSY = -1, LANE_NONE = -2 };
static inline int journals_entry_pick(const struct journals *j, unsigned files, uint64_t words)
{
    int found = LANE_NONE;
    for (unsigned lane = 0; lane < j->pool.journal.lanes; lane++) {
        if (words > journal_capacity(&j->pool.journal, lane, files) || (j->stuck >> lane & 1))
            continue;
        if (!(j->busy >> lane & 1))
            return (int)lane;
        found = LANE_BUSY;
    }
    return found;
}

/* Returns true if the folder table has room for those folders of the files that the journal does not know
 * yet. `j` NULL: the table of a new journal, in the folder of files[0]. */
bool journals_entry_has_room(const struct journals *j, struct file *const *files, unsigned n);

/* Enters the folder of `f` into the folder table, and makes a pointer there, if that is not done yet. Returns
 * journal_file.folder: 0 if it is the journal's own folder; -1 with errno. */
int journals_entry_reach(struct journals *j, const struct file *f, const struct stat *folder);

/* Removes the pointers to the journal. Returns false if one stays. */
bool journals_entry_remove_pointers(struct journals *j);

/* Frees what the process has of the journal, which stays on the media. */
void journals_entry_free(struct journals *j);

#endif
