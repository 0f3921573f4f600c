/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato cp`: a plain copy of a file, as it was at one moment, by ato_snapshot(). The file may be mapped and written to meanwhile.
 *
 * A file that no process has mapped is opened for reading only, and stays as it is. One that is in use, or that has to be
 * recovered, is mapped for writing if the user may: then the copy ends however much is written, and dead processes'
 * commits are finished. While it is mapped here, its last user's unmap does not make it plain, so that is made up for.
 */
#include "deploy.h"
#include "json.h"
#include "look.h"
#include "progress.h"
#include "replacement.h"
#include "sqlite_hold.h"
#include "text.h"
#include "tool.h"

#include "lib/sqlite/mask.h"
#include "reflection/media/report.h"

#include "ato.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How much a file may grow while it is copied: address space only. */
#define GROWTH (64ull << 30)

enum { PIECE = 4096 };

struct copied {
    const char *name;
    struct replacement to;
    off_t length;  /* of the copy */
    uint64_t done; /* bytes from the beginning that were copied once */
    bool database; /* of SQLite */
    struct progress progress;
    uint64_t expected; /* length, for the bar */
    int status;        /* TOOL_... */
    char why[1024];    /* if that is not good */
};

static int end_as(struct copied *c, int status, const char *why)
{
    c->status = status;
    snprintf(c->why, sizeof(c->why), "%s", why);
    return -1;
}

/* The same with errno, explained. */
static int fail_at(struct copied *c, const char *what)
{
    c->status = TOOL_BAD;
    snprintf(c->why, sizeof(c->why), "%s: %s", what, strerror(errno));
    return -1;
}

/* Passes EAGAIN on, which may be no failure yet: 1. Else -1. */
static int end_by_library(struct copied *c)
{
    const bool again = errno == EAGAIN;
    if (!c->status)
        end_as(c, TOOL_BAD, ato_errormsg());
    if (again)
        c->status = TOOL_GOOD;
    return again ? 1 : -1;
}

/* ---- the bytes ---- */

static int write_all(struct copied *c, const char *bytes, size_t n, off_t offset)
{
    while (n) {
        const ssize_t done = pwrite(c->to.fd, bytes, n, offset);
        if (done < 0 && errno != EINTR)
            return fail_at(c, "cannot write the copy");
        if (done > 0) {
            bytes += done;
            offset += done;
            n -= (size_t)done;
        }
    }
    return 0;
}

/* Zeros in a place that was never written. */
static bool is_hole(const struct copied *c, const char *bytes, size_t n, uint64_t offset)
{
    static const char zeros[PIECE];
    return offset >= c->done && memcmp(bytes, zeros, n) == 0;
}

/* For ato_snapshot(). Leaves holes out. */
static int put(void *arg, off_t offset, const void *bytes, size_t n)
{
    struct copied *c = arg;
    const char *at = bytes;
    size_t from = 0; /* what is before is written, or a hole */
    for (size_t i = 0, piece; i < n; i += piece) {
        piece = n - i < PIECE ? n - i : PIECE;
        if (!is_hole(c, at + i, piece, (uint64_t)offset + i))
            continue;
        if (write_all(c, at + from, i - from, offset + (off_t)from) < 0)
            return -1;
        from = i + piece;
    }
    if (write_all(c, at + from, n - from, offset + (off_t)from) < 0)
        return -1;
    if (c->done < (uint64_t)offset + n)
        c->done = (uint64_t)offset + n;
    progress_show(&c->progress, c->done < c->expected ? c->done : c->expected, c->expected);
    return 0;
}

/* ---- the source ---- */

static bool is_mapped_or_due(const struct look *l)
{
    return l->state == LOOK_IN_USE || l->state == LOOK_RECOVERY_DUE || l->state == LOOK_BORN ||
           l->state == LOOK_DEPLOYED;
}

/* Takes the mask off the copy of a database. */
static int complete_database(struct copied *c, const struct sqlite_hold *hold)
{
    char header[MASK_HEADER] = {0};
    if (pread(c->to.fd, header, sizeof(header), 0) < 0)
        return fail_at(c, "cannot read the copy");
    if (!sqlite_is_header(header))
        return end_as(c, TOOL_BAD, "was an SQLite database at first, and is none now");
    if (sqlite_was_held(hold, header) < 0)
        return end_as(c, TOOL_BAD, report_sentence());
    mask_uncover(header);
    return write_all(c, header, sizeof(header), 0);
}

static int take_snapshot(struct copied *c, const void *view)
{
    c->done = 0;
    if (ftruncate(c->to.fd, 0) < 0)
        return fail_at(c, "cannot write the copy");
    c->length = ato_snapshot(view, put, c);
    if (c->length < 0)
        return end_by_library(c);
    return ftruncate(c->to.fd, c->length) < 0 ? fail_at(c, "cannot write the copy") : 0;
}

/* Copies from a mapping. Returns as copy_once(). */
static int copy_view(struct copied *c, const void *view, struct sqlite_hold *hold, bool is_plain)
{
    char header[MASK_HEADER] = {0};
    const off_t size = ato_size(view);
    if (size < 0 || (size >= MASK_HEADER && !ato_memcpy(header, view, sizeof(header))))
        return end_by_library(c);
    c->database = sqlite_is_header(header);
    if (!c->database)
        return take_snapshot(c, view);
    if (sqlite_has_no_parts(c->to.path) < 0 || sqlite_hold(hold, header, is_plain) < 0)
        return end_as(c, TOOL_BAD, report_sentence());
    int r = take_snapshot(c, view);
    if (r == 0)
        r = complete_database(c, hold);
    sqlite_let_go(hold);
    return r;
}

/* Copies the file once. Returns 0; -1: c->why; 1: EAGAIN, which
 * c->why explains: by a read-only descriptor it cannot be copied. */
static int copy_once(struct copied *c, const struct look *l, bool writes)
{
    const bool known = l->manifest.found == MANIFEST_VALID;
    const size_t length = l->identity.size ? l->identity.size : 1;
    const struct ato_options options = {.struct_size = sizeof(options),
                                        .read_policy = ATO_READ_GATHER,
                                        .max_size = length + GROWTH,
                                        .domain = known ? (int)l->manifest.record.domain : 0};
    const int fd = look_open(c->name, writes ? O_RDWR : O_RDONLY);
    /* A lock of an open file description is lost with its descriptor alone. */
    const int own = writes ? -1 : look_open(c->name, O_RDWR);
    struct sqlite_hold hold = {
        .fd = own >= 0 ? own : fd, .writable = writes || own >= 0, .path = c->name};
    int r;
    if (fd < 0)
        return end_as(c, TOOL_BLIND, strerror(errno));
    void *view = ato_mmap_opt(length, fd, 0, &options);
    if (view == MAP_FAILED) {
        r = end_by_library(c);
    } else {
        r = copy_view(c, view, &hold, l->state == LOOK_PLAIN);
        if (ato_munmap(view, length, ATO_UNMAP_FAST) < 0 && r == 0)
            r = end_as(c, TOOL_BAD, ato_errormsg());
    }
    close(fd);
    if (own >= 0)
        close(own);
    return r;
}

/* The file was plain, or others had it mapped, who could not make it plain, because this process had it mapped: now nobody has. */
static void make_plain_again(const struct copied *c, const struct look *before)
{
    static struct look now;
    const bool was_kept = (before->state == LOOK_CLEAN || before->state == LOOK_RECOVERY_DUE) &&
                          !before->holders.count && !before->holders.attaching;
    if (!was_kept && look_at(&now, c->name) == 0) {
        const bool is_left = now.state == LOOK_CLEAN;
        look_close(&now);
        if (is_left)
            deploy_quietly(c->name);
    }
}

static int copy_file(struct copied *c, const struct look *l)
{
    static struct look again;
    const bool may_write = faccessat(AT_FDCWD, c->name, W_OK, AT_EACCESS) == 0;
    bool writes = may_write && is_mapped_or_due(l);
    int r = copy_once(c, l, writes);
    /* Processes that use libato may have begun to write to it. Others cannot be kept from writing. */
    if (r > 0 && !writes && may_write && look_at(&again, c->name) == 0) {
        writes = is_mapped_or_due(&again);
        if (writes)
            r = copy_once(c, &again, true);
        look_close(&again);
    }
    make_plain_again(c, l);
    if (r > 0)
        c->status = TOOL_BAD;
    return r ? -1 : 0;
}

/* ---- both files ---- */

/* Looks at the file that is to be replaced. */
static int check_target(struct copied *c, const struct look *from, const char *name)
{
    static struct look look;
    struct stat st;
    const int exists = replacement_find(&c->to, name, &st);
    if (exists <= 0)
        return exists == 0 ? 0 : end_as(c, TOOL_BAD, report_sentence());
    if (st.st_dev == from->identity.device && st.st_ino == from->identity.inode)
        return end_as(c, TOOL_BAD, "is the file that is to be copied");
    if (look_at(&look, c->to.path) < 0)
        return end_as(c, TOOL_BLIND, report_sentence());
    const enum look_state state = look.state;
    look_close(&look);
    if (state == LOOK_PLAIN || state == LOOK_COPIED)
        return 0;
    snprintf(c->why, sizeof(c->why),
             "%s is not plain: %s. Make it plain first, or its reflection would be left over", name,
             look_state_meaning(state));
    c->status = TOOL_BAD;
    return -1;
}

static void copy(struct copied *c, const struct tool_request *request)
{
    static struct look look;
    struct stat st;
    *c = (struct copied){.name = request->names[0], .to = {.fd = -1, .folder = -1}};
    if (look_at(&look, c->name) < 0) {
        end_as(c, TOOL_BLIND, report_sentence());
        look_close(&look);
        return;
    }
    if (look.state == LOOK_COPIED || look.state == LOOK_LOST || look.state == LOOK_DAMAGED)
        end_as(c, TOOL_BAD, look.problem);
    else if (fstat(look.fd, &st) < 0)
        end_as(c, TOOL_BLIND, strerror(errno));
    else if (check_target(c, &look, request->names[1]) == 0) {
        c->expected = look.identity.size;
        progress_start(&c->progress, c->name, !request->quiet && !request->json);
        if (replacement_begin(&c->to) < 0)
            end_as(c, TOOL_BAD, report_sentence());
        else if (copy_file(c, &look) == 0 && replacement_commit(&c->to, st.st_mode & 01777) < 0)
            end_as(c, TOOL_BAD, report_sentence());
        progress_end(&c->progress);
    }
    look_close(&look);
    replacement_end(&c->to);
}

static int run(const struct tool_request *request)
{
    static struct copied c;
    struct json j;
    char size[TEXT_SIZE];
    ato_set_log(NULL, NULL); /* this command uses the library: its log goes where ATO_LOG says */
    copy(&c, request);
    if (request->json) {
        json_start(&j, "cp");
        json_string(&j, "file", c.name);
        json_string(&j, "copy", request->names[1]);
        json_string(&j, "error", c.status ? c.why : NULL);
        json_bool(&j, "database", c.database);
        json_number(&j, "bytes", c.status ? 0 : (uint64_t)c.length);
        json_finish(&j, c.status);
    } else if (c.status || !request->quiet) {
        FILE *out = c.status ? stderr : stdout;
        text_put(out, c.name);
        fputs(": ", out);
        if (c.status) {
            text_put(out, c.why);
        } else {
            fprintf(out, "%s copied to ", text_size(size, (uint64_t)c.length));
            text_put(out, request->names[1]);
        }
        putc('\n', out);
    }
    return c.status;
}

const struct tool_command cp_command = {
    .name = "cp",
    .operands = "SRC DST",
    .what = "copies a file that is mapped and being written",
    .help =
        "Makes DST a plain copy of the file SRC, as SRC was at one moment: with each write and "
        "each\n"
        "transaction as a whole, or without it. Processes may have SRC mapped through libato, and\n"
        "go on to write to it. SRC does not change.\n"
        "\n"
        "DST is written beside, gets the permissions of SRC, and takes the place of an older DST\n"
        "when it is complete and durable. Zeros become holes. A DST that is mapped through "
        "libato,\n"
        "or not plain, is refused.\n"
        "\n"
        "An SQLite database may be open in programs of both kinds: those that use it through\n"
        "libato go on; those that use SQLite's own VFS read on, and wait with their commits. One "
        "in\n"
        "WAL mode is copied if no program has it open. Refused is a database of which a part is\n"
        "in a journal or a write-ahead log on the disk.\n"
        "\n"
        "Programs that write to SRC by other means are not kept from writing. They are noticed,\n"
        "and SRC is copied again, unless a process has it mapped through libato.\n"
        "\n"
        "--quiet: no bar, and no line for a copy that was made.\n"
        "\n"
        "Exit status: 0 DST is the copy; else DST is as it was: 1 refused, or failed; 2 SRC could\n"
        "not be read.\n",
    .least = 2,
    .most = 2,
    .can_be_quiet = true,
    .run = run,
};
