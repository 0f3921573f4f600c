/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A copy of a whole file, as it was at one moment, while others write to it.
 *
 * It is a read of all pages (read.c, point 3): a pass copies what changed since it was copied last, and a pass that finds
 * nothing to copy is the last one. The copy is as the file was when that pass read its size: a commit that
 * changes the size and pages marks the pages before, and unmarks them after it. What differs from a read:
 *
 *   - A page that is not loaded is copied by its word on the media: so no page gets a state by the copy. It was not flipped since
 *     the shared memory was made; once it is loaded, its version is another one, and it is copied again.
 *   - It ends. If others write all the time, the last passes run while nobody begins to write: the thread has `sizing`, and sets
 *     `cut` to 0, as a shrink to nothing does (resize.h). Then a thread that has just reserved a page gives it back, and
 *     waits. Those that reserved a page before may still commit, which costs one more pass each time. `cut` is not
 *     needed for a right copy, only for an end: versions tell what to copy. If the process is killed meanwhile, takeover.c
 *     withdraws `cut`.
 *   - A process that may only read the file keeps nobody out, and gives up after a while, as with a read.
 */
#ifndef ATO_LIB_READ_SNAPSHOT_H
#define ATO_LIB_READ_SNAPSHOT_H

#include "lib/file/file.h"

#include <sys/types.h>

/* As ato_snapshot(). The caller holds no page of the file. */
off_t snapshot_take(struct mapping *m,
                    int (*put)(void *arg, off_t offset, const void *bytes, size_t n), void *arg);

#endif
