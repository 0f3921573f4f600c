/* SPDX-License-Identifier: BSD-3-Clause */
#include "journal.h"

#include "checksum.h"
#include "report.h"

#include <errno.h>
#include <string.h>

enum { RETIRED = 64, FILES = 128 };

static char *lane_at(const struct journal *j, unsigned lane)
{
    return j->bytes + 4096 + lane * j->lane_bytes;
}

static uint64_t lane_size(const struct journal *j, unsigned lane)
{
    return lane + 1 == j->lanes ? j->large_bytes : j->lane_bytes;
}

uint64_t journal_capacity(const struct journal *j, unsigned lane, unsigned files)
{
    return (lane_size(j, lane) - FILES - files * sizeof(struct journal_file)) /
           sizeof(struct journal_word);
}

static void adopt(struct journal *j, void *bytes, const struct journal_header *h)
{
    j->bytes = bytes;
    j->lanes = h->lanes + 1;
    j->lane_bytes = h->lane_bytes;
    j->large_bytes = h->large_bytes;
    j->domain = h->domain;
}

void journal_make(const struct persist *p, struct journal *j, void *bytes, const uint8_t id[16])
{
    struct journal_header h = {.magic = JOURNAL_MAGIC,
                               .version = JOURNAL_VERSION,
                               .lanes = JOURNAL_LANES,
                               .lane_bytes = JOURNAL_LANE_BYTES,
                               .large_bytes = JOURNAL_LARGE_BYTES,
                               .domain = p->domain};
    memcpy(h.id, id, 16);
    h.checksum = checksum(&h, offsetof(struct journal_header, checksum));
    persist_copy(p, bytes, &h, sizeof(h));
    adopt(j, bytes, &h);
}

bool journal_is_at(const void *bytes)
{
    uint64_t magic;
    memcpy(&magic, bytes, sizeof(magic));
    return magic == JOURNAL_MAGIC;
}

int journal_take(struct journal *j, void *bytes, size_t n, const char *name)
{
    struct journal_header h;
    if (n < 4096)
        return report_error(EUCLEAN, "journal %s is shorter than its header", name);
    memcpy(&h, bytes, sizeof(h));
    if (h.magic != JOURNAL_MAGIC ||
        h.checksum != checksum(&h, offsetof(struct journal_header, checksum)))
        return report_error(EUCLEAN, "journal %s has no valid header", name);
    if (h.version != JOURNAL_VERSION || h.folders != 0)
        return report_error(EUCLEAN, "journal %s is of version %u, this library reads %u", name,
                            h.version, JOURNAL_VERSION);
    uint64_t room = n - 4096;
    if (h.lanes == 0 || h.lanes > 4096 || h.lane_bytes % 64 || h.lane_bytes < 4096 ||
        h.large_bytes % 8 || h.large_bytes < 4096 || h.lane_bytes > room / h.lanes ||
        h.large_bytes > room - h.lanes * h.lane_bytes || h.domain < PERSIST_PMEM ||
        h.domain > PERSIST_PROCESS)
        return report_error(EUCLEAN, "journal %s has a header that makes no sense", name);
    adopt(j, bytes, &h);
    return 0;
}

static uint64_t line_checksum(const struct journal_commit *line)
{
    return checksum(line, offsetof(struct journal_commit, checksum));
}

void journal_begin(struct journal_writer *w, const struct journal *j, const struct persist *p,
                   unsigned lane, const struct journal_file *files, unsigned nfiles, uint64_t words)
{
    w->journal = j;
    w->persist = p;
    w->lane = lane_at(j, lane);
    w->sequence = *(uint64_t *)(w->lane + RETIRED) + 1;
    w->line =
        (struct journal_commit){.sequence = w->sequence, .files = nfiles, .words = (uint32_t)words};
    w->checksum = checksum_add(line_checksum(&w->line), files, nfiles * sizeof(*files));
    w->at = w->lane + FILES;
    w->buffered = 0;
    persist_copy(p, w->at, files, nfiles * sizeof(*files));
    w->at += nfiles * sizeof(*files);
}

static void drain(struct journal_writer *w)
{
    size_t n = w->buffered * sizeof(w->buffer[0]);
    w->checksum = checksum_add(w->checksum, w->buffer, n);
    persist_copy(w->persist, w->at, w->buffer, n);
    w->at += n;
    w->buffered = 0;
}

void journal_add(struct journal_writer *w, unsigned file, uint64_t word_offset, uint64_t value)
{
    w->buffer[w->buffered++] = (struct journal_word){word_offset | (uint64_t)file << 56, value};
    if (w->buffered == sizeof(w->buffer) / sizeof(w->buffer[0]))
        drain(w);
}

int journal_finish(struct journal_writer *w)
{
    if (w->buffered)
        drain(w);
    w->line.checksum = w->checksum;
    return persist_flush_data(w->persist, w->lane + FILES, (size_t)(w->at - w->lane - FILES));
}

int journal_commit(struct journal_writer *w)
{
    /* persist-order J2 (reader: journal_look, R2): the commit line is durable before the first word
     * of the commit changes; otherwise a cut between two flips would have nothing to finish them.
     */
    persist_line(w->persist, w->lane, (const char *)&w->line);
    if (persist_flush_data(w->persist, w->lane, sizeof(w->line)) < 0)
        return -1;
    persist_fence(w->persist);
    return 0;
}

static int retire(const struct persist *p, uint64_t *retired, uint64_t sequence)
{
    persist_store_word(p, retired, sequence);
    if (persist_flush_word(p, retired) < 0)
        return -1;
    /* persist-order J3 (reader: journal_look, R2): retired durably before any page of the commit is
     * released, or the lane is used again: a replay would undo newer flips. */
    persist_fence(p);
    return 0;
}

int journal_retire(struct journal_writer *w)
{
    return retire(w->persist, (uint64_t *)(w->lane + RETIRED), w->sequence);
}

int journal_retire_view(const struct persist *p, const struct journal_view *v)
{
    return retire(p, v->retired, v->sequence);
}

int journal_settle(const struct journal *j, const struct persist *p, unsigned lane)
{
    char *at = lane_at(j, lane);
    struct journal_commit line;
    memcpy(&line, at, sizeof(line));
    /* persist-order R2 (writers: J2, J3): a killed writer may have stored its commit line or its
     * `retired` and not fenced it. Whichever way this recovery decides, a power cut after it must
     * find the same lane. Idle lanes have nothing but their first two lines to settle. */
    size_t n = FILES;
    if (line.files <= JOURNAL_MAX_FILES && line.words <= journal_capacity(j, lane, line.files))
        n += line.files * sizeof(struct journal_file) + line.words * sizeof(struct journal_word);
    if (persist_flush_any(p, at, n) < 0)
        return -1;
    persist_fence(p);
    return 0;
}

enum journal_finding journal_look(const struct journal *j, unsigned lane, struct journal_view *v)
{
    char *at = lane_at(j, lane);
    struct journal_commit line;
    memcpy(&line, at, sizeof(line));
    v->retired = (uint64_t *)(at + RETIRED);
    v->sequence = line.sequence;
    if (line.sequence == *v->retired)
        return JOURNAL_IDLE;
    if (line.sequence != *v->retired + 1)
        return JOURNAL_DAMAGED;
    if (line.files > JOURNAL_MAX_FILES || line.words > journal_capacity(j, lane, line.files))
        return JOURNAL_DAMAGED;
    if (line.files == 0 || line.words == 0)
        return JOURNAL_IDLE; /* the first commit of this lane, torn within its line */
    v->nfiles = line.files;
    v->nwords = line.words;
    v->files = (const struct journal_file *)(at + FILES);
    v->words = (const struct journal_word *)(v->files + v->nfiles);
    uint64_t h = checksum_add(line_checksum(&line), v->files, v->nfiles * sizeof(*v->files));
    h = checksum_add(h, v->words, v->nwords * sizeof(*v->words));
    if (h != line.checksum)
        return JOURNAL_IDLE; /* cut while it was written: never committed */
    for (unsigned i = 0; i < v->nfiles; i++)
        if (v->files[i].folder != 0)
            return JOURNAL_DAMAGED;
    for (uint64_t i = 0; i < v->nwords; i++)
        if (journal_word_file(&v->words[i]) >= v->nfiles || journal_word_offset(&v->words[i]) % 8)
            return JOURNAL_DAMAGED;
    return JOURNAL_COMMITTED;
}
