/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks whether manifest, reflection, attribute and file are valid and agree with each other. */
#include "check.h"

#include "reflection/format/layout.h"
#include "reflection/format/log.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* ---- the manifest ---- */

static const char empty[] = "is empty";

/* Returns why a copy is not valid, as if it were the only one; NULL if it is valid. */
static const char *why_not(const char *copy, struct manifest_record *r)
{
    static const struct manifest_record none;
    static _Alignas(8) char alone[MANIFEST_BYTES];
    int which;
    if (memcmp(copy, &none, sizeof(none)) == 0)
        return empty;
    memcpy(alone, copy, sizeof(*r));
    const enum manifest_finding found = manifest_read(alone, r, &which);
    return found == MANIFEST_VALID     ? NULL
           : found == MANIFEST_FOREIGN ? "has an unknown version"
                                       : "has a wrong checksum or an invalid field";
}

static void check_copies(struct check *c, const char *name, const struct look_manifest *m)
{
    struct manifest_record r[2];
    const char *why[2];
    for (int i = 0; i < 2; i++)
        why[i] = why_not(m->bytes + i * MANIFEST_COPY_BYTES, &r[i]);
    if (why[0] && why[1]) {
        finding_add(&c->findings, FINDING_ERROR, name,
                    "the manifest is damaged: copy A, at 0, %s; copy B, at 4096, %s", why[0],
                    why[1]);
        return;
    }
    for (int i = 0; i < 2; i++) {
        /* B is first written with the second record. */
        if (why[i] && !(i == 1 && why[i] == empty))
            finding_add(&c->findings, FINDING_WARNING, name,
                        "copy %c of the manifest, at %d, %s; the other one is valid", "AB"[i],
                        i * MANIFEST_COPY_BYTES, why[i]);
    }
    if (why[0] || why[1])
        return;
    if (memcmp(r[0].id, r[1].id, 16) != 0)
        finding_add(&c->findings, FINDING_ERROR, name,
                    "the two copies of the manifest have different ids");
    if (r[0].sequence + 1 != r[1].sequence && r[1].sequence + 1 != r[0].sequence)
        finding_add(&c->findings, FINDING_WARNING, name,
                    "the two copies of the manifest have sequences %" PRIu64 " and %" PRIu64
                    ", which do not follow each other",
                    r[0].sequence, r[1].sequence);
}

void check_manifest(struct check *c, const char *name, const struct look_manifest *m)
{
    if (m->found == MANIFEST_UNBORN) {
        finding_add(&c->findings, FINDING_NOTE, name,
                    "the manifest is empty: the making of a reflection was interrupted");
        return;
    }
    if (m->found == MANIFEST_FOREIGN) {
        finding_add(&c->findings, FINDING_ERROR, name,
                    "the manifest has version %u and format %u, which this program does not know; "
                    "%s",
                    m->record.version, m->record.format, manifest_advice(m->record.version));
        return;
    }
    check_copies(c, name, m);
    if (m->found != MANIFEST_VALID)
        return;
    if (m->length < MANIFEST_BYTES)
        finding_add(&c->findings, FINDING_ERROR, name,
                    "the manifest is %" PRIu64 " bytes long, it must be at least %d", m->length,
                    MANIFEST_BYTES);
    if (!m->has_size)
        finding_add(&c->findings, FINDING_ERROR, name,
                    "the size words of the manifest, at %d, are damaged", MANIFEST_SIZE_WORD);
}

/* ---- the reflection ---- */

/* busy: a process has the file mapped. */
static void check_reflection(struct check *c, const char *name, int reflection, uint64_t length,
                             const struct look_manifest *m, bool busy)
{
    static char now[MANIFEST_BYTES];
    struct look_words w;
    if (m->found != MANIFEST_VALID || !m->has_size)
        return; /* the manifest does not tell what to expect */
    int looked = look_words(reflection, length, m->record.format, m->size, &w);
    memset(now, 0, sizeof(now));
    if (pread(m->fd, now, sizeof(now), 0) < 0 || memcmp(now, m->bytes, sizeof(now)) != 0)
        return; /* the file grows or is being unmapped: what was read is inconsistent */
    const uint32_t format = m->record.format;
    struct log_file log;
    const bool no_log = format == LAYOUT_LOG && !busy && log_open(&log, reflection) != 1;
    if (no_log)
        finding_add(&c->findings, FINDING_ERROR, name, "the log has no valid header");
    const uint64_t need = layout_reflection_bytes(format, m->size);
    const bool fits = layout_fits(format, m->size, length);
    /* After an interrupted growth, or before a shrink truncates it, the reflection is longer; and a sparse one is never truncated. */
    if ((!fits && !no_log) || (length > need && !m->growth && !m->shrunk && format == LAYOUT_DENSE))
        finding_add(&c->findings, fits ? FINDING_WARNING : FINDING_ERROR, name,
                    "the reflection is %" PRIu64 " bytes long, it should be %" PRIu64 "%s", length,
                    need, look_or_more(format));
    if (looked < 0) {
        finding_add(&c->findings, FINDING_BLIND, name, "%s", report_sentence());
        return;
    }
    if (w.words_twice && !busy) /* else a page may have moved from place to place meanwhile */
        finding_add(&c->findings, FINDING_ERROR, name,
                    "%" PRIu64
                    " bitmap words are of pages that have another one, the first is of page "
                    "%" PRIu64,
                    w.words_twice, w.first_twice);
    /* A shrink has not cleared them yet, or a commit that makes the file longer has stored them, and not the size. */
    const bool may_be_beyond = m->shrunk || m->growth > m->size;
    if (w.words_beyond && !may_be_beyond)
        finding_add(&c->findings, FINDING_ERROR, name,
                    "%" PRIu64 " bitmap words of pages beyond the end are not 0, the first is of "
                    "page %" PRIu64,
                    w.words_beyond, w.first_beyond);
    if (w.slices_beyond && !may_be_beyond)
        finding_add(&c->findings, FINDING_ERROR, name,
                    "the bitmap word of the last page, %" PRIu64 ", names %" PRIu64
                    " slices beyond the end",
                    layout_pages(m->size) - 1, w.slices_beyond);
}

/* ---- with the file ---- */

void check_look(struct check *c, const char *name, const struct look *l)
{
    enum severity severity = FINDING_ERROR;
    char next[LOOK_NEXT];
    if (l->manifest.fd < 0 && l->state == LOOK_PLAIN) {
        c->plain++;
        return;
    }
    c->paired++;
    c->findings.next = look_next(next, l, name);
    bool own = l->manifest.fd >= 0 && l->state != LOOK_PLAIN && l->state != LOOK_COPIED &&
               !(l->state == LOOK_DAMAGED && l->manifest.found == MANIFEST_UNBORN);
    if (l->state == LOOK_PLAIN)
        severity = FINDING_WARNING;
    bool busy = l->holders.attaching || l->holders.count;
    if (own && !(busy && l->manifest.found == MANIFEST_UNBORN))
        check_manifest(c, name, &l->manifest);
    bool told = own && l->manifest.found != MANIFEST_VALID; /* by check_manifest() */
    if (own && !check_lanes(c, name, &l->folder, &l->manifest,
                            l->reflection < 0 ? 0 : l->reflection_length))
        told = true;
    if (own && l->manifest.found == MANIFEST_VALID) {
        if (l->reflection >= 0)
            check_reflection(c, name, l->reflection, l->reflection_length, &l->manifest, busy);
        told |= !l->manifest.has_size || l->bad_words ||
                (l->reflection >= 0 &&
                 !layout_fits(l->manifest.record.format, l->manifest.size, l->reflection_length));
        /* A reflection that does not exist yet, or not any more, is not a finding. */
        if (l->reflection < 0 && l->reflection_error == EACCES) {
            finding_add(&c->findings, FINDING_BLIND, name, "no permission to read its reflection");
            told = true;
        }
    }
    if (l->problem[0] && !told)
        finding_add(&c->findings, severity, name, "%s", l->problem);
    c->findings.next = "";
    if (l->cut_growth && !busy)
        finding_add(&c->findings, FINDING_NOTE, name,
                    "its growth from %" PRIu64 " bytes to %" PRIu64
                    " was interrupted; the next map or 'ato deploy' undoes it",
                    l->manifest.size, l->manifest.growth);
    if (l->cut_shrink && !busy)
        finding_add(&c->findings, FINDING_NOTE, name,
                    "it was made shorter, from %" PRIu64 " bytes to %" PRIu64
                    ", but not truncated yet; the next map or 'ato deploy' truncates it",
                    l->manifest.shrunk, l->manifest.size);
    if (!busy &&
        (l->state == LOOK_BORN || l->state == LOOK_DEPLOYED || l->state == LOOK_RECOVERY_DUE) &&
        l->manifest.found == MANIFEST_VALID)
        finding_add(&c->findings, FINDING_NOTE, name, "%s: %s", look_state_name(l->state),
                    look_state_meaning(l->state));
    if (l->commits)
        finding_add(&c->findings, FINDING_NOTE, name, "recovery due: %u commit%s of a dead process",
                    l->commits, l->commits == 1 ? "" : "s");
}
