/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/page/handle.h"

#include "lib/file/mutex.h"
#include "lib/file/page.h"
#include "lib/page/page_set.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tx *handle_places[PAGE_TX_PLACES];
static unsigned made; /* places in use, from 1 on */
static struct tx *unused;

/* The transactions that the threads used last, by thread number: most are begun by the thread that ended the last one.
 * The next thread with that number finds it here. A cache line each. */
static struct {
    _Alignas(64) struct tx *tx;
} kept[THREAD_SHARED];

/* The caller holds the lock. */
static struct tx *new_place(void)
{
    struct tx *t = unused;
    if (t) {
        unused = t->next_free;
        return t;
    }
    if (made + 1 == PAGE_TX_PLACES)
        return report_null(EAGAIN, "%d transactions are open", PAGE_TX_PLACES - 1);
    t = calloc(1, sizeof(*t));
    if (!t)
        return report_null(ENOMEM, "no memory for a transaction");
    page_set_init(&t->set);
    t->generation = 1;
    t->slot = made + 1;
    __atomic_store_n(&made, t->slot, __ATOMIC_RELAXED);
    __atomic_store_n(&handle_places[t->slot], t, __ATOMIC_RELEASE);
    return t;
}

struct tx *handle_make(uint64_t thread, unsigned flags)
{
    const unsigned n = thread_number();
    struct tx *t = n < THREAD_SHARED ? kept[n].tx : NULL;
    if (__builtin_expect(!t, 0)) {
        mutex_lock(MUTEX_HANDLES);
        t = new_place();
        mutex_unlock(MUTEX_HANDLES);
        if (!t)
            return NULL;
    } else {
        kept[n].tx = NULL;
    }
    t->flags = flags;
    t->wait_ms = 0;
    t->refused = false;
    t->first = 0;
    t->max_pages = TX_PAGES;
    __atomic_store_n(&t->thread, thread, __ATOMIC_RELAXED);
    const uint64_t handle = t->generation << 16 | t->slot;
    __atomic_store_n(&t->set.tag, (uint32_t)handle, __ATOMIC_RELAXED);
    __atomic_store_n(&t->handle, handle, __ATOMIC_RELEASE);
    return t;
}

uint64_t handle_thread_of(uint64_t tx)
{
    uint32_t tag = (uint32_t)(tx >> 32);
    struct tx *t = __atomic_load_n(&handle_places[page_tx_place(tx)], __ATOMIC_ACQUIRE);
    if (!t || (uint32_t)__atomic_load_n(&t->handle, __ATOMIC_ACQUIRE) != tag || !tag)
        return TX_NONE;
    return __atomic_load_n(&t->thread, __ATOMIC_RELAXED);
}

void handle_close(struct tx *t)
{
    __atomic_store_n(&t->handle, 0, __ATOMIC_RELEASE);
    t->generation++;
    const unsigned n = thread_number();
    if (__builtin_expect(n < THREAD_SHARED && !kept[n].tx, 1)) {
        kept[n].tx = t;
        return;
    }
    mutex_lock(MUTEX_HANDLES);
    t->next_free = unused;
    unused = t;
    mutex_unlock(MUTEX_HANDLES);
}

void handle_forget_all(void)
{
    unused = NULL;
    memset(kept, 0, sizeof(kept));
    for (unsigned i = 1; i <= made; i++) {
        struct tx *t = handle_places[i];
        /* Its lists are not freed: another thread of the parent may have been changing them during the fork. */
        *t = (struct tx){.generation = t->generation + 1, .slot = i, .next_free = unused};
        page_set_init(&t->set);
        unused = t;
    }
}
