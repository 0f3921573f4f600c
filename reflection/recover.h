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
 */
#ifndef ATO_REFLECTION_RECOVER_H
#define ATO_REFLECTION_RECOVER_H

#include "folder.h"
#include "journal.h"
#include "manifest.h"
#include "trust.h"

/* Replays and removes every journal in the folder, or that a pointer in it leads to, whose owner is dead;
 * clears unfinished ones. Those, and pointers, whose makers may not write to `file`, which is about to be
 * mapped, are no matter: they are neither waited for nor looked into, and what a journal says of a file
 * that its maker may not write to is passed over. So are pointers that lead nowhere (recover_is_due() tells
 * whether that matters). 0; 1 with errno and a sentence of the first one that cannot be: EUCLEAN, EACCES, EIO,
 * and what the opening of another folder fails with: nothing is lost then, that journal stays, the others are
 * recovered, and recover_is_due() tells whether it matters to a file; -1 error, the folder cannot be read. */
int recover_folder(const struct folder *f, const struct trust *file);

/* Page states of the files of a dead process's commit to several (visible.h), each with its attach lock held: what it
 * held of them is dealt with, of a page or of the file as a whole. NULL: nobody has any. */
struct recover_memory {
    /* *memory stays NULL: there is none. -1 with a sentence: and others have the file `mapped`. */
    int (*join)(void **memory, const struct manifest_record *record, const struct trust *file,
                bool mapped);
    void (*leave)(void *memory);
    /* Marked: who comes to it waits until it is revealed, or freed. */
    void (*hide)(void *memory, uint64_t process, uint64_t page);
    void (*hide_all)(void *memory, uint64_t process);
    /* What is hidden gets its bitmap, which is durable. */
    void (*flip)(void *memory, uint64_t process, uint64_t page, uint64_t bitmap);
    void (*reveal)(void *memory, uint64_t process, uint64_t page);
};

extern const struct recover_memory *recover_memory;

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

/* Where the words of a file of a lane go: to its reflection, a range of bytes, and to the size word of its
 * manifest. */
struct recover_target {
    struct persist persist;
    char *reflection; /* NULL: the file is gone, its words go nowhere */
    uint64_t bytes;
    uint64_t *size;            /* NULL: as the above */
    const char *folder, *name; /* of the reflection, for sentences */
    int fd;                    /* the reflection; 0: it is not to be synced as a whole */
};

/* Applies the words of a committed lane; targets: one for each of its files. Durable when it returns.
 * EUCLEAN, and nothing stored, when a word does not lie in a meta page of its reflection, or a size is
 * none or more than the reflection has pages for (or whatever was stored before, when somebody changes
 * the lane meanwhile). */
int recover_apply(const struct journal_view *v, const struct recover_target *targets);

#endif
