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

/* The options; main.c has a table of them. */
enum tool_option {
    OPTION_JSON,
    OPTION_QUIET,
    OPTION_RECURSIVE,
    OPTION_PREFER,
    OPTION_TO,
    OPTION_DELETE,
    OPTION_EVERY,
    OPTION_COUNT,
    OPTION_METRICS,
    OPTION_TIME,
    OPTION_PATH,
    OPTION_REQUIRE,
    OPTION_TIDY,
    OPTIONS
};
#define HAS(option) (1u << OPTION_##option)

/* The choices of --prefer, --to and --delete; 0: not given. */
enum { PREFER_FILE = 1, PREFER_REFLECTION };
enum { TO_DENSE = 1, TO_SPARSE };
enum { DELETE_USELESS = 1, DELETE_ALL };

struct tool_request {
    bool json, metrics, quiet, recursive, require, tidy;
    unsigned prefer, to, deletes;
    uint64_t every, count_of, time; /* 0: the default of the command */
    char **paths;                   /* of --path; ends with NULL */
    char **names;                   /* operands */
    int count;
};

struct tool_command {
    const char *name, *operands, *what;
    const char *help;
    int least, most;     /* operands; most 0: any number */
    unsigned options;    /* HAS() of each */
    bool starts_program; /* what follows the first operand is the program's */
    int (*run)(const struct tool_request *request);
};

extern const struct tool_command info_command, deploy_command, check_command, convert_command,
    cp_command, doctor_command, bench_command, gc_command, map_command, reclaim_command,
    run_command, sqlite_command, top_command;

#endif
