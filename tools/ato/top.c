/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato top`: a live view of the processes that have a file mapped.
 */
#include "each.h"
#include "sight.h"
#include "text.h"

#include "reflection/media/report.h"

#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void stop(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* ---- showing ---- */

/* Returns the rate per second since the earlier sight. */
static double rate(const struct sight *before, const struct sight *s, unsigned slot,
                   enum counter which)
{
    const struct doing *was = &before->each[slot], *is = &s->each[slot];
    const double seconds = (double)(s->ns - before->ns) / 1e9;
    const uint64_t from = was->holder == is->holder ? was->of[which] : 0;
    return is->of[which] > from && seconds > 0 ? (double)(is->of[which] - from) / seconds : 0;
}

static void write_json(struct json *j, const struct sight *before, const struct sight *s)
{
    json_object(j, NULL);
    json_number(j, "milliseconds", (s->ns - before->ns) / 1000000);
    json_number(j, "size", s->size);
    json_bool(j, "counted", s->shared);
    json_list(j, "processes");
    for (unsigned i = 0; i < s->holders.count && i < LOOK_HOLDERS; i++) {
        const struct look_holder *h = &s->holders.first[i];
        json_object(j, NULL);
        look_holder_write(h, j);
        json_number(j, "mappings", s->each[h->slot].mappings);
        json_number(j, "reservations", s->each[h->slot].reservations);
        for (unsigned c = 0; c < SIGHT_COLUMNS; c++)
            json_number(j, sight_columns[c].key,
                        (uint64_t)(rate(before, s, h->slot, sight_columns[c].which) + 0.5));
        json_end(j);
    }
    json_end(j);
    write_lock_write(&s->lock, j);
    json_end(j);
}

static void say_name(const struct look_holder *h)
{
    char name[LOOK_NAME];
    text_put(stdout, look_holder_name(name, h));
    printf("%*s", (int)(strlen(name) < 24 ? 24 - strlen(name) : 0), "");
}

static void say_lock(const struct write_lock *w)
{
    char text[WRITE_LOCK_TEXT];
    printf("%-24s %8s %8s %12s %12s\n", "WRITE LOCK OF SQLITE", "HOLDS", "WAITS", "LONGEST HOLD",
           "LONGEST WAIT  (since each opened it)");
    for (unsigned i = 0; i < w->count; i++) {
        const struct lock_user *u = &w->users[i];
        say_name(&u->name);
        printf(" %8llu %8llu %10.3f s %10.3f s  %s\n", (unsigned long long)u->holds_ended,
               (unsigned long long)u->waits, (double)u->longest_hold / 1e9,
               (double)u->longest_wait / 1e9, write_lock_text(text, u));
    }
    printf("%-24s %8llu %8llu %10.3f s %10.3f s\n", "all, those that ended too",
           (unsigned long long)w->holds, (unsigned long long)w->waits,
           (double)w->longest_hold / 1e9, (double)w->longest_wait / 1e9);
}

static void say(const struct sight *before, const struct sight *s)
{
    text_put(stdout, s->path);
    printf("  %llu bytes  %u %s%s\n%-24s %6s", (unsigned long long)s->size, s->holders.count,
           s->holders.count == 1 ? "process" : "processes",
           s->holders.readers ? " and readers" : "", "PROCESS", "PAGES");
    for (unsigned c = 0; c < SIGHT_COLUMNS; c++)
        if (sight_columns[c].head)
            printf(" %8s", sight_columns[c].head);
    printf("  COMMITS  (a second)\n");
    for (unsigned i = 0; i < s->holders.count && i < LOOK_HOLDERS; i++) {
        const struct look_holder *h = &s->holders.first[i];
        say_name(h);
        printf(" %6llu", (unsigned long long)s->each[h->slot].reservations);
        double commits = 0;
        for (unsigned c = 0; c < SIGHT_COLUMNS; c++) {
            const struct sight_column *column = &sight_columns[c];
            const double each = rate(before, s, h->slot, column->which);
            if (column->head)
                printf(" %8.0f", each / column->unit);
            else
                commits += each;
        }
        printf(" %8.0f\n", commits);
    }
    if (!s->holders.count)
        printf("no process has it mapped for writing: there is nothing to show\n");
    else if (!s->shared)
        printf("their counters cannot be seen: their shared memory is not in this /dev/shm, or "
               "cannot be read\n");
    if (s->lock.is_known)
        say_lock(&s->lock);
}

/* ---- the command ---- */

static int show_metrics(const struct tool_request *request)
{
    struct sight *sights = calloc((size_t)request->count, sizeof(*sights));
    struct json none = {0};
    int status = TOOL_GOOD;
    unsigned n = 0;
    if (!sights)
        err(TOOL_BLIND, "top");
    for (int i = 0; i < request->count; i++) {
        struct outcome o = {.name = request->names[i], .result = DONE};
        if (sight_take(&sights[n], o.name) == 0) {
            n++;
            continue;
        }
        outcome_set(&o, BLIND, "%s", report_sentence());
        outcome_show(&o, request, &none, "%s", "");
        status = TOOL_BLIND;
    }
    metrics_write(sights, n);
    free(sights);
    return status;
}

static int top(const struct tool_request *request)
{
    static struct sight sights[2];
    const uint64_t ms = request->every ? request->every : 1000;
    const uint64_t rounds = request->json && !request->count_of ? 1 : request->count_of;
    const struct timespec interval = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    const bool live = !request->json && isatty(STDOUT_FILENO);
    struct outcome o = {.name = request->names[0], .result = DONE};
    struct json j;
    struct sigaction on_signal = {.sa_handler = stop};
    sigaction(SIGINT, &on_signal, NULL);
    sigaction(SIGTERM, &on_signal, NULL);
    if (request->metrics && !request->json && !request->every && !request->count_of)
        return show_metrics(request);
    if (request->metrics || request->count > 1) {
        warnx(request->metrics ? "top: --metrics goes with no other option"
                               : "top: one FILE, or --metrics");
        return TOOL_USAGE;
    }
    json_start(&j, "top", request->json);
    json_list(&j, "sights");
    for (uint64_t i = 0;; i++) {
        struct sight *s = &sights[i % 2];
        if (sight_take(s, o.name) < 0) {
            outcome_set(&o, BLIND, "%s", report_sentence());
            break;
        }
        if (i && live)
            fputs("\033[H\033[J", stdout);
        if (i && request->json)
            write_json(&j, &sights[(i + 1) % 2], s);
        else if (i)
            say(&sights[(i + 1) % 2], s);
        /* A reader of a pipe needs each line immediately. */
        if (fflush(stdout) != 0 || (rounds && i == rounds) || nanosleep(&interval, NULL) < 0 ||
            interrupted)
            break;
    }
    const int status = outcome_status(&o);
    json_end(&j);
    if (request->json || status)
        outcome_show(&o, request, &j, "%s", "");
    json_finish(&j, status);
    return status;
}

const struct tool_command top_command = {
    .name = "top",
    .operands = "FILE...",
    .what = "live view of the processes that have a file mapped",
    .help = "Shows the processes that have FILE mapped, and what each does per second, until it\n"
            "is interrupted: the pages that it holds at that moment, calls that write and read,\n"
            "slices that were deployed, KiB that were stored, and commits. Of an SQLite database\n"
            "that processes share: which has the write lock, and which wait, and for how long.\n"
            "Several FILEs only with --metrics, which goes with no other option.\n",
    .least = 1,
    .options = HAS(JSON) | HAS(EVERY) | HAS(COUNT) | HAS(METRICS),
    .run = top,
};
