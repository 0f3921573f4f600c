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
#include "mark.h"
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
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* How much a file may grow while it is copied: address space only. */
#define GROWTH (64ull << 30)

enum { PIECE = MARK_PAGE };

struct copied {
    const char *name;
    struct replacement to;
    off_t length;  /* of the copy */
    uint64_t done; /* bytes from the beginning that were copied once */
    uint64_t sent; /* of these, bytes that the kernel was told to write to the disk */
    bool database; /* of SQLite */
    /* With --since or --mark: */
    bool marks;
    const char *since;       /* the mark of the older copy; NULL */
    struct mark mark;        /* of the copy, as far as it is made */
    struct replacement save; /* of the file for the mark */
    int old;                 /* the older copy, which `since` describes; -1 */
    bool cloned;             /* the copy began as a clone of it */
    uint64_t changed;        /* pages that it did not have */
    struct progress progress;
    uint64_t expected;          /* length, for the bar */
    int status;                 /* TOOL_... */
    char why[1024 + LOOK_NEXT]; /* if that is not good */
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
    snprintf(c->why, sizeof(c->why), "%s: %s", what, report_reason(errno));
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
    return replacement_write(&c->to, bytes, n, offset) < 0 ? fail_at(c, "cannot write the copy")
                                                           : 0;
}

/* Returns 1 if the copy has the bytes already, or zeros belong in a place that was never written; 0; -1: c->why. */
static int is_there(struct copied *c, const char *bytes, size_t n, uint64_t offset)
{
    static const char zeros[PIECE];
    char page[PIECE] = {0};
    if (!c->marks)
        return offset >= c->done && memcmp(bytes, zeros, n) == 0;
    /* Of the last page, what lies behind the end is written too: the file may have been longer in an earlier pass. */
    const int changed =
        mark_give(&c->mark, offset / PIECE, n < PIECE ? memcpy(page, bytes, n) : bytes);
    if (changed < 0)
        return end_as(c, TOOL_BAD, report_sentence());
    if (changed && n < PIECE)
        return write_all(c, page, PIECE, (off_t)offset) < 0 ? -1 : 1;
    return !changed;
}

enum { WINDOW = 32 << 20 };

/* Has what was copied since it was last called written to the disk, and waits for what was copied before that: otherwise most of the time
 * would go by in the last fsync(), with a bar that stands still. Its errors count: fsync() does not report them again. */
static int keep_up(struct copied *c)
{
    const uint64_t n = c->done - c->sent, before = c->sent < WINDOW ? c->sent : WINDOW;
    const unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE;
    if (n < WINDOW)
        return 0;
    if (sync_file_range(c->to.fd, (off_t)c->sent, (off_t)n, SYNC_FILE_RANGE_WRITE) < 0 ||
        (before && sync_file_range(c->to.fd, (off_t)(c->sent - before), (off_t)before, wait) < 0))
        return fail_at(c, "cannot write the copy");
    c->sent = c->done;
    return 0;
}

/* For ato_snapshot(). Leaves holes out, and what is there. */
static int put(void *arg, off_t offset, const void *bytes, size_t n)
{
    struct copied *c = arg;
    const char *at = bytes;
    size_t from = 0; /* what is before is written */
    for (size_t i = 0, piece; i < n; i += piece) {
        piece = n - i < PIECE ? n - i : PIECE;
        const int there = is_there(c, at + i, piece, (uint64_t)offset + i);
        if (there == 0)
            continue;
        if (there < 0 || write_all(c, at + from, i - from, offset + (off_t)from) < 0)
            return -1;
        from = i + piece;
    }
    if (write_all(c, at + from, n - from, offset + (off_t)from) < 0)
        return -1;
    if (c->done < (uint64_t)offset + n)
        c->done = (uint64_t)offset + n;
    progress_show(&c->progress, c->done < c->expected ? c->done : c->expected, c->expected);
    return keep_up(c);
}

/* ---- marks ---- */

/* Begins with what the older copy has. */
static int begin_marks(struct copied *c)
{
    mark_free(&c->mark);
    if ((c->since ? mark_read(&c->mark, c->since) : mark_make(&c->mark)) < 0)
        return end_as(c, TOOL_BAD, report_sentence());
    c->cloned = c->old >= 0 && ioctl(c->to.fd, FICLONE, c->old) == 0;
    return 0;
}

/* Reads a page, filled up with zeros. */
static int read_page(struct copied *c, int fd, uint64_t page, char bytes[PIECE])
{
    const ssize_t n = pread(fd, bytes, PIECE, (off_t)(page * PIECE));
    if (n < 0)
        return fail_at(c, fd == c->old ? "cannot read the older copy" : "cannot read the copy");
    memset(bytes + n, 0, PIECE - (size_t)n);
    return 0;
}

/* Completes a page that ato_snapshot() has left out, or that the older copy has. */
static int complete_page(struct copied *c, uint64_t page)
{
    char bytes[PIECE] = {0};
    if (mark_is_zero(&c->mark, page))
        return 0;
    if (!mark_was(&c->mark, page, MARK_GIVEN)) {
        (void)mark_give(&c->mark, page, bytes); /* there is room */
        return c->cloned ? write_all(c, bytes, PIECE, (off_t)(page * PIECE)) : 0;
    }
    if (c->cloned || mark_was(&c->mark, page, MARK_CHANGED))
        return 0;
    if (read_page(c, c->old, page, bytes) < 0)
        return -1;
    if (!mark_has(&c->mark, page, bytes))
        return end_as(c, TOOL_BAD, "the older copy is not what its mark says: copy all, by --mark");
    return write_all(c, bytes, PIECE, (off_t)(page * PIECE));
}

static int complete_pages(struct copied *c)
{
    const uint64_t pages = ((uint64_t)c->length + PIECE - 1) / PIECE;
    int r = 0;
    c->changed = 0;
    for (uint64_t page = 0; r == 0 && page < pages; page++) {
        r = complete_page(c, page);
        c->changed += mark_was(&c->mark, page, MARK_CHANGED);
    }
    return r;
}

/* Notes what was changed in a page afterwards. */
static int note_again(struct copied *c, uint64_t page)
{
    char bytes[PIECE];
    if (read_page(c, c->to.fd, page, bytes) < 0)
        return -1;
    return mark_give(&c->mark, page, bytes) < 0 ? end_as(c, TOOL_BAD, report_sentence()) : 0;
}

/* Writes the mark, to be committed when the copy is. Nothing is written to the copy from now on. */
static int prepare_mark(struct copied *c)
{
    struct stat st;
    if (c->length && (note_again(c, 0) < 0 || note_again(c, ((uint64_t)c->length - 1) / PIECE) < 0))
        return -1;
    if (fstat(c->to.fd, &st) < 0)
        return fail_at(c, "cannot look at the copy");
    if (replacement_begin(&c->save) < 0 ||
        mark_write(&c->mark, &c->save, (uint64_t)c->length, &st.st_mtim) < 0)
        return end_as(c, TOOL_BAD, report_sentence());
    return 0;
}

/* Looks at the file for the mark: none that is anything else is replaced. */
static int check_mark(struct copied *c, const struct look *from, const char *name)
{
    struct mark old;
    struct stat st;
    const int exists = replacement_find(&c->save, name, &st);
    if (exists < 0)
        return end_as(c, TOOL_BAD, report_sentence());
    if (strcmp(c->save.path, c->to.path) == 0 ||
        (exists && st.st_dev == from->identity.device && st.st_ino == from->identity.inode))
        return end_as(c, TOOL_BAD, "the mark needs a file of its own");
    const int r = exists ? mark_read(&old, name) : 0;
    if (exists)
        mark_free(&old);
    return r < 0 ? end_as(c, TOOL_BAD, report_sentence()) : 0;
}

/* Opens the older copy, if the mark is that of it. */
static int open_old(struct copied *c, const char *name)
{
    struct stat st;
    if (mark_read(&c->mark, c->since) < 0)
        return end_as(c, TOOL_BAD, report_sentence());
    c->old = look_open(c->to.path, O_RDONLY);
    if (c->old < 0 || fstat(c->old, &st) < 0)
        return fail_at(c, "cannot open the older copy");
    if ((uint64_t)st.st_size == c->mark.length && st.st_mtim.tv_sec == c->mark.seconds &&
        st.st_mtim.tv_nsec == c->mark.nanoseconds)
        return 0;
    snprintf(c->why, sizeof(c->why),
             "%s is not the copy that %s is the mark of, or was changed since: copy all, by --mark",
             name, c->since);
    c->status = TOOL_BAD;
    return -1;
}

static int check_marks(struct copied *c, const struct look *from,
                       const struct tool_request *request)
{
    c->since = request->since;
    c->marks = request->since || request->mark;
    if (!c->marks)
        return 0;
    if (check_mark(c, from, request->mark ? request->mark : request->since) < 0)
        return -1;
    return c->since ? open_old(c, request->names[1]) : 0;
}

/* ---- the source ---- */

/* Returns true if the file may have to be mapped for writing, so that it can be read. */
static bool has_pairing(const struct look *l)
{
    return l->state == LOOK_IN_USE || l->state == LOOK_CLEAN || l->state == LOOK_RECOVERY_DUE ||
           l->state == LOOK_BORN || l->state == LOOK_DEPLOYED;
}

/* Takes the mask off the copy of a database. */
static int complete_database(struct copied *c, const struct sqlite_hold *hold)
{
    char header[MASK_HEADER] = {0};
    if (pread(c->to.fd, header, sizeof(header), 0) < 0)
        return fail_at(c, "cannot read the copy");
    if (sqlite_is_header(header) != c->database)
        return end_as(c, TOOL_BAD,
                      c->database ? "was an SQLite database at first, and is none now; try again"
                                  : "has become an SQLite database meanwhile; try again");
    if (!c->database)
        return 0;
    if (sqlite_was_held(hold, header) < 0)
        return end_as(c, TOOL_BAD, report_sentence());
    mask_uncover(header);
    return write_all(c, header, sizeof(header), 0);
}

static int take_snapshot(struct copied *c, const void *view)
{
    c->done = c->sent = 0;
    if (ftruncate(c->to.fd, 0) < 0)
        return fail_at(c, "cannot write the copy");
    if (c->marks && begin_marks(c) < 0)
        return -1;
    c->length = ato_snapshot(view, put, c);
    if (c->length < 0)
        return end_by_library(c);
    if (c->marks && complete_pages(c) < 0)
        return -1;
    return ftruncate(c->to.fd, c->length) < 0 ? fail_at(c, "cannot write the copy") : 0;
}

/* Holds the file if it begins with the header of a database. Returns 0; -1: c->why. */
static int hold_database(struct copied *c, struct sqlite_hold *hold, const void *header,
                         bool is_plain)
{
    c->database = sqlite_is_header(header);
    if (!c->database)
        return 0;
    return sqlite_has_no_parts(c->to.path) < 0 || sqlite_hold(hold, header, is_plain) < 0
               ? end_as(c, TOOL_BAD, report_sentence())
               : 0;
}

/* Copies from a mapping. Returns as copy_once(). */
static int copy_view(struct copied *c, const void *view, struct sqlite_hold *hold, bool is_plain)
{
    char header[MASK_HEADER] = {0};
    const off_t size = ato_size(view);
    if (size < 0 || (size >= MASK_HEADER && !ato_memcpy(header, view, sizeof(header))))
        return end_by_library(c);
    /* Again: the header that counts may be in the reflection. */
    if (hold_database(c, hold, header, is_plain) < 0)
        return -1;
    const int r = take_snapshot(c, view);
    return r == 0 ? complete_database(c, hold) : r;
}

/* Maps the file and copies it. Returns as copy_once(). */
static int copy_mapped(struct copied *c, const struct look *l, int fd, struct sqlite_hold *hold)
{
    const bool known = l->manifest.found == MANIFEST_VALID;
    const size_t length = l->identity.size ? l->identity.size : 1;
    const struct ato_options options = {.struct_size = sizeof(options),
                                        .read_policy = ATO_READ_GATHER,
                                        .max_size = length + GROWTH,
                                        .domain = known ? (int)l->manifest.record.domain : 0};
    void *view = ato_mmap_opt(length, fd, 0, &options);
    if (view == MAP_FAILED)
        return end_by_library(c);
    const int r = copy_view(c, view, hold, l->state == LOOK_PLAIN);
    return ato_munmap(view, length, ATO_UNMAP_FAST) < 0 && r == 0
               ? end_as(c, TOOL_BAD, ato_errormsg())
               : r;
}

/* Copies the file once. Returns 0; -1: c->why; 1: EAGAIN, which
 * c->why explains: by a read-only descriptor it cannot be copied. */
static int copy_once(struct copied *c, const struct look *l, bool writes)
{
    char header[MASK_HEADER] = {0};
    const int fd = look_open(c->name, writes ? O_RDWR : O_RDONLY);
    if (fd < 0) {
        (void)fail_at(c, "cannot open it");
        c->status = TOOL_BLIND;
        return -1;
    }
    /* Most of SQLite's locks need a descriptor that can write. */
    const int own = writes ? -1 : look_open(c->name, O_RDWR);
    struct sqlite_hold hold = {
        .fd = own >= 0 ? own : fd, .writable = writes || own >= 0, .path = c->name};
    /* A database is held from before it is mapped until it is unmapped: otherwise SQLite could change its length meanwhile. */
    int r = pread(fd, header, sizeof(header), 0) < 0
                ? fail_at(c, "cannot read the file")
                : hold_database(c, &hold, header, l->state == LOOK_PLAIN);
    if (r == 0)
        r = copy_mapped(c, l, fd, &hold);
    /* This gives the locks back. */
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
    bool writes = may_write && has_pairing(l);
    int r = copy_once(c, l, writes);
    /* Processes that use libato may have begun to write to it. Others cannot be kept from writing. */
    if (r > 0 && !writes && may_write && look_at(&again, c->name) == 0) {
        writes = has_pairing(&again);
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

/* The mark comes last: without it the copy is as good, and the next one of all pages. */
static void commit(struct copied *c, mode_t mode)
{
    if (replacement_commit(&c->to, mode) < 0)
        end_as(c, TOOL_BAD, report_sentence());
    else if (c->marks && replacement_commit(&c->save, 0600) < 0) {
        c->status = TOOL_BAD;
        snprintf(c->why, sizeof(c->why), "the copy is complete, but it has no mark: %s",
                 report_sentence());
    }
}

static void copy(struct copied *c, const struct tool_request *request)
{
    static struct look look;
    struct stat st;
    *c = (struct copied){.name = request->names[0],
                         .to = {.fd = -1, .folder = -1},
                         .save = {.fd = -1, .folder = -1},
                         .old = -1};
    if (look_at(&look, c->name) < 0) {
        end_as(c, TOOL_BLIND, report_sentence());
        look_close(&look);
        return;
    }
    if (look.state >= LOOK_COPIED)
        c->status = TOOL_BAD, look_why(c->why, sizeof(c->why), &look, c->name);
    else if (fstat(look.fd, &st) < 0)
        end_as(c, TOOL_BLIND, report_reason(errno));
    else if (check_target(c, &look, request->names[1]) == 0 &&
             check_marks(c, &look, request) == 0) {
        c->expected = look.identity.size;
        progress_start(&c->progress, c->name, !request->quiet && !request->json);
        if (replacement_begin(&c->to) < 0)
            end_as(c, TOOL_BAD, report_sentence());
        else if (copy_file(c, &look) == 0 && (!c->marks || prepare_mark(c) == 0))
            commit(c, st.st_mode & 01777);
        progress_end(&c->progress);
    }
    look_close(&look);
    replacement_end(&c->to);
    replacement_end(&c->save);
    mark_free(&c->mark);
    if (c->old >= 0)
        close(c->old);
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
        if (c.since && !c.status)
            json_number(&j, "changed_pages", c.changed);
        else
            json_null(&j, "changed_pages");
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
            if (c.since)
                fprintf(out, ", of which %s had changed", text_size(size, c.changed * PIECE));
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
        "--mark writes to FILE what the copy has, for the next one. --since with that FILE takes "
        "over\n"
        "from DST, which has to be that copy, what has not changed in SRC, and brings FILE up to\n"
        "date, or writes another one by --mark. All of SRC is read. DST is replaced as a whole: if "
        "its\n"
        "file system has reflinks (btrfs, XFS), what has not changed is shared with the older "
        "copy.\n"
        "\n"
        "--quiet: no bar, and no line for a copy that was made.\n"
        "\n"
        "Exit status: 0 DST is the copy, and FILE its mark; else DST is as it was, unless the "
        "message\n"
        "says that it is complete: 1 refused, or failed; 2 SRC could not be read.\n",
    .least = 2,
    .most = 2,
    .can_be_quiet = true,
    .can_mark = true,
    .run = run,
};
