/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libato: atomic, lazy writes to memory-mapped files.
 *
 * Map a file with ato_mmap(), write to it with ato_memcpy(). Every call is all or nothing if the process is
 * killed, the kernel crashes or the power fails (as far as the file's durability domain reaches), however
 * many pages it spans.
 *
 * Conventions
 *
 *   Errors       A function that fails returns the value of the corresponding POSIX function (-1, NULL or
 *                MAP_FAILED), sets errno, and sets the message that ato_errormsg() returns. The library
 *                never exits, and prints nothing unless asked to (ato_set_log(), ATO_LOG).
 *   Ownership    The caller keeps its descriptor, and may close it as soon as ato_mmap() has returned.
 *                The library keeps no pointer that it is passed, except those of ato_set_log().
 *   Threads      Every function may be called from any thread at any time, except that a mapping
 *                must not be unmapped while another thread is in a call on it (a library that was
 *                built with assertions aborts then). Reads take no lock, and do not wait for a
 *                writer's copying or flushing (but see ATO_EPOCHS); if commits change its pages again
 *                and again, a read queues for them after some tries. Between threads, calls are ordered as plain
 *                stores and loads are on x86: writes become visible in order, and a later read
 *                of the same thread may take effect before them. Do not call any function from a signal
 *                handler, nor leave a call by longjmp() or thread cancellation.
 *   Exceptions   of C++, and panics of Rust ("C-unwind"), may leave the function of ato_tx_run(), and no other
 *                function that is passed to the library: these are called while it holds locks.
 *   fork         A mapping is unusable in the child until the child maps the file itself.
 *   Durability   When a writing call returns, its bytes are durable in the sense of the file's
 *                domain (ATO_DOMAIN_...). When it fails, nothing has changed, except after EIO from a
 *                medium that failed in the middle of a commit: then the write took effect wholly
 *                or not at all, and the next map of the file shows which.
 *   Units        Sizes and offsets are bytes. A page is 4096 bytes, a slice 64.
 *
 * Plain loads through the mapped address see the file's own copy, which is current only after
 * ato_deploy() of that range (and until the next write to those pages): read with ato_memcpy().
 */
#ifndef ATO_H
#define ATO_H 1

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h> /* what ato_mmap() takes and returns: PROT_READ, MAP_SHARED, MAP_FAILED, ... */
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define ATO_VERSION_MAJOR 0
#define ATO_VERSION_MINOR 1
#define ATO_VERSION_PATCH 0

/* The header's version as a number, 0x000100 for 0.1.0. Later versions are larger: #if ATO_VERSION >= 0x000200 */
#define ATO_VERSION (ATO_VERSION_MAJOR << 16 | ATO_VERSION_MINOR << 8 | ATO_VERSION_PATCH)

/* The library's version, "MAJOR.MINOR.PATCH". Never fails. Since 0.1. */
const char *ato_version(void);

/* ---- Constants ---- */

/* How reads treat slices whose valid copy lies in the reflection. */
enum ato_read_policy {
    ATO_READ_DEFAULT = 0, /* what $ATO_READ_POLICY names; lazy if it is not set */
    ATO_READ_LAZY = 1,    /* the first read of such a page deploys it */
    ATO_READ_GATHER = 2,  /* read each slice from where it is; never deploy */
    ATO_READ_EAGER = 3,   /* each write deploys what it wrote before it returns */
};

/* How bytes become durable. The domain belongs to the file: its first mapping fixes it. */
enum ato_domain {
    ATO_DOMAIN_AUTO = 0,    /* detected from the medium */
    ATO_DOMAIN_PMEM = 1,    /* persistent memory: flush and fence; survives a power cut */
    ATO_DOMAIN_EADR = 2,    /* the same with CPU caches that are flushed at a power cut */
    ATO_DOMAIN_DISK = 3,    /* page cache on a disk: a synced log; survives a power cut */
    ATO_DOMAIN_PROCESS = 4, /* survives a kill of the process, not a kernel crash */
};

enum ato_format {
    ATO_FORMAT_DEFAULT = 0, /* what $ATO_FORMAT names; dense if it is not set */
    /* One RefPage for each page of the file; space only where written, or near it. */
    ATO_FORMAT_DENSE = 1,
    ATO_FORMAT_SPARSE = 2, /* a RefPage for each page that was written: for few updates far apart */
    ATO_FORMAT_LOG = 4,    /* of ato_stat(): domain disk has a log, whatever is asked for */
};

/* ato_options.flags */
#define ATO_NO_RTM 0x1u /* never use hardware transactions on this mapping */
/* Instead of ESTALE: FILE takes the file as it is, and sets its reflection aside. REFLECTION takes the slices in the
 * reflection, and the file's own bytes elsewhere, if the file was written since it was unmapped and kept its size; and joins a
 * file that was restored from a backup with its reflection, which has the old inode number. */
#define ATO_PREFER_FILE       0x2u
#define ATO_PREFER_REFLECTION 0x4u
/* Writes through the mapping belong to its epoch, which ato_msync() commits. A read of pages that the epoch has written
 * takes turns with writes and ato_msync() of other threads. */
#define ATO_EPOCHS 0x8u
/* Uses a file, or a reflection folder, on a network file system or FUSE too, where libato is not safe by itself: only if no
 * other machine uses the file, and mappings and locks of the file system are coherent on this one. So does the
 * variable ATO_ANY_FILE_SYSTEM=1. */
#define ATO_ANY_FILE_SYSTEM 0x20u
/* Do not install the handler of SIGBUS (ato_mmap(3)): a call that finds that another program has made the file shorter
 * dies of it. Where a mapping without this flag has installed it, it stays. */
#define ATO_NO_FAULT_HANDLER 0x40u
/* Writes and transactions through the mapping are relaxed (below). */
#define ATO_RELAXED 0x200u
/*
 * The view is private to the mapping, and writable: the program loads and stores by plain instructions, and ato_msync() commits what it has
 * stored, as one atomic step. ato_memcpy() and the other calls that write cannot write to it (EINVAL); out of it they read what is
 * committed. The mapping needs PROT_WRITE. Not with ATO_EPOCHS.
 *
 *   Others     Other mappings and processes see commits, never stores. A page without stores of this process since its last
 *              commit shows what others commit at once. If two have changed a byte, the later commit counts. Processes that store to
 *              the same page at the same time need a lock of their own over stores and ato_msync(): without one a store that comes
 *              in the middle of another process's commit of that page may, rarely, take a slice of that commit back.
 *   Threads    A commit has all that any thread of the process had stored when it began, and nothing later: a thread that stores in its
 *              range meanwhile waits until it is over, in a handler of SIGSEGV, which the first such mapping installs (not with
 *              ATO_NO_FAULT_HANDLER: then threads must not store during ato_msync()). A system call that stores there meanwhile, as read(2)
 *              may, fails with EFAULT. Threads that store must not block SIGSEGV; a signal handler must not store there.
 *   Memory     Each page with stores is a copy in memory until its commit. It counts against the process's memory. As with mmap(2), an
 *              access to a hole of a file in memory (tmpfs) is SIGBUS if there is no space for it.
 *   Growth     by ato_ftruncate() belongs to the next commit, too. A shrink is at once, and so is a growth over what was cut off.
 *   The end    ato_munmap() commits, exit(3) and a kill do not.
 */
#define ATO_PLAIN_STORES 0x400u
/* 0x10, 0x80 and 0x100 are in ato_engine.h */

/*
 * ATO_RELAXED, of a mapping, a call or a transaction (domain disk; in others it changes nothing): the call returns when the commit is
 * visible to all, and does not wait for the disk. It is durable at the latest when the sync has ended that begins relaxed_ms
 * (ato_options) later, when any later commit is that is not relaxed, or when ato_msync() or the file's last ato_munmap() of this process
 * has returned. A power cut before that takes the newest commits, from the last one backwards: never a part of one, and none without
 * those after it. A kill of the process takes nothing. Eager writes, shrinks, and epochs are not relaxed.
 */

/* ato_memcpy_opt() and ato_writev() flags; ATO_RELAXED too */
/* Deploy what this call wrote before it returns. If ato_memcpy_opt() with this flag alone writes within one aligned word of 8
 * bytes, whose slice is valid in the file, that is one store to the file (but not with ATO_EPOCHS): other programs see it wholly
 * or not at all, and no crash leaves it in the reflection. */
#define ATO_EAGER      0x1u
#define ATO_SKIP_EQUAL 0x2u /* do not write slices that already hold these bytes */

/* ato_tx_begin() flags; ATO_RELAXED too */
#define ATO_TX_READ_COMMITTED 0x1u /* reads are not checked again later */

/* ato_munmap() modes */
#define ATO_UNMAP_FAST    0 /* keep the reflection: unmapping and the next mapping are O(1) */
#define ATO_UNMAP_SPATIAL 1 /* deploy everything and remove the reflection: a plain file */
/* With either of them, by |: of a mapping with ATO_PLAIN_STORES: forget what was stored since its last commit. Without it ato_munmap()
 * commits that first; if it cannot, it fails as ato_msync(), and the file stays mapped. */
#define ATO_UNMAP_DISCARD 2

/* ato_set_log() levels */
#define ATO_LOG_ERROR   0
#define ATO_LOG_WARNING 1
#define ATO_LOG_INFO    2

/* Set everything to zero, then struct_size. Zero is every default. Grows at its end only. */
struct ato_options {
    size_t struct_size; /* sizeof(struct ato_options) */
    int read_policy;    /* enum ato_read_policy; always gather for a read-only descriptor */
    int domain;         /* enum ato_domain; EXDEV if the mapped file has another one */
    int format;         /* enum ato_format; at the reflection's creation only; not on a disk */
    unsigned flags;     /* ATO_NO_RTM, ATO_EPOCHS, ATO_RELAXED, ... */
    size_t max_size;    /* bytes that the file may grow to (ato_ftruncate()); reserves address
                           space; 0: the file's size, at least 1 GiB */
    const char *reflection_dir; /* folder of reflections; NULL: $ATO_REFLECTION_DIR, else the
                                      folder .ato beside the file */
    /* a guard: ato_engine.h */
    off_t guard_offset;
    const void *guard_plain;
    size_t guard_bytes;
    const char
        *log_dir; /* the same as reflection_dir for a file that gets a log; NULL: $ATO_LOG_DIR,
                            unless reflection_dir is set */
    uint64_t log_bytes; /* of a new log: it gets these bytes at once, and never more; 0:
                            $ATO_LOG_BYTES, else as many as it needs */
    uint64_t
        snapshot_bytes; /* of shared memory, at most, for what snapshots of the file see and others have
                                changed, if this process takes the first one; 0: $ATO_SNAPSHOT_BYTES, else
                                256 MiB */
    uint64_t
        relaxed_ms; /* so long after a relaxed commit a sync begins at the latest, if this mapping is the file's first one in this
                       process; 0: $ATO_RELAXED_MS, else 100; at most an hour */
};

struct ato_unmap_options {
    size_t struct_size; /* sizeof(struct ato_unmap_options) */
    int mode;           /* ATO_UNMAP_FAST or ATO_UNMAP_SPATIAL; | ATO_UNMAP_DISCARD */
    unsigned threads;   /* spatial: threads that deploy; 0: chosen by size and CPUs */
    /* Called from time to time while a spatial unmap deploys, by one thread at a time: bytes of the
     * file processed so far, and its size. Must not call libato or fork(). May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
    const void *guard_plain; /* ato_engine.h */
};

/* The handle of a transaction: after its end, calls with a copy of the handle fail. */
typedef struct ato_tx ato_tx;

struct ato_tx_options {
    size_t struct_size; /* sizeof(struct ato_tx_options) */
    unsigned flags;     /* ATO_TX_READ_COMMITTED, ATO_RELAXED */
    uint64_t
        wait_ms; /* how long a call waits at most for a page that others hold: EAGAIN; 0: 1 ms */
    /* How much the transaction may write, and how much it may read besides, in bytes of whole pages: E2BIG; at most
     * 1 TiB. 0: 1 GiB and 32 MiB. A page takes some 32 bytes of memory, and 16 of a lane if written. */
    uint64_t max_bytes;
    /* How long ato_tx_run() tries: EAGAIN. 0: as long as a plain call waits ($ATO_WAIT_MS). */
    uint64_t run_ms;
};

/* One range of ato_writev(). */
struct ato_iovec {
    void *dst;
    const void *src;
    size_t n;
};

/* Counters are of the file in this process: they begin with its first mapping, and end with the last one. */
struct ato_stat {
    size_t struct_size; /* set by the caller: sizeof(struct ato_stat) */
    /* those in use: never ..._AUTO or ..._DEFAULT */
    int domain, format, read_policy;
    /* state of the file */
    uint64_t size;                 /* logical size, bytes */
    uint64_t slices_in_reflection; /* slices whose valid copy lies in the reflection */
    uint64_t reflection_bytes;     /* bytes of storage that the reflection takes */
    /* successful calls */
    uint64_t writes, bytes_written;
    uint64_t reads, bytes_read;
    /* work */
    uint64_t bytes_to_media;  /* slices, words and lanes stored on the media */
    uint64_t flips;           /* bitmap words changed */
    uint64_t commits_single;  /* writes committed by one 8-byte store */
    uint64_t commits_rtm;     /* by a hardware transaction */
    uint64_t commits_journal; /* by a lane, in the manifest */
    uint64_t rtm_aborts;      /* hardware transactions that aborted */
    uint64_t deployed_slices; /* slices deployed */
    uint64_t read_retries;    /* reads that started again because a commit came between */
    /* the file's guard: ato_engine.h */
    uint64_t guard_offset;
    unsigned guard_bytes; /* 0: no guard */
    unsigned char guard_plain[16];
};

/* ---- Lifecycle ---- */

/*
 * Map `length` bytes of the file `fd` from `offset` (a multiple of 4096), as mmap(2) does with
 * MAP_SHARED. The returned view is read-only even if `prot` has PROT_WRITE, which only lets
 * ato_memcpy() write to it. It begins on a boundary of 1 GiB. `addr` is a hint.
 * `length` may reach beyond the end of the file; only bytes within the file can be read or written.
 * A mapping that reaches to the end of the file or beyond, or has a max_size, grows with the
 * file, at the same address, whatever its `length`. Other mappings keep their length.
 *
 * Makes or adopts the file's reflection, and recovers the file after a crash. Durable when it returns:
 * the pairing of file and reflection, and what was recovered.
 *
 * Errors, besides mmap(2)'s (EACCES, EBADF, EINVAL, ENOMEM, ENODEV):
 *   EACCES    no permission for the reflection folder, or the folder or a file in it is not trusted
 *   EAGAIN    fd is read-only, and a process with write permission must map the file first: it is not plain, and no such
 *             process has it mapped; or it has a copied attribute. Or 1024 processes have it mapped
 *   EBUSY     another process has the file mapped, with another /dev/shm, or (with ATO_PREFER_FILE) under a name from which
 *             its reflection is not found; or this process has an image of
 *             it mapped, with the same id; or this process has it mapped, and this mapping or that one has
 *             ATO_BORROW_FD; or a lock on the manifest is not free for half a minute
 *   EFBIG     the file is larger than the maximum that the first mapping fixed, or than 256 TiB
 *   EINVAL    MAP_PRIVATE, MAP_ANONYMOUS, MAP_FIXED; not a regular file; a file that is
 *             unlinked, or to which its path does not lead any more, or that has several links where the file
 *             system has no extended attributes; unknown options, flags or values of environment variables
 *   EIO       the medium failed
 *   ENOSPC    no space for the manifest, the reflection or the shared page states
 *   ENOSYS    the system lacks locks of open file descriptions
 *   ENOTSUP   an option that is not in this version; or the file system lacks fallocate(2)
 *             (EOPNOTSUPP, the same number); or it is a network file system or FUSE: see ATO_ANY_FILE_SYSTEM
 *   ESTALE    reflection and file do not belong together: the reflection is missing,
 *             the file was written or cut by other means since it was unmapped, it is a copy of a
 *             file that was not plain, it was restored and its reflection has the old inode number, its attribute was
 *             removed, or another file's reflection is in the way: see ATO_PREFER_FILE and ATO_PREFER_REFLECTION
 *   EUCLEAN   a manifest or reflection is damaged, or of an unknown version
 *   EXDEV     the file is mapped in another durability domain
 * Since 0.1.
 */
void *ato_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset);

/* The same with options (NULL: all defaults). Writable if `fd` is open for reading and writing.
 * Since 0.1. */
void *ato_mmap_opt(size_t length, int fd, off_t offset, const struct ato_options *opt);

/*
 * Unmap a whole mapping, with the address and length that it was made with.
 *   ATO_UNMAP_FAST     keeps the reflection; the file is not plain.
 *   ATO_UNMAP_SPATIAL  the last mapping of the file deploys everything and removes reflection,
 *                      manifest and attribute: then read(2) sees the current content. Others only detach.
 * If the file system has no extended attributes, a fast unmap deploys too.
 * EBUSY: an open transaction has touched the mapping, or its epoch holds writes.
 * If deploying fails (EIO, ENOSPC; ESTALE: the file was given another length or overwritten by other means, or its reflection cut), the
 * mapping still exists. If a later step fails (writing the manifest, removing a name; EIO for a file whose last
 * commit is in doubt, which is not made plain), the mapping is gone, and the next ato_mmap() finishes: no byte is
 * lost. EINVAL: not a mapping, or a part of one. Since 0.1.
 */
int ato_munmap(void *addr, size_t length, int mode);
int ato_munmap_opt(void *addr, size_t length, const struct ato_unmap_options *opt);

/* ---- Data ---- */

/*
 * Copy n bytes. `dst`, `src` or both lie in a mapping.
 *   into a mapping    one atomic write of any length: durable when it returns
 *   out of a mapping  one consistent snapshot: never a mix of before and after another call
 *   both              one atomic write; ranges may overlap, as with memmove()
 * Returns dst, or NULL with errno:
 *   EINVAL    neither side lies in a mapping; unknown flags
 *   EFAULT    a side lies partly in a mapping, or beyond the end of the file
 *   EACCES    dst lies in a mapping without PROT_WRITE
 *   ENOSPC    no space for the other copy, the page states or the lanes (or EDQUOT)
 *   ENOMEM    no memory for the list of pages of a long copy
 *   E2BIG     the write changes more pages than a lane can hold: 1 TiB
 *   EBUSY     a killed process held a page, and another process, which may be stopped, has kept the locks that
 *             are needed to free it for half a minute
 *   EAGAIN    src lies in a mapping of a read-only descriptor, and a process with write permission must free pages
 *             that a killed process held (ato(7)); or others wrote there without a pause for a second
 *   EDEADLK   the call would wait for itself: a page of the write is held by an open transaction of the
 *             calling thread, or by the open epoch of another mapping of this process
 *   EIO       the medium failed; if that leaves a commit in doubt, every call on the
 *             file is EIO until it is unmapped and mapped again
 *   ETIMEDOUT others, such as an open transaction or a process that is stopped, held a page for $ATO_WAIT_MS
 *             milliseconds (10,000 if it is not set); or a process has kept the file's long lane, for commits of
 *             more than 248 pages, for 10 seconds
 * A write waits for transactions that hold its pages; a read does not.
 * Through a mapping with ATO_EPOCHS a write is atomic for readers through the mapping; it becomes durable,
 * and visible to others, with the epoch: ato_msync().
 * Since 0.1.
 */
void *ato_memcpy(void *dst, const void *src, size_t n);

/* The same with ATO_EAGER, ATO_SKIP_EQUAL, ATO_RELAXED (no effect on reads). Since 0.1. */
void *ato_memcpy_opt(void *dst, const void *src, size_t n, unsigned flags);

/* Set n bytes of a mapping to c: one atomic write, errors and durability as ato_memcpy(). It has the arguments of memset(3), and
 * no flags: for ATO_EAGER or ATO_SKIP_EQUAL copy from memory that has been set. Since 0.1. */
void *ato_memset(void *dst, int c, size_t n);

/*
 * Write `count` ranges as one atomic step: all of them or none, in any mappings of one file.
 * Each is written as by ato_memcpy() into a mapping. If they overlap, the later one wins; a source in a mapping
 * includes the writes of the ranges before. Durable when it returns. Returns 0, or -1 with errno: as
 * ato_memcpy(), and
 *   EAGAIN, ENOMEM  as ato_tx_begin()
 *   EINVAL    a dst that does not lie in a mapping; unknown flags; ranges of an epoch mixed with others
 *   EXDEV     ranges of two files: a commit is of one
 * Since 0.1.
 */
int ato_writev(const struct ato_iovec *iov, int count, unsigned flags);

/*
 * Deploy the pages that [addr, addr+n) touches, so that plain loads there are current until the next write to
 * those pages. Each page is deployed by itself; the content of the file does not change. Durable when it returns.
 * Errors: EACCES (the mapping has a read-only descriptor), EDEADLK and ETIMEDOUT (as ato_memcpy()), EINVAL, EFAULT,
 * ENOSPC, ENOMEM, EIO, ESTALE (another program changed the file's length). Since 0.1.
 */
int ato_deploy(const void *addr, size_t n);

/*
 * Give back the space of the reflection that the pages which [addr, addr+n) touches do not need: of each page whose bytes are
 * all valid in the file itself. A page with bytes in the reflection keeps its space: call ato_deploy() first. So does a
 * page that others use at this moment. The content of the file does not change, before, after or by a crash, and a later
 * write takes space again. Waits for nobody. In a page cache, on a disk, nothing is given back.
 * Errors: EACCES (the mapping has a read-only descriptor), EINVAL, EFAULT, ENOSPC (in /dev/shm, for page states), EIO,
 * EOPNOTSUPP (the file system cannot punch holes): what could be given back was. Since 0.1.
 */
int ato_reclaim(void *addr, size_t n);

/*
 * A snapshot: the file that the mapping at `addr` belongs to, as a whole, as it is at one moment of the call, for as long as the
 * snapshot is open. It blocks no writer and is blocked by none. It has no part of a write or transaction that is not in it as a
 * whole; what an open transaction or epoch has not committed is not in it. Several threads may read one snapshot.
 *
 * What others change is kept in memory for the snapshots that see it, up to ato_options.snapshot_bytes of the process that has
 * taken the first one. If that is used up, the oldest snapshot is given up: reads of what was changed are ESTALE then. The
 * mapping cannot be unmapped while a snapshot is open (EBUSY). A process that dies, or calls exec(), leaves none behind.
 *
 * ato_snapshot_begin() returns a handle, or NULL with errno:
 *   EINVAL    addr lies in no mapping
 *   EAGAIN    too many snapshots are open; or the mapping has a read-only descriptor, and a process with write permission must
 *             recover the file (as ato_memcpy())
 *   EACCES    the mapping has a read-only descriptor, the caller may not write to the file, others have mapped it for writing, and
 *             none of them has taken a snapshot yet
 *   EFBIG     the file is longer than the mapping's max_size
 *   ENOSPC, ENOMEM  no shared memory, or no address space, for snapshots
 *   ENOSYS    the kernel has no membarrier(2) (Linux 4.16)
 *   EIO, ETIMEDOUT, EBUSY  as ato_memcpy()
 *
 * ato_snapshot_read() copies n bytes at `offset` to dst, which lies in no mapping. Returns how many: less than n at the end of
 * the file, 0 behind it; or -1 with errno:
 *   ESTALE    the snapshot was given up; or the mapping has a read-only descriptor, nobody had mapped the file for writing when
 *             the snapshot began, and it has changed since
 *   EINVAL    no open snapshot; an offset below 0; dst is NULL or in a mapping
 *   EAGAIN, EIO, ENOSPC, ENOMEM  as ato_memcpy()
 *
 * ato_snapshot_seek() returns with SEEK_END and 0 the size of the file in the snapshot, bytes; with SEEK_DATA the first offset from
 * `offset` on where there may be other bytes than zeros, or -1 with ENXIO: there are none; or with ESTALE: another program
 * overwrote the file (ato_set_guard()), so that what was read so far may be a mixture. One thread at a time.
 *
 * ato_snapshot_end() returns 0, or -1 with EINVAL. Nothing of this makes anything durable. Since 0.1.
 */
typedef struct ato_snapshot ato_snapshot;
ato_snapshot *ato_snapshot_begin(const void *addr);
ssize_t ato_snapshot_read(ato_snapshot *snapshot, void *dst, off_t offset, size_t n);
off_t ato_snapshot_seek(ato_snapshot *snapshot, off_t offset, int whence);
int ato_snapshot_end(ato_snapshot *snapshot);

/* Makes all relaxed commits to the file durable, of all processes, and waits for it, whatever the flags (but not through a read-only
 * descriptor). Other writes are durable already: then it checks its arguments as msync(2) does, and that the file is in order (EIO).
 * ENOMEM: not within a mapping.
 * With ATO_EPOCHS: commits all writes through the mapping since the last call (whatever the range and
 * flags), as one atomic step, durable when it returns. If it fails (errors of ato_tx_commit()) the
 * epoch stays open.
 *
 * With ATO_PLAIN_STORES: commits what was stored to the pages of the range, of any number, as one atomic step: the slices that
 * differ. Durable when it returns; with MS_ASYNC it is a relaxed commit (ATO_RELAXED), unless others have the file mapped with
 * ATO_PLAIN_STORES. The memory of the pages is given back; after a relaxed commit with the next call. What was stored behind the end of the file is not committed. If it fails, nothing is committed, and the
 * stores are still there (after EIO: as for ato_memcpy()):
 *   ENOSPC, ENOMEM, EIO, ETIMEDOUT  as ato_memcpy()
 *   ESTALE    others changed pages with stores, and there was no memory to keep what these were made from (snapshot_bytes, /dev/shm), or
 *             they cannot read this process's /proc/PID/pagemap (another pid namespace or user): ato_plain_discard() all of the mapping
 * Since 0.1. */
int ato_msync(void *addr, size_t n, int flags);

/* Forget what was stored to the pages of a range of a mapping with ATO_PLAIN_STORES since its last commit: they show what is committed.
 * 0, or -1 with EINVAL (another mapping), ENOMEM (not within a mapping), and as ato_msync(). Since 0.1. */
int ato_plain_discard(void *addr, size_t n);

/* Set the read policy (enum ato_read_policy) of the mapping that `addr` lies in, also while other threads use it. A
 * call that is under way uses the old one or the new. Makes nothing durable. EINVAL: not in a mapping, or an unknown
 * policy, also in $ATO_READ_POLICY; EACCES: the mapping has a read-only descriptor, and the policy is not gather. Since 0.1. */
int ato_set_read_policy(void *addr, int policy);

/*
 * Make the file that `addr` lies in `size` bytes long, atomically: a crash leaves its old size or the
 * new one. New bytes read as zeros, and take no space until they are written to. Every mapping that
 * grows with the file reaches them at once, at its address. Durable when it returns.
 *
 * A shrink waits for calls that write to the part that is cut off, and for transactions that hold pages there;
 * then calls that reach beyond the new end are EFAULT. The part reads as zeros if the file gets longer again. It gives its
 * space back, and other programs see the new length, when the last mapping of the file is gone; until then plain loads
 * beyond the end may read any bytes.
 *   EACCES    the mapping has no PROT_WRITE
 *   EAGAIN, ENOMEM  as ato_tx_begin()
 *   EDEADLK, ETIMEDOUT  as for ato_memcpy(): the last page, one that is cut off, or the size
 *   EINVAL    addr does not lie in a mapping; size is negative; guarded bytes (ato_set_guard()) would
 *             be cut off
 *   ENOSPC    size is beyond the max_size that the file's first mapping fixed; or no space
 *   EFBIG     more than the file system allows, or RLIMIT_FSIZE (which also raises SIGXFSZ); or another process has
 *             made the file longer than it is mapped here
 *   ESTALE    the file was cut or made longer by other means while it was mapped. (Zeros up to the
 *             length of an interrupted growth count as that growth, and are cut off. Zeros up to `size` are
 *             taken as they are, if the old size is a multiple of 64.)
 *   EUCLEAN   the reflection has slices of pages beyond the end of the file
 *   EIO       the medium failed: as for ato_memcpy()
 * Since 0.1.
 */
int ato_ftruncate(void *addr, off_t size);

/* ---- Transactions ---- */

/*
 * Begin a transaction: reads and writes of any number of ranges and mappings, which ato_tx_commit() makes one
 * atomic step, for other threads and for crashes. Until then no other thread sees its writes. ato_tx_run() is the
 * easiest way to use one.
 *
 * Transactions are serializable: each has the effect that it would have if no other ran at the same time. All that a
 * transaction has read is as it was at one moment.
 *   A page that it writes is held until it ends: others that write there wait; others that read there do not wait,
 *   and see the committed bytes.
 *   A page that it only reads is not held. Later reads, and the commit if the transaction has written something, check
 *   that no such page has changed since.
 *   So it is with a file's size, which ato_tx_ftruncate() holds, and which ato_tx_size() and a call that fails with
 *   EFAULT read.
 *
 * A call fails with EAGAIN if such a page or size has changed, or if others held a page that the call needs for wait_ms; a
 * commit also if others hold a page that was read, since they may change it. Plain writes count too, those of the
 * calling thread included. Then the transaction is refused: it has no effect and holds nothing, every later
 * call on it is EAGAIN, and all that is left is ato_tx_abort(). Run it again from its beginning.
 *
 * With ATO_TX_READ_COMMITTED each read by itself is as it was at one moment; it is not checked later, so two
 * reads may show different moments.
 *
 * If the last transaction of the thread was refused, the call pauses first, for less than 1 ms. After 8 refusals in a
 * row the transaction goes first (ato(7)).
 *
 * Any thread may call on a transaction, but two calls on it must not overlap in time. A thread may have several, and does not
 * wait for a page that another one of them holds: EDEADLK. A transaction counts as of the thread that made the last call on it;
 * if that thread has written, the first call of another one makes all threads of the process execute a barrier (some
 * microseconds; ENOTSUP: the kernel has no membarrier(2)). When a process ends, its open transactions have no effect. In a
 * forked child the parent's are not open.
 *
 * NULL with errno: EINVAL (flags, options), EAGAIN (65,535 are open), ENOMEM. Since 0.1.
 */
ato_tx *ato_tx_begin(unsigned flags);
ato_tx *ato_tx_begin_opt(const struct ato_tx_options *opt); /* NULL: all defaults */

/*
 * Run fn(tx, arg) in a transaction: begin it, call fn, and commit if fn returned 0. If the transaction is refused,
 * abort it and do all of that again, whatever fn returned. If fn returned another value, abort and return that value.
 *
 * fn may run any number of times, so what it changes outside the mappings must be right after any number of runs.
 * When a call on tx fails, fn must return, with a value other than 0. It must not commit or abort tx.
 * If an exception of C++ leaves fn, the transaction is aborted and not run again, and the exception goes on to the caller.
 *
 * Durable when it returns 0. Otherwise nothing has changed (except after EIO, as for ato_tx_commit()), and the
 * result is what fn returned, with errno as fn left it; or -1 with errno:
 *   EAGAIN    the transaction was refused again and again, for run_ms; or as ato_tx_begin()
 *   EINVAL    fn is NULL; or as ato_tx_begin_opt()
 *   others    as ato_tx_begin_opt() and ato_tx_commit()
 * Since 0.1.
 */
int ato_tx_run(int (*fn)(ato_tx *tx, void *arg), void *arg, const struct ato_tx_options *opt);

/*
 * ato_memcpy_opt() in a transaction: into a mapping, out of one, or both. Reads see the transaction's own writes.
 * Nothing is durable yet. Returns dst, or NULL with errno. Unless it is refused, the transaction is as it was before
 * the call, but for the file's size, which EFAULT has told it (ato_tx_size()).
 *   EACCES, EFAULT, EIO, ENOMEM, ENOSPC   as ato_memcpy()
 *   EACCES     src lies in a mapping of a read-only descriptor: such reads need ATO_TX_READ_COMMITTED
 *   E2BIG      more pages than max_bytes
 *   EAGAIN     the transaction is refused (ato_tx_begin()); or, from a mapping of a read-only descriptor, as
 *              ato_memcpy(), and it is not refused
 *   EDEADLK    a page that would be held is held by another transaction of this thread, or by an open epoch of this
 *              process
 *   EINVAL     neither side lies in a mapping; unknown flags; the transaction is not open
 *   EXDEV      the transaction has written to another file: a commit is of one. Keep in one file what has to change
 *              together. A source in a mapping of another file is read
 * ATO_EAGER takes effect at the commit. Since 0.1.
 */
void *ato_tx_memcpy(ato_tx *tx, void *dst, const void *src, size_t n, unsigned flags);

/*
 * ato_ftruncate() in a transaction: its own reads and writes see the new size at once, others when it commits.
 * Until then others that change the file's size, or write to a part that will be cut off, wait; readers go on.
 * A part that was cut off while the file was mapped comes back as zeros, which count against max_bytes. After a growth
 * other programs see a longer file, with zeros, until the transaction ends; after a crash, until its size changes or
 * it is mapped. Errors: those of ato_ftruncate() and ato_tx_memcpy(), but for ETIMEDOUT. Unless it is refused, the
 * transaction is as it was before the call. Since 0.1.
 */
int ato_tx_ftruncate(ato_tx *tx, void *addr, off_t size);

/* Return the size of the file in whose mapping addr lies as the transaction sees it: with its own changes of the size, else as
 * ato_size(). That is a read: if others change the size before the transaction ends, it is refused. So two transactions cannot
 * both append at the same end. -1 with EINVAL: not in a mapping, or the transaction is over; EACCES, EAGAIN and others: as
 * a read by ato_tx_memcpy(). Since 0.1. */
off_t ato_tx_size(ato_tx *tx, const void *addr);

/* Commit all writes in one step, durably. On success the transaction is over. EAGAIN: it is refused (ato_tx_begin()).
 * After any other failure it is as before (ENOSPC, E2BIG, ...: for its lane, as ato_memcpy()): repeat the
 * call, or abort. After EIO its file may be in doubt (ato_memcpy()), and it can only be aborted. EINVAL.
 * Since 0.1. */
int ato_tx_commit(ato_tx *tx);

/* End it without any effect. EINVAL. Since 0.1. */
int ato_tx_abort(ato_tx *tx);

/* ---- Diagnostics ---- */

/* Get counters and states of the file whose mapping `addr` lies in. Counting slices_in_reflection reads the
 * bitmaps of the whole file; it is left out if struct_size ends before that field. EINVAL: not in a mapping, or
 * struct_size is out of range; EIO; EAGAIN: read-only descriptor, and a process with write permission must finish the
 * change of size of a killed process. Since 0.1. */
int ato_stat(const void *addr, struct ato_stat *st);

/* Get the size in bytes of the mapped file that `addr` lies in, as ato_stat() does, by a few loads if the process has
 * a writable descriptor. It excludes changes by open transactions, also the caller's own (ato_tx_size()).
 * -1 with EINVAL: not in a mapping; EAGAIN: as ato_stat(). Since 0.1. */
off_t ato_size(const void *addr);

/* The message of the calling thread's last failed call: one sentence, valid until its next call.
 * "" if there was none. Use it only after a failure: a call that succeeded may have left the message
 * of a step that failed. Since 0.1. */
const char *ato_errormsg(void);

/* Set the log of errors, warnings and information, for the whole process. NULL: the log that ATO_LOG names (a file
 * or "stderr"), if any. `log` may be called from any thread and must not call libato or fork().
 * Since 0.1.
 */
void ato_set_log(void (*log)(void *arg, int level, const char *sentence), void *arg);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
