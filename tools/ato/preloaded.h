/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a program into which the dynamic linker loads a library (LD_PRELOAD), and into its children: for programs that nobody can
 * change. Its processes note in a record (lib/preload/record.h) what they did through the library.
 *
 * Tells, as far as the program's file does, why no library can be loaded into it.
 */
#ifndef ATO_TOOLS_PRELOADED_H
#define ATO_TOOLS_PRELOADED_H

#include "tool.h"

#include <limits.h>

struct record;

/* Exit statuses. The last three as env(1): of the command itself, of a program that cannot be started, and of one that is not
 * there. */
enum {
    PRELOADED_LOSS = 121,      /* what the program stored is not committed */
    PRELOADED_NOT_PLAIN = 122, /* a file could not be made plain */
    PRELOADED_IN_VAIN = 123,   /* with --require: the program did nothing through the library */
    PRELOADED_CANNOT_PREPARE = 125,
    PRELOADED_CANNOT_START = 126,
    PRELOADED_NOT_FOUND = 127
};

struct preloading {
    const char *library; /* its file's name */
    const char *package; /* Debian's */
    const char *built;   /* its folder in a build */
    const char *paths;   /* the environment's variable for --path */
    const char *record;  /* the one that names the record */
};

struct preloaded_end {
    int status;            /* as from wait(2) */
    struct record *record; /* processes that still run may change it */
    char file[PATH_MAX];   /* the program, or the interpreter of a script; empty: not found */
    /* Why no library can be loaded into the program, as "it is a static program". Empty: nothing is known against it. */
    char obstacle[PATH_MAX + 128];
};

/* Runs the program of the request to its end. Ends this process, with a line on standard error, if the program cannot be
 * started; or if there is an obstacle, and the request says --require. */
void preloaded_run(struct preloaded_end *end, const struct preloading *p,
                   const struct tool_request *request);

/* Ends this process as the program ended, if by a signal; else returns the exit status: the program's, or, if that is 0, `trouble`. */
int preloaded_end_status(const struct preloaded_end *end, const struct tool_request *request,
                         int trouble);

#endif
