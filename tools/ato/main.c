/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato`: parses the command and its options. */
#include "tool.h"

#include "ato.h"

#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tool_command *const commands[] = {
    &info_command, &deploy_command,  &check_command, &convert_command, &cp_command, &doctor_command,
    &top_command,  &reclaim_command, &bench_command, &map_command,     &gc_command, &sqlite_command,
    NULL};

static void say_usage(FILE *out)
{
    fputs("usage: ato COMMAND [OPTION...] [OPERAND...]\n", out);
}

static void help(void)
{
    say_usage(stdout);
    fputs("\nInspects and repairs files that are mapped through libato; measures it; starts "
          "programs whose SQLite uses it.\n\nCommands:\n",
          stdout);
    for (int i = 0; commands[i]; i++)
        printf("  %-8s%-16s %s\n", commands[i]->name, commands[i]->operands, commands[i]->what);
    fputs("\nOptions:\n"
          "  --json      for programs: one JSON document\n"
          "  --help      this text; 'ato COMMAND --help' says more about a command\n"
          "  --version   the version of libato\n"
          "\n"
          "Exit status: see each command; 64 for wrong options or operands, 2 if the output could\n"
          "not be written.\n"
          "\n"
          "A byte of a file's name that is not UTF-8 is written as \\xNN, in JSON as \\udcNN.\n",
          stdout);
}

static void say_form(FILE *out, const struct tool_command *c)
{
    fprintf(out, "ato %s%s%s%s%s%s%s%s%s%s%s %s", c->name,
            c->starts_program ? " [--path PATH]... [--require] [--tidy]" : " [--json]",
            c->can_be_quiet ? " [--quiet]" : "", c->can_recurse ? " [--recursive]" : "",
            c->can_prefer ? " [--prefer=file|reflection]" : "",
            c->is_repeated ? " [--every MS] [--count N]" : "", c->is_timed ? " [--time MS]" : "",
            c->can_delete ? " [--delete[=all]]" : "", c->can_draw ? " [--svg OUT] [--png OUT]" : "",
            c->can_convert ? " [--to=dense|sparse]" : "",
            c->can_mark ? " [--since FILE] [--mark FILE]" : "", c->operands);
}

static void help_of(const struct tool_command *c)
{
    printf("usage: ");
    say_form(stdout, c);
    printf("\n\n%s", c->help);
}

static _Noreturn void misused(const struct tool_command *c)
{
    if (c)
        fputs("usage: ", stderr), say_form(stderr, c),
            fprintf(stderr, "\n'ato %s --help' says more\n", c->name);
    else
        say_usage(stderr), fputs("'ato --help' says more\n", stderr);
    exit(TOOL_USAGE);
}

/* An output that could not be written is an error. */
static int finish(int status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        warn("cannot write");
        return TOOL_BLIND;
    }
    return status;
}

/* The commands that only read write nothing to the log of the library. */
static void ignore(void *arg, int level, const char *sentence)
{
    (void)arg;
    (void)level;
    (void)sentence;
}

static _Noreturn void has_no(const struct tool_command *c, const char *option)
{
    fprintf(stderr, "ato %s has no option --%s\n", c->name, option);
    misused(c);
}

/* Reads a positive number. */
static uint64_t take_number(const struct tool_command *c, bool has, const char *option,
                            const char *text)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (has && !errno && !*end && end != text && *text != '-' && n && n <= 1000000000)
        return n;
    if (!has)
        has_no(c, option);
    fprintf(stderr, "ato %s: --%s=%s is not a number from 1 to 1000000000\n", c->name, option,
            text);
    misused(c);
}

static unsigned take_side(const struct tool_command *c, const char *word)
{
    if (!c->can_prefer)
        has_no(c, "prefer");
    if (strcmp(word, "file") == 0)
        return ATO_PREFER_FILE;
    if (strcmp(word, "reflection") == 0)
        return ATO_PREFER_REFLECTION;
    fprintf(stderr, "ato %s: --prefer=%s is neither 'file' nor 'reflection'\n", c->name, word);
    misused(c);
}

static int take_format(const struct tool_command *c, const char *word)
{
    if (!c->can_convert)
        has_no(c, "to");
    if (strcmp(word, "dense") == 0)
        return ATO_FORMAT_DENSE + 1;
    if (strcmp(word, "sparse") == 0)
        return ATO_FORMAT_SPARSE + 1;
    fprintf(stderr, "ato %s: --to=%s is neither 'dense' nor 'sparse'\n", c->name, word);
    misused(c);
}

static const char *take_extent(const struct tool_command *c, const char *word)
{
    if (!c->can_delete)
        has_no(c, "delete");
    if (!word || strcmp(word, "all") == 0)
        return word ? word : "";
    fprintf(stderr, "ato %s: --delete=%s is not 'all'\n", c->name, word);
    misused(c);
}

static const struct tool_command *find(const char *name)
{
    for (int i = 0; commands[i]; i++)
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
    fprintf(stderr, "ato: there is no command '%s'\n", name);
    misused(NULL);
}

static int run(const struct tool_command *c, int argc, char **argv)
{
    enum {
        JSON = 256,
        HELP,
        EVERY,
        COUNT,
        TIME,
        PREFER,
        PATH,
        RECURSIVE,
        REQUIRE,
        TIDY,
        DELETE,
        SVG,
        PNG,
        SINCE,
        MARK,
        TO
    };
    static const struct option options[] = {
        {"json", no_argument, NULL, JSON},         {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, HELP},         {"every", required_argument, NULL, EVERY},
        {"count", required_argument, NULL, COUNT}, {"prefer", required_argument, NULL, PREFER},
        {"path", required_argument, NULL, PATH},   {"recursive", no_argument, NULL, RECURSIVE},
        {"require", no_argument, NULL, REQUIRE},   {"tidy", no_argument, NULL, TIDY},
        {"time", required_argument, NULL, TIME},   {"delete", optional_argument, NULL, DELETE},
        {"svg", required_argument, NULL, SVG},     {"png", required_argument, NULL, PNG},
        {"since", required_argument, NULL, SINCE}, {"mark", required_argument, NULL, MARK},
        {"to", required_argument, NULL, TO},       {NULL, 0, NULL, 0}};
    static struct tool_request request;
    int option, paths = 0;
    request.paths = calloc((size_t)argc, sizeof(char *));
    if (!request.paths)
        err(TOOL_BLIND, NULL);
    while ((option = getopt_long(argc, argv, c->starts_program ? "+h" : "qh", options, NULL)) !=
           -1) {
        switch (option) {
        case JSON:
            if (c->starts_program)
                has_no(c, "json");
            request.json = true;
            break;
        case PATH:
            if (!c->starts_program)
                has_no(c, "path");
            request.paths[paths++] = optarg;
            break;
        case RECURSIVE:
            if (!c->can_recurse)
                has_no(c, "recursive");
            request.recursive = true;
            break;
        case REQUIRE:
        case TIDY:
            if (!c->starts_program)
                has_no(c, option == REQUIRE ? "require" : "tidy");
            *(option == REQUIRE ? &request.require : &request.tidy) = true;
            break;
        case EVERY:
            request.interval_ms = take_number(c, c->is_repeated, "every", optarg);
            break;
        case COUNT:
            request.rounds = take_number(c, c->is_repeated, "count", optarg);
            break;
        case TIME:
            request.time_ms = take_number(c, c->is_timed, "time", optarg);
            break;
        case PREFER:
            request.prefer = take_side(c, optarg);
            break;
        case TO:
            request.format = take_format(c, optarg);
            break;
        case DELETE:
            request.deletes = take_extent(c, optarg);
            break;
        case SVG:
        case PNG:
            if (!c->can_draw)
                has_no(c, option == SVG ? "svg" : "png");
            *(option == SVG ? &request.svg : &request.png) = optarg;
            break;
        case SINCE:
        case MARK:
            if (!c->can_mark)
                has_no(c, option == SINCE ? "since" : "mark");
            *(option == SINCE ? &request.since : &request.mark) = optarg;
            break;
        case HELP:
        case 'h':
            help_of(c);
            return TOOL_GOOD;
        case 'q':
            if (!c->can_be_quiet)
                has_no(c, "quiet");
            request.quiet = true;
            break;
        default:
            misused(c);
        }
    }
    request.names = argv + optind;
    request.count = argc - optind;
    if (request.count < c->least || (c->most && request.count > c->most)) {
        fprintf(stderr, "ato %s: too %s operands\n", c->name,
                request.count < c->least ? "few" : "many");
        misused(c);
    }
    if (!c->starts_program)
        (void)signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an errno then */
    ato_set_log(ignore, NULL);
    return c->run(&request);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        misused(NULL);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help();
        return finish(TOOL_GOOD);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("ato %s\n", ato_version());
        return finish(TOOL_GOOD);
    }
    if (argv[1][0] == '-') {
        fprintf(stderr, "ato: there is no option '%s'\n", argv[1]);
        misused(NULL);
    }
    if (strcmp(argv[1], "help") == 0) {
        argc > 2 ? help_of(find(argv[2])) : help();
        return finish(TOOL_GOOD);
    }
    const struct tool_command *c = find(argv[1]);
    argv[1] = argv[0]; /* getopt's messages begin with it */
    return finish(run(c, argc - 1, argv + 1));
}
