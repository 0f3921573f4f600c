/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato cp`: a plain copy of a file, as it was at one moment, from a snapshot. The file may be mapped and written to meanwhile.
 *
 * A file that no process has mapped is opened for reading only, and stays as it is. One that is in use, or that has to be
 * recovered, is mapped for writing if the user may: then the copy ends however much is written, and dead processes'
 * commits are finished. While it is mapped here, its last user's unmap does not make it plain, so that is made up for.
 */
#include "deploy.h"
#include "replacement.h"
#include "sqlite_hold.h"
#include "text.h"

#include "lib/sqlite/mask.h"
#include "reflection/media/report.h"

#include "ato_engine.h"

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
    struct outcome o; /* of the source */
    struct replacement to;
    off_t length;  /* of the copy */
    bool database; /* of SQLite */
    struct text_progress progress;
};

/* Ends it with errno, explained. */
static int fail_at(struct copied *c, const char *what)
{
    return outcome_set(&c->o, FAILED, "%s: %s", what, report_reason(errno));
}

/* Ends it with the sentence of the tool's own modules. */
static int fail(struct copied *c)
{
    return outcome_set(&c->o, FAILED, "%s", report_sentence());
}

/* Passes EAGAIN and ESTALE on, which may be no failure yet: 1. Else -1. */
static int end_by_library(struct copied *c)
{
    const bool again = errno == EAGAIN || errno == ESTALE;
    if (c->o.result <= DONE)
        outcome_set(&c->o, again ? DONE : FAILED, "%s", ato_errormsg());
    return again ? 1 : -1;
}

/* ---- the bytes ---- */

static int write_all(struct copied *c, const char *bytes, size_t n, off_t offset)
{
    return replacement_write(&c->to, bytes, n, offset) < 0 ? fail_at(c, "cannot write the copy")
                                                           : 0;
}

/* Zeros stay a hole. */
static int put(struct copied *c, off_t offset, const char *bytes, size_t n)
{
    static const char zeros[PIECE];
    size_t from = 0; /* what is before is written */
    for (size_t i = 0, piece; i < n; i += piece) {
        piece = n - i < PIECE ? n - i : PIECE;
        if (memcmp(bytes + i, zeros, piece) != 0)
            continue;
        if (write_all(c, bytes + from, i - from, offset + (off_t)from) < 0)
            return -1;
        from = i + piece;
    }
    return write_all(c, bytes + from, n - from, offset + (off_t)from);
}

/* Copies the file as it is in the snapshot. Returns as copy_once(). */
static int copy_snapshot(struct copied *c, ato_snapshot *s)
{
    static char part[256 << 10];
    ssize_t n = 0;
    c->length = ato_snapshot_seek(s, 0, SEEK_END);
    for (off_t at = 0; (at = ato_snapshot_seek(s, at, SEEK_DATA)) >= 0; at += n) {
        n = ato_snapshot_read(s, part, at, sizeof(part));
        if (n <= 0)
            return end_by_library(c);
        if (put(c, at, part, (size_t)n) < 0)
            return -1;
        text_progress(&c->progress, (uint64_t)at, (uint64_t)c->length);
    }
    if (errno != ENXIO)
        return end_by_library(c);
    return ftruncate(c->to.fd, c->length) < 0 ? fail_at(c, "cannot write the copy") : 0;
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
        return outcome_set(&c->o, FAILED, "%s",
                           c->database
                               ? "was an SQLite database at first, and is none now; try again"
                               : "has become an SQLite database meanwhile; try again");
    if (!c->database)
        return 0;
    if (sqlite_was_held(hold, header) < 0)
        return fail(c);
    mask_uncover(header);
    return write_all(c, header, sizeof(header), 0);
}

/* Holds the file if it begins with the header of a database. Returns 0; -1: c->why. */
static int hold_database(struct copied *c, struct sqlite_hold *hold, const void *header,
                         bool is_plain)
{
    c->database = sqlite_is_header(header);
    if (!c->database)
        return 0;
    return sqlite_has_no_parts(c->to.path) < 0 || sqlite_hold(hold, header, is_plain) < 0 ? fail(c)
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
    if (ftruncate(c->to.fd, 0) < 0)
        return fail_at(c, "cannot write the copy");
    ato_snapshot *s = ato_snapshot_begin(view);
    int r = s ? copy_snapshot(c, s) : end_by_library(c);
    if (s)
        (void)ato_snapshot_end(s);
    /* Another program may have overwritten the file. */
    if (r == 0 && ato_check(view) < 0)
        r = end_by_library(c);
    return r ? r : complete_database(c, hold);
}

/* Maps the file and copies it. Returns as copy_once(). */
static int copy_mapped(struct copied *c, const struct look *l, int fd, struct sqlite_hold *hold)
{
    const size_t length = l->identity.size ? l->identity.size : 1;
    struct ato_options options = deploy_options(l);
    options.max_size = length + GROWTH;
    void *view = ato_mmap_opt(length, fd, 0, &options);
    if (view == MAP_FAILED)
        return end_by_library(c);
    const int r = copy_view(c, view, hold, l->state == LOOK_PLAIN);
    return ato_munmap(view, length, ATO_UNMAP_FAST) < 0 && r == 0
               ? outcome_set(&c->o, FAILED, "%s", ato_errormsg())
               : r;
}

/* Copies the file once. Returns 0; -1: c->why; 1: EAGAIN, which
 * c->why explains: by a read-only descriptor it cannot be copied. */
static int copy_once(struct copied *c, const struct look *l, bool writes)
{
    char header[MASK_HEADER] = {0};
    const int fd CLOSING = look_open(c->o.name, writes ? O_RDWR : O_RDONLY);
    if (fd < 0) {
        (void)fail_at(c, "cannot open it");
        c->o.result = BLIND;
        return -1;
    }
    /* Most of SQLite's locks need a descriptor that can write. The close of both gives the locks back. */
    const int own CLOSING = writes ? -1 : look_open(c->o.name, O_RDWR);
    struct sqlite_hold hold = {
        .fd = own >= 0 ? own : fd, .writable = writes || own >= 0, .path = c->o.name};
    /* A database is held from before it is mapped until it is unmapped: otherwise SQLite could change its length meanwhile. */
    int r = pread(fd, header, sizeof(header), 0) < 0
                ? fail_at(c, "cannot read the file")
                : hold_database(c, &hold, header, l->state == LOOK_PLAIN);
    if (r == 0)
        r = copy_mapped(c, l, fd, &hold);
    return r;
}

/* The file was plain, or others had it mapped, who could not make it plain, because this process had it mapped: now nobody has. */
static void make_plain_again(const struct copied *c, const struct look *before)
{
    static const struct tool_request quiet = {.quiet = true};
    static struct look now;
    struct deployed d;
    const bool was_kept = (before->state == LOOK_CLEAN || before->state == LOOK_RECOVERY_DUE) &&
                          !before->holders.count && !before->holders.attaching;
    if (was_kept || look_at(&now, c->o.name) < 0)
        return;
    const bool is_left = now.state == LOOK_CLEAN;
    look_close(&now);
    if (is_left)
        deploy_file(&d, c->o.name, &quiet);
}

static int copy_file(struct copied *c, const struct look *l)
{
    static struct look again;
    const bool may_write = faccessat(AT_FDCWD, c->o.name, W_OK, AT_EACCESS) == 0;
    bool writes = may_write && has_pairing(l);
    int r = copy_once(c, l, writes);
    /* Processes that use libato may have begun to write to it. Others cannot be kept from writing. */
    if (r > 0 && !writes && may_write && look_at(&again, c->o.name) == 0) {
        writes = has_pairing(&again);
        if (writes)
            r = copy_once(c, &again, true);
        look_close(&again);
    }
    make_plain_again(c, l);
    if (r > 0)
        c->o.result = FAILED;
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
        return exists == 0 ? 0 : fail(c);
    if (st.st_dev == from->identity.device && st.st_ino == from->identity.inode)
        return outcome_set(&c->o, REFUSED, "is the file that is to be copied");
    if (look_at(&look, c->to.path) < 0)
        return outcome_set(&c->o, BLIND, "%s", report_sentence());
    const enum look_state state = look.state;
    look_close(&look);
    if (state == LOOK_PLAIN || state == LOOK_COPIED)
        return 0;
    return outcome_set(&c->o, REFUSED,
                       "%s is not plain: %s. Make it plain first, or its reflection would be left "
                       "over",
                       name, look_state_meaning(state));
}

static int run(const struct tool_request *request)
{
    static struct copied c;
    static struct look look;
    struct json j;
    struct stat st;
    char size[TEXT_SIZE];
    const char *target = request->names[1];
    ato_set_log(NULL, NULL); /* this command uses the library: its log goes where ATO_LOG says */
    c = (struct copied){.o = {.name = request->names[0], .result = DONE},
                        .to = {.fd = -1, .folder = -1},
                        .progress.shown = !request->quiet && !request->json};
    if (look_at(&look, c.o.name) < 0 || fstat(look.fd, &st) < 0) {
        outcome_set(&c.o, BLIND, "%s", report_sentence());
    } else if (look.state >= LOOK_COPIED) {
        look_why(c.o.why, sizeof(c.o.why), &look, c.o.name);
        c.o.result = REFUSED;
    } else if (check_target(&c, &look, target) == 0) {
        if (replacement_begin(&c.to) < 0 ||
            (copy_file(&c, &look) == 0 && replacement_commit(&c.to, st.st_mode & 01777) < 0))
            (void)fail(&c);
        text_progress_end(&c.progress);
    }
    look_close(&look);
    replacement_end(&c.to);
    const int status = outcome_status(&c.o);
    json_start(&j, "cp", request->json);
    outcome_show(&c.o, request, &j, "%s copied to %s", text_size(size, (uint64_t)c.length), target);
    json_string(&j, "copy", target);
    json_bool(&j, "database", c.database);
    json_number(&j, "bytes", status ? 0 : (uint64_t)c.length);
    json_finish(&j, status);
    return status;
}

const struct tool_command cp_command = {
    .name = "cp",
    .operands = "SRC DST",
    .what = "copies a file that is mapped and being written",
    .help = "Makes DST a plain copy of the file SRC, as SRC was at one moment. Processes may have\n"
            "SRC mapped through libato, or open as an SQLite database, and go on to write to it.\n"
            "DST takes the place of an older one when it is complete and durable.\n",
    .least = 2,
    .most = 2,
    .options = HAS(JSON) | HAS(QUIET),
    .run = run,
};
