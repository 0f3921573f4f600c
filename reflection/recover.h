/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recovery of journals whose owner died.
 *
 * The bitmaps on the media are the truth and need no recovery; what a crash can leave are commits
 * of several words of which some are stored. Each is in a lane of a journal: in the reflection folder, or
 * in another one, to which a pointer leads (pointer.h). Replaying it stores the rest, in all files that it
 * names, whatever folders they lie in.
 *
 * Lock order: the journal's recovery byte, then the attach locks of the files named by its lanes,
 * by ascending id. So the caller must not hold an attach lock of any file.
 * Idempotent: may be cut or killed anywhere and done again, by anyone, from any of the folders.
 *
 * Which journals there are, and whose: found.h. Whether one matters: due.c. Their commits: replay.h, and what others
 * see of them meanwhile: visible.h.
 */
#ifndef ATO_REFLECTION_RECOVER_H
#define ATO_REFLECTION_RECOVER_H

#include "folder.h"
#include "trust.h"

#include <stdbool.h>
#include <stdint.h>

/* Replays and removes every journal in the folder, or that a pointer in it leads to, whose owner is dead;
 * clears unfinished ones. Those, and pointers, whose makers may not write to `file`, which is about to be
 * mapped, are no matter: they are neither waited for nor looked into, and what a journal says of a file
 * that its maker may not write to is passed over. So are pointers that lead nowhere (recover_is_due() tells
 * whether that matters). 0; 1 with errno and a sentence of the first one that cannot be: EUCLEAN, EACCES, EIO,
 * and what the opening of another folder fails with: nothing is lost then, that journal stays, the others are
 * recovered, and recover_is_due() tells whether it matters to a file; -1 error, the folder cannot be read. */
int recover_folder(const struct folder *f, const struct trust *file);

/*
 * Is there a journal that has to be recovered before the file `id` is used? For a caller that holds
 * the file's attach lock and all its slots: a process may have died since recover_folder()
 * returned. 1 yes, 0 no, -1 error.
 *
 * A journal with a commit of the file: yes, whether its owner byte is free or held. One whose byte is
 * free is made durable first, as it is seen; it may have been replayed and not been removable. What the
 * byte says is not enough: a dying process gives up its descriptors one by one, and its slot of this file
 * may be free already while its journal still looks alive. A live owner that does not have the file
 * mapped has no commit of it; so if there is one, its owner is on the way out, and the caller lets the
 * attach lock go and tries again in a moment.
 *
 * A journal or pointer that the caller may not open is no matter if its owner, group or mode are not those
 * of the file's manifest, for then it serves other files; else EACCES. So it is, of a file that is in use, where a
 * journal was made for the file's group, which may not write to it now, and holds a commit of it.
 *
 * A pointer to a journal that is not there says that a journal was lost (J6): ESTALE, since it may have held
 * a commit of this file. Only a file that is in use can have one: who unmaps a file cleanly has seen all
 * its commits retired.
 */
struct recover_file {
    uint8_t id[16];
    int manifest; /* its descriptor */
    bool in_use;  /* its last user died */
    struct trust trust;
};

int recover_is_due(const struct folder *f, const struct recover_file *file);

/* As recover_folder(), the journals of one process (identity_process()) that no longer has `file` mapped, which is in
 * use: it is dying, and until it is dead they are waited for, half a minute. What it held of the file stays held
 * unless this answers 0. EACCES, too: a commit of the file is in a journal whose maker may not write to it any
 * more. */
int recover_process(const struct folder *f, const struct recover_file *file, uint64_t process);

#endif
