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
 *
 * The first half of an id is its maker's identity_process(), so that it is known which journals to recover
 * before what a dead process held is anybody's again; the other half is random.
 *
 * `journal-<id>.at` in another folder says where the journal is: pointer.h.
 */
#ifndef ATO_REFLECTION_POOL_H
#define ATO_REFLECTION_POOL_H

#include "folder.h"
#include "journal.h"
#include "trust.h"

#include <sys/types.h>

#define POOL_PREFIX     "journal-"
#define POOL_UNFINISHED ".tmp"
#define POOL_POINTER    ".at"
#define POOL_GONE       ".gone"

/* What a name in a reflection folder says: `journal-` and 32 hex digits, perhaps of a pointer, perhaps
 * unfinished. */
enum pool_name {
    POOL_NO_NAME,
    POOL_NAME,
    POOL_NAME_UNFINISHED,
    POOL_NAME_POINTER,
    POOL_NAME_POINTER_UNFINISHED,
};
enum pool_name pool_name_of(const char *name);

/* Of a name of a journal or pointer: the process that made it. False: it is none. */
bool pool_process(const char *name, uint64_t *process);

/* Is it, or the journal that it points to, of that process (identity_process())? */
bool pool_is_of(const char *name, uint64_t process);

/* Every journal begins at a page of the first 8 MiB of its file. */
#define POOL_LEAST_BYTES (12ull << 20)
#define POOL_HEAD_BYTES  (8ull << 20)

/* Of the file whose large lane holds so many words. */
uint64_t pool_bytes(uint64_t words);

struct pool {
    void *map;
    uint64_t bytes;
    struct journal journal;
    int lock;
    char name[64];
};

/* Makes a new journal in `f`, whose large lane holds `words` words, and locks it as its owner. Owner,
 * group and mode as given (as far as the caller may). ENOSPC, EACCES, ... */
int pool_create(struct pool *pool, const struct folder *f, const struct persist *p, uint64_t words,
                const struct trust *like);

/* Opens the journal `name`, whose lock file is open as `lock` with both bytes locked by the caller.
 * EUCLEAN when it is damaged. On failure `lock` stays the caller's. */
int pool_open(struct pool *pool, const struct folder *f, const char *name, int lock);

/* Unmaps and unlocks. `remove`: takes the file away first; the caller has seen that no lane holds
 * a commit. */
int pool_close(struct pool *pool, const struct folder *f, bool remove);

/* Finds the journal in the file of a pool that may be another process's, for looking only: nothing
 * is opened by libpmemobj, locked or changed. 1; 0: there is none to be found; -1 with a sentence. In
 * each case pool_peek_end() may follow, which takes back what was mapped. */
int pool_peek(struct pool *pool, int fd, const struct folder *f, const char *name);

/* The same of one whose maker is not trusted: read, not mapped, for he may cut it. */
int pool_copy(struct pool *pool, int fd, const struct folder *f, const char *name);
void pool_peek_end(struct pool *pool);

/* Where in the file of a pool, `length` bytes long, does a journal lie? Read, not mapped: nothing is known
 * of the file yet. POOL_BROKEN (something looks like one, and is none) and POOL_NOT_KNOWN leave a
 * sentence. `full` is the file's name there. */
enum pool_finding { POOL_FOUND, POOL_NONE, POOL_BROKEN, POOL_NOT_KNOWN };
struct pool_place {
    uint64_t begin, bytes;
};
enum pool_finding pool_find(int fd, uint64_t length, const char *full, struct pool_place *place);

/* In a forked child: drops the descriptor, touches nothing else. */
void pool_forget(struct pool *pool);

#endif
