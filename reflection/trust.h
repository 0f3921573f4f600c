/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * May what lies in a reflection folder be believed to speak for a file?
 *
 * Where several users may make names in one folder, each of them can lay a manifest, a reflection or a
 * journal there that says what he likes of another's file. So of what is found only that counts which
 * somebody made who could as well have written to the file itself: the caller, root, the owner of the
 * file, or, as far as its mode tells, one of its group or anybody.
 *
 * And it must be a regular file without another name: a second name is how one makes a file of
 * somebody else's lie where a side file is looked for, to be overwritten.
 */
#ifndef ATO_REFLECTION_TRUST_H
#define ATO_REFLECTION_TRUST_H

#include <stdbool.h>
#include <sys/stat.h>

/* Who may write to a file. */
struct trust {
    uid_t owner;
    gid_t group;
    mode_t mode;
};

static inline struct trust trust_of(const struct stat *file)
{
    return (struct trust){file->st_uid, file->st_gid, file->st_mode};
}

/* The mode of a file, without what an access list gives to others than its owner, its group and everybody: with
 * a list the group's bits of st_mode are a mask, wider than the group's own. */
mode_t trust_mode(int fd, mode_t mode);

/* Of a mode, nothing for those who may only read: for a file that its readers could lock. */
mode_t trust_writers(mode_t mode);

/* Gives `fd` the file's owner, group and mode, as far as the caller may: what cannot have the group has nothing
 * for another one, and no more for everybody than for the group. Nowhere on the way it is wider than
 * that. -1 and errno: its mode could not be set. */
int trust_give(const struct trust *file, int fd);

/* Could the maker of `found` have written to the file? */
bool trust_maker(const struct trust *file, const struct stat *found);

/* Is `found` a regular file with one name? 0, or -1 with EUCLEAN, EACCES and a sentence that says what
 * is wrong with `folder`/`name`. */
int trust_kind(const struct stat *found, const char *folder, const char *name);

/* Both, of what is open as `fd`. EACCES when its maker is none of those. */
int trust_check(const struct trust *file, int fd, const char *folder, const char *name);

#endif
