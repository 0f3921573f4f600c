/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of a journal: the libpmemobj pool `journal-<number>` in a reflection folder.
 *
 * libpmemobj makes the pool and allocates in it. The journal is its root object, laid out and written by
 * journal.c. After that libpmemobj is not used any more, and libato opens the file by itself: libpmemobj trusts the
 * bytes that it reads, and would raise a signal, or worse, if a crash, a bad disk or a user that may write to the pool
 * has damaged them. A pool that is not complete holds nothing: no manifest names it yet.
 *
 * Two byte locks on the file (open file description locks, dropped by the kernel when the process dies):
 *   byte 0   the owner: held while the process that commits through the journal lives (sweep.h)
 *   byte 1   recovery: held by a process that replays the journal, after the owner died
 *
 * The number is random. Manifests name the journal by it (area.h).
 */
#ifndef ATO_REFLECTION_RECOVERY_POOL_H
#define ATO_REFLECTION_RECOVERY_POOL_H

#include "reflection/format/journal.h"
#include "reflection/pairing/folder.h"
#include "reflection/pairing/ownership.h"

#define POOL_PREFIX "journal-"

/* Returns true if a name in a reflection folder is that of a journal: `journal-` and 12 hex digits, its number. */
bool pool_name_of(const char *name, uint64_t *number); /* `number` may be NULL */

enum { POOL_NAME_BYTES = 32 };
void pool_name(char name[POOL_NAME_BYTES], uint64_t number);

/* A journal begins at a page within the first 8 MiB of its file. */
#define POOL_LEAST_BYTES (12ull << 20)
#define POOL_HEAD_BYTES  (8ull << 20)

/* Bytes of a file with a large lane for `words` words. */
uint64_t pool_bytes(uint64_t words);

struct pool {
    void *map;
    uint64_t bytes;
    struct journal journal;
    uint64_t number;
    int lock;
    char name[POOL_NAME_BYTES];
    char path[PATH_MAX + POOL_NAME_BYTES]; /* for sentences */
};

/* Makes a new journal in `f`, with a large lane for `words` words, and locks it as its owner. It gets the
 * given owner, group and mode, as far as the caller may. Returns 0; -1 with a sentence: ENOSPC, EACCES,
 * ... */
int pool_create(struct pool *pool, const struct folder *f, const struct persist *p, uint64_t words,
                const struct trust *like);

/* Opens the journal `number` of a dead process and locks it for recovery. Its maker must be trusted for `file`. Returns
 * 0; -1 with a sentence: EUCLEAN if it is damaged, ...; ENOENT without one if there is none. */
int pool_open(struct pool *pool, const struct folder *f, uint64_t number, const struct trust *file);

/* Unmaps, unlocks and closes a journal. `remove`: removes its file first; the caller has checked that no lane
 * holds a commit. Returns 0; -1 with a sentence if removing failed. */
int pool_close(struct pool *pool, const struct folder *f, bool remove);

/* Finds the journal `number` in a pool whose file has `length` bytes. `bytes` are the first POOL_HEAD_BYTES of them, if it
 * has so many. Returns 0; -1 with EUCLEAN and a sentence, in which `full` names the file. */
int pool_find(struct journal *j, char *bytes, uint64_t length, uint64_t number, const char *full);

#endif
