/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A journal's home: the libpmemobj pool `journal-<id>` in a reflection folder.
 *
 * libpmemobj makes the pool and allocates in it; the journal is its root object, laid out and written
 * by journal.c. From then on libpmemobj has nothing to do with it: it believes what it reads, and what
 * a crash, a bad disk or somebody who may write to the pool left there would be a signal in it, or
 * worse. A pool is made under the name `journal-<id>.tmp`, by its maker alone, and renamed when it is
 * complete.
 *
 * Two byte locks on the file (open file description locks, dropped by the kernel at death):
 *   byte 0   the owner: held while the process that commits through the journal lives
 *   byte 1   recovery: held by whoever replays it, after the owner died
 * They tell whether the owner lives, which the pool's own lock cannot: a pool that does not open
 * may be one that somebody is recovering.
 */
#ifndef ATO_REFLECTION_POOL_H
#define ATO_REFLECTION_POOL_H

#include "folder.h"
#include "journal.h"

#include <sys/types.h>

#define POOL_PREFIX     "journal-"
#define POOL_UNFINISHED ".tmp"

/* What a name in a reflection folder says: `journal-` and 32 hex digits, perhaps unfinished. */
enum pool_name { POOL_NO_NAME, POOL_NAME, POOL_NAME_UNFINISHED };
enum pool_name pool_name_of(const char *name);

struct pool {
    void *map;
    struct journal journal;
    int lock;
    char name[64];
};

/* Makes a new journal in `f` and locks it as its owner. Owner, group and mode as given (as far as
 * the caller may). ENOSPC, EACCES, ... */
int pool_create(struct pool *pool, const struct folder *f, const struct persist *p, uid_t owner,
                gid_t group, mode_t mode);

/* Opens the journal `name`, whose lock file is open as `lock` with both bytes locked by the caller.
 * EUCLEAN when it is damaged. On failure `lock` stays the caller's. */
int pool_open(struct pool *pool, const struct folder *f, const char *name, int lock);

/* Unmaps and unlocks. `remove`: takes the file away first; the caller has seen that no lane holds
 * a commit. */
int pool_close(struct pool *pool, const struct folder *f, bool remove);

/* Finds the journal in the file of a pool that may be another process's, for looking only: nothing
 * is opened by libpmemobj, locked or changed. 1, and a mapping for pool_peek_end(), which takes NULL
 * too; 0: there is none to be found; -1 with a sentence. */
int pool_peek(int fd, const struct folder *f, const char *name, struct journal *j, void **map);
void pool_peek_end(void *map);

/* In a forked child: drops the descriptor, touches nothing else. */
void pool_forget(struct pool *pool);

#endif
