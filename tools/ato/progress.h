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
    uint64_t next_ns; /* when progress_count() shows something again */
};

void progress_start(struct progress *p, const char *name, bool wanted);
void progress_show(struct progress *p, uint64_t done, uint64_t total);
void progress_count(struct progress *p, uint64_t n); /* without a bar: n of nobody knows how many */
void progress_end(struct progress *p);               /* leaves an empty line */

#endif
