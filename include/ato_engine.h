/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libato for libraries that bring their own locks, such as a database: to agree with processes that were killed, to share memory
 * for the locks, and to keep out programs that do not use libato. Other programs need only ato.h, whose conventions hold here.
 */
#ifndef ATO_ENGINE_H
#define ATO_ENGINE_H 1

#include "ato.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- ato_options.flags ---- */

/* The library uses fd itself while the file is mapped, and opens and closes no other descriptor of the file: for
 * programs that hold locks of fcntl(2) on it, which closing any descriptor drops. fd must stay open and be used for
 * nothing else, and the file can be mapped only once in the process (EBUSY). */
#define ATO_BORROW_FD 0x10u
/* Map a plain file for reading, as it is: nothing is made, and no read looks whether that has changed. The caller has a lock that
 * keeps other processes from mapping the file for writing, and from writing to it, until it is unmapped. EBUSY, or EAGAIN if no
 * process has it mapped: the file is not plain. EBUSY also if this process has it mapped without this flag. */
#define ATO_PLAIN 0x80u
/* A guard that is given to this mapping gets its mask, whose first byte is the complement of the plain one, before any other byte of the
 * file is written (ato_set_guard()). Then another byte there, while the reflection holds bytes, tells that another program
 * overwrote the file: ESTALE. */
#define ATO_MASK_FIRST 0x100u

/*
 * ---- The guard in ato_options and ato_unmap_options ----
 *
 * ato_options.guard_offset, guard_plain, guard_bytes (0: none): a guard for a file that has none and that no other process has
 * mapped, as by ato_set_guard(); without the time that this call takes.
 *
 * ato_unmap_options.guard_plain: spatial: the plain bytes of the file's guard, if they have changed since ato_set_guard(), whose
 * call they replace. Ignored if the file has no guard, or if other processes still have it mapped. NULL: unchanged.
 */

/*
 * If a file is not plain, a program that does not use libato reads stale bytes. This keeps the plain values of n
 * bytes (at most 16) of the file, from `offset` on. Then store others there, for which such programs refuse the
 * file, with ato_memcpy_opt() and ATO_EAGER. When the file is made plain (a spatial unmap, also one that a crash
 * interrupted and a later map finishes; `ato deploy`), the kept bytes are put back last, unless the first one of them
 * is there already: then there is no mask. Bytes that another program stored there after a crash at the very end of
 * that stay, too.
 *
 * They may lie beyond the end of the file: they are put back if the file is long enough by then.
 *
 * The guard belongs to the file, not to the mapping: it is kept over fast unmaps (see ato_stat()), and removed with
 * the reflection. n = 0 removes the guard; the file keeps the bytes that it has there. Durable when it returns.
 *   EACCES    the mapping has no PROT_WRITE
 *   EBUSY     a lock on the manifest is not free for half a minute
 *   EEXIST    the file has a guard at another place or of another length; or it has a guard, and `plain` equals
 *             the bytes that it has there now
 *   EINVAL    addr does not lie in a mapping; n is more than 16; offset is negative or too large
 *   EIO       the medium failed: as for ato_memcpy()
 * Since 0.1.
 */
int ato_set_guard(void *addr, off_t offset, const void *plain, size_t n);

/*
 * Copy n bytes of the original as they lie there, whether they are valid or not: what a program that does not know libato reads.
 * If the file has a mask there (ato_set_guard()) and the mask is gone, another program has overwritten the file.
 *
 * Returns 0; -1 with errno: EFAULT: the range does not lie in a mapping, or reaches beyond the end of the file; EIO.
 * Since 0.1.
 */
int ato_read_original(void *dst, const void *src, size_t n);

/* ---- Other processes and programs ---- */

/*
 * Call this after you take over a lock of your own (a robust mutex, a lock of fcntl(2) or of another program) from a
 * process that was killed, and before you read. A call of the killed process on the file that `addr` lies in takes
 * effect wholly or not at all, but which of the two may show only when another process needs the pages that it held;
 * until then readers see the bytes before the call.
 * Waits for all calls of other processes that were changing the file when this call began: then the changes of a
 * killed process are visible, or never will be. Costs a few loads if there are none.
 *
 * Durability: the changes that it makes visible are durable.
 *   EINVAL     not in a mapping
 *   EAGAIN     read-only descriptor: a process was killed in a call, and no process with write permission has
 *              finished that within a second
 *   ETIMEDOUT  a living process has been in such a call for a second
 *   EACCES, EBUSY, EIO, ENOMEM, ENOSPC, EUCLEAN  the calls cannot be finished: as ato_mmap()
 * Since 0.1.
 */
int ato_settle(const void *addr);

/*
 * Look whether another program has changed the mapped file in a way that shows at once: its length is not the one that libato gave
 * it, or its reflection was removed. Some system calls: for a program that looks now and then, as before a commit that comes
 * alone. (ato_deploy(), a spatial unmap and the next map look at the length, too.)
 *
 * Returns 0; -1 with errno:
 *   EFAULT    addr does not lie in a mapping
 *   EIO       the medium failed: as for ato_memcpy()
 *   ENOENT    the reflection was removed: what it holds is lost when the last process that has it mapped ends without a spatial
 *             unmap, which brings it home
 *   ESTALE    another program cut, extended or overwrote the file: see ato_munmap()
 * Since 0.1.
 */
int ato_check(const void *addr);

/* Return 1 if nobody has committed anything to the file since the snapshot began, also this thread; 0 if somebody has; -1 with EINVAL, or
 * ENOTSUP: the snapshot is one of a plain file. A caller that knows that nobody commits meanwhile may write what it has concluded from the
 * snapshot. Since 0.1. */
int ato_snapshot_is_newest(const ato_snapshot *snapshot);

/*
 * ---- Early commits (domain disk) ----
 *
 * A commit of a transaction with ATO_TX_EARLY may be visible to other such transactions before it is durable: they go on from it, and
 * all share a sync. Others see it when it is durable. The caller keeps other writers of the file out, by a lock of its own, from before it
 * reads what it bases its changes on until ato_tx_commit_early() returns; then it gives the lock back, and waits.
 */

/* ato_tx_options.flags, with ATO_TX_READ_COMMITTED: the transaction reads what is newest, durable or not. */
#define ATO_TX_EARLY 0x100u

struct ato_promise {
    unsigned long long number, end; /* 0: the commit is durable */
};

/* Commit. Returns as ato_tx_commit(). promise->number is not 0: the commit is visible, and durable when ato_await() returns 0. It must
 * be called: without it nobody may be told that the commit is done. promise is NULL: it is relaxed (ATO_RELAXED). Since 0.1. */
int ato_tx_commit_early(ato_tx *tx, struct ato_promise *promise);

/* Set *promise to that of the newest commit that is visible to writers. For a caller that has read what is newest, and commits nothing.
 * Returns 0; -1 with EINVAL: addr is in no mapping. Since 0.1. */
int ato_visible(const void *addr, struct ato_promise *promise);

/* Wait until a promise for the file that addr lies in is kept: the commit and all before it are durable, and visible to all. With 0 as its
 * `end` they become visible and need not be durable: for a relaxed writer that has read what is newest. Returns 0; -1 with EINVAL: addr is in
 * no mapping, or the promise is not one of the file; with EIO: the medium failed, as for ato_memcpy(). Since 0.1. */
int ato_await(const void *addr, const struct ato_promise *promise);

/* Copy n bytes that are newest, durable or not. Returns as ato_memcpy(). Since 0.1. */
void *ato_read_newest(void *dst, const void *src, size_t n);

/* Begin a snapshot of what is newest, durable or not, while the caller keeps other writers out. Since 0.1. */
ato_snapshot *ato_snapshot_newest(const void *addr);

/* The most bytes of ato_shared(). */
#define ATO_SHARED_MAX 65536

/*
 * Return memory for `bytes` bytes, for locks, queues and counters, that all processes share which use the file of `fd`, mapped or
 * not. For programs with locks of their own on the file: the caller holds a lock that keeps others out of this call and of
 * ato_shared_end(). If no living process has the memory of this file, it is made anew, and is zeros. Otherwise it is that of the
 * others, with which the number of bytes must agree.
 *
 * It is aligned to 4096 bytes, readable and writable until ato_shared_end(), and not inherited by fork(), where the child closes its
 * copy of fd. A process gets it once for a file. fd is open for reading and writing, and stays open: its open file description
 * has a lock (F_OFD_SETLK) on a byte behind all that a file can hold, until it is closed. Check what you read in the memory: all that
 * may write to the file may write to it. Another program may also make the object in /dev/shm shorter: see ato_shared_check(). Never
 * durable. Returns NULL after an error:
 *   EACCES        fd is not open for reading and writing; or the memory cannot be opened
 *   EBADF, EINVAL fd is no open file, not a regular one, or one without a name; bytes is 0, or more than ATO_SHARED_MAX
 *   EBUSY         other processes have such memory, but not in this process's /dev/shm, as in containers
 *   EEXIST, EPERM another user has taken the name in /dev/shm
 *   EFBIG         RLIMIT_FSIZE
 *   ENOMEM, ENOSPC  no space in /dev/shm
 * Since 0.1.
 */
void *ato_shared(int fd, size_t bytes);

/* Give it back, with the values that ato_shared() has got and returned. is_last: no other process has it: its space is freed. What a
 * killed process leaves, the next first one removes, or `ato gc /dev/shm`. -1 with EINVAL, EBADF. Since 0.1. */
int ato_shared_end(int fd, void *memory, size_t bytes, int is_last);

/* Return 0; or -1 with EIO if another program has made the memory's object shorter, and this process has accessed a part that is
 * gone: it has zeros there, of its own, until ato_shared_end(). To be called after each access that something depends on, as after
 * taking a lock. (Without the handler of SIGBUS, which a process's first mapping installs, the access is SIGBUS.) Since 0.1. */
int ato_shared_check(const void *memory);

/* ---- Diagnostics ---- */

/* Send a message of a user of libato to the same log. `level`: ATO_LOG_ERROR, ....
 * Leaves errno and ato_errormsg() unchanged. Since 0.1. */
void ato_log(int level, const char *sentence);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
