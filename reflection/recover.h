/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recovery of journals whose owner died.
 *
 * The bitmaps on the media are the truth and need no recovery; what a crash can leave are commits
 * of several words of which some are flipped. Each is in a lane of a journal in the reflection
 * folder. Replaying it flips the rest.
 *
 * Lock order: the journal's recovery byte, then the attach locks of the files named by its lanes,
 * by ascending id. So the caller must not hold an attach lock of a file in this folder.
 * Idempotent: may be cut or killed anywhere and done again, by anyone.
 */
#ifndef ATO_REFLECTION_RECOVER_H
#define ATO_REFLECTION_RECOVER_H

#include "folder.h"
#include "journal.h"
#include "trust.h"

/* Replays and removes every journal in the folder whose owner is dead; clears unfinished ones. Those
 * whose makers may not write to `file`, which is about to be mapped, are no matter: they are neither
 * waited for nor looked into, and what a journal says of a file that its maker may not write to is
 * passed over. -1 with errno and a sentence when one cannot be: EUCLEAN, EACCES, EIO, ... Nothing is
 * lost then: the journal stays. */
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
 * A journal that the caller may not open is no matter if its owner, group or mode are not those of
 * the file's manifest, for then it serves other files; else EACCES.
 */
struct recover_file {
    uint8_t id[16];
    int manifest; /* its descriptor */
    struct trust trust;
};

int recover_is_due(const struct folder *f, const struct recover_file *file);

/* Applies the words of one committed lane that belong to file `file` of it to that file's
 * reflection, a range of bytes; durable when it returns. `name` is the reflection's, for the
 * sentence. EUCLEAN, and nothing stored, when a word does not lie in a meta page of the range (or
 * whatever was stored before, when somebody changes the lane meanwhile). */
int recover_apply(const struct persist *p, const struct journal_view *v, unsigned file,
                  char *reflection, uint64_t bytes, const char *name);

#endif
