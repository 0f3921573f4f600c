/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato info`: the present state of a file. */
#include "each.h"
#include "text.h"
#include "write_lock.h"

#include "reflection/format/layout.h"
#include "reflection/format/log.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include <inttypes.h>

struct facts {
    struct look look;
    struct write_lock lock;
    bool has_record, has_words;
    char id[33], guard[33];
    struct look_words words;
    uint64_t replay; /* bytes of the records in a log, which a recovery brings into the file */
    uint64_t ring;   /* bytes that the log has room for */
    uint64_t
        unused; /* that `ato reclaim` could give back, at most: some are meta pages, which it leaves */
};

static void look_at_log(struct facts *f, int fd)
{
    struct log_file log;
    if (log_open(&log, fd) != 1)
        return;
    uint64_t position = log.header.start;
    (void)log_walk(&log, &position, UINT64_MAX, NULL, NULL);
    f->replay = position - log.header.start;
    f->ring = log.header.capacity;
}

static int gather(struct facts *f, const char *name)
{
    struct look *l = &f->look;
    const struct manifest_record *r = &l->manifest.record;
    f->has_record = f->has_words = false;
    f->unused = f->replay = f->ring = 0;
    if (look_at(l, name) < 0)
        return -1;
    write_lock_look(&f->lock, l);
    /* The manifest that is found for a plain file, or for a copy, is another file's. */
    f->has_record = l->manifest.fd >= 0 && l->manifest.found == MANIFEST_VALID &&
                    l->state != LOOK_PLAIN && l->state != LOOK_COPIED;
    if (!f->has_record)
        return 0;
    identity_hex(r->id, f->id);
    identity_hex(r->guard.plain, f->guard);
    f->guard[2 * r->guard.bytes] = '\0';
    f->has_words = l->reflection >= 0 && l->manifest.has_size &&
                   look_words(l->reflection, l->reflection_length, r->format, l->manifest.size,
                              &f->words) == 0;
    if (f->has_words && r->format == LAYOUT_LOG)
        look_at_log(f, l->reflection);
    else if (f->has_words && l->reflection_storage > f->words.pages * PAGE_BYTES)
        f->unused = l->reflection_storage - f->words.pages * PAGE_BYTES;
    return 0;
}

static void write_json(struct json *j, const struct facts *f, const char *next)
{
    const struct look *l = &f->look;
    const struct manifest_record *r = &l->manifest.record;
    const bool reflected = f->has_record && l->reflection >= 0;
    json_string(j, "path", l->path);
    json_string(j, "state", look_state_name(l->state));
    json_string(j, "problem", l->problem[0] ? l->problem : NULL);
    json_string(j, "next", *next ? next : NULL);
    json_number(j, "size", l->identity.size);
    json_number(j, "storage", l->storage);
    json_known(j, "logical_size", f->has_record && l->manifest.has_size, l->manifest.size);
    json_string(j, "format", f->has_record ? look_format_name((int)r->format) : NULL);
    json_string(j, "domain", f->has_record ? domain_name((int)r->domain) : NULL);
    json_string(j, "id", f->has_record ? f->id : NULL);
    json_string(j, "folder", f->has_record ? l->folder.path : NULL);
    json_number(j, "inode", l->identity.inode);
    json_known(j, "slices_in_reflection", f->has_words, f->words.slices);
    json_known(j, "reflection_size", reflected, l->reflection_length);
    json_known(j, "reflection_storage", reflected, l->reflection_storage);
    json_known(j, "unused_storage", f->has_words, f->unused);
    json_known(j, "log_to_replay", f->has_words && r->format == LAYOUT_LOG, f->replay);
    json_known(j, "log_room", f->has_words && r->format == LAYOUT_LOG, f->ring);
    json_known(j, "log_bytes", f->has_record && r->log_bytes, r->log_bytes);
    if (f->has_record && r->guard.bytes) {
        json_object(j, "guard");
        json_number(j, "offset", r->guard.offset);
        json_number(j, "bytes", r->guard.bytes);
        json_string(j, "plain", f->guard);
        json_end(j);
    } else {
        json_string(j, "guard", NULL);
    }
    json_bool(j, "changing", l->holders.attaching);
    look_holders_write(&l->holders, j);
    write_lock_write(&f->lock, j);
    json_number(j, "commits_to_finish", l->commits);
}

static void say_pairing(const struct facts *f)
{
    const struct look *l = &f->look;
    const struct manifest_record *r = &l->manifest.record;
    char size[TEXT_SIZE], room[TEXT_SIZE];
    text_item("format", "%s", look_format_name((int)r->format));
    /* The next first map chooses the domain anew: by its option, ATO_DURABILITY, or the media. */
    text_item("domain", "%s%s", domain_name((int)r->domain),
              l->holders.count ? "" : " when mapped last");
    text_item("id", "%s", f->id);
    text_item("reflection", "%s/%" PRIu64, l->folder.path, l->number);
    if (l->reflection >= 0)
        text_item("", "takes %s", text_size(size, l->reflection_storage));
    if (r->log_bytes)
        text_item("", "never more than %s (log_bytes)", text_size(size, r->log_bytes));
    if (f->unused)
        text_item("unused", "%s, which 'ato reclaim' gives back but for bitmaps",
                  text_size(size, f->unused));
    if (f->has_words && r->format == LAYOUT_LOG)
        text_item("in the log", "%s, which a recovery brings into the file; there is room for %s",
                  text_size(size, f->replay), text_size(room, f->ring));
    else if (f->has_words)
        text_item("slices in R", "%" PRIu64 ", %s of the file", f->words.slices,
                  text_size(size, f->words.slices * SLICE_BYTES));
    if (r->guard.bytes)
        text_item("guard", "%u bytes at %" PRIu64 ", plain values %s", r->guard.bytes,
                  r->guard.offset, f->guard);
}

static void say_lock(const struct write_lock *w)
{
    char name[LOOK_NAME], text[WRITE_LOCK_TEXT];
    if (!w->is_known)
        return;
    text_item("write lock",
              "holds: %" PRIu64 ", the longest %.3f s; waits: %" PRIu64 ", the longest %.3f s",
              w->holds, (double)w->longest_hold / 1e9, w->waits, (double)w->longest_wait / 1e9);
    for (unsigned i = 0; i < w->count; i++)
        if (w->users[i].holds || w->users[i].waiting)
            text_item("", "%s %s", look_holder_name(name, &w->users[i].name),
                      write_lock_text(text, &w->users[i]));
}

static void say(const struct facts *f, const char *next)
{
    const struct look *l = &f->look;
    const bool busy = l->holders.count || l->holders.attaching;
    char text[TEXT_SIZE < LOOK_NAME ? LOOK_NAME : TEXT_SIZE];
    text_item("state", "%s: %s", look_state_name(l->state),
              l->commits && l->state == LOOK_RECOVERY_DUE ? "the next map finishes a commit"
                                                          : look_state_meaning(l->state));
    if (l->problem[0])
        text_item("problem", "%s", l->problem);
    if (*next)
        text_item("next", "%s", next);
    text_item("size", "%s", text_size(text, l->identity.size));
    if (f->has_record && l->manifest.has_size && l->manifest.size != l->identity.size)
        text_item("logical", "%s", text_size(text, l->manifest.size));
    if (l->cut_growth && !busy)
        text_item("", "its growth was interrupted; the next map undoes it");
    if (l->cut_shrink && !busy)
        text_item("", "it was made shorter; the next map truncates it");
    text_item("", "takes %s", text_size(text, l->storage));
    if (f->has_record)
        say_pairing(f);
    for (unsigned i = 0; i < l->holders.count && i < LOOK_HOLDERS; i++)
        text_item("mapped by", "%s", look_holder_name(text, &l->holders.first[i]));
    if (l->holders.readers)
        text_item("mapped by", "processes that may only read it");
    say_lock(&f->lock);
    if (l->holders.attaching)
        text_item("", "a process is mapping, unmapping or recovering it now");
}

static int do_file(const char *name, const struct tool_request *request, struct json *j)
{
    static struct facts f;
    struct outcome o = {.name = name, .result = DONE};
    char next[LOOK_NEXT], word[TEXT_WORD], way[TEXT_WORD + 64] = "";
    if (gather(&f, name) < 0) {
        outcome_set(&o, BLIND, "%s", report_sentence());
        outcome_show(&o, request, j, "%s", "");
        return TOOL_BLIND;
    }
    const bool is_database =
        f.has_record && f.look.manifest.record.guard.bytes && look_is_masked(f.look.fd);
    look_next(next, &f.look, name);
    if (f.look.state < LOOK_COPIED)
        (void)snprintf(way, sizeof(way),
                       f.look.state == LOOK_IN_USE
                           ? "; the last close makes it plain, 'ato deploy %s' does after a kill"
                           : "; 'ato deploy %s' makes it plain",
                       text_word(word, name));
    outcome_show(&o, request, j, "%s%s",
                 is_database ? "an SQLite database that only the VFS ato reads" : "",
                 is_database ? way : "");
    write_json(j, &f, next);
    if (!j->out)
        say(&f, next);
    look_close(&f.look);
    return TOOL_GOOD;
}

static int run(const struct tool_request *request)
{
    return each_run(request, "info", do_file);
}

const struct tool_command info_command = {
    .name = "info",
    .operands = "FILE...",
    .what = "state, sizes and processes of a file",
    .help = "Shows for each FILE its state, sizes, format, durability domain, the slices of 64\n"
            "bytes whose valid copy is in the reflection, and the processes that have it mapped.\n"
            "In all states but plain, born and deployed, other programs may see older bytes;\n"
            "'next' names the steps that make the file plain. Changes nothing, and waits for no\n"
            "process.\n",
    .least = 1,
    .options = HAS(JSON),
    .run = run,
};
