/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which files in a reflection folder are trusted.
 *
 * Where several users may make names in one folder, each of them can put a manifest or a reflection
 * there that refers to another user's file. So a file counts only if its maker could have written to
 * the original itself: the caller, root, the owner of the original, or, as its mode allows, one of its group
 * or any user.
 *
 * And it must be a regular file with one name: by a second name a user can make another user's file appear
 * where a side file is expected, to be overwritten.
 */
#ifndef ATO_REFLECTION_PAIRING_OWNERSHIP_H
#define ATO_REFLECTION_PAIRING_OWNERSHIP_H

#include <stdbool.h>
#include <sys/stat.h>

/* Which users may write to a file. */
struct trust {
    uid_t owner;
    gid_t group;
    mode_t mode;
};

/* Returns `mode`, without permissions for the group if the file has an access list: then the group's bits of st_mode are a
 * mask, wider than the group's own permissions. */
mode_t ownership_mode(int fd, mode_t mode);

/* Gives `fd`, a new file or folder, the owner, group and mode of `file`, as far as the caller may. Without that group it gets no
 * group permissions, and for all users no more than the group had. Meanwhile the permissions are never
 * wider than that. Returns 0; -1 and errno if its mode could not be set. */
int ownership_give(const struct trust *file, int fd);

/* Returns true if the maker of `found` could have written to the file. */
bool ownership_maker(const struct trust *file, const struct stat *found);

/* Checks that the file that is open as `fd` has a trusted maker, and is a regular file with one name. Returns 0; -1 with
 * EUCLEAN or EACCES and a sentence about `folder`/`name`. */
int ownership_check(const struct trust *file, int fd, const char *folder, const char *name);

#endif
