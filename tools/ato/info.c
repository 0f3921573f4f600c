/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato info`: the present state of a file. */
#include "each.h"
#include "json.h"
#include "look.h"
#include "text.h"
#include "tool.h"

#include "reflection/format/layout.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include "ato.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct facts {
    const char *name;
    const char *error; /* NULL, or why the file cannot be read */
    struct look *look;
    bool has_record;
    bool is_database; /* an SQLite database with a masked header (lib/sqlite/mask.h) */
    char id[33], guard[33];
    bool has_words;
    struct look_words words;
};

static void gather(struct facts *f, struct look *l, const char *name)
{
    memset(f, 0, sizeof(*f));
    f->name = name;
    f->look = l;
    if (look_at(l, name) < 0) {
        f->error = report_sentence();
        return;
    }
    /* The manifest that is found for a plain file, or for a copy, is another file's. */
    f->has_record = l->manifest.fd >= 0 && l->manifest.found == MANIFEST_VALID &&
                    l->state != LOOK_PLAIN && l->state != LOOK_COPIED;
    if (!f->has_record)
        return;
    const struct manifest_record *r = &l->manifest.record;
    identity_hex(r->id, f->id);
    identity_hex(r->guard.plain, f->guard);
    f->guard[2 * r->guard.bytes] = '\0';
    f->is_database = r->guard.bytes && look_is_masked(l->fd);
    f->has_words = l->reflection >= 0 && l->manifest.has_size &&
                   look_words(l->reflection, l->reflection_length, r->format, l->manifest.size,
                              &f->words) == 0;
}

/* Bytes of the reflection that `ato reclaim` could give back, at most: some are meta pages, which it leaves. */
static uint64_t unused_of(const struct facts *f)
{
    const uint64_t used = f->words.pages * PAGE_BYTES, all = f->look->reflection_storage;
    return all > used ? all - used : 0;
}

/* ---- for programs ---- */

static void write_guard(struct json *j, const struct facts *f)
{
    const struct manifest_guard *guard = &f->look->manifest.record.guard;
    if (!f->has_record || !guard->bytes) {
        json_null(j, "guard");
        return;
    }
    json_object(j, "guard");
    json_number(j, "offset", guard->offset);
    json_number(j, "bytes", guard->bytes);
    json_string(j, "plain", f->guard);
    json_end(j);
}

static void write_known(struct json *j, bool known, const char *key, uint64_t value)
{
    if (known)
        json_number(j, key, value);
    else
        json_null(j, key);
}

static void write_json(struct json *j, const struct facts *f)
{
    const struct look *l = f->look;
    const struct manifest_record *r = &l->manifest.record;
    char next[LOOK_NEXT];
    json_object(j, NULL);
    json_string(j, "file", f->name);
    json_string(j, "error", f->error);
    if (f->error) {
        json_end(j);
        return;
    }
    json_string(j, "path", l->path);
    json_string(j, "state", look_state_name(l->state));
    json_string(j, "problem", l->problem[0] ? l->problem : NULL);
    json_string(j, "next", *look_next(next, l, f->name) ? next : NULL);
    json_number(j, "size", l->identity.size);
    json_number(j, "storage", l->storage);
    write_known(j, f->has_record && l->manifest.has_size, "logical_size", l->manifest.size);
    json_string(j, "format", f->has_record ? look_format_name((int)r->format) : NULL);
    json_string(j, "domain", f->has_record ? domain_name((int)r->domain) : NULL);
    json_string(j, "id", f->has_record ? f->id : NULL);
    json_string(j, "folder", f->has_record ? l->folder.path : NULL);
    json_number(j, "inode", l->identity.inode);
    write_known(j, f->has_words, "slices_in_reflection", f->words.slices);
    bool reflected = f->has_record && l->reflection >= 0;
    write_known(j, reflected, "reflection_size", l->reflection_length);
    write_known(j, reflected, "reflection_storage", l->reflection_storage);
    write_known(j, f->has_words, "unused_storage", unused_of(f));
    write_guard(j, f);
    json_bool(j, "changing", l->holders.attaching);
    look_holders_write(&l->holders, j);
    json_number(j, "commits_to_finish", l->commits);
    json_end(j);
}

/* ---- for people ---- */

static void line(const char *what, const char *value)
{
    printf("  %-12s ", what);
    text_put(stdout, value);
    putchar('\n');
}

static void say_holders(const struct look_holders *h)
{
    char name[LOOK_NAME];
    for (unsigned i = 0; i < h->count && i < LOOK_HOLDERS; i++)
        line("mapped by", look_holder_name(name, &h->first[i]));
    if (h->readers)
        line("mapped by", "processes that may only read it");
    if (h->attaching)
        line("", "a process is mapping, unmapping or recovering it now");
}

static void say_pairing(const struct facts *f)
{
    const struct look *l = f->look;
    char size[TEXT_SIZE], text[PATH_MAX + 64];
    const struct manifest_guard *guard = &l->manifest.record.guard;
    line("format", look_format_name((int)l->manifest.record.format));
    /* The next first map chooses the domain anew: by its option, ATO_DURABILITY, or the media. */
    snprintf(text, sizeof(text), "%s%s", domain_name((int)l->manifest.record.domain),
             l->holders.count ? "" : " when mapped last");
    line("domain", text);
    line("id", f->id);
    snprintf(text, sizeof(text), "%s/%" PRIu64, l->folder.path, l->number);
    line("reflection", text);
    if (l->reflection >= 0) {
        snprintf(text, sizeof(text), "takes %s", text_size(size, l->reflection_storage));
        line("", text);
    }
    if (f->has_words && unused_of(f)) {
        snprintf(text, sizeof(text), "%s, which 'ato reclaim' gives back but for bitmaps",
                 text_size(size, unused_of(f)));
        line("unused", text);
    }
    if (f->has_words) {
        snprintf(text, sizeof(text), "%" PRIu64 ", %s of the file", f->words.slices,
                 text_size(size, f->words.slices * SLICE_BYTES));
        line("slices in R", text);
    }
    if (guard->bytes) {
        snprintf(text, sizeof(text), "%u bytes at %" PRIu64 ", plain values %s", guard->bytes,
                 guard->offset, f->guard);
        line("guard", text);
    }
}

static void say(const struct facts *f)
{
    const struct look *l = f->look;
    char size[TEXT_SIZE], text[256], next[LOOK_NEXT], word[TEXT_WORD];
    text_put(stdout, f->name);
    if (f->is_database) {
        fputs(": an SQLite database that only the VFS ato reads", stdout);
        if (l->state < LOOK_COPIED)
            printf("; to make it plain, close it, then run 'ato deploy %s'",
                   text_word(word, f->name));
    }
    putchar('\n');
    snprintf(text, sizeof(text), "%s: %s", look_state_name(l->state),
             l->commits && l->state == LOOK_RECOVERY_DUE ? "the next map finishes a commit"
                                                         : look_state_meaning(l->state));
    line("state", text);
    if (l->problem[0])
        line("problem", l->problem);
    if (*look_next(next, l, f->name))
        line("next", next);
    line("size", text_size(size, l->identity.size));
    if (f->has_record && l->manifest.has_size && l->manifest.size != l->identity.size)
        line("logical", text_size(size, l->manifest.size));
    if (l->cut_growth && !l->holders.count && !l->holders.attaching)
        line("", "its growth was interrupted; the next map undoes it");
    if (l->cut_shrink && !l->holders.count && !l->holders.attaching)
        line("", "it was made shorter; the next map truncates it");
    snprintf(text, sizeof(text), "takes %s", text_size(size, l->storage));
    line("", text);
    if (f->has_record)
        say_pairing(f);
    say_holders(&l->holders);
}

static int do_file(const char *name, const struct tool_request *request, struct json *j)
{
    static struct look look;
    struct facts f;
    (void)request;
    gather(&f, &look, name);
    if (j) {
        write_json(j, &f);
    } else if (f.error) {
        fflush(stdout);
        text_put(stderr, f.name);
        fputs(": ", stderr);
        text_put(stderr, f.error);
        putc('\n', stderr);
    } else {
        say(&f);
    }
    look_close(&look);
    return f.error ? TOOL_BLIND : TOOL_GOOD;
}

static int run(const struct tool_request *request)
{
    return each_run(request, "info", do_file);
}

const struct tool_command info_command = {
    .name = "info",
    .operands = "FILE...",
    .what = "state, sizes and processes of a file",
    .help =
        "Shows for each FILE its state, sizes, format and durability domain, how many slices of\n"
        "64 bytes have their valid copy in the reflection, the storage that the reflection takes,\n"
        "the guarded bytes, if there are any, and the processes that have it mapped. Changes\n"
        "nothing, and waits for no process. Of a file that no process has mapped, the domain is\n"
        "the one when it was mapped last; the next map chooses it anew.\n"
        "\n"
        "States:\n"
        "  plain         no reflection: an ordinary file\n"
        "  born          its reflection was being made; nothing is stored in it yet\n"
        "  in use        a process has it mapped\n"
        "  recovery due  its last user was killed, or a commit must be finished by the next map\n"
        "  clean         unmapped, its reflection kept\n"
        "  deployed      all content is in the file; its reflection is being removed\n"
        "  copied        a copy of a file that was not plain\n"
        "  lost          its reflection is missing\n"
        "  apart         restored from a backup: its reflection has another inode number\n"
        "  damaged       ato_mmap() refuses it; 'problem' says why\n"
        "\n"
        "In all states but plain, born and deployed, parts of the content may be only in the\n"
        "reflection: other programs may see older bytes. 'next' names the steps that make the "
        "file\n"
        "plain: mostly 'ato deploy'.\n"
        "\n"
        "The pid and name of a process come from shared memory; if that cannot be read, it is\n"
        "'a process that cannot be named'.\n"
        "\n"
        "Exit status: 0; 2 if a FILE could not be read.\n",
    .least = 1,
    .run = run,
};
