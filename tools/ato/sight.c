/* SPDX-License-Identifier: BSD-3-Clause */
#include "sight.h"

#include "lib/file/clock.h"

#include <string.h>
#include <unistd.h>

const struct sight_column sight_columns[SIGHT_COLUMNS] = {
    {COUNT_WRITES, "writes", "WRITES", 1, "Calls that wrote to the file"},
    {COUNT_READS, "reads", "READS", 1, "Calls that read it"},
    {COUNT_DEPLOYED_SLICES, "deployed_slices", "DEPLOYED", 1, "Slices that were deployed"},
    {COUNT_COMMITS_SINGLE, "commits_single", NULL, 1, "Commits of one bitmap word"},
    {COUNT_COMMITS_RTM, "commits_rtm", NULL, 1, "Commits by a hardware transaction"},
    {COUNT_COMMITS_JOURNAL, "commits_journal", NULL, 1,
     "Commits by a lane of the manifest, or on a disk by the log"},
    {COUNT_BYTES_TO_MEDIA, "bytes_to_media", "KIB", 1024, "Bytes that were stored"},
};

static struct doing *of_holder(struct sight *s, uint32_t holder)
{
    const unsigned slot = (holder & 0x7ff) - 1;
    return slot < MANIFEST_SLOTS && s->each[slot].holder == holder ? &s->each[slot] : NULL;
}

static void add_counters(struct doing *d, int fd, unsigned slot)
{
    static struct shared_thread threads[THREAD_SHARED + 1];
    const off_t at = SHARED_THREADS_AT + (off_t)slot * SHARED_THREADS_BYTES;
    if (pread(fd, threads, sizeof(threads), at) != (ssize_t)sizeof(threads))
        return;
    for (unsigned thread = 0; thread <= THREAD_SHARED; thread++)
        for (unsigned c = 0; c < COUNTERS; c++)
            d->of[c] += threads[thread].of[c];
}

static void add_reservations(struct sight *s, int fd, const struct shared_header *h)
{
    static struct page_group groups[4096];
    struct doing *d = h->sizing.holder ? of_holder(s, h->sizing.holder) : NULL;
    if (d)
        d->reservations++;
    uint64_t at = h->groups_at, end = at + h->next_group * sizeof(struct page_group);
    while (at < end) {
        const uint64_t n = end - at < sizeof(groups) ? end - at : sizeof(groups);
        ssize_t got = pread(fd, groups, n, (off_t)at);
        if (got <= 0)
            break;
        const struct page_state *states = groups[0].pages;
        for (size_t i = 0; i < (size_t)got / sizeof(*states); i++) {
            d = states[i].holder ? of_holder(s, states[i].holder) : NULL;
            if (d)
                d->reservations++;
        }
        at += (uint64_t)got;
    }
}

static void take_counts(struct sight *s, const struct manifest_record *record)
{
    static struct shared_slot slots[MANIFEST_SLOTS];
    struct shared_header h;
    const int fd = look_shared(record, &h);
    if (fd < 0)
        return;
    if (pread(fd, slots, sizeof(slots), SHARED_SLOTS_AT) == (ssize_t)sizeof(slots)) {
        s->shared = true;
        for (unsigned i = 0; i < MANIFEST_SLOTS; i++) {
            if (slots[i].state == SLOT_FREE)
                continue;
            s->each[i].holder = shared_holder(i, slots[i].generation);
            s->each[i].mappings = slots[i].mappings;
            add_counters(&s->each[i], fd, i);
        }
        add_reservations(s, fd, &h);
    }
    close(fd);
}

int sight_take(struct sight *s, const char *name)
{
    static struct look l;
    memset(s, 0, sizeof(*s));
    if (look_at(&l, name) < 0)
        return -1;
    memcpy(s->path, l.path, sizeof(s->path));
    s->holders = l.holders;
    s->size = l.manifest.has_size ? l.manifest.size : l.identity.size;
    s->ns = clock_ns();
    if (l.manifest.found == MANIFEST_VALID && l.manifest.fd >= 0)
        take_counts(s, &l.manifest.record);
    write_lock_look(&s->lock, &l);
    look_close(&l);
    return 0;
}
