/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato convert`: gives files a reflection of the other format.
 *
 * A file is made plain, as by `ato deploy`, and then mapped once, which gives it an empty reflection of the new format: one step,
 * the birth of its manifest. Until that is done the file is as it was, or plain: an interruption loses nothing, and the next
 * `ato convert` goes on.
 */
#include "deploy.h"
#include "each.h"
#include "json.h"
#include "text.h"

#include "reflection/format/layout.h"
#include "reflection/media/report.h"

#include "ato.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct converted {
    struct deployed plain; /* its result and the reason are also those of the whole */
    const char *format;    /* that the reflection has afterwards; NULL: none, or not known */
    bool had_it;           /* nothing was to be done */
};

static void end_as(struct converted *c, enum deploy_result result, const char *why)
{
    c->plain.result = result;
    snprintf(c->plain.why, sizeof(c->plain.why), "%s", why);
}

/* Maps the file, which is plain, once. */
static void bear(struct converted *c, int format, int domain, const char *folder)
{
    const struct ato_options options = {.struct_size = sizeof(options),
                                        .format = format,
                                        .domain = domain,
                                        .max_size = 1,
                                        .reflection_dir = folder};
    const int fd = look_open(c->plain.name, O_RDWR);
    struct ato_status st = {.struct_size = sizeof(st)};
    void *at = fd < 0 ? MAP_FAILED : ato_mmap_opt(1, fd, 0, &options);
    if (fd < 0) {
        (void)snprintf(c->plain.why, sizeof(c->plain.why),
                       "cannot open it for writing, which is needed to give it a reflection: %s",
                       report_reason(errno));
        c->plain.result = BLIND;
    } else if (at == MAP_FAILED || ato_stat(at, &st) < 0)
        end_as(c, FAILED, ato_errormsg());
    if (at != MAP_FAILED && ato_munmap(at, 1, ATO_UNMAP_FAST) < 0)
        end_as(c, FAILED, ato_errormsg());
    if (fd >= 0)
        close(fd);
    if (c->plain.result <= MADE_PLAIN && st.format != format)
        end_as(c, MAPPED,
               "another process has mapped it meanwhile, with the other format; try again");
    if (c->plain.result <= MADE_PLAIN)
        c->format = look_format_name(format);
}

static void convert(struct converted *c, const char *name, const struct tool_request *request)
{
    static struct look look;
    memset(c, 0, sizeof(*c));
    c->plain.name = name;
    if (look_at(&look, name) < 0) {
        end_as(c, BLIND, report_sentence());
        return;
    }
    const bool has = look.state != LOOK_PLAIN && look.state != LOOK_COPIED &&
                     look.manifest.found == MANIFEST_VALID;
    const int is = has ? (int)look.manifest.record.format : -1;
    const int domain = has ? (int)look.manifest.record.domain : 0;
    const bool clean = look.state == LOOK_CLEAN, refused = look.state >= LOOK_COPIED;
    char folder[sizeof(look.folder.path)] = "";
    if (has)
        memcpy(folder, look.folder.path, sizeof(folder));
    look_close(&look);
    const int to =
        request->format ? request->format - 1 : (is == LAYOUT_DENSE ? LAYOUT_SPARSE : LAYOUT_DENSE);
    if (is < 0 && !refused && !request->format) {
        end_as(c, REFUSED, "has no reflection: say which format it shall have, with --to");
        return;
    }
    c->had_it = is == to && clean; /* a file that is refused is refused by deploy_file() */
    if (c->had_it) {
        c->format = look_format_name(is);
        return;
    }
    deploy_file(&c->plain, name, request);
    if (c->plain.result <= MADE_PLAIN)
        bear(c, to, domain, *folder ? folder : NULL);
}

static void say(const struct converted *c, bool quiet)
{
    const bool good = c->plain.result <= MADE_PLAIN;
    FILE *out = good ? stdout : stderr;
    if (good && quiet)
        return;
    text_put(out, c->plain.name);
    if (good)
        fprintf(out, ": its reflection is %s%s\n", c->format, c->had_it ? " already" : "");
    else if (c->plain.result == SKIPPED)
        fputs(": is a folder\n", out);
    else
        fputs(": ", out), text_put(out, c->plain.why), putc('\n', out);
    fflush(out);
}

static void write_json(struct json *j, const struct converted *c)
{
    const bool good = c->plain.result <= MADE_PLAIN;
    const char *why = c->plain.result == SKIPPED ? "is a folder" : c->plain.why;
    json_object(j, NULL);
    json_string(j, "file", c->plain.name);
    json_string(j, "error", good ? NULL : why);
    json_string(j, "format", good ? c->format : NULL);
    json_bool(j, "changed", good && !c->had_it);
    json_number(j, "slices_brought_home", c->plain.slices);
    look_holders_write(&c->plain.holders, j);
    json_end(j);
}

static int do_file(const char *name, const struct tool_request *request, struct json *j)
{
    struct converted c;
    convert(&c, name, request);
    if (j)
        write_json(j, &c);
    else
        say(&c, request->quiet);
    return c.plain.result == SKIPPED ? TOOL_BAD : deploy_status(c.plain.result);
}

static int run(const struct tool_request *request)
{
    ato_set_log(NULL, NULL); /* this command uses the library: its log goes where ATO_LOG says */
    return each_run(request, "convert", do_file);
}

const struct tool_command convert_command = {
    .name = "convert",
    .operands = "FILE...",
    .what = "gives a file a reflection of the other format",
    .help =
        "Changes the format of the reflection of each FILE, from dense to sparse or back; or to\n"
        "the one that --to=dense or --to=sparse names, which a plain file needs.\n"
        "\n"
        "  dense   a place for each page of the file: the fastest\n"
        "  sparse  places only for pages that were written: for few updates far apart\n"
        "\n"
        "All slices are brought home first, as by 'ato deploy', and the same files are refused:\n"
        "those that are mapped, or damaged. A guard ends; the file is all in place until the next\n"
        "program maps it. May be interrupted at any time: the content does not change, and the\n"
        "next 'ato convert' continues; a file that was already plain then needs --to.\n"
        "--quiet: no bar, and no line for a file without an error.\n"
        "\n"
        "Exit status: 0 all have the format; 1 some are mapped, were refused, or failed;\n"
        "else 2 if some could not be read, or not be opened for writing.\n",
    .least = 1,
    .can_be_quiet = true,
    .can_convert = true,
    .run = run,
};
