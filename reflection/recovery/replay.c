/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/replay.h"

#include "reflection/format/layout.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

/* ---- the files ---- */

int replay_open(struct replay *r, const struct pairing *own)
{
    *r = (struct replay){.own = own};
    persist_init(&r->persist, own->record.domain);
    r->fd = folder_open_file(&own->folder, own->names.reflection, O_RDWR, &own->identity.trust,
                             "the reflection");
    if (r->fd < 0)
        return errno != ENOENT ? -1
                               : report_error(ESTALE,
                                              "the reflection %s/%s, which has to be recovered, is "
                                              "missing",
                                              own->folder.path, own->names.reflection);
    const off_t length = fsops_length(r->fd);
    if (length < 0)
        return report_errno(errno, "cannot find the length of the reflection of %s", own->path);
    r->bytes = (uint64_t)length;
    /* Without bytes: of a file without pages. */
    if (r->bytes && !(r->map = folder_map(r->fd, O_RDWR, r->bytes, 0)))
        return report_errno(errno, "cannot map the reflection of %s", own->path);
    if (r->map)
        fault_watch(r->map, r->bytes, &r->faults);
    const off_t end = fsops_length(own->lock), areas = (off_t)manifest_area(MANIFEST_SLOTS);
    r->length = end < 0 ? 0 : (uint64_t)end;
    r->mapped = (uint64_t)(end < areas ? areas : end);
    r->manifest = end < 0 ? NULL : folder_map(own->lock, O_RDWR, r->mapped, 0);
    if (!r->manifest)
        return report_errno(errno, "cannot map the manifest of %s", own->path);
    fault_watch(r->manifest, r->mapped, &r->faults);
    return 0;
}

void replay_close(struct replay *r)
{
    KEEP_ERRNO();
    fault_unmap(r->map, r->bytes);
    fault_unmap(r->manifest, r->mapped);
    if (r->fd >= 0)
        close(r->fd);
}

/* ---- words ---- */

/* I5. Finds the place and value of a lane's i-th word. The word is copied and checked each time, since a user
 * that may write to the manifest could change it now. Returns the place; NULL with a sentence. */
static uint64_t *find_word(const struct lane_view *v, uint64_t i, const struct replay *to,
                           uint64_t *value)
{
    const struct lane_word w = *(const volatile struct lane_word *)&v->words[i];
    const uint32_t format = to->own->record.format;
    uint64_t size;
    *value = w.value;
    if (w.word != LANE_SIZE && !layout_is_word(format, w.word, to->bytes))
        return report_null(EUCLEAN,
                           "a lane in the manifest of %s names offset %" PRIu64
                           " of the reflection, which is %" PRIu64
                           " bytes long and has no bitmap word there",
                           to->own->path, w.word, to->bytes);
    if (w.word != LANE_SIZE)
        return (uint64_t *)(to->map + w.word);
    if (!manifest_decode_size(w.value, &size) || layout_reflection_bytes(format, size) > to->bytes)
        return report_null(EUCLEAN,
                           "a lane in the manifest of %s has the size word 0x%" PRIx64
                           " for a reflection of %" PRIu64
                           " bytes: that is not a valid size for it",
                           to->own->path, w.value, to->bytes);
    return (uint64_t *)(to->manifest + MANIFEST_SIZE_WORD);
}

int replay_apply(const struct lane_view *v, const struct replay *to)
{
    const struct persist *p = &to->persist;
    char *page = NULL;
    uint64_t value, *word;
    for (uint64_t i = 0; i < v->nwords; i++) {
        if (!(word = find_word(v, i, to, &value)))
            return -1;
        char *at = (char *)((uintptr_t)word & ~(uintptr_t)(PAGE_BYTES - 1));
        if (at == page)
            continue;
        /* In a copied reflection a meta page of zeros may be a hole. */
        page = at;
        if (domain_make_storable(PERSIST_DISK, page, PAGE_BYTES) < 0)
            return report_errno(errno, "cannot allocate the bitmaps of %s", to->own->path);
    }
    /* persist-order R1 (writer: W1 in lib/commit/commit.h): the bytes that these words make valid were durable
     * before the commit line existed, so the words may be stored in any order. I1.
     * explorer: tear word survives: the lane is committed until it is retired, and a process that finds
     * half of a word stores it again. */
    for (uint64_t i = 0; i < v->nwords; i++) {
        if (!(word = find_word(v, i, to, &value)))
            return -1;
        persist_store_word(p, word, value);
        if (persist_flush_word(p, word) < 0)
            return report_errno(errno, "cannot make the replayed words of %s durable",
                                to->own->path);
    }
    persist_fence(p);
    return 0;
}

/* ---- lanes ---- */

/* The steps, each for all lanes before the next one. */
enum step { SETTLE, CHECK, APPLY, RETIRE };

static int do_step(const struct replay *r, enum step step, const struct lane *lane)
{
    const char *path = r->own->path;
    struct lane_view v;
    if (step == SETTLE)
        return lane_settle(lane, &r->persist) < 0
                   ? report_errno(errno, "cannot make the manifest of %s durable", path)
                   : 0;
    const enum lane_finding found = lane_look(lane, &v);
    if (found == LANE_DAMAGED)
        return report_error(EUCLEAN, "a lane in the manifest of %s is damaged. " PAIRING_BRING_BACK,
                            path);
    if (step == APPLY && found == LANE_COMMITTED)
        return replay_apply(&v, r);
    struct lane_writer w = {
        .persist = &r->persist, .lane = lane->at, .line = {.sequence = v.sequence}};
    if (step == RETIRE && found != LANE_IDLE && lane_retire(&w) < 0)
        return report_errno(errno, "cannot make the manifest of %s durable", path);
    return 0;
}

int replay_slots(struct replay *r, unsigned first, unsigned last)
{
    const int lock = r->own->lock;
    for (enum step step = SETTLE; step <= RETIRE; step++) {
        for (unsigned slot = first; (slot = area_next(lock, slot)) <= last; slot++) {
            struct lane lanes[LANE_SMALL];
            char *const at = r->manifest + manifest_area(slot);
            const int64_t bytes = area_bytes(lock, slot, r->length);
            const uint64_t all = (uint64_t)bytes,
                           stored = all < MANIFEST_AREA_BYTES ? all : MANIFEST_AREA_BYTES;
            if (bytes < 0 || (step == SETTLE && bytes &&
                              (area_make_space(lock, slot, all) < 0 ||
                               domain_make_storable(PERSIST_DISK, at, stored) < 0)))
                return report_errno(errno, "cannot use the lanes in the manifest of %s",
                                    r->own->path);
            const unsigned n = area_lanes(slot, at, all, lanes);
            for (unsigned i = 0; i < n; i++)
                if (do_step(r, step, &lanes[i]) < 0)
                    return -1;
        }
        /* persist-order R2 (writers: J2, J3): a killed writer may have stored its commit line or its `retired` and not fenced
         * it. A recovery after a power cut must find the same lanes as this one. */
        if (step == SETTLE)
            persist_fence(&r->persist);
        /* What was stored to a page that could not be reached is lost: no lane is retired then. */
        if (replay_check(r) < 0)
            return -1;
    }
    return 0;
}

int replay_check(const struct replay *r)
{
    return r->faults.met
               ? report_error(EIO,
                              "another program made a file of %s, or of its folder %s, shorter "
                              "while it was recovered, or its medium failed",
                              r->own->path, r->own->folder.path)
               : 0;
}

int replay_all(const struct pairing *own)
{
    struct replay r;
    int done = replay_open(&r, own);
    if (done == 0)
        done = replay_slots(&r, 0, MANIFEST_SLOTS);
    if (done == 0)
        done = replay_check(&r);
    replay_close(&r);
    return done;
}
