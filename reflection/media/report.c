/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/media/report.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Thread_local char sentence[REPORT_SENTENCE];

/* The sink changes rarely and is read on failures only, so a lock is good enough. It ensures that the old
 * sink is not called any more after report_set_log() returned. Recursive: a sink that calls the library
 * (which it must not) gets wrong output instead of a deadlock. */
pthread_mutex_t report_lock = REPORT_LOCK_FREE;
static void (*sink)(void *arg, int level, const char *sentence);
static void *sink_arg;

/* A call that fails in a loop says the same each time. Of the sentences that came last: since when, how often each was logged, and how
 * often it was left out. `used` grows: which came last. */
enum { RECENT = 8, OFTEN = 10, WHILE_NS = 1000 * 1000 * 1000 };
static struct recent {
    uint64_t hash, since, logged, left_out, used;
} recent[RECENT];

/* With the lock. Returns false if the same sentence was logged OFTEN in the last second. Otherwise sets *left_out to how often it was
 * left out in the second before. */
static bool is_due(int level, const char *text, uint64_t *left_out)
{
    uint64_t hash = 0xcbf29ce484222325ull + (uint64_t)level;
    struct recent *r = recent;
    struct timespec t;
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    const uint64_t now = (uint64_t)t.tv_sec * WHILE_NS + (uint64_t)t.tv_nsec;
    for (struct recent *at = recent; at < recent + RECENT && r->hash != hash; at++)
        if (at->hash == hash || at->used < r->used)
            r = at;
    *left_out = 0;
    if (r->hash != hash || now - r->since >= WHILE_NS) {
        *left_out = r->hash == hash ? r->left_out : 0;
        *r = (struct recent){.hash = hash, .since = now};
    }
    static uint64_t used;
    r->used = ++used;
    r->left_out += r->logged >= OFTEN;
    return r->logged++ < OFTEN;
}

static void log_to_environment(int level, const char *text)
{
    static const char *const names[] = {"error", "warning", "info"};
    const char *target = secure_getenv("ATO_LOG");
    if (!target || !*target)
        return;
    char line[REPORT_SENTENCE + 128]; /* longer than any line */
    int n = snprintf(line, sizeof(line), "libato[%d] %s: %s\n", (int)getpid(), names[level], text);
    if (n < 0)
        return;
    bool to_stderr = strcmp(target, "stderr") == 0;
    /* O_NONBLOCK: opening a named pipe without a reader would block. */
    const int flags =
        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = to_stderr ? STDERR_FILENO : open(target, flags, 0600);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, line, (size_t)n);
    (void)ignored; /* a log that cannot be written cannot be reported */
    if (!to_stderr)
        close(fd);
}

static void pass_on(int level, const char *text)
{
    char counted[REPORT_SENTENCE + 64];
    uint64_t left_out;
    KEEP_ERRNO();
    pthread_mutex_lock(&report_lock);
    if (is_due(level, text, &left_out)) {
        if (left_out) {
            snprintf(counted, sizeof(counted), "%s (and %llu times before)", text,
                     (unsigned long long)left_out);
            text = counted;
        }
        if (sink)
            sink(sink_arg, level, text);
        else
            log_to_environment(level, text);
    }
    pthread_mutex_unlock(&report_lock);
}

const char *report_reason(int err)
{
    static const struct {
        int err;
        const char *cause;
    } causes[] = {{EMFILE, "this process's limit, ulimit -n"},
                  {ENFILE, "the machine's limit, fs.file-max"},
                  {EFBIG, "this process's limit, ulimit -f, or that of the file system"},
                  {EPERM, "immutable or append-only, see lsattr, or forbidden by a policy"}};
    static _Thread_local char reason[192];
    char text[96];
    size_t i = 0;
    while (i < sizeof(causes) / sizeof(*causes) && causes[i].err != err)
        i++;
    const bool has = i < sizeof(causes) / sizeof(*causes);
    (void)snprintf(reason, sizeof(reason), "%s%s%s%s", strerror_r(err, text, sizeof(text)),
                   has ? " (" : "", has ? causes[i].cause : "", has ? ")" : "");
    return reason;
}

static void compose(char *out, int err, const char *format, va_list args)
{
    int n = vsnprintf(out, REPORT_SENTENCE, format, args);
    if (err && n >= 0 && n < REPORT_SENTENCE)
        snprintf(out + n, (size_t)(REPORT_SENTENCE - n), ": %s", report_reason(err));
    /* Paths and attributes may hold any bytes, but a line of the log is one sentence. */
    for (; *out; out++)
        if ((unsigned char)*out < 0x20 || *out == 0x7f)
            *out = '?';
}

int report_failure(int err, int how, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    compose(sentence, how & REPORT_EXPLAINED ? err : 0, format, args);
    va_end(args);
    errno = err;
    return how & REPORT_QUIET ? -1 : report_aloud();
}

int report_aloud(void)
{
    pass_on(REPORT_ERROR, sentence);
    return -1;
}

void report_log(enum report_level level, const char *format, ...)
{
    char text[REPORT_SENTENCE];
    va_list args;
    KEEP_ERRNO();
    va_start(args, format);
    compose(text, 0, format, args);
    va_end(args);
    pass_on(level, text);
}

const char *report_sentence(void)
{
    return sentence;
}

void report_keep(struct report_kept *k)
{
    k->error = errno;
    memcpy(k->sentence, sentence, sizeof(k->sentence));
}

int report_again(const struct report_kept *k)
{
    memcpy(sentence, k->sentence, sizeof(sentence));
    errno = k->error;
    return -1;
}

void report_set_log(void (*log)(void *arg, int level, const char *sentence), void *arg)
{
    pthread_mutex_lock(&report_lock);
    sink = log;
    sink_arg = arg;
    pthread_mutex_unlock(&report_lock);
}
