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
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct seen_one *find(const struct seen *s, uint64_t device, uint64_t inode)
{
    uint64_t h = (inode ^ device << 32) * 0x9fb21c651e98df25ull;
    struct seen_one *at = &s->all[(h >> 32) & (s->room - 1)];
    while (at->used && (at->device != device || at->inode != inode))
        at = at + 1 < s->all + s->room ? at + 1 : s->all;
    return at;
}

bool seen_has(const struct seen *s, uint64_t device, uint64_t inode)
{
    return s->room && find(s, device, inode)->used;
}

static bool grow(struct seen *s)
{
    struct seen more = {.n = s->n, .room = s->room ? 2 * s->room : 64};
    more.all = calloc(more.room, sizeof(*more.all));
    if (!more.all)
        return false;
    for (size_t i = 0; i < s->room; i++)
        if (s->all[i].used)
            *find(&more, s->all[i].device, s->all[i].inode) = s->all[i];
    free(s->all);
    *s = more;
    return true;
}

bool seen_before(struct seen *s, uint64_t device, uint64_t inode)
{
    if (seen_has(s, device, inode))
        return true;
    /* Without memory the entry is checked twice. */
    if (2 * (s->n + 1) > s->room && !grow(s))
        return false;
    *find(s, device, inode) = (struct seen_one){device, inode, true};
    s->n++;
    return false;
}

static void check_file(struct check *c, const char *name)
{
    static struct look look;
    if (look_at(&look, name) < 0) {
        finding_add(&c->findings, FINDING_BLIND, name, "%s", report_sentence());
        return;
    }
    if (!seen_before(&c->files, look.identity.device, look.identity.inode))
        check_look(c, name, &look);
    look_close(&look);
}

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
    struct stat st;
    if (stat(name, &st) < 0)
        finding_add(&c->findings, FINDING_BLIND, name,
                    "cannot stat it: %s; check the path and its permissions", report_reason(errno));
    else if (S_ISDIR(st.st_mode) && recursive)
        tree_walk(name, visit, c);
    else if (S_ISDIR(st.st_mode))
        check_folder(c, name);
    else
        check_file(c, name);
}

static void write_json(const struct check *c, int status)
{
    struct json j;
    json_start(&j, "check");
    json_number(&j, "files_plain", c->plain);
    json_number(&j, "files_with_reflection", c->paired);
    findings_write(&c->findings, &j);
    json_finish(&j, status);
}

static void say(const struct check *c, int status)
{
    static const char *const ends[] = {"in order", "damaged", "some could not be looked at"};
    findings_say(&c->findings);
    printf("%" PRIu64 " plain, %" PRIu64 " with a reflection: %s\n", c->plain, c->paired,
           ends[status]);
}

static int run(const struct tool_request *request)
{
    struct check c;
    memset(&c, 0, sizeof(c));
    for (int i = 0; i < request->count; i++)
        check_one(&c, request->names[i], request->recursive);
    int status = findings_status(&c.findings);
    if (request->json)
        write_json(&c, status);
    else if (!request->quiet)
        say(&c, status);
    else
        findings_say(&c.findings);
    findings_free(&c.findings);
    free(c.files.all);
    return status;
}

const struct tool_command check_command = {
    .name = "check",
    .operands = "FILE|FOLDER...",
    .what = "checks the data of files on the media",
    .help =
        "Checks each FILE: both copies of its manifest, its size, identity and attribute against\n"
        "each other, the length of its reflection, the bitmap words against the end of the file\n"
        "and its state, and the commits in the lanes of the manifest. Changes nothing; takes no\n"
        "lock.\n"
        "\n"
        "In a FOLDER it checks all files (not those in folders below it), and looks in the\n"
        "reflection folder .ato for entries that belong to no file: reflections without manifest,\n"
        "manifests without reflection or file, files that were set aside, files left over.\n"
        "FOLDER may be a reflection folder itself; then the files of its manifests are not\n"
        "checked. --recursive: folders below it are checked, too.\n"
        "\n"
        "Each finding is one line, 'FILE: severity: what and where':\n"
        "  note           in order, but some work (recovery) or cleaning up is left\n"
        "  warning        something is wrong, but no byte is in danger\n"
        "  error          damaged: the file cannot be mapped, or its bytes cannot be trusted\n"
        "  not looked at  no permission, no such file, ...\n"
        "The last line is a summary; --quiet leaves it out.\n"
        "\n"
        "Exit status: 0 in order, perhaps with notes and warnings; 1 damaged; 2 something could\n"
        "not be read, and nothing is known to be damaged.\n",
    .least = 1,
    .can_be_quiet = true,
    .can_recurse = true,
    .run = run,
};
