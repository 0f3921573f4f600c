/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/attach.h"

#include "reflection/media/locks.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int attach_lock(struct file *f)
{
    const struct pairing *pr = &f->pairing;
    pthread_mutex_lock(&f->attach);
    if (locks_wait(pr->lock, F_WRLCK, 0, 1) == 0)
        return 0;
    pthread_mutex_unlock(&f->attach);
    return folder_error(&pr->folder, pr->names.manifest, "cannot lock the manifest");
}

int attach_unlock(struct file *f)
{
    int r = pairing_unlock_attach(&f->pairing);
    pthread_mutex_unlock(&f->attach);
    return r;
}

/* Chooses a slot that is not given out and whose byte is unlocked. The first process has its
 * slot already. */
static int choose_slot(struct pairing *pr, const struct shared_slot *all)
{
    if (!pr->joined)
        return 0;
    for (unsigned slot = 0; slot < MANIFEST_SLOTS; slot++) {
        if (__atomic_load_n(&all[slot].state, __ATOMIC_ACQUIRE) != SLOT_FREE)
            continue;
        enum locks_answer answer = locks_try(pr->lock, F_WRLCK, 1 + (off_t)slot, 1);
        if (answer == LOCKS_FAILED)
            return report_errno(errno, "cannot lock a slot of the manifest of %s", pr->path);
        if (answer == LOCKS_MINE) {
            pr->slot = slot;
            return 0;
        }
    }
    return report_error(
        EAGAIN,
        "%s is mapped by %d processes, which is the most that can map it: end one of them first",
        pr->path, MANIFEST_SLOTS);
}

/* Returns the inode of this process's pid namespace. With MUTEX_FILES. */
static uint64_t pid_namespace(pid_t pid)
{
    static pid_t of; /* a forked child may be in another one */
    static uint64_t is;
    struct stat st;
    if (of != pid)
        is = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
    of = pid;
    return is;
}

int attach_enter(struct file *f)
{
    struct pairing *pr = &f->pairing;
    const uint64_t n = SHARED_THREADS_BYTES;
    if (choose_slot(pr, f->shared.slots) < 0 ||
        shared_allocate(&f->shared, SHARED_THREADS_AT + pr->slot * n, n, "a process") < 0)
        return -1;
    f->threads = memset(shared_thread_of(&f->shared, pr->slot, 0), 0, n);
    struct shared_slot *s = &f->shared.slots[pr->slot];
    __atomic_store_n(&s->generation, s->generation + 1, __ATOMIC_RELAXED);
    s->threads = 0;
    s->pid = (uint32_t)getpid();
    s->pid_namespace = pid_namespace(getpid());
    f->holder = shared_holder_of(&f->shared, pr->slot);
    f->shared.header->entered++;
    if (f->shared.header->slots_used <= pr->slot)
        __atomic_store_n(&f->shared.header->slots_used, pr->slot + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&s->state, SLOT_GIVEN, __ATOMIC_RELEASE);
    return 0;
}

void attach_raise_threads(uint16_t *threads, unsigned thread)
{
    uint16_t seen = __atomic_load_n(threads, __ATOMIC_RELAXED);
    while (seen <= thread &&
           !__atomic_compare_exchange_n(threads, &seen, (uint16_t)(thread + 1), false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

void attach_leave(struct file *f)
{
    if (f->holder)
        __atomic_store_n(&f->shared.slots[f->pairing.slot].state, SLOT_FREE, __ATOMIC_RELEASE);
    f->holder = 0;
}

bool attach_is_dead(const struct file *f, uint32_t holder)
{
    const unsigned slot = shared_slot_of(holder);
    if (holder == f->holder || slot >= MANIFEST_SLOTS)
        return false;
    if (shared_holder_of(&f->shared, slot) != holder) /* the slot was given to another process */
        return true;
    /* This process's own slot is not tested: a process sees its own lock as free. */
    return slot != f->pairing.slot && locks_ask(f->pairing.lock, 1 + (off_t)slot, 1) == LOCKS_FREE;
}
