/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The request and the exit status of a command of `ato`.
 */
#ifndef ATO_TOOLS_TOOL_H
#define ATO_TOOLS_TOOL_H

#include <stdbool.h>
#include <stdint.h>

/* Exit statuses. */
enum {
    TOOL_GOOD = 0,   /* in order, done */
    TOOL_BAD = 1,    /* damaged, refused, failed */
    TOOL_BLIND = 2,  /* could not read, or not write the output */
    TOOL_USAGE = 64, /* EX_USAGE */
};

/* Returns the exit status of two together: a failure outweighs what could not be read. */
static inline int tool_worst(int a, int b)
{
    return a == TOOL_BAD || b == TOOL_BAD ? TOOL_BAD : a ? a : b;
}

struct tool_request {
    bool json, quiet, recursive;
    bool require, tidy;                    /* of sqlite */
    unsigned prefer;                       /* ATO_PREFER_...; 0: neither */
    int format;                            /* of --to: enum ato_format + 1; 0: not given */
    uint64_t interval_ms, rounds, time_ms; /* 0: the default of the command */
    const char *deletes; /* NULL: nothing is removed; else what --delete names, "" by default */
    const char *since, *mark; /* of --since and --mark; NULL: none */
    const char *svg, *png;    /* of --svg and --png; NULL: none */
    char **paths;             /* of --path; ends with NULL */
    char **names;             /* operands */
    int count;
};

struct tool_command {
    const char *name, *operands, *what;
    const char *help;
    int least, most; /* operands; most 0: any number */
    bool can_be_quiet, is_repeated, is_timed, can_prefer, can_delete, can_draw, can_convert,
        can_mark, can_recurse;
    bool
        starts_program; /* has --path, --require, --tidy and no --json; what follows the first operand is the program's */
    int (*run)(const struct tool_request *request);
};

extern const struct tool_command info_command, deploy_command, check_command, convert_command,
    cp_command, doctor_command, bench_command, gc_command, map_command, reclaim_command,
    sqlite_command, top_command;

#endif
