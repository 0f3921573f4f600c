/* SPDX-License-Identifier: BSD-3-Clause */
/* A new folder for the files that `ato doctor` and `ato bench` make to try something. */
#ifndef ATO_TOOLS_TRIAL_H
#define ATO_TOOLS_TRIAL_H

#include <limits.h>

/* Makes the folder `.ato-WHAT-XXXXXX` in `folder`, and stores its path. Returns 0; -1 with errno. */
int trial_make(char path[PATH_MAX], const char *folder, const char *what);

/* Makes a file in it. Returns its descriptor; -1 with errno. */
int trial_file(const char *path, const char *name);

/* Removes it with all that is in it. Returns 0; -1 with errno. */
int trial_remove(const char *path);

#endif
