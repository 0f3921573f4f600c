/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato deploy`: makes files plain again, by mapping and unmapping them as every program can.
 *
 * A file that a process has mapped, and a lost, copied or damaged file, is left as it is. A file is
 * mapped in the domain of its manifest: this process would record another domain there, and the
 * next user would rely on it if this process dies.
 */
#include "deploy.h"

#include "each.h"
#include "json.h"
#include "progress.h"
#include "sides.h"
#include "text.h"
#include "tree.h"

#include "lib/sqlite/mask.h"
#include "reflection/media/report.h"
#include "reflection/pairing/pairing.h"

#include "ato.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *result_name(enum deploy_result result)
{
    static const char *const names[] = {"plain already", "deployed", "folder",       "mapped",
                                        "refused",       "failed",   "not looked at"};
    return names[result];
}

static void __attribute__((format(printf, 3, 4)))
end_as(struct deployed *d, enum deploy_result result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(d->why, sizeof(d->why), format, args);
    va_end(args);
    d->result = result;
}

static void say_mapped(struct deployed *d, const struct look *l)
{
    char name[LOOK_NAME], all[512] = "";
    d->holders = l->holders;
    for (unsigned i = 0; i < l->holders.count && i < 4; i++) {
        size_t n = strlen(all);
        snprintf(all + n, sizeof(all) - n, "%s%s", i ? ", " : "",
                 look_holder_name(name, &l->holders.first[i]));
    }
    if (l->holders.count == 0)
        end_as(d, MAPPED, "a process is mapping, unmapping or recovering it now; try again");
    else if (l->state == LOOK_LOST)
        look_why(d->why, sizeof(d->why), l, d->name), d->result = MAPPED;
    else
        end_as(d, MAPPED,
               "is mapped by %s%s: unmap the file there, or end the process, and try again", all,
               l->holders.count > 4 ? " and others" : "");
}

/* Another process mapped the file after it was looked at, or still has it mapped after the unmap
 * here: then it is not plain. */
static bool is_busy(struct deployed *d)
{
    static struct look again;
    bool busy = look_at(&again, d->name) == 0 && (again.holders.count || again.holders.attaching);
    if (busy)
        say_mapped(d, &again);
    look_close(&again);
    return busy;
}

static void show(void *arg, uint64_t done, uint64_t total)
{
    progress_show(arg, done, total);
}

/* Takes the mask off an SQLite database whose guard is lost, or sets `plain` (lib/sqlite/mask.h). Returns false if the file must
 * not be made plain. */
static bool end_masks(struct deployed *d, const struct look *l, const struct tool_request *request,
                      void *at, int fd, unsigned char plain[MASK_GUARDED])
{
    struct ato_status st = {.struct_size = sizeof(st)};
    if (ato_stat(at, &st) == 0)
        d->slices = st.slices_in_reflection;
    /* With slices it is no copy: a transaction that was killed has ended the guard. */
    const bool is_lost = !st.guard_bytes && !st.slices_in_reflection && look_is_masked(fd);
    if (is_lost && request->prefer != ATO_PREFER_FILE) {
        end_as(d, REFUSED,
               "is an SQLite database with a masked header, whose original header is unknown; to "
               "keep these bytes, use --prefer=file");
        return false;
    }
    const int r = is_lost || (request->prefer == ATO_PREFER_FILE && l->state >= LOOK_COPIED)
                      ? mask_take_off(at, fd)
                      : mask_refresh(at, fd, false, plain);
    if (r > 0)
        end_as(d, MAPPED, "a process is writing to it through SQLite; try again");
    else if (r < 0)
        end_as(d, FAILED, "%s", ato_errormsg());
    return r == 0;
}

static void unmap(struct deployed *d, void *at, size_t length, const struct tool_request *request,
                  const unsigned char plain[MASK_GUARDED])
{
    struct progress progress;
    struct ato_unmap_options unmap = {.struct_size = sizeof(unmap),
                                      .mode = ATO_UNMAP_SPATIAL,
                                      .progress = show,
                                      .progress_arg = &progress,
                                      .guard_plain = *plain ? plain : NULL};
    progress_start(&progress, d->name, !request->quiet);
    int r = ato_munmap_opt(at, length, &unmap);
    progress_end(&progress);
    if (r < 0) {
        end_as(d, FAILED, "%s", ato_errormsg());
        (void)ato_munmap(at, length, ATO_UNMAP_FAST); /* if the mapping is still there */
    } else if (!is_busy(d)) {
        d->result = MADE_PLAIN;
    }
}

static void make_plain(struct deployed *d, const struct look *l, const struct tool_request *request)
{
    bool known = l->manifest.found == MANIFEST_VALID;
    struct ato_options options = {.struct_size = sizeof(options),
                                  .read_policy = ATO_READ_GATHER,
                                  .flags = request->prefer,
                                  .domain = known ? (int)l->manifest.record.domain : 0};
    int fd = look_open(d->name, O_RDWR);
    if (fd < 0) {
        end_as(d, BLIND, "cannot open it for writing: %s%s", report_reason(errno),
               errno == EACCES ? "; only a user that may write to the file can deploy it" : "");
        return;
    }
    /* An empty file can be mapped, but the length of a mapping is never 0. */
    size_t length = l->identity.size ? l->identity.size : 1;
    void *at = ato_mmap_opt(length, fd, 0, &options);
    int error = errno;
    unsigned char plain[MASK_GUARDED] = {0};
    if (at == MAP_FAILED) {
        char why[1024];
        snprintf(why, sizeof(why), "%s", ato_errormsg());
        if (error != EBUSY || !is_busy(d))
            end_as(d, error == EBUSY ? MAPPED : FAILED, "%s", why);
    } else if (end_masks(d, l, request, at, fd, plain)) {
        unmap(d, at, length, request, plain);
    } else {
        (void)ato_munmap(at, length, ATO_UNMAP_FAST);
    }
    close(fd);
}

/* The user has to say which bytes are right; a copy has only the file's. */
static void refuse(struct deployed *d, const struct look *l, const struct tool_request *request)
{
    /* Of a copy there is only one side. Where it is not known which reflection is the file's, none can be set aside. */
    const bool is_copy = l->state == LOOK_COPIED, is_one = l->orphan != ORPHAN_SEVERAL;
    if (!request->json && !request->quiet)
        sides_say(stderr, d->name, l);
    if (is_one && (request->prefer == ATO_PREFER_FILE || (request->prefer && !is_copy))) {
        make_plain(d, l, request);
        if (d->result != FAILED || request->prefer == ATO_PREFER_FILE || l->ways & WAY_REFLECTION)
            return;
    }
    look_why(d->why, sizeof(d->why), l, d->name);
    d->result = REFUSED;
}

void deploy_file(struct deployed *d, const char *name, const struct tool_request *request)
{
    static struct look look;
    struct stat st;
    memset(d, 0, sizeof(*d));
    d->name = name;
    if (stat(name, &st) == 0 && S_ISDIR(st.st_mode)) {
        d->result = SKIPPED;
        return;
    }
    if (look_at(&look, name) < 0) {
        end_as(d, BLIND, "%s", report_sentence());
        return;
    }
    const bool is_held = look.holders.count || look.holders.attaching;
    switch (look.state) {
    case LOOK_PLAIN:
        d->result = WAS_PLAIN;
        break;
    case LOOK_IN_USE:
        say_mapped(d, &look);
        break;
    case LOOK_COPIED:
    case LOOK_LOST:
    case LOOK_APART:
    case LOOK_DAMAGED:
        if (is_held)
            say_mapped(d, &look);
        else if (look.ways & WAY_MAP)
            make_plain(d, &look, request);
        else
            refuse(d, &look, request);
        break;
    case LOOK_BORN:
    case LOOK_RECOVERY_DUE:
    case LOOK_CLEAN:
    case LOOK_DEPLOYED:
        if (is_held)
            say_mapped(d, &look);
        else
            make_plain(d, &look, request);
        break;
    }
    look_close(&look);
}

void deploy_quietly(const char *name)
{
    const struct tool_request request = {.quiet = true};
    struct deployed d;
    deploy_file(&d, name, &request);
}

static void say(const struct deployed *d, bool quiet)
{
    bool good = d->result <= SKIPPED;
    FILE *out = good ? stdout : stderr;
    if (good && quiet)
        return;
    text_put(out, d->name);
    if (good)
        fputs(d->result == SKIPPED ? ": is a folder, and was skipped; --recursive goes through it\n"
              : d->result == WAS_PLAIN ? ": is plain already\n"
                                       : ": is plain\n",
              out);
    else
        fputs(": ", out), text_put(out, d->why), putc('\n', out);
    fflush(out);
}

static void write_json(struct json *j, const struct deployed *d)
{
    json_object(j, NULL);
    json_string(j, "file", d->name);
    json_string(j, "result", result_name(d->result));
    json_string(j, "error", d->result <= SKIPPED ? NULL : d->why);
    json_number(j, "slices_brought_home", d->result == MADE_PLAIN ? d->slices : 0);
    look_holders_write(&d->holders, j);
    json_end(j);
}

int deploy_status(enum deploy_result result)
{
    static const int statuses[] = {TOOL_GOOD, TOOL_GOOD, TOOL_GOOD, TOOL_BAD,
                                   TOOL_BAD,  TOOL_BAD,  TOOL_BLIND};
    return statuses[result];
}

static int do_file(const char *name, const struct tool_request *request, struct json *j)
{
    struct deployed d;
    deploy_file(&d, name, request);
    if (j)
        write_json(j, &d);
    else
        say(&d, request->quiet);
    return deploy_status(d.result);
}

/* ---- --recursive ---- */

struct walk {
    const struct tool_request *request;
    struct json *json;
    int status;
    uint64_t plain, deployed;
};

/* Returns whether a file that cannot be read may have a reflection: beside it there is one for its inode number. */
static bool may_be_paired(const char *path)
{
    char manifest[PATH_MAX];
    const char *slash = strrchr(path, '/');
    struct stat st;
    if (lstat(path, &st) < 0)
        return false;
    const struct pairing_names names = pairing_names(st.st_ino);
    (void)snprintf(manifest, sizeof(manifest), "%.*s" FOLDER_NAME "/%s",
                   slash ? (int)(slash + 1 - path) : 0, path, names.manifest);
    return lstat(manifest, &st) == 0;
}

/* Plain files are counted only; those that are gone, or that the user may not read and that have no reflection, are skipped. */
static void visit(void *arg, const char *path, enum tree_kind kind, int error)
{
    struct walk *w = arg;
    struct deployed d = {.name = path};
    if (kind == TREE_FOLDER)
        return;
    if (kind == TREE_UNREADABLE)
        end_as(&d, BLIND, "cannot look at it: %s", report_reason(error));
    else
        deploy_file(&d, path, w->request);
    if (d.result == BLIND &&
        (access(path, F_OK) < 0 ||
         (kind == TREE_FILE && access(path, R_OK) < 0 && !may_be_paired(path))))
        return;
    w->plain += d.result == WAS_PLAIN;
    w->deployed += d.result == MADE_PLAIN;
    w->status = tool_worst(w->status, deploy_status(d.result));
    if (d.result == WAS_PLAIN)
        return;
    if (w->json)
        write_json(w->json, &d);
    else
        say(&d, w->request->quiet);
}

static int run_recursive(const struct tool_request *request)
{
    struct json j;
    struct walk w = {.request = request, .json = request->json ? &j : NULL};
    struct stat st;
    if (request->json) {
        json_start(&j, "deploy");
        json_list(&j, "files");
    }
    for (int i = 0; i < request->count; i++)
        if (stat(request->names[i], &st) == 0 && S_ISDIR(st.st_mode))
            tree_walk(request->names[i], visit, &w);
        else
            w.status = tool_worst(w.status, do_file(request->names[i], request, w.json));
    if (request->json) {
        json_end(&j);
        json_number(&j, "plain_already", w.plain);
        json_finish(&j, w.status);
    } else if (!request->quiet) {
        printf("%" PRIu64 " made plain, %" PRIu64 " plain already\n", w.deployed, w.plain);
    }
    return w.status;
}

static int run(const struct tool_request *request)
{
    ato_set_log(NULL, NULL); /* this command uses the library: its log goes where ATO_LOG says */
    return request->recursive ? run_recursive(request) : each_run(request, "deploy", do_file);
}

const struct tool_command deploy_command = {
    .name = "deploy",
    .operands = "FILE|FOLDER...",
    .what = "makes a file plain: an ordinary file again",
    .help =
        "Deploys each FILE and removes its reflection: then every program reads the current\n"
        "content. Finishes first what a crash interrupted. A plain file stays as it is. The file\n"
        "keeps its durability domain. A FOLDER is skipped; with --recursive all files in it and "
        "in\n"
        "the folders below it are deployed, and those that were plain are only counted.\n"
        "\n"
        "Refuses a mapped file, and names the processes that must unmap it. Also refuses a\n"
        "file that libato does not map (written by other means, cut, copied, restored from a\n"
        "backup, damaged, or without its reflection; see 'ato check'), shows the sides that are\n"
        "there, and needs a choice:\n"
        "  --prefer=file        takes the bytes that other programs read; sets the reflection "
        "aside\n"
        "  --prefer=reflection  takes the slices in the reflection too, if the file kept its size\n"
        "                       and the reflection is valid; joins a restored file with its\n"
        "                       reflection\n"
        "\n"
        "May be interrupted at any time: the content does not change, and the next 'ato deploy'\n"
        "continues. Several threads deploy a large file; on a terminal a bar shows the progress.\n"
        "--quiet: no bar, and no line for a file that was deployed.\n"
        "\n"
        "Exit status: 0 all are plain; 1 some are mapped, were refused as damaged, or failed;\n"
        "else 2 if some could not be read, or not be opened for writing.\n",
    .least = 1,
    .can_be_quiet = true,
    .can_prefer = true,
    .can_recurse = true,
    .run = run,
};
