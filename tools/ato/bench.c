/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato bench`: how fast libato is in a folder, relative to the floor of the machine.
 *
 * On a machine that others use, bare times mean little. So each operation is done by both sides in turns, a batch of about half a
 * millisecond at a time; a turn gives one ratio, and the median of all is shown. bench_work.h says what is done.
 */
#include "bench_work.h"
#include "each.h"

#include "lib/file/clock.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { TURNS = 4096, DEFAULT_MS = 9500 };
#define BATCH_NS 5e5

struct samples {
    unsigned batch; /* operations at a time */
    double floor_ns[TURNS], libato_ns[TURNS], ratio[TURNS];
};

/* ---- interruption: the files are removed first ---- */

static const int asking[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
enum { ASKING = sizeof(asking) / sizeof(asking[0]) };

static volatile sig_atomic_t asked;

static void note_signal(int number)
{
    asked = number;
}

static bool is_asked_to_stop(void)
{
    return asked != 0;
}

/* Signals that are ignored stay so. */
static void catch_signals(void)
{
    struct sigaction old, new = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    for (int i = 0; i < ASKING; i++)
        if (sigaction(asking[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(asking[i], &new, NULL);
}

/* ---- measuring ---- */

/* Finds how many operations a batch has, which also warms up. */
static int choose_batch(struct bench *b, const struct bench_operation *o, struct samples *s)
{
    double floor_ns, libato_ns;
    for (s->batch = 1;; s->batch *= 2) {
        if (bench_batch(b, o, s->batch, false, &floor_ns, &libato_ns) < 0)
            return -1;
        if (libato_ns * s->batch * 2 > BATCH_NS || s->batch * 2 * o->writes > BENCH_MAX_BATCH ||
            is_asked_to_stop())
            return 0;
    }
}

/* Returns the number of turns; 0 if it was asked to stop, -1 with a sentence. */
static int measure(struct bench *b, struct samples *samples, uint64_t end)
{
    for (int i = 0; i < BENCH_OPERATIONS; i++)
        if (choose_batch(b, &bench_operations[i], &samples[i]) < 0)
            return -1;
    for (int turn = 0;;) {
        for (int i = 0; i < BENCH_OPERATIONS; i++) {
            struct samples *s = &samples[i];
            if (is_asked_to_stop())
                return 0;
            if (bench_batch(b, &bench_operations[i], s->batch, turn % 2, &s->floor_ns[turn],
                            &s->libato_ns[turn]) < 0)
                return -1;
            s->ratio[turn] = s->libato_ns[turn] / s->floor_ns[turn];
        }
        if (++turn == TURNS || clock_ns() >= end)
            return turn;
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* ---- showing ---- */

static void show(struct json *j, const struct bench *b, struct samples *samples, int turns)
{
    json_string(j, "domain", domain_name(b->domain));
    json_number(j, "batches", (uint64_t)turns);
    json_list(j, "operations");
    if (!j->out)
        printf("%-24s  %10s  %10s  %7s\n", "operation", "floor, ns", "libato, ns", "ratio");
    for (int i = 0; i < BENCH_OPERATIONS; i++) {
        struct samples *s = &samples[i];
        const double floor_ns = median(s->floor_ns, turns), libato_ns = median(s->libato_ns, turns),
                     ratio = median(s->ratio, turns);
        json_object(j, NULL);
        json_string(j, "operation", bench_operations[i].name);
        json_decimal(j, "floor_ns", floor_ns);
        json_decimal(j, "libato_ns", libato_ns);
        json_decimal(j, "ratio", ratio);
        json_end(j);
        if (j->out)
            continue;
        printf("%-24s  %10.0f  %10.0f  %7.2f\n", bench_operations[i].name, floor_ns, libato_ns,
               ratio);
    }
    json_end(j);
    if (!j->out)
        printf("\nMedians of %d batches. The floor makes the bytes durable, and a word for each "
               "page; it is not atomic.\nThe floor of a read is memcpy(), that of a map mmap() and "
               "munmap().\n",
               turns);
}

/* ---- the command ---- */

static int run(const struct tool_request *request)
{
    static struct bench b;
    static struct samples samples[BENCH_OPERATIONS];
    struct json j;
    struct outcome o = {.name = request->count ? request->names[0] : ".", .result = DONE};
    struct stat st;
    const uint64_t end = clock_ns() + (request->time ? request->time : DEFAULT_MS) * 1000000;
    int turns = 0;
    if (stat(o.name, &st) < 0 || !S_ISDIR(st.st_mode))
        outcome_set(&o, BLIND, "cannot look at it as a folder");
    if (o.result == DONE) {
        catch_signals();
        turns = bench_open(&b, o.name, is_asked_to_stop) < 0 ? -1
                : is_asked_to_stop()                         ? 0
                                                             : measure(&b, samples, end);
        if (bench_close(&b) < 0)
            turns = -1;
        if (asked) { /* ends as the signal would have ended it */
            (void)signal(asked, SIG_DFL);
            (void)raise(asked);
        }
        if (turns < 0)
            outcome_set(&o, FAILED, "a file there cannot be mapped or measured: %s", b.error);
    }
    const int status = outcome_status(&o);
    json_start(&j, "bench", request->json);
    json_string(&j, "folder", o.name);
    json_string(&j, "error", status ? o.why : NULL);
    if (!request->json)
        outcome_show(&o, request, &j, "domain '%s'", domain_name(b.domain));
    if (status == TOOL_GOOD)
        show(&j, &b, samples, turns);
    json_finish(&j, status);
    return status;
}

const struct tool_command bench_command = {
    .name = "bench",
    .operands = "[FOLDER]",
    .what = "how fast libato is in a folder, in ten seconds",
    .help = "Measures writes, a read, a transaction and a map in FOLDER (by default the working\n"
            "directory), in the durability domain that a file there gets, relative to the floor\n"
            "of the machine: to make the same bytes durable, and a word for each page. Its files,\n"
            "of up to 192 MiB, are in a new folder there, which it removes.\n",
    .most = 1,
    .options = HAS(JSON) | HAS(TIME),
    .run = run,
};
