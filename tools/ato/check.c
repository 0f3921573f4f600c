/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato check`: checks the data of files on the media. Reads only. */
#include "check.h"

#include "text.h"
#include "tool.h"
#include "tree.h"

#include "reflection/media/report.h"

#include "ato.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

static void visit(void *arg, const char *path, enum tree_kind kind, int error)
{
    struct check *c = arg;
    if (kind == TREE_FOLDER)
        check_folder(c, path);
    else if (kind == TREE_UNREADABLE)
        finding_add(&c->findings, FINDING_BLIND, path, "cannot look at it: %s",
                    report_reason(error));
}

static void check_one(struct check *c, const char *name, bool recursive)
{
    static struct look look;
    struct stat st;
    if (stat(name, &st) < 0)
        finding_add(&c->findings, FINDING_BLIND, name,
                    "cannot stat it: %s; check the path and its permissions", report_reason(errno));
    else if (S_ISDIR(st.st_mode) && recursive)
        tree_walk(name, false, visit, c);
    else if (S_ISDIR(st.st_mode))
        check_folder(c, name);
    else if (look_at(&look, name) < 0)
        finding_add(&c->findings, FINDING_BLIND, name, "%s", report_sentence());
    else {
        if (!seen_before(&c->files, look.identity.device, look.identity.inode))
            check_look(c, name, &look);
        look_close(&look);
    }
}

static int run(const struct tool_request *request)
{
    static const char *const ends[] = {"in order", "damaged", "some could not be looked at"};
    struct check c = {.findings.next = ""};
    struct json *j = &c.findings.json;
    json_start(j, "check", request->json);
    json_list(j, "findings");
    for (int i = 0; i < request->count; i++)
        check_one(&c, request->names[i], request->recursive);
    const int status = c.findings.status;
    json_end(j);
    json_number(j, "files_plain", c.plain);
    json_number(j, "files_with_reflection", c.paired);
    json_finish(j, status);
    if (!request->json && !request->quiet)
        printf("%" PRIu64 " plain, %" PRIu64 " with a reflection: %s\n", c.plain, c.paired,
               ends[status]);
    seen_free(&c.files);
    return status;
}

const struct tool_command check_command = {
    .name = "check",
    .operands = "FILE|FOLDER...",
    .what = "checks the data of files on the media",
    .help = "Checks manifest, attribute, sizes, bitmaps and commits of each FILE against each\n"
            "other; in a FOLDER, those of all files, and what in .ato belongs to no file. Each\n"
            "finding is a line, 'FILE: severity: what and where': a note (some work or cleaning\n"
            "up is left), a warning (no byte is in danger), an error (damaged), or 'not looked\n"
            "at'. Changes nothing; takes no lock.\n",
    .least = 1,
    .options = HAS(JSON) | HAS(QUIET) | HAS(RECURSIVE),
    .run = run,
};
