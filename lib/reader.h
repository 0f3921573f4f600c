/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of which this process has a read-only descriptor and no other mapping: it reads by gather, and changes
 * nothing, on the media or in shared memory.
 *
 * While somebody who may write has the file mapped, it watches: the shared memory is mapped for reading, and
 * a lock, which all readers share (PAIRING_READERS), says that the file is not to be taken apart. A page without
 * a state, or one that is not loaded, was not flipped since the memory was made: its word on the media holds, unless
 * a shrink has cut it off, which the size's version tells.
 *
 * While nobody has, the media do not change. That this is so still is looked at behind each read: in the
 * manifest, by its record and its name, and by the file's mtime; or, of a plain file, by its attribute and its ctime.
 * Whoever begins to write says so there, durably, before his first store. Then the reader goes on to watch.
 *
 * What the last writer's death has left is for one who may write to recover: EAGAIN. Beside one who lives a dead one may
 * have left pages marked, and nobody need come to them: then the dead one's shared_showing says of each, and of the size,
 * whether what it was before it was marked holds, or what the media have; and shared_slot.reloaded, of who died
 * over it next, the latter. Nothing of that changes but by who recovers it, which the reader notices behind its
 * copy (footing() in reader.c). So a read sees a dead one's operation as a whole or not at all, as those do who may
 * recover, and what it has seen stays: takeover.pml, several.pml. Where it is told elsewhere, and cannot be
 * read there, or not at all: EAGAIN.
 */
#ifndef ATO_LIB_READER_H
#define ATO_LIB_READER_H

#include "file.h"

struct reader;

/* Makes f that of a reader: f->pairing, views, f->shared; f is zeros. -1: errors of ato_mmap(); f is to be freed. */
int reader_open(struct file *f, int fd, const struct identity *who, const struct file_wish *wish);

/* Closes all but f itself. */
void reader_close(struct file *f);
void reader_forget(struct file *f); /* in a forked child, which has no views */

/* As read_bytes(), of a range that ends within the file as it was. EAGAIN: recovery is due. */
int reader_read(struct mapping *m, uint64_t offset, char *dst, uint64_t n);

/* Finds out whether somebody has begun to write. -1: that cannot be told, EAGAIN: for recovery is due. */
int reader_refresh(struct file *f);

/* Does somebody have it mapped who may write, or had, since this process first looked? */
bool reader_watches(const struct file *f);

/* How long the file is by now: file_size(), or what it is going to be, if one has died who had that on the media. -1 with
 * EAGAIN: recovery is due. */
int reader_size(struct file *f, uint64_t *size);

/* The record of its manifest; false: it has none. */
bool reader_record(const struct file *f, struct manifest_record *record);

void reader_lock_all(void); /* around a fork, with the files' lock */
void reader_unlock_all(void);

#endif
