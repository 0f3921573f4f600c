/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato`: parses the command and its options. */
#include "tool.h"

#include "ato.h"

#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tool_command *const commands[] = {&info_command,   &deploy_command,
                                                      &check_command,  &convert_command,
                                                      &cp_command,     &doctor_command,
                                                      &top_command,    &reclaim_command,
                                                      &bench_command,  &map_command,
                                                      &gc_command,     &run_command,
                                                      &sqlite_command, NULL};

enum kind {
    FLAG,   /* bool */
    NUMBER, /* uint64_t, from 1 on */
    CHOICE, /* unsigned: the number of the word in the form, from 1 on; that of none, if a word may be left out, is 1 */
    PATHS
};

/* The completions of the shells read the forms from the help. */
static const struct {
    const char *name, *form;
    enum kind kind;
    size_t at; /* in struct tool_request */
    const char *what;
} options[OPTIONS] = {
#define AT(field) offsetof(struct tool_request, field)
    [OPTION_JSON] = {"json", "", FLAG, AT(json), "for programs: one JSON document"},
    [OPTION_QUIET] = {"quiet", "", FLAG, AT(quiet), "nothing about files that are in order"},
    [OPTION_RECURSIVE] = {"recursive", "", FLAG, AT(recursive), "folders below a FOLDER, too"},
    [OPTION_PREFER] = {"prefer", "=file|reflection", CHOICE, AT(prefer), "which bytes are right"},
    [OPTION_TO] = {"to", "=dense|sparse", CHOICE, AT(to), "the format"},
    [OPTION_DELETE] = {"delete", "[=all]", CHOICE, AT(deletes),
                       "removes what is useless; =all: what is unsure, too"},
    [OPTION_EVERY] = {"every", " MS", NUMBER, AT(every), "the interval, by default 1000"},
    [OPTION_COUNT] = {"count", " N", NUMBER, AT(count_of), "ends after N intervals"},
    [OPTION_METRICS] = {"metrics", "", FLAG, AT(metrics),
                        "for Prometheus: all that is known, once"},
    [OPTION_TIME] = {"time", " MS", NUMBER, AT(time), "how long it takes, by default 9500"},
    [OPTION_PATH] = {"path", " PATH", PATHS, 0, "only the file PATH, or those below it"},
    [OPTION_REQUIRE] = {"require", "", FLAG, AT(require), "fails if libato cannot be used"},
    [OPTION_TIDY] = {"tidy", "", FLAG, AT(tidy), "makes plain what PROGRAM leaves"},
#undef AT
};

static void say_usage(FILE *out)
{
    fputs("usage: ato COMMAND [OPTION...] [OPERAND...]\n", out);
}

static void help(void)
{
    say_usage(stdout);
    fputs("\nInspects and repairs files that are mapped through libato; measures it; starts "
          "programs that use it without a change.\n\nCommands:\n",
          stdout);
    for (int i = 0; commands[i]; i++)
        printf("  %-8s%-16s %s\n", commands[i]->name, commands[i]->operands, commands[i]->what);
    fputs("\n--help shows this text, --version the version of libato; 'ato COMMAND --help' says "
          "more\n"
          "about a command, and ato(1) all.\n",
          stdout);
}

static void say_form(FILE *out, const struct tool_command *c)
{
    fprintf(out, "usage: ato %s", c->name);
    for (int i = 0; i < OPTIONS; i++)
        if (c->options >> i & 1)
            fprintf(out, " [--%s%s]%s", options[i].name, options[i].form,
                    options[i].kind == PATHS ? "..." : "");
    fprintf(out, " %s\n", c->operands);
}

static void help_of(const struct tool_command *c)
{
    say_form(stdout, c);
    printf("\n%s\n", c->help);
    for (int i = 0; i < OPTIONS; i++)
        if (c->options >> i & 1)
            printf("  --%-12s %s\n", options[i].name, options[i].what);
    printf("\nExit status: %s; ato(1) says more.\n",
           c->starts_program
               ? "that of PROGRAM; 122 to 127 if this command failed"
               : "0 good; 1 damaged, refused or failed; 2 not readable; 64 wrong use");
}

static _Noreturn void misused(const struct tool_command *c)
{
    if (c)
        say_form(stderr, c);
    else
        say_usage(stderr);
    fprintf(stderr, "'ato %s%s--help' says more\n", c ? c->name : "", c ? " " : "");
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

static uint64_t take_number(const struct tool_command *c, const char *option, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (!errno && !*end && end != text && *text != '-' && n && n <= 1000000000)
        return n;
    fprintf(stderr, "ato %s: --%s=%s is not a number from 1 to 1000000000\n", c->name, option,
            text);
    misused(c);
}

static unsigned take_choice(const struct tool_command *c, int option, const char *word)
{
    const char *form = options[option].form, *all = strchr(form, '=') + 1, *at = all;
    if (!word)
        return 1;
    for (unsigned n = *form == '[' ? 2 : 1;; n++) {
        const size_t length = strcspn(at, "|]");
        if (strlen(word) == length && memcmp(word, at, length) == 0)
            return n;
        if (at[length] != '|')
            break;
        at += length + 1;
    }
    fprintf(stderr, "ato %s: --%s=%s is not %.*s\n", c->name, options[option].name, word,
            (int)strcspn(all, "]"), all);
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
    static struct tool_request request;
    struct option longs[OPTIONS + 2] = {[OPTIONS] = {"help", no_argument, NULL, 'h'}};
    int option, paths = 0;
    for (int i = 0; i < OPTIONS; i++)
        longs[i] = (struct option){options[i].name,
                                   !*options[i].form         ? no_argument
                                   : *options[i].form == '[' ? optional_argument
                                                             : required_argument,
                                   NULL, 256 + i};
    request.paths = calloc((size_t)argc, sizeof(char *));
    if (!request.paths)
        err(TOOL_BLIND, NULL);
    while ((option = getopt_long(argc, argv, c->starts_program ? "+h" : "qh", longs, NULL)) != -1) {
        if (option == 'h') {
            help_of(c);
            return TOOL_GOOD;
        }
        if (option == '?')
            misused(c);
        const int i = option == 'q' ? OPTION_QUIET : option - 256;
        void *at = (char *)&request + options[i].at;
        if (!(c->options >> i & 1)) {
            fprintf(stderr, "ato %s has no option --%s\n", c->name, options[i].name);
            misused(c);
        }
        switch (options[i].kind) {
        case FLAG:
            *(bool *)at = true;
            break;
        case NUMBER:
            *(uint64_t *)at = take_number(c, options[i].name, optarg);
            break;
        case CHOICE:
            *(unsigned *)at = take_choice(c, i, optarg);
            break;
        case PATHS:
            request.paths[paths++] = optarg;
            break;
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
    if (strcmp(argv[1], "--version") == 0) {
        printf("ato %s\n", ato_version());
        return finish(TOOL_GOOD);
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0) {
        argc > 2 ? help_of(find(argv[2])) : help();
        return finish(TOOL_GOOD);
    }
    const struct tool_command *c = find(argv[1]);
    argv[1] = argv[0]; /* getopt's messages begin with it */
    return finish(run(c, argc - 1, argv + 1));
}
