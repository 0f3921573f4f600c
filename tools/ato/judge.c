/* SPDX-License-Identifier: BSD-3-Clause */
/* Judges what look.c has found of a file: in which state is it, and what keeps it from being mapped? */
#include "look.h"

#include "lib/file/shared.h"
#include "reflection/format/layout.h"
#include "reflection/format/log.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/guard.h"
#include "reflection/pairing/length.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void look_judge_as(struct look *l, enum look_state state, unsigned ways, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(l->problem, sizeof(l->problem), format, args);
    va_end(args);
    l->state = state;
    l->ways = ways;
}

/* Returns true if the file is right, even if other programs wrote to it (adopt_anew()). */
static bool lost_nothing(const struct look *l)
{
    return guard_is_off(l->fd, &l->manifest.record.guard) && l->manifest.has_size &&
           !l->manifest.shrunk && l->reflection >= 0 &&
           layout_fits(l->manifest.record.format, l->manifest.size, l->reflection_length) &&
           meta_holds_slices(&l->folder, l->number) == 0;
}

/* Returns true if ato_mmap() would refuse the bitmaps of a reflection that no process has mapped. */
static bool has_bad_words(const struct look *l)
{
    const struct look_manifest *m = &l->manifest;
    struct look_words w;
    uint64_t page;
    struct log_file log;
    if (l->holders.count || l->holders.attaching)
        return false;
    if (m->record.format == LAYOUT_LOG)
        return log_open(&log, l->reflection) != 1;
    /* A killed process may have stored the words of a commit that makes the file longer, and not its size yet. */
    const uint64_t longest = growth_longest(m->size, m->shrunk),
                   most = longest > m->growth ? longest : m->growth;
    if (m->record.format == LAYOUT_DENSE)
        return meta_find_beyond(l->reflection, most, &page) == 1;
    return look_words(l->reflection, l->reflection_length, LAYOUT_SPARSE, most, &w) == 0 &&
           (w.words_twice || w.words_beyond || w.slices_beyond);
}

static int note_size(const struct log_file *log, const struct log_view *v, uint64_t slices,
                     void *size)
{
    (void)log, (void)slices;
    if (v->record.size != LOG_NO_SIZE)
        *(uint64_t *)size = v->record.size;
    return 0;
}

/* With a log the last record that says a size counts, until what it says is home. */
static void take_size_of_log(const struct look *l, struct look_manifest *m)
{
    struct log_file log;
    if (m->record.format != LAYOUT_LOG || m->record.state != MANIFEST_IN_USE || l->reflection < 0 ||
        log_open(&log, l->reflection) != 1)
        return;
    uint64_t at = log.header.start;
    (void)log_walk(&log, &at, UINT64_MAX, note_size, &m->size);
}

/* Judges by the sizes in the manifest, which belongs to the file. A side is named only if ato_mmap() then takes it. */
static void judge_sizes(struct look *l)
{
    const struct manifest_record *r = &l->manifest.record;
    take_size_of_log(l, &l->manifest);
    const uint64_t longest = growth_longest(l->manifest.size, l->manifest.shrunk);
    l->cut_growth = l->manifest.has_size &&
                    growth_was_cut(l->fd, l->identity.size, longest, l->manifest.growth) == 1;
    l->cut_shrink = l->manifest.has_size && l->manifest.shrunk &&
                    l->identity.size >= l->manifest.size &&
                    (l->identity.size <= longest || l->cut_growth);
    if (!l->manifest.has_size)
        look_judge_as(l, LOOK_DAMAGED, WAY_FILE | WAY_BRING_BACK,
                      "the logical size in its manifest is damaged");
    else if (l->identity.size != l->manifest.size && !l->cut_growth && !l->cut_shrink &&
             !lost_nothing(l))
        look_judge_as(l, LOOK_DAMAGED, WAY_FILE | WAY_RESIZE,
                      "is %" PRIu64 " bytes long, its manifest says %" PRIu64
                      ": it was cut, lengthened or replaced by other means",
                      l->identity.size, l->manifest.size);
    else if (l->reflection < 0 && l->reflection_error == ENOENT)
        look_judge_as(l, LOOK_DAMAGED, WAY_FILE | WAY_BRING_BACK,
                      "its reflection %s/%" PRIu64 " is missing", l->folder.path, l->number);
    else if (l->reflection < 0)
        look_judge_as(l, LOOK_DAMAGED, 0, "its reflection %s/%" PRIu64 " cannot be opened: %s",
                      l->folder.path, l->number, report_reason(l->reflection_error));
    else if (!layout_fits(r->format, l->manifest.size, l->reflection_length))
        look_judge_as(
            l, LOOK_DAMAGED, WAY_FILE | WAY_BRING_BACK,
            "its reflection %s/%" PRIu64 " is %" PRIu64 " bytes long, it should be %" PRIu64 "%s",
            l->folder.path, l->number, l->reflection_length,
            layout_reflection_bytes(r->format, l->manifest.size), look_or_more(r->format));
    else if ((l->bad_words = has_bad_words(l)))
        look_judge_as(l, LOOK_DAMAGED, WAY_FILE | WAY_BRING_BACK,
                      "its reflection %s/%" PRIu64 " is damaged: %s", l->folder.path, l->number,
                      r->format == LAYOUT_LOG
                          ? "as a log it has no valid header"
                          : "it has two bitmaps of a page, or one with slices beyond the end");
    else if (r->state == MANIFEST_CLEAN && !identity_unwritten(&l->identity, r) && !lost_nothing(l))
        look_judge_as(
            l, LOOK_DAMAGED,
            WAY_FILE | (l->identity.size == r->clean_size ? WAY_REFLECTION : WAY_RESIZE),
            "was written by other means since it was unmapped, while its reflection may hold "
            "parts of it");
}

static void judge_own(struct look *l)
{
    const struct manifest_record *r = &l->manifest.record;
    bool used = l->holders.count || l->holders.attaching;
    if (r->state == MANIFEST_DEPLOYED) {
        l->state = LOOK_DEPLOYED; /* whatever else is there */
        return;
    }
    if (r->state == MANIFEST_CLEAN)
        l->state = LOOK_CLEAN;
    else
        l->state = used ? LOOK_IN_USE : LOOK_RECOVERY_DUE;
    judge_sizes(l);
    if (l->state == LOOK_RECOVERY_DUE && !identity_same_inode(&l->identity, r) &&
        !area_is_copy(l->manifest.fd, r))
        look_judge_as(
            l, LOOK_DAMAGED, WAY_FILE | WAY_REFLECTION,
            "was replaced by a backup of an earlier moment, while its reflection holds parts "
            "of the later content");
    if ((l->state == LOOK_RECOVERY_DUE || l->state == LOOK_IN_USE) &&
        guard_was_overwritten(l->fd, l->reflection, &r->guard, r->format, l->manifest.size,
                              l->path))
        look_judge_as(
            l, LOOK_DAMAGED, WAY_FILE | WAY_REFLECTION,
            "was overwritten by another program while libato held it: its guarded bytes have "
            "no mask, and its reflection holds parts of the content from before");
}

/* Of a restored file: could its reflection be used? */
static void judge_apart(struct look *l)
{
    const struct manifest_record *r = &l->manifest.record;
    judge_sizes(l);
    if (l->problem[0] && !(l->ways & WAY_REFLECTION)) {
        l->state = LOOK_APART; /* restored at another time than its reflection */
        l->ways &= ~(unsigned)WAY_RESIZE;
        return;
    }
    l->is_mixed = guard_was_overwritten(l->fd, l->reflection, &r->guard, r->format,
                                        l->manifest.size, l->path) > 0;
    if (l->orphan == ORPHAN_BEGUN)
        look_judge_as(l, LOOK_APART, WAY_MAP,
                      "was restored, and is not joined completely with its reflection %s/%" PRIu64
                      ", which the next map finishes",
                      l->folder.path, l->number);
    else
        look_judge_as(
            l, LOOK_APART, WAY_FILE | WAY_REFLECTION,
            "was restored or copied, and its reflection %s/%" PRIu64
            ", made for another inode number, holds parts of the content%s",
            l->folder.path, l->number,
            l->is_mixed
                ? "; its guarded bytes have no mask: another file may have been copied over it"
                : "");
}

/* Returns true if the library would believe the manifest and the reflection, by their owners and modes. */
static bool is_trusted(struct look *l)
{
    struct pairing_names n = pairing_names(l->number);
    if (ownership_check(&l->identity.trust, l->manifest.fd, l->folder.path, n.manifest) == 0 &&
        (l->reflection < 0 ||
         ownership_check(&l->identity.trust, l->reflection, l->folder.path, n.reflection) == 0))
        return true;
    look_judge_as(l, LOOK_DAMAGED, 0, "%s", report_sentence());
    return false;
}

void look_judge(struct look *l)
{
    const struct look_manifest *m = &l->manifest;
    const char *folder = l->folder.path;
    uint64_t inode = l->identity.inode;
    bool has = l->has_attribute == ATTRIBUTE_FOUND;
    if (l->orphan == ORPHAN_SEVERAL) {
        look_judge_as(
            l, LOOK_APART, 0,
            "was restored without its attribute user.ato, and it is not known which reflection in "
            "%s is its own: several files or reflections have that size. Restore it with its "
            "attributes, or move the other files, and the other reflections (NUMBER and "
            "NUMBER.manifest), to another folder",
            folder);
        return;
    }
    if (m->fd < 0 && has) {
        l->holders.count = shared_is_used(l->attribute.id, &l->identity.trust) > 0;
        look_judge_as(l, LOOK_LOST, WAY_FILE | WAY_BRING_BACK,
                      "its attribute says that its reflection lies in '%s', and there is no such "
                      "reflection there%s",
                      l->attribute.folder,
                      l->holders.count
                          ? ": that was removed or moved while a process has the file mapped"
                          : "");
    }
    if (m->fd < 0)
        return;
    if (!is_trusted(l))
        return;
    if (l->orphan != ORPHAN_NONE) {
        judge_apart(l);
        return;
    }
    /* The attribute is set when the manifest has a record. */
    if (m->found == MANIFEST_DAMAGED || (m->found == MANIFEST_UNBORN && has)) {
        look_judge_as(l, LOOK_DAMAGED, WAY_FILE | WAY_BRING_BACK,
                      "the manifest %s/%" PRIu64 ".manifest is %s: neither of its copies is valid",
                      folder, inode, m->length ? "damaged" : "empty");
        return;
    }
    if (m->found == MANIFEST_FOREIGN) {
        look_judge_as(l, LOOK_DAMAGED, 0,
                      "the manifest %s/%" PRIu64
                      ".manifest is of version %u and format %u, which are not known; %s",
                      folder, inode, m->record.version, m->record.format,
                      manifest_advice(m->record.version));
        return;
    }
    if (m->found == MANIFEST_UNBORN) {
        l->state = LOOK_BORN;
        return;
    }
    /* The attribute, which has the manifest's id, counts more than the birth time. */
    bool same = has || identity_same_inode(&l->identity, &m->record);
    bool known = l->identity.known;
    if (!same) {
        if (orphan_holds(&l->folder, l->number, m->fd, &m->record, -1) &&
            (area_is_copy(m->fd, &m->record) ||
             orphan_is_claimed(&l->folder, l->path, l->identity.inode, &m->record)))
            look_judge_as(l, LOOK_DAMAGED, WAY_RENUMBER,
                          "has the inode number in the name of the reflection %s/%" PRIu64
                          ", which belongs to another restored file",
                          folder, inode);
        else
            look_judge_as(l, LOOK_PLAIN, 0,
                          "the reflection %s/%" PRIu64
                          " belonged to another file that had this inode "
                          "number before; the next map sets it aside",
                          folder, inode);
    } else if (!has && m->record.state != MANIFEST_DEPLOYED &&
               (!known || (l->has_attribute == ATTRIBUTE_NONE &&
                           (m->record.known & MANIFEST_KNOWS_ATTRIBUTE)))) {
        /* Without content its birth was cut before it got the attribute. */
        if (known && m->record.state == MANIFEST_IN_USE &&
            meta_holds_slices(&l->folder, inode) == 0) {
            l->state = LOOK_BORN;
            return;
        }
        if (known)
            judge_own(l); /* could the reflection be used? */
        const unsigned may = known && l->problem[0] ? l->ways : known ? WAY_REFLECTION : 0;
        look_judge_as(l, LOOK_DAMAGED, WAY_FILE | (may & WAY_REFLECTION),
                      "has a reflection %s/%" PRIu64 ", but %s", folder, inode,
                      known ? "its attribute user.ato was taken away"
                            : "nothing tells that it belongs to this file");
    } else {
        judge_own(l);
    }
}
