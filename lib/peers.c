/* SPDX-License-Identifier: BSD-3-Clause */
#include "peers.h"

#include "../reflection/locks.h"
#include "../reflection/recover.h"
#include "../reflection/report.h"
#include "takeover.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct shared_slot *slots(const struct file *f)
{
    return f->shared.slots;
}

static uint32_t state_of(const struct shared_slot *s)
{
    return __atomic_load_n(&s->state, __ATOMIC_ACQUIRE);
}

/* The value of page_state.holder for the slot's process. */
static uint32_t given_to(const struct file *f, unsigned slot)
{
    return shared_holder(slot, __atomic_load_n(&slots(f)[slot].generation, __ATOMIC_RELAXED));
}

int peers_lock(struct file *f)
{
    pthread_mutex_lock(&f->attach);
    if (pairing_lock_attach(&f->pairing) == 0)
        return 0;
    pthread_mutex_unlock(&f->attach);
    return -1;
}

int peers_unlock(struct file *f)
{
    int r = pairing_unlock_attach(&f->pairing);
    pthread_mutex_unlock(&f->attach);
    return r;
}

/* ---- slots ---- */

/* Chooses a slot that is not given out and has an unlocked byte. The first process has its slot already. */
static int choose_slot(struct pairing *pr, const struct shared_slot *all)
{
    if (!pr->joined)
        return 0;
    for (unsigned slot = 0; slot < MANIFEST_SLOTS; slot++) {
        if (state_of(&all[slot]) != SLOT_FREE)
            continue;
        enum locks_answer answer = locks_try(pr->lock, 1 + (off_t)slot, 1);
        if (answer == LOCKS_FAILED)
            return report_errno(errno, "cannot lock a slot of the manifest of %s", pr->path);
        if (answer == LOCKS_MINE) {
            pr->slot = slot;
            return 0;
        }
    }
    return report_error(EAGAIN, "%s is mapped by %d processes, and cannot be by more", pr->path,
                        MANIFEST_SLOTS);
}

int peers_enter(struct file *f)
{
    struct pairing *pr = &f->pairing;
    uint64_t process;
    struct stat st;
    if (identity_process(&process) < 0 || choose_slot(pr, slots(f)) < 0 ||
        shared_clear_showings(&f->shared, pr->slot) < 0)
        return -1;
    struct shared_slot *s = &slots(f)[pr->slot];
    __atomic_store_n(&s->generation, s->generation + 1, __ATOMIC_RELAXED);
    s->process = process;
    s->reloaded = s->threads = 0;
    s->pid = (uint32_t)getpid();
    s->pid_namespace = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
    f->holder = given_to(f, pr->slot);
    f->shared.header->entered++;
    if (f->shared.header->slots_used <= pr->slot)
        __atomic_store_n(&f->shared.header->slots_used, pr->slot + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&s->state, SLOT_GIVEN, __ATOMIC_RELEASE);
    return 0;
}

void peers_leave(struct file *f)
{
    if (f->holder)
        __atomic_store_n(&slots(f)[f->pairing.slot].state, SLOT_FREE, __ATOMIC_RELEASE);
    f->holder = 0;
}

/* ---- dead processes ---- */

bool peers_is_dead(const struct file *f, uint32_t holder)
{
    const unsigned slot = shared_slot_of(holder);
    if (holder == f->holder || slot >= MANIFEST_SLOTS)
        return false;
    if (given_to(f, slot) != holder) /* the slot was given to another process */
        return true;
    /* Not asked about the own slot: its lock is this process's. */
    return slot != f->pairing.slot && locks_ask(f->pairing.lock, 1 + (off_t)slot, 1) == LOCKS_FREE;
}

/* Returns true if the holder is not dead, or has been freed already. */
static bool is_done(const struct file *f, uint32_t holder)
{
    const struct shared_slot *s = &slots(f)[shared_slot_of(holder)];
    return !peers_is_dead(f, holder) ||
           (given_to(f, shared_slot_of(holder)) == holder && state_of(s) == SLOT_FREE);
}

static int recover_locked(struct file *f, uint32_t holder)
{
    struct shared_slot *s = &slots(f)[shared_slot_of(holder)];
    if (is_done(f, holder))
        return 0;
    if (takeover(f, holder) < 0)
        return -1;
    shared_forget_holder(&f->shared, holder);
    if (given_to(f, shared_slot_of(holder)) == holder)
        __atomic_store_n(&s->state, SLOT_FREE, __ATOMIC_RELEASE);
    report_log(REPORT_INFO, "freed what a dead process held of %s", f->pairing.path);
    return 0;
}

int peers_recover(struct file *f, uint32_t holder)
{
    struct pairing *pr = &f->pairing;
    if (!peers_is_dead(f, holder))
        return 0;
    if (f->reader)
        return report_error(EAGAIN,
                            "what a dead process held of %s is to be freed by one that may write "
                            "to it",
                            pr->path);
    const struct shared_slot *s = &slots(f)[shared_slot_of(holder)];
    /* If the slot has been given out again, its former process is not known: then recover the journals of all that
     * are dead. */
    const uint64_t process = given_to(f, shared_slot_of(holder)) == holder
                                 ? __atomic_load_n(&s->process, __ATOMIC_RELAXED)
                                 : 0;
    struct recover_file file = {
        .manifest = pr->lock, .in_use = true, .trust = identity_trust(&pr->identity)};
    memcpy(file.id, pr->record.id, sizeof(file.id));
    if (recover_process(&pr->folder, &file, process) < 0 || peers_lock(f) < 0)
        return -1;
    int r = recover_locked(f, holder);
    int unlocked = peers_unlock(f);
    return r < 0 || unlocked < 0 ? -1 : 0;
}

/* Returns the next dead holder, from slot *slot on; 0: none. */
static uint32_t next_dead(const struct file *f, unsigned *slot)
{
    for (; *slot < MANIFEST_SLOTS; (*slot)++) {
        const uint32_t holder = given_to(f, *slot);
        if (state_of(&slots(f)[*slot]) != SLOT_FREE && peers_is_dead(f, holder))
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
