/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of which this process has a read-only descriptor and no other mapping. Such a process is called a reader
 * here. It reads by gather, and changes neither the media nor shared memory.
 *
 * While a writer (a process that may write to the file) has the file mapped, the reader watches: it maps the shared
 * memory for reading, and holds a lock that all readers share (PAIRING_READERS), so that the last writer does not
 * remove the shared memory and the reflection. A page without a state, or one that is not loaded, was not flipped
 * since the shared memory was made: its word on the media is current, unless a shrink has cut the page off, which
 * the size's version shows.
 *
 * While no writer has the file mapped, the media do not change. The reader checks that again after each read: by
 * the manifest's record and its name, and the file's mtime; or, for a plain file, by its attribute and ctime. A
 * process that begins to write changes these, durably, before its first store. Then the reader begins to watch.
 *
 * If the last writer died, a process that may write has to recover the file: EAGAIN. Beside a living writer, a dead
 * one may have left pages marked, and it may take long until a writer frees them. Then the dead one's
 * shared_showing says for each of them, and for the size, whether the state before the mark is current, or the
 * media are. shared_slot.reloaded says the latter of all of them, once a writer has begun to take them over, even
 * if that one died too. Only a process that recovers changes any of that, and the reader notices it after its copy
 * (footing() in reader_beside.c). So a read sees an operation of a dead process as a whole or not at all, just as recovery
 * will leave it, and what was read stays (takeover.pml, several.pml). If shared_showing refers to memory that
 * cannot be read here, or does not say: EAGAIN.
 */
#ifndef ATO_LIB_READ_READER_H
#define ATO_LIB_READ_READER_H

#include "lib/file/file.h"

struct reader;

/* Makes f a reader's file: sets f->pairing, views and f->shared. f is all zeros. Returns 0; -1: errors of
 * ato_mmap(), and the caller frees f. */
int reader_open(struct file *f, int fd, const struct identity *identity,
                const struct file_wish *wish);

/* Closes everything, but does not free f. */
void reader_close(struct file *f);
void reader_forget(struct file *f); /* in a forked child, which has no views */

/* As read_bytes(), of a range that ended within the file when it was checked. EAGAIN: recovery is necessary. */
int reader_read(struct mapping *m, uint64_t offset, char *dst, uint64_t n);

/* Finds out whether a writer has mapped the file. Returns 0; -1: that cannot be found out; EAGAIN:
 * recovery is necessary. */
int reader_refresh(struct file *f);

/* Returns true if the reader watches: a writer has the file mapped, or had since this process first looked. */
bool reader_watches(const struct file *f);

/* Sets *size to the current size of the file: file_size(), or, if a process died while its new size was already on
 * the media, that new size. Returns 0; -1 with EAGAIN: recovery is necessary. */
int reader_size(struct file *f, uint64_t *size);

/* Reads the record of the file's manifest. Returns false if it has none, or it cannot be read. */
bool reader_record(const struct file *f, struct manifest_record *record);

void reader_lock_all(void); /* around a fork, with the files' lock */
void reader_unlock_all(void);

#endif
