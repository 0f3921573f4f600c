/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/recovery/peers.h"

#include "lib/file/attach.h"
#include "lib/file/shared_places.h"
#include "lib/recovery/takeover.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/recovery/recover.h"

#include <errno.h>
#include <string.h>

static uint32_t state_of(const struct shared_slot *s)
{
    return __atomic_load_n(&s->state, __ATOMIC_ACQUIRE);
}

/* Returns true if the holder is not dead, or has been freed already. */
static bool is_done(const struct file *f, uint32_t holder)
{
    const struct shared_slot *s = &f->shared.slots[shared_slot_of(holder)];
    return !attach_is_dead(f, holder) ||
           (attach_holder_of(f, shared_slot_of(holder)) == holder && state_of(s) == SLOT_FREE);
}

static int recover_locked(struct file *f, uint32_t holder)
{
    struct shared_slot *s = &f->shared.slots[shared_slot_of(holder)];
    if (is_done(f, holder))
        return 0;
    if (takeover(f, holder) < 0)
        return -1;
    shared_places_forget_holder(&f->shared, holder);
    if (attach_holder_of(f, shared_slot_of(holder)) == holder)
        __atomic_store_n(&s->state, SLOT_FREE, __ATOMIC_RELEASE);
    report_log(REPORT_INFO, "freed the pages of %s that a dead process had reserved",
               f->pairing.path);
    return 0;
}

int peers_recover(struct file *f, uint32_t holder)
{
    struct pairing *pr = &f->pairing;
    if (!attach_is_dead(f, holder))
        return 0;
    if (f->reader)
        return report_error(EAGAIN,
                            "a dead process has pages of %s reserved: a process that may write to "
                            "the file has to free them, by mapping it",
                            pr->path);
    const struct shared_slot *s = &f->shared.slots[shared_slot_of(holder)];
    /* If the slot has been given out again, its former process is not known: then recover the journals of all that
     * are dead. */
    const uint64_t process = attach_holder_of(f, shared_slot_of(holder)) == holder
                                 ? __atomic_load_n(&s->process, __ATOMIC_RELAXED)
                                 : 0;
    struct recover_file file = {
        .manifest = pr->lock, .in_use = true, .trust = identity_trust(&pr->identity)};
    memcpy(file.id, pr->record.id, sizeof(file.id));
    if (recover_process(&pr->folder, &file, process) < 0 || attach_lock(f) < 0)
        return -1;
    int r = recover_locked(f, holder);
    int unlocked = attach_unlock(f);
    return r < 0 || unlocked < 0 ? -1 : 0;
}

/* Returns the next dead holder, from slot *slot on; 0: none. */
static uint32_t next_dead(const struct file *f, unsigned *slot)
{
    for (; *slot < MANIFEST_SLOTS; (*slot)++) {
        const uint32_t holder = attach_holder_of(f, *slot);
        if (state_of(&f->shared.slots[*slot]) != SLOT_FREE && attach_is_dead(f, holder))
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
