/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of a journal: the libpmemobj pool `journal-<id>` in a reflection folder.
 *
 * libpmemobj makes the pool and allocates in it. The journal is its root object, laid out and written by
 * journal.c. After that libpmemobj is not used any more: it trusts the bytes that it reads, and would raise
 * a signal, or worse, if a crash, a bad disk or a user that may write to the pool has damaged them. A pool
 * is made by one process under the name `journal-<id>.tmp`, and renamed when it is complete.
 *
 * Two byte locks on the file (open file description locks, dropped by the kernel when the process dies):
 *   byte 0   the owner: held while the process that commits through the journal lives
 *   byte 1   recovery: held by a process that replays the journal, after the owner died
 * They show whether the owner lives. The pool's own lock does not: a pool that cannot be opened may be in recovery
 * by another process.
 *
 * The first half of an id is its maker's identity_process(). So the journals that have to be recovered,
 * before pages of a dead process are released, are known. The other half is random.
 */
#ifndef ATO_REFLECTION_RECOVERY_POOL_H
#define ATO_REFLECTION_RECOVERY_POOL_H

#include "reflection/format/journal.h"
#include "reflection/pairing/folder.h"
#include "reflection/pairing/ownership.h"

#include <sys/types.h>

#define POOL_PREFIX     "journal-"
#define POOL_UNFINISHED ".tmp"

/* The meaning of a name in a reflection folder: `journal-` and 32 hex digits, with the suffix of an unfinished file or
 * without. */
enum pool_name { POOL_NO_NAME, POOL_NAME, POOL_NAME_UNFINISHED };
enum pool_name pool_name_of(const char *name);

/* The process that made a journal, by its name. Returns false if the name is not a journal's. */
bool pool_process(const char *name, uint64_t *process);

/* Returns true if the journal `name` is of that process (identity_process()). */
bool pool_is_of(const char *name, uint64_t process);

/* A journal begins at a page within the first 8 MiB of its file. */
#define POOL_LEAST_BYTES (12ull << 20)
#define POOL_HEAD_BYTES  (8ull << 20)

/* Bytes of a file with a large lane for `words` words. */
uint64_t pool_bytes(uint64_t words);

struct pool {
    void *map;
    uint64_t bytes;
    struct journal journal;
    int lock;
    char name[64];
};

/* Makes a new journal in `f`, with a large lane for `words` words, and locks it as its owner. It gets the
 * given owner, group and mode, as far as the caller may. Returns 0; -1 with a sentence: ENOSPC, EACCES,
 * ... */
int pool_create(struct pool *pool, const struct folder *f, const struct persist *p, uint64_t words,
                const struct trust *like);

/* Opens the journal `name`, which is open as `lock`. The caller has locked both bytes, or has seen byte 0
 * free and does not replay it. Returns 0; -1 with a sentence: EUCLEAN if it is damaged. On failure the caller
 * keeps `lock`. */
int pool_open(struct pool *pool, const struct folder *f, const char *name, int lock);

/* Unmaps, unlocks and closes a journal. `remove`: removes its file first; the caller has checked that no lane
 * holds a commit. Returns 0; -1 with a sentence if removing failed. */
int pool_close(struct pool *pool, const struct folder *f, bool remove);

/* Finds the journal in the file of a pool that may be another process's, for reading: nothing is locked or
 * changed. Returns 1; 0 if none is found; -1 with a sentence. pool_peek_end(), which unmaps it, may follow in
 * each case. */
int pool_peek(struct pool *pool, int fd, const struct folder *f, const char *name);

/* The same for a file with a maker that is not trusted: read, not mapped, since the maker may cut it. */
int pool_copy(struct pool *pool, int fd, const struct folder *f, const char *name);
void pool_peek_end(struct pool *pool);

/* Finds where in a pool's file, `length` bytes long, the journal lies. Read, not mapped: the file is not
 * trusted yet. POOL_BROKEN (it begins like a journal, but is not valid) and POOL_NOT_KNOWN leave a
 * sentence, in which `full` names the file. */
enum pool_finding { POOL_FOUND, POOL_NONE, POOL_BROKEN, POOL_NOT_KNOWN };
struct pool_place {
    uint64_t begin, bytes;
};
enum pool_finding pool_find(int fd, uint64_t length, const char *full, struct pool_place *place);

/* In a forked child: closes the descriptor and touches nothing else. */
void pool_forget(struct pool *pool);

#endif
