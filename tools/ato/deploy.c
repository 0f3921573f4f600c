/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato deploy`: makes files plain again, by mapping and unmapping them as every program can. A file that a process has mapped, and
 * a lost, copied or damaged file, is left as it is, unless the user chooses a side.
 */
#include "deploy.h"

#include "sqlite_hold.h"
#include "text.h"
#include "tree.h"

#include "lib/sqlite/mask.h"
#include "reflection/format/layout.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the sides of a file that the library does not map ---- */

struct differing {
    const struct look *look;
    uint64_t pages;
};

/* Counts a page whose slices that are valid in the reflection have other bytes in the file. */
static void compare(void *arg, const struct look_word *w)
{
    struct differing *d = arg;
    const uint64_t at = layout_refpage(d->look->manifest.record.format, w->place);
    unsigned char home[PAGE_BYTES] = {0}, there[PAGE_BYTES] = {0};
    bool differs = pread(d->look->fd, home, sizeof(home), (off_t)(w->page * PAGE_BYTES)) < 0 ||
                   pread(d->look->reflection, there, sizeof(there), (off_t)at) < 0;
    for (unsigned at_slice = 0; at_slice < PAGE_BYTES; at_slice += SLICE_BYTES)
        differs |= (w->word >> at_slice / SLICE_BYTES & 1) &&
                   memcmp(home + at_slice, there + at_slice, SLICE_BYTES) != 0;
    d->pages += differs;
}

static const char *time_text(char to[64], int64_t seconds)
{
    const time_t at = (time_t)seconds;
    struct tm tm = {0};
    to[0] = '\0';
    (void)strftime(to, 64, "%Y-%m-%d %H:%M:%S", localtime_r(&at, &tm));
    return to;
}

static void say_sides(const char *name, const struct look *l)
{
    const struct manifest_record *r = &l->manifest.record;
    const bool both = l->ways & WAY_REFLECTION;
    struct differing d = {.look = l};
    char size[TEXT_SIZE], at[64], header[16] = {0};
    if (!(l->ways & WAY_FILE))
        return;
    text_put(stderr, name);
    fprintf(stderr,
            ": the %s\n  --prefer=file        the file as it is: %s, written at %s\n"
            "                       without what only its reflection has: older and newer parts "
            "may be mixed%s\n",
            both ? "sides are" : "only side is", text_size(size, l->identity.size),
            time_text(at, l->identity.mtime_sec),
            pread(l->fd, header, sizeof(header), 0) > 0 && sqlite_is_header(header)
                ? "; afterwards, run PRAGMA integrity_check"
                : "");
    if (!both)
        return;
    fputs("  --prefer=reflection  the file with the slices of its reflection", stderr);
    if (r->state == MANIFEST_CLEAN)
        fprintf(stderr, ", unmapped at %s", time_text(at, r->clean_mtime_sec));
    if (look_each_word(l->reflection, l->reflection_length, r->format, compare, &d) == 0)
        fprintf(stderr, "\n                       pages of 4096 bytes that differ: %" PRIu64,
                d.pages);
    fprintf(
        stderr,
        "\n                       %s\n"
        "  To be able to choose again, copy the file and its reflection first.\n",
        l->state == LOOK_APART && !l->is_mixed
            ? "right if file and reflection were saved together, while no program had the file open"
            : "a mixture, if another file was copied over this one");
}

/* ---- one file ---- */

static void say_mapped(struct deployed *d, const struct look *l)
{
    char name[LOOK_NAME];
    d->holders = l->holders;
    d->o.result = MAPPED;
    if (l->holders.count == 0)
        outcome_set(&d->o, MAPPED,
                    "a process is mapping, unmapping or recovering it now; try again");
    else if (l->state == LOOK_LOST)
        look_why(d->o.why, sizeof(d->o.why), l, d->o.name);
    else
        outcome_set(&d->o, MAPPED,
                    "is mapped by %s%s: unmap the file there, or end the process, and try again",
                    look_holder_name(name, &l->holders.first[0]),
                    l->holders.count > 1 ? " and others" : "");
}

/* Another process mapped the file after it was looked at, or still has it mapped after the unmap
 * here: then it is not plain. */
static bool is_busy(struct deployed *d)
{
    static struct look again;
    bool busy = look_at(&again, d->o.name) == 0 && (again.holders.count || again.holders.attaching);
    if (busy)
        say_mapped(d, &again);
    look_close(&again);
    return busy;
}

/* Takes the mask off an SQLite database whose guard is lost, or sets `plain` (lib/sqlite/mask.h). Returns false if the file must
 * not be made plain. */
static bool end_masks(struct deployed *d, const struct look *l, bool prefers_file, void *at, int fd,
                      unsigned char plain[MASK_GUARDED])
{
    struct ato_stat st = {.struct_size = sizeof(st)};
    if (ato_stat(at, &st) == 0)
        d->slices = st.slices_in_reflection;
    /* With slices, or a log, it is no copy: a transaction that was killed has ended the guard. */
    const bool is_lost = !st.guard_bytes && !st.slices_in_reflection &&
                         !(l->manifest.found == MANIFEST_VALID && st.format == ATO_FORMAT_LOG) &&
                         look_is_masked(fd);
    if (is_lost && !prefers_file) {
        outcome_set(&d->o, REFUSED,
                    "is an SQLite database with a masked header, whose original header is unknown; "
                    "to keep these bytes, use --prefer=file");
        return false;
    }
    const int r = is_lost || (prefers_file && l->state >= LOOK_COPIED)
                      ? mask_take_off(at, fd)
                      : mask_refresh(at, fd, plain);
    if (r > 0)
        outcome_set(&d->o, MAPPED, "a process is writing to it through SQLite; try again");
    else if (r < 0)
        outcome_set(&d->o, FAILED, "%s", ato_errormsg());
    return r == 0;
}

struct ato_options deploy_options(const struct look *l)
{
    const bool known = l->manifest.found == MANIFEST_VALID;
    return (struct ato_options){.struct_size = sizeof(struct ato_options),
                                .read_policy = ATO_READ_GATHER,
                                .domain = known ? (int)l->manifest.record.domain : 0};
}

static void make_plain(struct deployed *d, const struct look *l, const struct tool_request *request)
{
    const bool prefers_file = request->prefer == PREFER_FILE;
    struct ato_options options = deploy_options(l);
    options.flags = prefers_file ? ATO_PREFER_FILE : request->prefer ? ATO_PREFER_REFLECTION : 0;
    const int fd CLOSING = look_open(d->o.name, O_RDWR);
    if (fd < 0) {
        outcome_set(&d->o, BLIND, "cannot open it for writing: %s%s", report_reason(errno),
                    errno == EACCES ? "; only a user that may write to the file can deploy it"
                                    : "");
        return;
    }
    /* An empty file can be mapped, but the length of a mapping is never 0. */
    const size_t length = l->identity.size ? l->identity.size : 1;
    void *at = ato_mmap_opt(length, fd, 0, &options);
    const int error = errno;
    unsigned char plain[MASK_GUARDED] = {0};
    struct text_progress progress = {.shown = !request->quiet};
    if (at == MAP_FAILED) {
        outcome_set(&d->o, error == EBUSY ? MAPPED : FAILED, "%s", ato_errormsg());
        if (error == EBUSY)
            (void)is_busy(d);
    } else if (end_masks(d, l, prefers_file, at, fd, plain)) {
        struct ato_unmap_options unmap = {.struct_size = sizeof(unmap),
                                          .mode = ATO_UNMAP_SPATIAL,
                                          .progress = text_progress,
                                          .progress_arg = &progress,
                                          .guard_plain = *plain ? plain : NULL};
        const int r = ato_munmap_opt(at, length, &unmap);
        text_progress_end(&progress);
        if (r < 0) {
            outcome_set(&d->o, FAILED, "%s", ato_errormsg());
            (void)ato_munmap(at, length, ATO_UNMAP_FAST); /* if the mapping is still there */
        } else if (!is_busy(d)) {
            d->o.result = DONE;
        }
    } else { /* a copy gets no pairing of its own by being refused */
        (void)ato_munmap(at, length,
                         l->manifest.found == MANIFEST_VALID ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
    }
}

/* The user has to say which bytes are right; a copy has only the file's. */
static void refuse(struct deployed *d, const struct look *l, const struct tool_request *request)
{
    /* Of a copy there is only one side. Where it is not known which reflection is the file's, none can be set aside. */
    const bool is_copy = l->state == LOOK_COPIED, is_one = l->orphan != ORPHAN_SEVERAL,
               prefers_file = request->prefer == PREFER_FILE;
    if (!request->json && !request->quiet)
        say_sides(d->o.name, l);
    if (is_one && (prefers_file || (request->prefer && !is_copy))) {
        make_plain(d, l, request);
        if (d->o.result != FAILED || prefers_file || l->ways & WAY_REFLECTION)
            return;
    }
    look_why(d->o.why, sizeof(d->o.why), l, d->o.name);
    d->o.result = REFUSED;
}

void deploy_file(struct deployed *d, const char *name, const struct tool_request *request)
{
    static struct look look;
    struct stat st;
    memset(d, 0, sizeof(*d));
    d->o.name = name;
    if (stat(name, &st) == 0 && S_ISDIR(st.st_mode)) {
        d->o.result = SKIPPED;
        return;
    }
    if (look_at(&look, name) < 0)
        outcome_set(&d->o, BLIND, "%s", report_sentence());
    else if (look.state == LOOK_PLAIN)
        d->o.result = WAS_PLAIN;
    else if (look.holders.count || look.holders.attaching)
        say_mapped(d, &look);
    else if (look.state < LOOK_COPIED || look.ways & WAY_MAP)
        make_plain(d, &look, request);
    else
        refuse(d, &look, request);
    look_close(&look);
}

/* ---- the command ---- */

struct walk {
    const struct tool_request *request;
    struct json *json;
    int status;
    uint64_t plain, deployed;
};

static void show(struct walk *w, const struct deployed *d)
{
    static const char *const names[] = {"plain already", "deployed", "folder",       "mapped",
                                        "refused",       "failed",   "not looked at"};
    const struct outcome *o = &d->o;
    json_object(w->json, NULL);
    outcome_show(o, w->request, w->json,
                 o->result == SKIPPED ? "is a folder, and was skipped; --recursive goes through it"
                 : o->result == WAS_PLAIN ? "is plain already"
                                          : "is plain");
    json_string(w->json, "result", names[o->result]);
    json_number(w->json, "slices_brought_home", o->result == DONE ? d->slices : 0);
    look_holders_write(&d->holders, w->json);
    json_end(w->json);
    w->status = tool_worst(w->status, outcome_status(o));
}

/* Plain files are counted only; those that are gone are skipped. */
static void visit(void *arg, const char *path, enum tree_kind kind, int error)
{
    struct walk *w = arg;
    struct deployed d = {.o.name = path};
    if (kind == TREE_FOLDER)
        return;
    if (kind == TREE_UNREADABLE)
        outcome_set(&d.o, BLIND, "cannot look at it: %s", report_reason(error));
    else
        deploy_file(&d, path, w->request);
    if (d.o.result == BLIND && access(path, F_OK) < 0)
        return;
    w->plain += d.o.result == WAS_PLAIN;
    w->deployed += d.o.result == DONE;
    if (d.o.result != WAS_PLAIN)
        show(w, &d);
}

static int run(const struct tool_request *request)
{
    struct json j;
    struct walk w = {.request = request, .json = &j};
    struct stat st;
    ato_set_log(NULL, NULL); /* this command uses the library: its log goes where ATO_LOG says */
    json_start(&j, "deploy", request->json);
    json_list(&j, "files");
    for (int i = 0; i < request->count; i++) {
        struct deployed d;
        const char *name = request->names[i];
        if (request->recursive && stat(name, &st) == 0 && S_ISDIR(st.st_mode)) {
            tree_walk(name, false, visit, &w);
        } else {
            deploy_file(&d, name, request);
            show(&w, &d);
        }
    }
    json_end(&j);
    if (request->recursive)
        json_number(&j, "plain_already", w.plain);
    if (request->recursive && !request->json && !request->quiet)
        printf("%" PRIu64 " made plain, %" PRIu64 " plain already\n", w.deployed, w.plain);
    json_finish(&j, w.status);
    return w.status;
}

const struct tool_command deploy_command = {
    .name = "deploy",
    .operands = "FILE|FOLDER...",
    .what = "makes a file plain: an ordinary file again",
    .help = "Brings all content of each FILE home, and removes its reflection. Refuses a mapped\n"
            "file, and names its processes. Of a file that libato does not map it shows the sides\n"
            "that there are; --prefer chooses one. A FOLDER is skipped without --recursive.\n",
    .least = 1,
    .options = HAS(JSON) | HAS(QUIET) | HAS(RECURSIVE) | HAS(PREFER),
    .run = run,
};
