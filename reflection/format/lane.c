/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/format/lane.h"

#include "reflection/format/checksum.h"
#include "reflection/format/manifest.h"

#include <string.h>

enum { RETIRED = 64 };

static bool fits(const struct lane *lane, const struct lane_commit *line)
{
    return lane->bytes > LANE_HEAD_BYTES &&
           line->words <= (lane->bytes - LANE_HEAD_BYTES) / sizeof(struct lane_word);
}

static uint64_t line_checksum(const struct lane_commit *line)
{
    return checksum(line, offsetof(struct lane_commit, checksum));
}

/* ---- writing ---- */

void lane_begin(struct lane_writer *w, const struct persist *p, const struct lane *lane,
                uint64_t retired, uint64_t words)
{
    assert(words <= (lane->bytes - LANE_HEAD_BYTES) / sizeof(struct lane_word));
    w->persist = p;
    w->lane = lane->at;
    w->line = (struct lane_commit){.sequence = retired + 1, .words = words};
    w->line.checksum = line_checksum(&w->line);
    w->at = lane->at + LANE_HEAD_BYTES;
}

void lane_add(struct lane_writer *w, uint64_t offset, uint64_t value)
{
    const struct lane_word word = {offset, value};
    w->line.checksum = checksum_add(w->line.checksum, &word, sizeof(word));
    persist_copy(w->persist, w->at, &word, sizeof(word));
    w->at += sizeof(word);
}

int lane_commit(struct lane_writer *w)
{
    /* persist-order J2 (reader: lane_look, R2): the commit line is durable before the first word of
     * the commit changes. Otherwise the commit could not be finished after an interruption between two
     * flips. */
    persist_line(w->persist, w->lane, (const char *)&w->line);
    persist_fence(w->persist);
    return 0;
}

int lane_retire(struct lane_writer *w)
{
    uint64_t *retired = (uint64_t *)(w->lane + RETIRED);
    persist_store_word(w->persist, retired, w->line.sequence);
    if (persist_flush_word(w->persist, retired) < 0)
        return -1;
    /* persist-order J3 (reader: lane_look, R2): `retired` is durable before any page of the commit is
     * released, or the lane is used again. Otherwise a replay would undo newer flips. */
    persist_fence(w->persist);
    return 0;
}

/* ---- reading ---- */

int lane_settle(const struct lane *lane, const struct persist *p)
{
    struct lane_commit line;
    memcpy(&line, lane->at, sizeof(line));
    /* Of an idle lane only the first two lines matter. */
    const size_t list = fits(lane, &line) ? line.words * sizeof(struct lane_word) : 0;
    return persist_flush_any(p, lane->at, LANE_HEAD_BYTES + list);
}

/* I5. Returns true if libato may have written the word. */
static bool makes_sense(const struct lane_word *at)
{
    const struct lane_word w = *at;
    uint64_t size;
    return w.word == LANE_SIZE ? manifest_decode_size(w.value, &size)
                               : w.word < LANE_SIZE && w.word % 8 == 0;
}

enum lane_finding lane_look(const struct lane *lane, struct lane_view *v)
{
    const uint64_t retired = lane_retired(lane);
    const char *list = lane->at + LANE_HEAD_BYTES;
    struct lane_commit line;
    memcpy(&line, lane->at, sizeof(line));
    v->sequence = retired + 1;
    const bool is_next = line.sequence == v->sequence, in_lane = fits(lane, &line);
    if (line.sequence > v->sequence || (is_next && !in_lane))
        return LANE_DAMAGED;
    if (line.sequence == 0 && line.checksum == 0)
        return LANE_IDLE; /* never used */
    /* Without words: the lane's first commit, torn within its line. */
    if (!in_lane || line.words == 0 ||
        checksum_add(line_checksum(&line), list, line.words * sizeof(struct lane_word)) !=
            line.checksum)
        return LANE_CUT;
    if (!is_next)
        return line.sequence == retired ? LANE_IDLE : LANE_CUT;
    v->nwords = line.words;
    v->words = (const struct lane_word *)list;
    for (uint64_t i = 0; i < v->nwords; i++)
        if (!makes_sense(&v->words[i]))
            return LANE_DAMAGED;
    return LANE_COMMITTED;
}
