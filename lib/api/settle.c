/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ato_settle(): waits for the commits that are under way, for a program that takes over a lock of a killed process.
 *
 * When the words of a commit are durable, the commit is going to become visible, even if its process is killed
 * before that: the process that frees what the dead one held makes it visible, perhaps much later. For libato's
 * readers and writers the commit is there as a whole or not at all. But locks other than libato's are freed when
 * the process dies: the program that gets such a lock next reads the old data, without a wait, and bases on it what
 * it writes. So each thread notes in shared memory that it is in a commit, from before the first word is stored
 * until the last one is visible. ato_settle() waits for the commits that it finds, and frees what dead processes
 * held.
 *
 * It cannot wait for dead processes only: the kernel frees a process's POSIX locks and robust mutexes before its
 * open file description locks, by which libato knows that it is alive (attach_is_dead()).
 */
#include "ato_engine.h"

#include "lib/file/calls.h"
#include "lib/file/clock.h"
#include "lib/file/page.h"
#include "lib/file/table.h"
#include "lib/file/under_way.h"
#include "lib/read/reader.h"
#include "lib/recovery/takeover.h"
#include "reflection/media/report.h"

/* How long to wait for a living process: a commit takes as long as its flushes. */
enum { PATIENCE_NS = 1000 * 1000 * 1000 };

/* Frees the pages of the holder, if it is dead. `until`: when to give up. Returns 0: try again; -1. */
static int look_after(struct file *f, uint32_t holder, uint64_t until)
{
    const bool freed = takeover(f, holder) == 0;
    if (!freed && (!f->reader || errno != EAGAIN))
        return -1;
    if (clock_ns() <= until)
        return 0;
    if (!freed)
        return -1; /* a reader cannot free them, and no writer has done so */
    return report_error(
        ETIMEDOUT,
        "a commit of another process to %s did not end within a second: call ato_settle() again",
        f->pairing.path);
}

/* Waits for the commits of the slot's process that are under way now. A dead process's commit is then visible, or
 * will never be. */
static int settle_slot(struct file *f, unsigned slot)
{
    const struct shared *shared = &f->shared;
    const uint32_t holder = shared_given_to(shared, slot);
    if (!holder || holder == f->holder)
        return 0;
    return under_way_wait(f, slot, offsetof(struct shared_thread, commits), look_after,
                          clock_ns() + PATIENCE_NS);
}

int ato_settle(const void *addr)
{
    struct mapping *m = table_expect(addr);
    if (!m)
        return -1;
    CALL_ON(call, m);
    struct file *f = m->file;
    if (f->reader) { /* does a writer have the file mapped? */
        const uint64_t until = clock_ns() + PATIENCE_NS;
        unsigned i = 0;
        while (reader_refresh(f) < 0) {
            if (errno != EAGAIN || clock_ns() > until)
                return -1;
            page_pause(i++);
        }
        if (!reader_watches(f))
            return 0;
    }
    const unsigned slots = under_way_slots(&f->shared);
    for (unsigned slot = 0; slot < slots; slot++)
        if (settle_slot(f, slot) < 0)
            return -1;
    return file_check(f);
}
