/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recovery of journals with a dead owner.
 *
 * The bitmaps on the media are authoritative and need no recovery. A crash can leave commits of several words
 * of which only some are stored. Each is in a lane of a journal, in the reflection folder of its files. Replaying it
 * stores the other words, in all files that it names.
 *
 * Lock order: the journal's recovery byte, then the attach locks of the files named by its lanes, in
 * ascending order of ids. So the caller must not hold an attach lock of any file. Idempotent: recovery may be
 * cut or killed anywhere and repeated, by any process.
 *
 * found.h finds journals and their makers, due.c decides whether one matters, replay.h finishes commits,
 * visible.h hides them from other processes meanwhile.
 */
#ifndef ATO_REFLECTION_RECOVERY_RECOVER_H
#define ATO_REFLECTION_RECOVERY_RECOVER_H

#include "reflection/recovery/found.h"

/* Replays and removes each journal with a dead owner in the folder; removes unfinished ones. `file` is about to be
 * mapped. Journals of makers that may not write to it are skipped: neither waited for nor read. recover_is_due() finds
 * whether one of these matters to a file. Returns 0. 1, with errno and a sentence of the first failure, if a journal
 * cannot be recovered: EUCLEAN, EACCES, EIO. No commit is lost then: that journal stays, and the others are recovered.
 * -1 if the folder cannot be read. */
int recover_folder(const struct folder *f, const struct trust *file);

/*
 * Returns 1 if a journal has to be recovered before the file `file` is used, 0 if not, -1 on error. The
 * caller holds the file's attach lock and all its slots: a process may have died since recover_folder()
 * returned.
 *
 * A journal with a commit of the file: yes, whether its owner byte is free or locked. If it is free, the
 * journal is first made durable as it is visible; it may have been replayed and not be removable. The byte
 * alone does not decide: a dying process closes its descriptors one by one, and its slot of this file may be
 * free while its journal still seems to have an owner. A living owner that does not have the file mapped has
 * no commit of it. So the owner of a journal with such a commit is dying, and the caller releases the attach
 * lock and tries again soon.
 *
 * A journal that the caller may not open: no, if its owner (unless the group may write to the
 * file), group or mode are not those of the file's manifest, since then it serves other files. Else EACCES.
 * EACCES also for a file in use, if all users may write to both, or if a journal holds a commit of it and was
 * made for the file's group, which may not write to the file now. A process that unmaps a file cleanly has retired all
 * its commits, so a journal does not matter to a file that is not in use.
 */
int recover_is_due(const struct folder *f, const struct recover_file *file);

/* recover_folder() for the journals of one process (identity_process()) that no longer has `file`, which
 * is in use, mapped: it is dying. Waits for its death, up to half a minute. `process` 0: for all journals,
 * without waiting. Returns 0; only then may what the process held of the file be released. -1 with a
 * sentence; EACCES also if a commit of the file is in a journal of a maker that may not write to it any
 * more. */
int recover_process(const struct folder *f, const struct recover_file *file, uint64_t process);

#endif
