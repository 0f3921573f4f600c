/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/page/waits.h"

#include "lib/file/page.h"
#include "lib/page/handle.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct waiter *all;

static const struct waiter *find(uint64_t thread)
{
    const struct waiter *w = all;
    while (w && w->thread != thread)
        w = w->next;
    return w;
}

/* Returns the thread that has to act before the page is free; TX_NONE if that is no thread of this process,
 * or if the waiting thread is about to stop waiting. */
static uint64_t owner_of(const struct waiter *w)
{
    if (__atomic_load_n(&w->state->holder, __ATOMIC_RELAXED) != w->file->holder)
        return TX_NONE;
    uint64_t tx = __atomic_load_n(&w->state->tx, __ATOMIC_RELAXED);
    return page_is_not_for(w->file, w->state, w->patience) ? TX_NONE : handle_owner_of(tx);
}

/* Follows the waiting threads, from each to the owner of its page. Returns -1 if that leads back to the calling
 * thread, or if it waits for an open epoch; 0 if one of them waits for no thread of this process. Takes at most as
 * many steps as there are waiting threads: a cycle without the calling thread is found by a thread in it. */
static int look(const struct waiter *self)
{
    const struct waiter *w = self, *each = all;
    for (; w && each; each = each->next) {
        uint64_t owner = owner_of(w);
        if (owner == TX_NONE)
            return 0;
        if (owner == self->thread)
            return -1;
        if (owner == TX_ALL_THREADS)
            return w == self ? -1 : 0;
        w = find(owner);
    }
    return 0;
}

static int check(struct waiter *w)
{
    if (look(w) == 0 && !labels_step(&w->labels, w->thread, w->file, w->state))
        return 0;
    return report_error(EDEADLK,
                        "deadlock: a part of %s belongs to a transaction that cannot end before "
                        "this call ends. It is a transaction of this thread, an epoch of this "
                        "process, or it waits for this thread. Abort a transaction, and try again",
                        w->file->pairing.path);
}

int waits_begin(struct waiter *w, struct file *f, struct page_state *s,
                const struct patience *patience)
{
    *w = (struct waiter){.thread = thread_id(), .file = f, .state = s, .patience = patience};
    pthread_mutex_lock(&lock);
    w->next = all;
    all = w;
    int r = check(w);
    pthread_mutex_unlock(&lock);
    return r;
}

int waits_check(struct waiter *w)
{
    pthread_mutex_lock(&lock);
    int r = check(w);
    pthread_mutex_unlock(&lock);
    return r;
}

void waits_end(struct waiter *w)
{
    pthread_mutex_lock(&lock);
    struct waiter **at = &all;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    labels_end(&w->labels);
    pthread_mutex_unlock(&lock);
}

static void drop_labels(const struct tx *t)
{
    for (struct waiter *w = all; w; w = w->next)
        labels_drop(&w->labels, t);
}

void waits_tell_epoch(struct tx *t, struct file *f)
{
    pthread_mutex_lock(&lock);
    t->home = f;
    pthread_mutex_unlock(&lock);
}

void waits_forget_epoch(struct tx *t)
{
    pthread_mutex_lock(&lock);
    drop_labels(t);
    t->home = NULL;
    pthread_mutex_unlock(&lock);
}

void waits_hand_over(const struct tx *t)
{
    pthread_mutex_lock(&lock);
    drop_labels(t);
    pthread_mutex_unlock(&lock);
}

void waits_pass(void)
{
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

void waits_lock(void)
{
    pthread_mutex_lock(&lock);
}

void waits_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void waits_forget_all(void)
{
    all = NULL;
}
