/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato top --metrics`: Prometheus's text format, version 0.0.4. All samples of a metric stand together, whatever file they are of. */
#include "sight.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void start(const char *name, const char *type, const char *help)
{
    printf("# HELP ato_%s %s.\n# TYPE ato_%s %s\n", name, help, name, type);
}

/* A label's value is UTF-8: another byte becomes U+FFFD. */
static void put_label(const char *name, const char *value)
{
    printf("%s=\"", name);
    for (const unsigned char *at = (const unsigned char *)value; *at;) {
        unsigned n = text_character(at);
        if (!n)
            fputs("\xef\xbf\xbd", stdout), at++;
        else if (*at == '"' || *at == '\\')
            printf("\\%c", *at++);
        else if (*at == '\n')
            fputs("\\n", stdout), at++;
        else
            for (; n; n--)
                putchar(*at++);
    }
    putchar('"');
}

/* holder: the process; NULL: all. by: what numbers the processes, since one may have no name here. */
static void sample(const char *name, const struct sight *s, const char *by,
                   const struct look_holder *holder, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static void sample(const char *name, const struct sight *s, const char *by,
                   const struct look_holder *holder, const char *format, ...)
{
    va_list args;
    printf("ato_%s{", name);
    put_label("file", s->path);
    if (holder) {
        printf(",%s=\"%u\"", by, holder->slot);
        if (holder->pid) {
            printf(",pid=\"%" PRIu32 "\",", holder->pid);
            put_label("command", holder->command);
        }
    }
    fputs("} ", stdout);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static void write_files(const struct sight *sights, unsigned n)
{
    start("file_bytes", "gauge", "Size of the file");
    for (unsigned i = 0; i < n; i++)
        sample("file_bytes", &sights[i], NULL, NULL, "%" PRIu64, sights[i].size);
    start("processes", "gauge", "Processes that have the file mapped for writing");
    for (unsigned i = 0; i < n; i++)
        sample("processes", &sights[i], NULL, NULL, "%u", sights[i].holders.count);
}

static void write_counters(const struct sight *sights, unsigned n)
{
    char name[64];
    for (unsigned c = 0; c < SIGHT_COLUMNS; c++) {
        const struct sight_column *column = &sight_columns[c];
        (void)snprintf(name, sizeof(name), "%s_total", column->key);
        start(name, "counter", column->help);
        for (unsigned i = 0; i < n; i++)
            for (unsigned k = 0;
                 sights[i].shared && k < sights[i].holders.count && k < LOOK_HOLDERS; k++) {
                const struct look_holder *h = &sights[i].holders.first[k];
                sample(name, &sights[i], "slot", h, "%" PRIu64,
                       sights[i].each[h->slot].of[column->which]);
            }
    }
}

static void write_totals(const struct sight *sights, unsigned n)
{
    static const struct {
        const char *name, *type, *help;
        size_t at;
        bool is_time;
    } totals[] = {
#define AT(field) offsetof(struct write_lock, field)
        {"write_lock_holds_total", "counter", "How often SQLite's write lock was given back",
         AT(holds), false},
        {"write_lock_waits_total", "counter", "How often it was waited for", AT(waits), false},
        {"write_lock_longest_hold_seconds", "gauge", "The longest time that it was held",
         AT(longest_hold), true},
        {"write_lock_longest_wait_seconds", "gauge", "The longest time that it was waited for",
         AT(longest_wait), true},
#undef AT
    };
    for (size_t t = 0; t < sizeof(totals) / sizeof(totals[0]); t++) {
        start(totals[t].name, totals[t].type, totals[t].help);
        for (unsigned i = 0; i < n; i++) {
            uint64_t value;
            memcpy(&value, (const char *)&sights[i].lock + totals[t].at, sizeof(value));
            if (sights[i].lock.is_known && totals[t].is_time)
                sample(totals[t].name, &sights[i], NULL, NULL, "%.3f", seconds(value));
            else if (sights[i].lock.is_known)
                sample(totals[t].name, &sights[i], NULL, NULL, "%" PRIu64, value);
        }
    }
}

static void write_users(const struct sight *sights, unsigned n)
{
    enum { HELD, WAITING, WAITED, HOLDS, WAITS, LONGEST_HOLD, LONGEST_WAIT, KINDS };
    static const char *const kinds[KINDS][2] = {
        [HELD] = {"write_lock_held_seconds", "For how long the process has it; 0: not"},
        [WAITING] = {"write_lock_waiting", "Connections of the process that wait for it"},
        [WAITED] = {"write_lock_waited_seconds", "For how long the first of these waits"},
        [HOLDS] = {"write_lock_process_holds", "Holds by the process's open connections"},
        [WAITS] = {"write_lock_process_waits", "Waits of the process's open connections"},
        [LONGEST_HOLD] = {"write_lock_process_longest_hold_seconds", "The longest of these holds"},
        [LONGEST_WAIT] = {"write_lock_process_longest_wait_seconds", "The longest of these waits"},
    };
    for (unsigned kind = 0; kind < KINDS; kind++) {
        start(kinds[kind][0], "gauge", kinds[kind][1]);
        for (unsigned i = 0; i < n; i++)
            for (unsigned k = 0; k < sights[i].lock.count; k++) {
                const struct lock_user *u = &sights[i].lock.users[k];
                const double values[KINDS] = {
                    seconds(u->held),         u->waiting,       seconds(u->waited),
                    (double)u->holds_ended,   (double)u->waits, seconds(u->longest_hold),
                    seconds(u->longest_wait),
                };
                sample(kinds[kind][0], &sights[i], "door", &u->name, "%.15g", values[kind]);
            }
    }
}

void metrics_write(const struct sight *sights, unsigned n)
{
    write_files(sights, n);
    write_counters(sights, n);
    write_totals(sights, n);
    write_users(sights, n);
}
