/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/api/files.h"

#include "lib/file/mutex.h"
#include "lib/file/views.h"
#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Guarded by MUTEX_FILES: one for the process, since mapping and unmapping are rare. No call that moves
 * data takes it. */
static struct file *all;

struct file *files_find(const struct identity *identity, bool reader)
{
    struct file *f = all;
    while (f && (f->pairing.identity.inode != identity->inode ||
                 f->pairing.identity.device != identity->device || !f->reader == reader))
        f = f->next;
    return f;
}

const struct file *files_with_id(const uint8_t id[16])
{
    const struct file *f = all;
    while (f && (f->reader || memcmp(f->pairing.record.id, id, 16) != 0))
        f = f->next;
    return f;
}

void files_add(struct file *f)
{
    f->next = all;
    all = f;
}

void files_remove(struct file *f)
{
    struct file **at = &all;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
}

void files_destroy(struct file *f, bool remove_shared)
{
    KEEP_ERRNO();
    views_unmap(f);
    shared_close(&f->shared, remove_shared);
    pairing_close(&f->pairing);
    free(f->reader);
    free(f);
}

void files_exit(void)
{
    /* The lock is taken if exit() was called within a call of the library, or another thread is in one.
     * Then the state is left as after a kill. */
    if (pthread_mutex_trylock(&mutexes[MUTEX_FILES]) != 0)
        return;
    /* Does not wait: if another process has the attach lock, the object stays, and the next map
     * removes it. */
    for (struct file *f = all; f; f = f->next) {
        if (f->reader || locks_try(f->pairing.lock, F_WRLCK, 0, 1) != LOCKS_MINE)
            continue;
        if (pairing_others(&f->pairing) == 0)
            (void)fsops->shm_unlink(f->shared.name);
        (void)locks_drop(f->pairing.lock, 0, 1);
    }
    mutex_unlock(MUTEX_FILES);
}

void files_forget(void)
{
    for (struct file *f = all, *next; f; f = next) {
        next = f->next;
        /* The child did not inherit the views, and unlocks nothing: that would drop the parent's locks. */
        f->o = f->r = f->shared.base = f->pairing.manifest = NULL;
        close(f->pairing.lock); /* again, unless locks_forget() did not know it */
        f->pairing.lock = -1;
        files_destroy(f, false);
    }
    all = NULL;
}
