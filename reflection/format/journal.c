/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/format/journal.h"

#include "reflection/format/checksum.h"
#include "reflection/format/manifest.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <string.h>

enum { RETIRED = 64, FILES = 128 };

static char *lane_at(const struct journal *j, unsigned lane)
{
    return j->lanes_at + lane * j->lane_bytes;
}

static uint64_t lane_size(const struct journal *j, unsigned lane)
{
    return lane + 1 == j->lanes ? j->large_bytes : j->lane_bytes;
}

uint64_t journal_capacity(const struct journal *j, unsigned lane, unsigned files)
{
    uint64_t room = lane_size(j, lane) - FILES, names = files * sizeof(struct journal_file);
    return names < room ? (room - names) / sizeof(struct journal_word) : 0;
}

/* Returns true if the counts of a commit are within its lane. */
static bool fits(const struct journal *j, unsigned lane, const struct journal_commit *line)
{
    return line->files <= JOURNAL_MAX_FILES &&
           line->files * sizeof(struct journal_file) <= lane_size(j, lane) - FILES &&
           line->words <= journal_capacity(j, lane, line->files);
}

/* Of n bytes, which are at least as many as its small lanes need. */
static void adopt(struct journal *j, void *bytes, const struct journal_header *h, uint64_t n)
{
    j->lanes_at = (char *)bytes + JOURNAL_HEADER_BYTES;
    j->lanes = h->lanes + 1;
    j->lane_bytes = h->lane_bytes;
    j->large_bytes = n - JOURNAL_HEADER_BYTES - h->lanes * h->lane_bytes;
    j->domain = h->domain;
}

void journal_make(const struct persist *p, struct journal *j, void *bytes, uint64_t number)
{
    struct journal_header h = {.magic = JOURNAL_MAGIC,
                               .version = JOURNAL_VERSION,
                               .lanes = JOURNAL_LANES,
                               .lane_bytes = JOURNAL_LANE_BYTES,
                               .domain = p->domain,
                               .number = number};
    h.checksum = checksum(&h, offsetof(struct journal_header, checksum));
    persist_copy(p, bytes, &h, sizeof(h));
    adopt(j, bytes, &h, journal_bytes(0));
}

struct journal journal_of_slot(void *bytes, enum persist_domain domain)
{
    return (struct journal){.lanes_at = bytes,
                            .lane_bytes = JOURNAL_SLOT_BYTES,
                            .large_bytes = JOURNAL_SLOT_BYTES,
                            .domain = domain,
                            .lanes = JOURNAL_SLOT_LANES};
}

int journal_take(struct journal *j, void *bytes, uint64_t n, uint64_t number, const char *name)
{
    struct journal_header h;
    if (n < JOURNAL_HEADER_BYTES)
        return report_error(EUCLEAN, "journal %s is shorter than its header", name);
    memcpy(&h, bytes, sizeof(h));
    /* Version 3 was a pool of libpmemobj, whose first bytes these are. */
    const bool is_pool = memcmp(bytes, "PMEMOBJ", 8) == 0;
    const uint32_t version = is_pool ? 3 : h.version;
    if (!is_pool && (h.magic != JOURNAL_MAGIC ||
                     h.checksum != checksum(&h, offsetof(struct journal_header, checksum))))
        return report_error(EUCLEAN, "journal %s has no valid header", name);
    if (version != JOURNAL_VERSION)
        return report_error(EUCLEAN, "journal %s has version %u, this library reads %u; %s", name,
                            version, JOURNAL_VERSION, manifest_advice(version, JOURNAL_VERSION));
    n = n < JOURNAL_MAX_BYTES ? n : JOURNAL_MAX_BYTES;
    const uint64_t room = n - JOURNAL_HEADER_BYTES;
    if (h.lanes == 0 || h.lanes > 4096 || h.lane_bytes % 64 || h.lane_bytes < 4096 ||
        h.lane_bytes > room / h.lanes || room - h.lanes * h.lane_bytes < 4096 ||
        h.domain < PERSIST_PMEM || h.domain > PERSIST_PROCESS)
        return report_error(EUCLEAN, "journal %s has an invalid header, or was cut off", name);
    if (h.number != number)
        return report_error(EUCLEAN, "the journal %s has another number: it was renamed", name);
    adopt(j, bytes, &h, n);
    return 0;
}

/* ---- writing ---- */

static uint64_t line_checksum(const struct journal_commit *line)
{
    return checksum(line, offsetof(struct journal_commit, checksum));
}

void journal_begin(struct journal_writer *w, const struct journal *j, const struct persist *p,
                   unsigned lane, unsigned files, uint64_t words)
{
    w->persist = p;
    w->lane = lane_at(j, lane);
    w->line = (struct journal_commit){
        .sequence = *(uint64_t *)(w->lane + RETIRED) + 1, .files = files, .words = (uint32_t)words};
    w->line.checksum = line_checksum(&w->line);
    w->at = w->lane + FILES;
}

static void append(struct journal_writer *w, const void *bytes, size_t n)
{
    w->line.checksum = checksum_add(w->line.checksum, bytes, n);
    persist_copy(w->persist, w->at, bytes, n);
    w->at += n;
}

void journal_name(struct journal_writer *w, const struct journal_file *file)
{
    append(w, file, sizeof(*file));
}

void journal_add(struct journal_writer *w, unsigned file, uint64_t word_offset, uint64_t value)
{
    append(w, &(struct journal_word){word_offset | (uint64_t)file << JOURNAL_WORD_FILE, value},
           sizeof(struct journal_word));
}

int journal_commit(struct journal_writer *w)
{
    /* persist-order J2 (reader: journal_look, R2): the commit line is durable before the first word of
     * the commit changes. Otherwise the commit could not be finished after an interruption between two
     * flips. */
    persist_line(w->persist, w->lane, (const char *)&w->line);
    /* In domain msync one flush serves the list, too: its checksum is in the line. */
    if (persist_flush_data(w->persist, w->lane, (size_t)(w->at - w->lane)) < 0)
        return -1;
    persist_fence(w->persist);
    return 0;
}

int journal_retire(struct journal_writer *w)
{
    uint64_t *retired = (uint64_t *)(w->lane + RETIRED);
    persist_store_word(w->persist, retired, w->line.sequence);
    if (persist_flush_word(w->persist, retired) < 0)
        return -1;
    /* persist-order J3 (reader: journal_look, R2): `retired` is durable before any page of the commit is
     * released, or the lane is used again. Otherwise a replay would undo newer flips. */
    persist_fence(w->persist);
    return 0;
}

/* ---- reading ---- */

int journal_settle(const struct journal *j, const struct persist *p, unsigned lane)
{
    char *at = lane_at(j, lane);
    struct journal_commit line;
    memcpy(&line, at, sizeof(line));
    size_t n = FILES; /* of an idle lane only the first two lines matter */
    if (fits(j, lane, &line))
        n += line.files * sizeof(struct journal_file) + line.words * sizeof(struct journal_word);
    return persist_flush_any(p, at, n);
}

/* I5. Returns true if libato may have written the word. */
static bool makes_sense(const struct journal_word *at, unsigned files)
{
    const struct journal_word w = *at;
    uint64_t size;
    if (journal_word_file(&w) >= files)
        return false;
    if (journal_word_is_size(&w))
        return journal_word_offset(&w) == MANIFEST_SIZE_WORD &&
               manifest_decode_size(w.value, &size);
    return journal_word_offset(&w) % 8 == 0;
}

/* Returns true if the checksum of the line, its files and its words, which fit, is right. */
static bool is_whole(const struct journal_commit *line, const char *files)
{
    size_t n =
        line->files * sizeof(struct journal_file) + line->words * sizeof(struct journal_word);
    return checksum_add(line_checksum(line), files, n) == line->checksum;
}

enum journal_finding journal_look(const struct journal *j, unsigned lane, struct journal_view *v)
{
    char *at = lane_at(j, lane);
    const uint64_t retired = *(const uint64_t *)(at + RETIRED);
    struct journal_commit line;
    memcpy(&line, at, sizeof(line));
    v->lane = at;
    v->sequence = retired + 1;
    const bool is_next = line.sequence == v->sequence, in_lane = fits(j, lane, &line);
    if (line.sequence > v->sequence || (is_next && !in_lane))
        return JOURNAL_DAMAGED;
    if (line.sequence == 0 && line.checksum == 0)
        return JOURNAL_IDLE; /* never used */
    /* Without files or words: the lane's first commit, torn within its line. */
    if (!in_lane || line.files == 0 || line.words == 0 || !is_whole(&line, at + FILES))
        return JOURNAL_CUT;
    if (!is_next)
        return line.sequence == retired ? JOURNAL_IDLE : JOURNAL_CUT;
    v->nfiles = line.files;
    v->nwords = line.words;
    v->files = (const struct journal_file *)(at + FILES);
    v->words = (const struct journal_word *)(v->files + v->nfiles);
    for (uint64_t i = 0; i < v->nwords; i++)
        if (!makes_sense(&v->words[i], v->nfiles))
            return JOURNAL_DAMAGED;
    return JOURNAL_COMMITTED;
}
