/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato bench`: how fast libato is in a folder, relative to the floor of the machine.
 *
 * On a machine that others use, bare times mean little. So each operation is done by both sides in turns, a batch of about half a
 * millisecond at a time; a turn gives one ratio, and the median of all is shown. bench_work.h says what is done.
 */
#include "bench_work.h"
#include "diagnosis.h"
#include "json.h"
#include "progress.h"
#include "text.h"
#include "tool.h"

#include "lib/file/clock.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 4096, DEFAULT_MS = 9500 };
#define BATCH_NS 5e5

struct samples {
    unsigned batch; /* operations at a time */
    double floor_ns[TURNS], libato_ns[TURNS], ratio[TURNS];
};

struct result {
    double floor_ns, libato_ns, ratio;
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

/* Ends as the signal would have ended it. */
static void end_by_signal(void)
{
    const int number = asked;
    if (!number)
        return;
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* ---- measuring ---- */

static uint64_t now_ms(void)
{
    return clock_ns() / 1000000;
}

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
static int measure(struct bench *b, struct samples *samples, uint64_t begin, uint64_t ms,
                   struct progress *progress)
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
        const uint64_t past = now_ms() - begin;
        progress_show(progress, past < ms ? past : ms, ms);
        if (++turn == TURNS || past >= ms)
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

static void write_json(const struct diagnosis *d, const char *folder, const struct bench *b,
                       const struct result *results, int turns, int status)
{
    struct json j;
    json_start(&j, "bench");
    json_string(&j, "folder", folder);
    json_string(&j, "error", *b->error ? b->error : NULL);
    if (status == TOOL_GOOD) {
        json_string(&j, "file_system", d->medium.type);
        json_string(&j, "domain", domain_name(b->domain));
        json_string(&j, "copy_kernel", d->cpu.kernel);
        json_number(&j, "batches", (uint64_t)turns);
        json_list(&j, "operations");
        for (int i = 0; i < BENCH_OPERATIONS; i++) {
            json_object(&j, NULL);
            json_string(&j, "operation", bench_operations[i].name);
            json_decimal(&j, "floor_ns", results[i].floor_ns);
            json_decimal(&j, "libato_ns", results[i].libato_ns);
            json_decimal(&j, "ratio", results[i].ratio);
            json_end(&j);
        }
        json_end(&j);
    }
    json_finish(&j, status);
}

static void say_time(double ns)
{
    if (ns < 1e4)
        printf("  %7.0f ns", ns);
    else if (ns < 1e7)
        printf("  %7.0f us", ns / 1e3);
    else
        printf("  %7.0f ms", ns / 1e6);
}

static void say(const struct diagnosis *d, const char *folder, const struct bench *b,
                const struct result *results, int turns)
{
    fputs("Folder ", stdout);
    text_put(stdout, folder);
    printf(": %s, domain '%s'; copies with %s\n\n%-24s  %10s  %10s  %7s\n", d->medium.type,
           domain_name(b->domain), d->cpu.kernel, "operation", "floor", "libato", "ratio");
    for (int i = 0; i < BENCH_OPERATIONS; i++) {
        printf("%-24s", bench_operations[i].name);
        say_time(results[i].floor_ns);
        say_time(results[i].libato_ns);
        printf("  %7.2f\n", results[i].ratio);
    }
    printf("\nMedians of %d batches. The floor makes the bytes durable, and a word for each page; "
           "it is not "
           "atomic.\nThe floor of a read is memcpy(), that of a map mmap() and munmap().\n",
           turns);
}

/* ---- the command ---- */

/* Returns an exit status; if it is not good, with a sentence in b->error. */
static int look(struct diagnosis *d, struct bench *b, const char *folder)
{
    char needed[TEXT_SIZE], there[TEXT_SIZE];
    if (diagnosis_make(d, folder) < 0) {
        snprintf(b->error, sizeof(b->error), "cannot look at it: %s", report_reason(errno));
        return TOOL_BLIND;
    }
    const struct obstacles o = diagnosis_obstacles(d);
    if (o.n)
        snprintf(b->error, sizeof(b->error), "a file there cannot be mapped: %s", o.all[0]);
    else if (d->medium.has_space && d->medium.free < BENCH_SPACE)
        snprintf(b->error, sizeof(b->error), "%s are free there, the files take %s",
                 text_size(there, d->medium.free), text_size(needed, BENCH_SPACE));
    return *b->error ? TOOL_BAD : TOOL_GOOD;
}

static int run(const struct tool_request *request)
{
    static struct bench b;
    static struct samples samples[BENCH_OPERATIONS];
    struct result results[BENCH_OPERATIONS];
    struct diagnosis d;
    struct progress progress;
    const char *folder = request->count ? request->names[0] : ".";
    const uint64_t ms = request->time_ms ? request->time_ms : DEFAULT_MS, begin = now_ms();
    int turns = 0;
    int status = look(&d, &b, folder);
    if (status == TOOL_GOOD) {
        char why[sizeof(b.error)];
        catch_signals();
        progress_start(&progress, "ato bench", true);
        if (bench_open(&b, folder, is_asked_to_stop) == 0 && !is_asked_to_stop())
            turns = measure(&b, samples, begin, ms, &progress);
        memcpy(why, b.error, sizeof(why)); /* the first of two errors is shown */
        if (bench_close(&b) < 0 && *why)
            memcpy(b.error, why, sizeof(why));
        progress_end(&progress);
        status = *b.error ? TOOL_BAD : TOOL_GOOD;
        if (status == TOOL_GOOD)
            end_by_signal();
    }
    for (int i = 0; i < BENCH_OPERATIONS && turns > 0; i++)
        results[i] =
            (struct result){median(samples[i].floor_ns, turns), median(samples[i].libato_ns, turns),
                            median(samples[i].ratio, turns)};
    if (request->json) {
        write_json(&d, folder, &b, results, turns, status);
    } else if (status == TOOL_GOOD) {
        say(&d, folder, &b, results, turns);
    } else {
        text_put(stderr, folder);
        fputs(": ", stderr);
        text_put(stderr, b.error);
        fputc('\n', stderr);
    }
    return status;
}

const struct tool_command bench_command = {
    .name = "bench",
    .operands = "[FOLDER]",
    .what = "how fast libato is in a folder, in ten seconds",
    .help =
        "Measures writes, a read, a transaction and a map in FOLDER (by default the working\n"
        "directory), in the durability domain that a file there gets, and shows the time of each\n"
        "relative to the floor of the machine: to make the same bytes durable, and a word of 8\n"
        "bytes for each page, which is not atomic. In domain process that is memcpy() and a\n"
        "store; for a read it is memcpy(), for a map mmap() and munmap().\n"
        "\n"
        "Floor and libato run in turns, so that the ratio means something on a busy machine too.\n"
        "The files are in a new folder .ato-bench-XXXXXX there, which is removed at the end, also\n"
        "if the command is interrupted. They take up to 192 MiB, and the command refuses to run\n"
        "where less is free.\n"
        "\n"
        "  --time MS   how long it takes, in milliseconds, by default 9500; it does at least one\n"
        "              batch of each operation\n"
        "\n"
        "Exit status: 0; 1 the files could not be made or mapped there, for the reason shown; 2\n"
        "FOLDER could not be read.\n",
    .most = 1,
    .is_timed = true,
    .run = run,
};
