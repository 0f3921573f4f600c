/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato top`: a live view of the processes that have a file mapped.
 *
 * The locks of the manifest show which processes live (holders.c); the shared memory shows what they do:
 * the slots, the counters of their threads, the page states. It is read by pread(): nothing is mapped,
 * locked or changed. Permission to read the file is enough.
 */
#include "each.h"
#include "text.h"

#include "lib/file/clock.h"
#include "lib/file/file.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The counts of a process since it mapped the file, and the pages that it holds now. */
struct doing {
    uint32_t holder;
    uint64_t of[COUNTERS];
    uint64_t reservations;
    unsigned mappings;
};

struct sight {
    uint64_t ns; /* when it was taken */
    struct look_holders holders;
    struct doing each[MANIFEST_SLOTS];
    uint64_t size;
    bool shared; /* the shared memory could be read */
};

static volatile sig_atomic_t interrupted;

static void stop(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* ---- looking ---- */

static struct doing *of_holder(struct sight *s, uint32_t holder)
{
    const unsigned slot = (holder & 0x7ff) - 1;
    return slot < MANIFEST_SLOTS && s->each[slot].holder == holder ? &s->each[slot] : NULL;
}

static void add_counters(struct doing *d, int fd, unsigned slot)
{
    static struct shared_thread threads[THREAD_SHARED + 1];
    const off_t at = SHARED_THREADS_AT + (off_t)slot * SHARED_THREADS_BYTES;
    if (pread(fd, threads, sizeof(threads), at) != (ssize_t)sizeof(threads))
        return;
    for (unsigned thread = 0; thread <= THREAD_SHARED; thread++)
        for (unsigned c = 0; c < COUNTERS; c++)
            d->of[c] += threads[thread].of[c];
}

static void add_reservations(struct sight *s, int fd, const struct shared_header *h)
{
    static struct page_group groups[4096];
    struct doing *d = h->sizing.holder ? of_holder(s, h->sizing.holder) : NULL;
    if (d)
        d->reservations++;
    uint64_t at = h->groups_at, end = at + h->next_group * sizeof(struct page_group);
    while (at < end) {
        const uint64_t n = end - at < sizeof(groups) ? end - at : sizeof(groups);
        ssize_t got = pread(fd, groups, n, (off_t)at);
        if (got <= 0)
            break;
        const struct page_state *states = groups[0].pages;
        for (size_t i = 0; i < (size_t)got / sizeof(*states); i++) {
            d = states[i].holder ? of_holder(s, states[i].holder) : NULL;
            if (d)
                d->reservations++;
        }
        at += (uint64_t)got;
    }
}

/* Returns 0; -1 with a sentence: the file cannot be read. */
static int take_sight(struct sight *s, struct look *l, const char *name)
{
    static struct shared_slot slots[MANIFEST_SLOTS];
    struct shared_header h;
    memset(s, 0, sizeof(*s));
    if (look_at(l, name) < 0)
        return -1;
    s->holders = l->holders;
    s->size = l->manifest.has_size ? l->manifest.size : l->identity.size;
    s->ns = clock_ns();
    int fd = l->manifest.found == MANIFEST_VALID && l->manifest.fd >= 0
                 ? look_shared(&l->manifest.record, &h)
                 : -1;
    if (fd < 0)
        return 0;
    if (pread(fd, slots, sizeof(slots), SHARED_SLOTS_AT) == (ssize_t)sizeof(slots)) {
        s->shared = true;
        for (unsigned i = 0; i < MANIFEST_SLOTS; i++) {
            if (slots[i].state == SLOT_FREE)
                continue;
            s->each[i].holder = shared_holder(i, slots[i].generation);
            s->each[i].mappings = slots[i].mappings;
            add_counters(&s->each[i], fd, i);
        }
        add_reservations(s, fd, &h);
    }
    close(fd);
    return 0;
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

static const struct {
    enum counter which;
    const char *key, *head;
    unsigned unit; /* of the text */
} columns[] = {
    {COUNT_WRITES, "writes", "WRITES", 1},
    {COUNT_READS, "reads", "READS", 1},
    {COUNT_DEPLOYED_SLICES, "deployed_slices", "DEPLOYED", 1},
    {COUNT_COMMITS_SINGLE, "commits_single", "SINGLE", 1},
    {COUNT_COMMITS_RTM, "commits_rtm", "RTM", 1},
    {COUNT_COMMITS_JOURNAL, "commits_journal", "JOURNAL", 1},
    {COUNT_BYTES_TO_MEDIA, "bytes_to_media", "KIB", 1024},
};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

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
        for (unsigned c = 0; c < COLUMNS; c++)
            json_number(j, columns[c].key,
                        (uint64_t)(rate(before, s, h->slot, columns[c].which) + 0.5));
        json_end(j);
    }
    json_end(j);
    json_end(j);
}

static void say(const struct look *l, const struct sight *before, const struct sight *s)
{
    text_put(stdout, l->path);
    printf("  %llu bytes  %u %s%s\n%-24s %6s", (unsigned long long)s->size, s->holders.count,
           s->holders.count == 1 ? "process" : "processes",
           s->holders.readers ? " and readers" : "", "PROCESS", "HELD");
    for (unsigned c = 0; c < COLUMNS; c++)
        printf(" %8s", columns[c].head);
    printf("   (a second)\n");
    for (unsigned i = 0; i < s->holders.count && i < LOOK_HOLDERS; i++) {
        const struct look_holder *h = &s->holders.first[i];
        char name[LOOK_NAME];
        text_put(stdout, look_holder_name(name, h));
        printf("%*s", (int)(strlen(name) < 24 ? 24 - strlen(name) : 0), "");
        printf(" %6llu", (unsigned long long)s->each[h->slot].reservations);
        for (unsigned c = 0; c < COLUMNS; c++)
            printf(" %8.0f", rate(before, s, h->slot, columns[c].which) / columns[c].unit);
        putchar('\n');
    }
    if (!s->holders.count)
        printf("no process has it mapped for writing: there is nothing to show\n");
    else if (!s->shared)
        printf("their counters cannot be seen: their shared memory is not in this /dev/shm, or "
               "cannot be read\n");
}

/* ---- the command ---- */

static int top(const struct tool_request *request)
{
    static struct look l;
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
    json_start(&j, "top", request->json);
    json_list(&j, "sights");
    for (uint64_t i = 0;; i++) {
        struct sight *s = &sights[i % 2];
        if (take_sight(s, &l, o.name) < 0) {
            outcome_set(&o, BLIND, "%s", report_sentence());
            break;
        }
        if (i && live)
            fputs("\033[H\033[J", stdout);
        if (i && request->json)
            write_json(&j, &sights[(i + 1) % 2], s);
        else if (i)
            say(&l, &sights[(i + 1) % 2], s);
        look_close(&l);
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
    .operands = "FILE",
    .what = "live view of the processes that have a file mapped",
    .help = "Shows the processes that have FILE mapped, and what each does per second, until it\n"
            "is interrupted: the pages that it holds at that moment, calls that write and read,\n"
            "slices that were deployed, commits of one bitmap word, by a hardware transaction and\n"
            "by a lane, and the bytes that were stored.\n",
    .least = 1,
    .most = 1,
    .options = HAS(JSON) | HAS(EVERY) | HAS(COUNT),
    .run = top,
};
