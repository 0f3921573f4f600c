/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/recovery/peers.h"

#include "lib/file/attach.h"
#include "lib/recovery/takeover.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"

#include <errno.h>

int peers_recover_lanes(const struct pairing *pr, uint64_t journal)
{
    return takeover(&(struct takeover){.own = pr, .journal = journal});
}

int peers_recover(struct file *f, uint32_t holder)
{
    struct pairing *pr = &f->pairing;
    const unsigned slot = shared_slot_of(holder);
    if (!attach_is_dead(f, holder))
        return 0;
    if (f->reader)
        return report_error(EAGAIN,
                            "a dead process has pages of %s reserved: a process that may write to "
                            "the file has to free them, by mapping it",
                            pr->path);
    struct takeover t = {.own = pr, .slot = slot, .holder = holder};
    /* If the slot is given to another process by now, what its journal word says is about that one. */
    if (shared_holder_of(&f->shared, slot) == holder &&
        area_journal(pr->lock, slot, pr->path, &t.journal) < 0)
        return -1;
    if (shared_holder_of(&f->shared, slot) != holder)
        t.journal = 0;
    return takeover(&t);
}

/* Returns the next dead holder, from slot *slot on; 0: none. */
static uint32_t next_dead(const struct file *f, unsigned *slot)
{
    for (; *slot < MANIFEST_SLOTS; (*slot)++) {
        const uint32_t holder = shared_given_to(&f->shared, *slot);
        if (holder && attach_is_dead(f, holder))
            return holder;
    }
    return 0;
}

bool peers_any_dead(const struct file *f)
{
    unsigned slot = 0;
    return next_dead(f, &slot) != 0;
}

int peers_recover_all(struct file *f)
{
    unsigned slot = 0;
    int r = 0;
    for (uint32_t holder; (holder = next_dead(f, &slot)); slot++)
        if (peers_recover(f, holder) < 0)
            r = -1;
    return r;
}
