/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato doctor`: shows what a folder, the machine and the kernel offer, and which durability domain a
 * file would get there.
 */
#include "diagnosis.h"
#include "json.h"
#include "text.h"
#include "tool.h"

#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- for programs ---- */

static void write_trial(struct json *j, const char *key, const struct medium *m, int error)
{
    if (m->tried)
        json_null(j, key);
    else
        json_bool(j, key, error == 0);
}

static void write_list(struct json *j, const char *key, const struct obstacles *o)
{
    json_list(j, key);
    for (unsigned i = 0; i < o->n; i++)
        json_string(j, NULL, o->all[i]);
    json_end(j);
}

static void write_machine(struct json *j, const struct diagnosis *d)
{
    json_object(j, "cpu");
    json_bool(j, "clwb", d->cpu.clwb);
    json_bool(j, "clflushopt", d->cpu.clflushopt);
    json_bool(j, "avx2", d->cpu.avx2);
    json_bool(j, "avx512", d->cpu.avx512);
    json_bool(j, "rtm", d->cpu.rtm);
    json_bool(j, "rtm_commits", d->cpu.rtm_commits);
    json_string(j, "copy_kernel", d->cpu.kernel);
    json_end(j);
    json_object(j, "machine");
    json_string(j, "kernel", d->kernel.release);
    if (d->auto_flush < 0)
        json_null(j, "eadr");
    else
        json_bool(j, "eadr", d->auto_flush == 1);
    json_bool(j, "membarrier", d->membarrier);
    json_end(j);
    json_object(j, "shm");
    json_bool(j, "usable", !d->shm.error && !d->shm.tried);
    json_bool(j, "removed_at_logout", d->shm.vanishes);
    json_number(j, "size", d->shm.size);
    json_number(j, "free", d->shm.free);
    json_end(j);
}

static void write_json(const struct diagnosis *d, const char *error, int status)
{
    struct json j;
    json_start(&j, "doctor");
    json_string(&j, "folder", d->name);
    json_string(&j, "error", error);
    if (!error) {
        const struct medium *m = &d->medium;
        struct obstacles o = diagnosis_obstacles(d), remarks = diagnosis_remarks(d);
        write_machine(&j, d);
        json_object(&j, "file_system");
        json_string(&j, "type", m->type);
        write_trial(&j, "map_sync", m, m->map_sync);
        write_trial(&j, "user_attributes", m, m->attributes);
        write_trial(&j, "fallocate", m, m->fallocate);
        write_trial(&j, "ofd_locks", m, m->locks);
        json_string(&j, "refused_as", m->unsafe);
        if (m->has_space) {
            json_number(&j, "size", m->size);
            json_number(&j, "free", m->free);
            json_number(&j, "reserved", m->reserved);
        }
        json_end(&j);
        bool known = !m->tried && d->domain > 0;
        json_string(&j, "domain", known ? domain_name(d->domain) : NULL);
        json_string(&j, "reason", known ? diagnosis_reason(d) : NULL);
        json_string(&j, "survives", known ? diagnosis_survival(d->domain) : NULL);
        json_bool(&j, "can_map", o.n == 0);
        write_list(&j, "obstacles", &o);
        write_list(&j, "remarks", &remarks);
    }
    json_finish(&j, status);
}

/* ---- for people ---- */

static void line(const char *what, const char *value, const char *meaning)
{
    printf("  %-18s ", what);
    text_put(stdout, value);
    printf("%s%s\n", meaning ? "  " : "", meaning ? meaning : "");
}

static const char *yes(bool is)
{
    return is ? "yes" : "no ";
}

static void say_trial(const char *what, const struct medium *m, int error, const char *meaning)
{
    if (m->tried)
        line(what, "not tried", NULL);
    else
        line(what, yes(error == 0), meaning);
}

static void say_machine(const struct diagnosis *d)
{
    const struct cpu *c = &d->cpu;
    char text[64];
    puts("CPU");
    line("clwb", yes(c->clwb),
         "flushes a cache line and keeps it; persistent memory is written by it");
    line("clflushopt", yes(c->clflushopt), "what is used in its place");
    line("AVX2", yes(c->avx2), NULL);
    line("AVX-512", yes(c->avx512), NULL);
    line("copies with", c->kernel, NULL);
    line("RTM", yes(c->rtm), "hardware transactions, by what the CPU says");
    line("RTM trial", yes(c->rtm_commits),
         c->rtm_commits ? "they commit" : "writes of several pages commit by a lane instead");
    puts("Machine");
    line("kernel", d->kernel.release, NULL);
    line("eADR",
         d->auto_flush == 1   ? "yes"
         : d->auto_flush == 0 ? "no "
                              : "not known",
         "CPU caches are written back when the power fails");
    line("membarrier", yes(d->membarrier), NULL);
    puts("Shared memory, /dev/shm (32 bytes for each page of a file that is touched)");
    if (d->shm.error) {
        line("usable", report_reason(d->shm.error), NULL);
        return;
    }
    if (d->shm.size) {
        line("size", text_size(text, d->shm.size), NULL);
        line("free", text_size(text, d->shm.free), NULL);
    } else {
        line("size", "no limit", NULL);
    }
    line("file of 1 MiB", d->shm.tried ? report_reason(d->shm.tried) : "can be made", NULL);
}

static void say_medium(const struct diagnosis *d)
{
    const struct medium *m = &d->medium;
    char text[TEXT_SIZE];
    fputs("Folder ", stdout);
    text_put(stdout, d->name);
    putchar('\n');
    line("file system", m->type, NULL);
    say_trial("DAX (MAP_SYNC)", m, m->map_sync, "persistent memory can be mapped directly");
    say_trial("user attributes", m, m->attributes, "by which a file finds its reflection");
    say_trial("fallocate", m, m->fallocate, "space is taken before it is written to");
    say_trial("OFD locks", m, m->locks, "by which processes see one another");
    if (m->has_space) {
        line("size", text_size(text, m->size), NULL);
        line("free", text_size(text, m->free), "a reflection takes up to the size of its file");
        line("kept for root", text_size(text, m->reserved), NULL);
    }
}

static void say(const struct diagnosis *d)
{
    struct obstacles o = diagnosis_obstacles(d), remarks = diagnosis_remarks(d);
    say_machine(d);
    say_medium(d);
    putchar('\n');
    for (unsigned i = 0; i < o.n; i++) {
        fputs("A file there cannot be mapped: ", stdout);
        text_put(stdout, o.all[i]);
        puts(".");
    }
    if (o.n == 0 && !d->medium.tried && d->domain > 0)
        printf("A file there gets the durability domain '%s': %s.\n%s\n", domain_name(d->domain),
               diagnosis_reason(d), diagnosis_survival(d->domain));
    for (unsigned i = 0; i < remarks.n; i++) {
        fputs("Note: ", stdout);
        text_put(stdout, remarks.all[i]);
        puts(".");
    }
}

static int run(const struct tool_request *request)
{
    struct diagnosis d;
    const char *error = NULL, *folder = request->count ? request->names[0] : ".";
    int status = TOOL_GOOD;
    if (diagnosis_make(&d, folder) < 0) {
        error = report_reason(errno);
        status = TOOL_BLIND;
    } else if (diagnosis_obstacles(&d).n) {
        status = TOOL_BAD;
    }
    if (request->json) {
        write_json(&d, error, status);
    } else if (error) {
        text_put(stderr, folder);
        fprintf(stderr, ": cannot look at it: %s\n", error);
    } else {
        say(&d);
    }
    return status;
}

const struct tool_command doctor_command = {
    .name = "doctor",
    .operands = "[FOLDER]",
    .what = "what machine and folder offer, and what a file there survives",
    .help =
        "Shows what the CPU, the kernel, /dev/shm and the file system of FOLDER (by default the\n"
        "working directory) offer to libato; the durability domain that a file there would get,\n"
        "and why; and the events that its bytes survive. It tests the file system and /dev/shm "
        "with\n"
        "files without a name, and leaves nothing behind.\n"
        "\n"
        "Domains:\n"
        "  pmem     persistent memory: survives a kill, a kernel crash, a power cut\n"
        "  eadr     the same, if CPU caches are written back when the power fails\n"
        "  msync    a disk: survives the same, and each write waits for the disk\n"
        "  process  memory: survives a kill only\n"
        "The first program that maps a file fixes its domain. ATO_DURABILITY chooses another one.\n"
        "\n"
        "Exit status: 0 a file there can be mapped; 1 it cannot, for the reason shown; 2 FOLDER\n"
        "could not be read.\n",
    .most = 1,
    .run = run,
};
