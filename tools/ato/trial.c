/* SPDX-License-Identifier: BSD-3-Clause */
#include "trial.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

int trial_make(char path[PATH_MAX], const char *folder, const char *what)
{
    if (snprintf(path, PATH_MAX, "%s/.ato-%s-XXXXXX", folder, what) < PATH_MAX)
        return mkdtemp(path) ? 0 : -1;
    errno = ENAMETOOLONG;
    return -1;
}

int trial_file(const char *path, const char *name)
{
    char file[PATH_MAX + 16];
    (void)snprintf(file, sizeof(file), "%s/%s", path, name);
    return open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

int trial_remove(const char *path)
{
    return nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
