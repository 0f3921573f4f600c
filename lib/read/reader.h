/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of which this process has a read-only descriptor and no other mapping. Such a process is called a reader
 * here. It reads by gather, and changes neither the media nor shared memory.
 *
 * It finds the pairing as a writer does (pairing_open.h), but only looks, and is then in one of two states:
 *
 *   watching  A writer (a process that may write to the file) has the file mapped, or had. The reader maps the shared
 *             memory for reading, and holds a lock that all readers share (PAIRING_READERS), so that the last writer
 *             does not remove the shared memory and the reflection. It reads as read.c says. A page without a state,
 *             or one that is not loaded, was not flipped since the shared memory was made: its word on the media is
 *             current.
 *   plain     There is no pairing, so the file itself is read. The reader checks that again after each read: by the file's
 *             ctime and attribute. (Mapping a file sets the attribute, and making it plain again removes it: both change the
 *             ctime.) On a file system without attributes: by the file's ctime, and the folders in which a pairing would be
 *             made.
 *
 * With ATO_PLAIN the caller sees to it that a plain file stays so, and nothing is checked. Then reads use the caller's view, which
 * is noted for faults (fault.h).
 *
 * A process that begins to write changes what is checked, durably, before its first store. Then the reader begins to
 * watch.
 *
 * A reader recovers nothing. If no process has a file mapped that is not plain, since the last one died or has unmapped it fast,
 * or if a dead one has left a page marked that is read, the reader waits for a moment, and then fails with EAGAIN until a process
 * that may write has mapped the file or recovered the page. So a read sees an operation of a dead process as a whole or not at
 * all, just as recovery leaves it.
 */
#ifndef ATO_LIB_READ_READER_H
#define ATO_LIB_READ_READER_H

#include "lib/file/file.h"

struct reader {
    pthread_mutex_t lock; /* for all fields of reader and pairing, until the reader watches */
    /* The file is plain, and its ctime, in pairing.identity, will tell if that changes. */
    bool sure;
    bool plain;               /* ATO_PLAIN */
    struct shared_header own; /* the header until shared memory is mapped */
    struct shared_thread threads[THREAD_SHARED + 1];
    uint64_t stamp; /* lookup_stamp() of a plain file without attributes */
    struct pairing_wish wish;
    char folder[]; /* of `wish` */
};

/* Returns true if the reader watches. Needs no lock. */
static inline bool reader_watches(const struct file *f)
{
    return __atomic_load_n(&f->shared.header, __ATOMIC_ACQUIRE) != &f->reader->own;
}

extern unsigned reader_patience_ms; /* of a read and of ato_stat() */

/* Makes f a reader's file: sets f->pairing, views and f->shared. f is all zeros, with no file open. Returns 0; -1: errors of
 * ato_mmap(). The caller closes all of these and frees f->reader, after a failure too. */
int reader_open(struct file *f, int fd, const struct identity *identity,
                const struct file_wish *wish);

/* With ATO_PLAIN: reads a range from the caller's view. Returns false if it does not lie in it, or a fault poisoned the file. */
static inline bool reader_read_plain(const struct mapping *m, uint64_t offset, char *dst,
                                     uint64_t n)
{
    if (__builtin_expect(offset - m->offset + n > m->length, 0))
        return false;
    m->file->persist.kernel->plain(dst, m->base + (offset - m->offset), n);
    return !file_is_poisoned(m->file); /* after the copy (fault.h) */
}

/* As read_bytes(), of a range that ended within the file when it was checked. EAGAIN after a second, or
 * three while no process writes: recovery is necessary, or the range is written to all the time. */
int reader_read(struct mapping *m, uint64_t offset, char *dst, uint64_t n);

/* A pass over what is to be copied. If the reader `watches`: by page states; returns 1: all is copied as it was at one moment, 0:
 * one more pass is necessary; *marked: the holder of a page that is marked as flipping, else it stays 0. Otherwise from the plain
 * file; returns 1: all is copied, which counts if the file is unchanged after that. Returns -1 with errno. */
typedef int reader_pass(void *arg, bool watches, uint32_t *marked);

/* Runs passes until all is copied. Returns how many there were before the last one; -1: errors of the pass, and EAGAIN as
 * reader_read(). */
int reader_run(struct file *f, reader_pass *pass, void *arg);

/* Finds out whether a writer has mapped the file. Returns 0; -1: that cannot be found out; EAGAIN:
 * recovery is necessary. */
int reader_refresh(struct file *f);

/* Sets *size to the current size of the file, also if a writer has just mapped it. Returns 0; -1 with EAGAIN: recovery is
 * necessary. */
int reader_size(struct file *f, uint64_t *size);

#endif
