/* SPDX-License-Identifier: BSD-3-Clause */
/* A progress bar on stderr, if that is a terminal. */
#ifndef ATO_TOOLS_PROGRESS_H
#define ATO_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *name;
    bool shown;
    unsigned percent; /* on the screen */
};

void progress_start(struct progress *p, const char *name, bool wanted);
void progress_show(struct progress *p, uint64_t done, uint64_t total);
void progress_end(struct progress *p); /* leaves an empty line */

#endif
