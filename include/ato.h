/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libato: atomic, lazy writes to memory-mapped files.
 *
 * Map a file with ato_mmap(), write it with ato_memcpy(). Every call is all or nothing across the
 * death of the process, of the kernel and of the power (as far as the file's durability domain
 * reaches), however many pages it spans.
 *
 * Conventions
 *
 *   Errors       A function answers as its POSIX cousin does (-1, NULL or MAP_FAILED), sets errno,
 *                and leaves a sentence for people in ato_errormsg(). The library never exits and
 *                prints nothing unless asked to (ato_set_log(), ATO_LOG).
 *   Ownership    The caller keeps its descriptor: it may be closed as soon as ato_mmap() returned.
 *                The library keeps nothing of what it is passed.
 *   Threads      Every function may be called from any thread at any time, except that a mapping
 *                must not be unmapped while another thread is in a call on it (a library that was
 *                built with assertions stops there). Reads take no lock and do not wait for a
 *                writer's copying or flushing; only a reader that met one commit after the other on
 *                its pages queues up for them in the end. Between threads calls order as plain
 *                stores and loads do on x86: what a write stored is seen in order, and a read
 *                that follows it in its thread may come before it for others. Not from a signal
 *                handler, and not to be left by longjmp() or thread cancellation.
 *   fork         A mapping is unusable in the child until the child maps the file itself.
 *   Durability   When a writing call returns, its bytes are durable in the sense of the mapping's
 *                domain (ATO_DOMAIN_...). When it fails, nothing has changed; the one exception is
 *                EIO from a medium that failed in the middle of a commit: the write is there wholly
 *                or not at all, and which of the two is known when the file is mapped anew.
 *   Units        Sizes and offsets are bytes. A page is 4096 bytes, a slice 64.
 *
 * Plain loads through the mapped address see the file's own copy, which is current only after
 * ato_deploy() of that range (and until the next write to those pages): read with ato_memcpy().
 */
#ifndef ATO_H
#define ATO_H 1

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define ATO_VERSION_MAJOR 0
#define ATO_VERSION_MINOR 1
#define ATO_VERSION_PATCH 0

/* The library's version, "MAJOR.MINOR.PATCH". Never fails. Since 0.1. */
const char *ato_version(void);

/* ---- Constants ---- */

/* How reads treat slices whose valid copy lies in the reflection file. */
enum ato_read_policy {
    ATO_READ_LAZY = 0,     /* the first read of such a page deploys it; the default, which
                              ATO_READ_POLICY may replace */
    ATO_READ_GATHER = 1,   /* read every slice from where it is; never deploy */
    ATO_READ_ADAPTIVE = 2, /* gather, and deploy at the 4th read since the page's last write */
    ATO_READ_EAGER = 3,    /* each write deploys what it wrote before it returns */
};

/* What 'durable' takes. The domain belongs to the file: its first mapper fixes it. */
enum ato_domain {
    ATO_DOMAIN_AUTO = 0,    /* found by looking at the file's medium */
    ATO_DOMAIN_PMEM = 1,    /* persistent memory: flush and fence; survives a power cut */
    ATO_DOMAIN_EADR = 2,    /* the same with CPU caches that are flushed at a power cut */
    ATO_DOMAIN_MSYNC = 3,   /* page cache on a disk: msync(); survives a power cut */
    ATO_DOMAIN_PROCESS = 4, /* survives the death of the process, not of the kernel */
};

enum ato_format {
    ATO_FORMAT_DENSE = 0, /* one RefPage for each page of the file, space taken where written */
    ATO_FORMAT_SPARSE = 1 /* for few updates far apart; not in this version: ENOTSUP */
};

/* ato_options.flags */
#define ATO_WRITABLE_VIEW 0x1u /* hand out a writable view: stray stores are not caught */
#define ATO_NO_RTM        0x2u /* never use hardware transactions on this mapping */
#define ATO_RTM_ONLY      0x4u /* tests: EOPNOTSUPP instead of the journal */
/* Where ato_mmap() would say ESTALE, since file and reflection do not belong together as they are.
 * FILE: the file as it lies there is right, and its reflection is set aside. REFLECTION: the file
 * was written since it was unmapped and kept its size; slices in the reflection are right still. */
#define ATO_PREFER_FILE       0x8u
#define ATO_PREFER_REFLECTION 0x10u
/* Writes through the mapping belong to its epoch, which ato_msync() commits. */
#define ATO_EPOCHS 0x20u
/* The library uses fd itself for as long as the file is mapped, and opens and closes no descriptor of the file:
 * for who holds locks of fcntl(2) on it, which closing any would drop. fd has to stay open, is used for nothing
 * else, and the file is mapped once in the process: EBUSY. */
#define ATO_BORROW_FD 0x40u

/* ato_memcpy_opt() flags */
#define ATO_EAGER      0x1u /* deploy what this call wrote before it returns */
#define ATO_SKIP_EQUAL 0x2u /* slices that hold these bytes already are not written */

/* ato_tx_begin() flags */
#define ATO_TX_READ_COMMITTED 0x1u /* pages that are only read are not kept */

/* ato_munmap() modes */
#define ATO_UNMAP_FAST    0 /* keep the reflection file: unmapping and the next mapping are O(1) */
#define ATO_UNMAP_SPATIAL 1 /* bring everything home and remove the reflection: a plain file */

/* ato_set_log() levels */
#define ATO_LOG_ERROR   0
#define ATO_LOG_WARNING 1
#define ATO_LOG_INFO    2

/* Zero everything, set struct_size; zero is every default. Grows at its end only. */
struct ato_options {
    size_t struct_size; /* sizeof(struct ato_options) */
    int read_policy;    /* enum ato_read_policy; of a read-only descriptor always gather */
    int domain;         /* enum ato_domain; EXDEV when the file has another one */
    int format;         /* enum ato_format; at the reflection's creation only */
    unsigned flags;     /* ATO_WRITABLE_VIEW, ATO_NO_RTM, ... */
    size_t max_size;    /* bytes that the file may grow to (ato_ftruncate()), for which address
                           space is kept; 0: what the file has, at least 1 GiB */
    uint64_t max_reflection_bytes; /* space budget; 0: none. Not in this version: ENOTSUP if set */
    const char *reflection_dir;    /* where reflections lie; NULL: $ATO_REFLECTION_DIR, else the
                                      folder .ato beside the file */
};

struct ato_unmap_options {
    size_t struct_size; /* sizeof(struct ato_unmap_options) */
    int mode;           /* ATO_UNMAP_FAST or ATO_UNMAP_SPATIAL */
    unsigned threads;   /* spatial: threads that deploy; 0: chosen by size and CPUs */
    /* Called now and then, by one thread at a time, while a spatial unmap deploys: bytes of the
     * file looked at so far, and its size. Must not map, unmap, fork or set a guard. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
};

/* A transaction: a handle, of which a copy that is used too late is found out. */
typedef struct ato_tx ato_tx;

struct ato_tx_options {
    size_t struct_size; /* sizeof(struct ato_tx_options) */
    unsigned flags;     /* ATO_TX_READ_COMMITTED */
    uint64_t wait_ms; /* the longest that a call waits for others' pages: ETIMEDOUT; 0: no limit */
    uint64_t
        max_bytes; /* pages that the transaction may touch, in bytes: E2BIG; at most 1 TiB. 0: 1 GiB and
                           32 MiB. It takes 32 bytes of memory a page, and the journal 16 */
};

/* One range of ato_writev(). */
struct ato_iovec {
    void *dst;
    const void *src;
    size_t n;
};

/* Everything since the mapping was made, unless said otherwise. */
struct ato_stat {
    size_t struct_size; /* set by the caller: sizeof(struct ato_stat) */
    int domain, format, read_policy;
    /* states, of the file */
    uint64_t size;                 /* logical size, bytes */
    uint64_t slices_in_reflection; /* slices whose valid copy lies in the reflection */
    uint64_t reflection_bytes;     /* bytes of storage that the reflection takes */
    /* asked for, through this mapping */
    uint64_t writes, bytes_written;
    uint64_t reads, bytes_read;
    /* done, through this mapping */
    uint64_t bytes_to_media;  /* slices, words and journal records stored on the media */
    uint64_t flips;           /* bitmap words changed */
    uint64_t commits_single;  /* operations committed by one 8-byte store */
    uint64_t commits_rtm;     /* by a hardware transaction */
    uint64_t commits_journal; /* by the redo journal */
    uint64_t rtm_aborts;      /* hardware transactions that aborted */
    uint64_t deployed_slices; /* slices brought home */
    uint64_t read_retries;    /* reads begun again because a commit came between */
    /* of the file: its guard (ato_set_guard()) */
    uint64_t guard_offset;
    unsigned guard_bytes; /* 0: it has none */
    unsigned char guard_plain[16];
};

/* ---- Lifecycle ---- */

/*
 * Map `length` bytes of the file `fd` from `offset` (a multiple of 4096), as mmap(2) does with
 * MAP_SHARED. The view handed out is read-only even when `prot` has PROT_WRITE: PROT_WRITE says
 * that ato_memcpy() may write to it. It begins on a boundary of 1 GiB. `addr` is a hint.
 * `length` may reach beyond the end of the file; only bytes within the file can be read or written.
 * A mapping that reaches to the end of the file or beyond, or was made with a max_size, grows with the
 * file, at the same address, whatever its `length`. One of a part of the file stays one.
 *
 * Makes or adopts the file's reflection, and recovers what a crash left. Durable when it returns:
 * the pairing of file and reflection.
 *
 * Errors, beside mmap(2)'s (EACCES, EBADF, EINVAL, ENOMEM, ENODEV):
 *   EACCES    no permission for the reflection folder, or the folder is not to be trusted
 *   EAGAIN    fd is read-only, and who may write to the file has to recover it first; or 1024 processes
 *             have it mapped
 *   EBUSY     another process has the file mapped whose /dev/shm is not this one's, or this one an image
 *             of it with the same id; or this one has it mapped and ATO_BORROW_FD was or is asked for
 *   EFBIG     the file is larger than the maximum the first mapper chose, or than 256 TiB
 *   EINVAL    MAP_PRIVATE, MAP_ANONYMOUS, MAP_FIXED, no regular file, an unlinked file, one whose
 *             path does not lead to it any more, one with several links where the file system has
 *             no extended attributes; options, flags or environment words that are not known
 *   EIO       the medium says so
 *   ENOSPC    no room for the manifest, the reflection or the shared page states
 *   ENOTSUP   an option that is not in this version; or the file system knows no fallocate(2)
 *             (EOPNOTSUPP, the same number)
 *   ESTALE    reflection and file do not belong together as they are: the reflection is missing,
 *             the file was written or cut by other means since it was unmapped, it is a copy of a
 *             file that was not plain, its attribute was taken away, or another file's reflection
 *             is in the way. ATO_PREFER_FILE and ATO_PREFER_REFLECTION say what to do about it.
 *             Or its last user died, and a journal that may hold a commit of it is out of reach
 *   EUCLEAN   a manifest, reflection or journal is damaged, or of a version not known here
 *   EXDEV     the file is in use with another durability domain
 * Since 0.1.
 */
void *ato_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset);

/* The same with options (NULL: all defaults). Writable when `fd` is open for reading and writing.
 * Since 0.1. */
void *ato_mmap_opt(size_t length, int fd, off_t offset, const struct ato_options *opt);

/*
 * Unmap a whole mapping: the address and the length that it was made with.
 *   ATO_UNMAP_FAST     keeps the reflection; the file is not plain.
 *   ATO_UNMAP_SPATIAL  the last mapping of the file deploys everything and removes reflection,
 *                      manifest and attribute: what read(2) sees is the file. Others only detach.
 * Where the file system has no extended attributes a fast unmap deploys too.
 * EBUSY: a transaction or an epoch that is open has to do with the mapping.
 * When deploying fails (EIO, ENOSPC; ESTALE: the file or its reflection was cut by other means) the
 * mapping is still there. When what comes after it fails (the manifest cannot be written, a name not be removed; EIO on a file whose last commit is in
 * doubt, which is not made plain) the mapping is gone, and the next ato_mmap() completes what is
 * left: no byte is lost. EINVAL: not a mapping, or a part of one. Since 0.1.
 */
int ato_munmap(void *addr, size_t length, int mode);
int ato_munmap_opt(void *addr, size_t length, const struct ato_unmap_options *opt);

/* ---- Data ---- */

/*
 * Copy n bytes. `dst`, `src` or both lie in a mapping.
 *   into a mapping    one atomic write of any length: durable when it returns
 *   out of a mapping  one consistent snapshot: never a mix of before and after of another call
 *   both              one atomic write; ranges may overlap, as with memmove()
 * Returns dst, or NULL with errno:
 *   EINVAL    neither side lies in a mapping; flags that are not known
 *   EFAULT    a side lies partly in a mapping, or beyond the end of the file
 *   EACCES    dst lies in a mapping without PROT_WRITE
 *   ENOSPC    no space for the other copy, the page states or the journal (or EDQUOT)
 *   ENOMEM    no memory for what a write of many pages has to note
 *   E2BIG     the write spans more pages than a journal record can hold (1 GiB always fits)
 *   EACCES, EMFILE, ...  the process's journal cannot be made
 *   ECANCELED the process is exiting, and its journals are gone
 *   EBUSY     what a process that was killed held is in the way, and another one, which is stopped perhaps, has
 *             kept the locks that it takes to free it for half a minute
 *   EAGAIN    src lies in a mapping of a read-only descriptor, and what a killed process held of several files has
 *             to be freed by one that may write (ato(7)); or others wrote there all the time
 *   EOPNOTSUPP  ATO_RTM_ONLY, and no hardware transaction commits it
 *   EDEADLK   a page that a write touches is held by an open transaction of the calling thread or an open
 *             epoch of another mapping, or by a transaction whose thread waits for this one
 *   EIO       the medium failed; after a failure that leaves a commit in doubt, every call on the
 *             file is EIO until it is unmapped and mapped anew
 * A write waits for transactions that hold pages of its; a read does not.
 * Through a mapping with ATO_EPOCHS a write is atomic for the readers of the mapping, and becomes durable,
 * and known to others, with the epoch: ato_msync().
 * Since 0.1.
 */
void *ato_memcpy(void *dst, const void *src, size_t n);

/* The same with ATO_EAGER, ATO_SKIP_EQUAL (both for writes; without effect on reads). Since 0.1. */
void *ato_memcpy_opt(void *dst, const void *src, size_t n, unsigned flags);

/* Set n bytes of a mapping to c: one atomic write, errors and durability as ato_memcpy(). Since
 * 0.1. */
void *ato_memset(void *dst, int c, size_t n);

/*
 * Write `count` ranges as one atomic step: all of them or none, in whatever mappings and files they lie.
 * Each is as ato_memcpy() into a mapping; where they overlap the later one counts, and a source in a mapping
 * is as the ranges before have left it. Durable when it returns. Returns 0, or -1 with errno: as
 * ato_memcpy(), and
 *   EAGAIN, ENOMEM  as ato_tx_begin()
 *   EDEADLK   as above; nobody else's transaction is waited for while pages are held
 *   EINVAL    a dst that does not lie in a mapping; flags; ranges with an epoch beside others
 *   EXDEV     files that one commit cannot span: see ato_tx_memcpy()
 * Since 0.1.
 */
int ato_writev(const struct ato_iovec *iov, int count, unsigned flags);

/*
 * Bring every slice of the pages that [addr, addr+n) touches home, so that plain loads there are
 * right until the next write to those pages. Each page is deployed by itself; the content of the
 * file does not change. Durable when it returns. Errors: EACCES (the mapping is of a read-only
 * descriptor), EDEADLK (as ato_memcpy()), EINVAL, EFAULT, ENOSPC, ENOMEM, EIO.
 * Since 0.1.
 */
int ato_deploy(const void *addr, size_t n);

/* Everything is durable already: checks its arguments as msync(2) does, and that the file is in
 * order (EIO). ENOMEM: not within a mapping.
 * With ATO_EPOCHS: commits all that was written through the mapping since the last call (whatever range and
 * flags say), as one atomic step, durable when it returns. When it fails (errors of ato_tx_commit()) the
 * epoch stays open. Since 0.1. */
int ato_msync(void *addr, size_t n, int flags);

/* The mapping that `addr` lies in has the read policy `policy` (enum ato_read_policy) from now on, also while
 * others use it; a call that is under way goes by the old one or the new. Changes nothing that is in the file, and
 * nothing durable. EINVAL: not in a mapping, or a policy that is not known; EACCES: anything but gather, of a
 * read-only descriptor. Since 0.1. */
int ato_set_read_policy(void *addr, int policy);

/*
 * For who takes over a lock of its own from a process that was killed: a robust mutex, a lock of fcntl(2) or of
 * another program. What that process was writing to the file that `addr` lies in is there or not there, as a whole; but
 * which of both may show only when somebody comes by what it held, and till then others read what was there before.
 * Waits until that is decided for all calls that change the file and were under way in other processes when this was
 * called: the dead one's changes are there from now on, or never will be. Costs a few loads where there are none.
 *
 * Call it with the lock held, before the first read. Durability: what it makes visible is durable.
 *   EINVAL     not in a mapping
 *   EAGAIN     of a read-only descriptor: a process has died there, and nobody who may write has finished that
 *              within a second
 *   ETIMEDOUT  a living process has been in such a call for a second
 *   EACCES, EIO, ENOMEM, ENOSPC, EUCLEAN  what was left cannot be finished: as ato_mmap()
 * Since 0.1.
 */
int ato_settle(const void *addr);

/*
 * Make the file that `addr` lies in `size` bytes long, atomically: a crash leaves its old size or the
 * new one. What is new reads as zeros, and takes no space until it is written to. Every mapping that
 * grows with the file reaches it at once, at the address where it is. Durable when it returns.
 *
 * Shorter: waits for calls that are writing to what is cut off, and for transactions that have pages there;
 * calls that reach beyond the new end are EFAULT from then on. What is cut off gives its space back (on tmpfs
 * when the file is unmapped), and is zeros if the file gets longer again. Other programs see the new length
 * when the last mapping of the file is gone; plain loads behind the end read anything till then.
 *   EACCES    the mapping has no PROT_WRITE
 *   EAGAIN, ENOMEM  as ato_tx_begin()
 *   EDEADLK   as for ato_memcpy(): the last page, or one that is cut off
 *   EINVAL    addr does not lie in a mapping; size is negative; guarded bytes (ato_set_guard()) would
 *             be cut off
 *   ENOSPC    size is beyond the max_size that the file's first mapping was made with; or no space
 *   EFBIG     more than the file system takes, or RLIMIT_FSIZE (which sends SIGXFSZ too)
 *   ESTALE    the file was cut or made longer by other means while it was mapped. (Zeros, no
 *             further than an interrupted growth was to go, are taken for that, and cut off.)
 *   EUCLEAN   the reflection has slices of pages beyond the end of the file
 *   EIO       the medium failed: as for ato_memcpy()
 * Since 0.1.
 */
int ato_ftruncate(void *addr, off_t size);

/*
 * While a file is not plain, a program that knows nothing of libato would read stale bytes. Keep n
 * bytes (at most 16) of the file, from `offset` on, as they are when it is plain; then store others
 * there, for which such programs refuse the file, with ato_memcpy_opt() and ATO_EAGER. What makes the
 * file plain (a spatial unmap, also one that a crash cut and a later map finishes; `ato deploy`) puts
 * the kept ones back when all else is home, whatever is there then. Only what somebody writes there
 * after a crash in the very end of that, when the file looks plain already, stays.
 *
 * They may lie beyond the end of the file: then they are put back if it has become long enough.
 *
 * Of the file, not of the mapping: kept over fast unmaps (ato_stat() tells of it), gone with the
 * reflection. n = 0: no bytes are kept any more; what is there stays. Durable when it returns.
 *   EACCES    the mapping has no PROT_WRITE
 *   EEXIST    the file has a guard at another place; or these bytes are what it has instead of the
 *             plain ones that are kept already
 *   EINVAL    addr does not lie in a mapping; n is more than 16; offset is negative or too large
 *   EIO       the medium failed: as for ato_memcpy()
 * Since 0.1.
 */
int ato_set_guard(void *addr, off_t offset, const void *plain, size_t n);

/* ---- Transactions ---- */

/*
 * Begin a transaction: reads and writes of any number of ranges, mappings and files that become one atomic
 * step with ato_tx_commit(), for other threads and for crashes. Until then nobody else sees them.
 *
 * The pages that it touches are the transaction's until it ends: others that write there wait, others that
 * read do not, and see what was committed. With ATO_TX_READ_COMMITTED it keeps only pages that it writes.
 *
 * It belongs to the thread that began it; ato_tx_adopt() gives it to the calling thread. A thread may have
 * several. One that is open when its process ends comes to nothing, and so does one of a forked parent in
 * the child.
 *
 * NULL with errno: EINVAL (flags, options), EAGAIN (65,535 are open), ENOMEM. Since 0.1.
 */
ato_tx *ato_tx_begin(unsigned flags);
ato_tx *ato_tx_begin_opt(const struct ato_tx_options *opt); /* NULL: all defaults */

/* Make the calling thread the transaction's. What the other thread did there is in order even if nothing
 * else orders the two. EBUSY: that thread is in a call on it; EINVAL: it is not open; ENOTSUP: the kernel
 * has no membarrier(2). Since 0.1. */
int ato_tx_adopt(ato_tx *tx);

/*
 * Two transactions become one: all that `from` has (what it wrote and read, its pages, new sizes of files) is
 * `into`'s, `from` is over, and its handle nobody's. Commit or abort of `into` is one step for both. Its flags
 * and options are what counts from then on. Pages stay held all the time. Nothing is durable yet. Takes time by
 * the pages that `from` has. 0, or -1 with errno, and both are as they were:
 *   E2BIG     more pages than the max_bytes of `into`
 *   EINVAL    one of them is not open, or they are the same
 *   ENOMEM    no memory for what `into` has to note
 *   EPERM     one of them is another thread's (ato_tx_adopt())
 *   EXDEV     files that both write to cannot be in one commit (ato_tx_memcpy())
 * Since 0.1.
 */
int ato_tx_join(ato_tx *into, ato_tx *from);

/*
 * ato_memcpy_opt() within a transaction: into a mapping, out of one, or both. Reads see what the transaction
 * wrote. Nothing is durable yet, and nothing is lost to others by an abort. Returns dst, or NULL with errno,
 * and the transaction as it was before the call:
 *   EACCES, EFAULT, EIO, ENOMEM, ENOSPC   as ato_memcpy()
 *   E2BIG      more pages than max_bytes
 *   EDEADLK    a page is held by a transaction that waits for this one (or is this thread's own, too), or by
 *              an open epoch: abort, and the other one goes on
 *   EINVAL     neither side lies in a mapping; flags; the transaction is not open
 *   EPERM      it is another thread's
 *   ETIMEDOUT  a page was held by others for wait_ms
 *   EXDEV      the file cannot be in one commit with those written before: another durability domain, or
 *              another owner, group or mode for writers (who may recover one must be able to recover all)
 * ATO_EAGER counts when it commits. Since 0.1.
 */
void *ato_tx_memcpy(ato_tx *tx, void *dst, const void *src, size_t n, unsigned flags);

/*
 * ato_ftruncate() within a transaction: for its own reads and writes at once, for others when it commits.
 * Nobody else changes the file's size meanwhile, and nobody writes to what is going to be cut off; readers go
 * on. What is cut off and comes back within the transaction is zeros, which count against max_bytes. To others the
 * file may be longer meanwhile, with zeros, and after a crash until its size changes or it is mapped.
 * Errors: those of both, and the transaction is as it was before. Since 0.1.
 */
int ato_tx_ftruncate(ato_tx *tx, void *addr, off_t size);

/* Make everything count, in one step, durably. On success the transaction is over. On failure it is as
 * before (ENOSPC, E2BIG, EMFILE, ...: for the journal, as ato_memcpy()), to be tried again or aborted; after
 * EIO its files may be in doubt (ato_memcpy()), and it can only be aborted. EINVAL, EPERM. Since 0.1. */
int ato_tx_commit(ato_tx *tx);

/* End it without a trace: nothing is written. EINVAL, EPERM. Since 0.1. */
int ato_tx_abort(ato_tx *tx);

/* ---- Diagnostics ---- */

/* Counters and states of the mapping that `addr` lies in. Counting slices_in_reflection reads the
 * bitmaps of the whole file, and is left out where struct_size ends before it. EINVAL: not in a mapping, or a struct_size that is none; EIO; EAGAIN: of a read-only
 * descriptor, as ato_memcpy(). Since 0.1. */
int ato_stat(const void *addr, struct ato_stat *st);

/* The file that `addr` lies in a mapping of is so many bytes long: what ato_stat() calls its size, without the
 * rest; of a file that the process may write to, a few loads. It is what is committed: a size that a transaction
 * of the caller is going to make is not there yet. -1 with EINVAL: not in a mapping; EAGAIN: as ato_stat().
 * Since 0.1. */
off_t ato_size(const void *addr);

/* What the calling thread's last failed call has to say: a sentence, valid until its next call.
 * "" if there was none. To be asked after a failure: a call that succeeded may have left a sentence
 * about something that it found a way around. Since 0.1. */
const char *ato_errormsg(void);

/* Where errors, warnings and news go, for the whole process; NULL: to where ATO_LOG says (a file
 * name or "stderr"), else nowhere. `log` may be called from any thread and must not call libato.
 * Since 0.1.
 */
void ato_set_log(void (*log)(void *arg, int level, const char *sentence), void *arg);

/* A sentence of what is built on libato, to where libato's go. `level`: ATO_LOG_ERROR, ....
 * Leaves errno and ato_errormsg() as they are. Since 0.1. */
void ato_log(int level, const char *sentence);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
