/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file that takes the place of another one, or of none, when it is complete: until then the old one stays as it is. It has no
 * name meanwhile, so that nothing is left of it if the process is killed; where the file system has no such files, it
 * is `.NAME.ato-XXXXXX` beside.
 */
#ifndef ATO_TOOLS_REPLACEMENT_H
#define ATO_TOOLS_REPLACEMENT_H

#include <limits.h>
#include <stdint.h>
#include <sys/stat.h>

struct replacement {
    int fd;
    int folder;           /* -1: none */
    char path[PATH_MAX];  /* of the file that is replaced: absolute, and no symbolic link */
    char name[PATH_MAX];  /* its last part */
    char other[PATH_MAX]; /* that of this file; "": it has none */
};

/* Finds out which file `path` is. Returns 1: there is one, and *st is its state; 0: there is none; -1 with errno and
 * report_sentence(): EISDIR, EINVAL (not a regular file), ENOENT (no such folder), ... */
int replacement_find(struct replacement *r, const char *path, struct stat *st);

/* Makes the file, empty. Returns 0; -1 with errno and report_sentence(). */
int replacement_begin(struct replacement *r);

/* Writes all n bytes. Returns 0; -1 with errno. */
int replacement_write(const struct replacement *r, const void *bytes, uint64_t n, off_t at);

/* Gives it `mode`, and the place of the other one, durably. Returns 0; -1 as above. */
int replacement_commit(struct replacement *r, mode_t mode);

/* Closes it; unless it was committed, it is gone. To be called after replacement_find(), whatever it returned. */
void replacement_end(struct replacement *r);

#endif
