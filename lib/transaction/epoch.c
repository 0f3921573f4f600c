/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/epoch.h"

#include "lib/page/handle.h"
#include "lib/page/page_set_reserve.h"
#include "lib/read/read.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/tx.h"

#include <pthread.h>

int epoch_make(struct mapping *m)
{
    pthread_mutex_init(&m->epoch_lock, NULL);
    /* READ_COMMITTED: pages that the epoch only reads are not kept. */
    m->epoch = handle_make(TX_ALL_THREADS, ATO_TX_READ_COMMITTED);
    return m->epoch ? 0 : -1;
}

int epoch_write(const struct staging_write *writes, unsigned count, unsigned flags)
{
    struct mapping *m = writes->to.m;
    struct tx *t = m->epoch;
    enum reservation r;
    int waited = 0;
    flags = write_flags(m, flags);
    pthread_mutex_lock(&m->epoch_lock);
    /* First all that may fail. While this waits for a transaction, the lock and the pages that the write has reserved are
     * released: the transaction's thread may be about to enter this epoch. */
    do {
        const uint64_t before = t->set.n;
        r = claim_mapping(t, m, true) < 0 ? RESERVATION_FAILED : RESERVATION_MINE;
        for (unsigned i = 0; i < count && r == RESERVATION_MINE; i++)
            r = staging_ready(t, &writes[i], flags & ATO_EAGER);
        if (r == RESERVATION_MINE)
            break;
        page_set_release_from(&t->set, before);
        if (!before)
            claim_drop_mappings(t, 0);
        if (r != RESERVATION_FAILED) {
            const uint64_t blocked = t->blocked; /* others write it when the lock is free */
            pthread_mutex_unlock(&m->epoch_lock);
            waited = page_set_await(m->file, blocked, r, t->slot);
            pthread_mutex_lock(&m->epoch_lock);
        }
    } while (r != RESERVATION_FAILED && waited == 0);
    if (r == RESERVATION_MINE) {
        t->written = m;
        t->eager |= (flags & ATO_EAGER) != 0;
        for (unsigned i = 0; i < count; i++)
            staging_put(t, &writes[i], flags);
        /* persist-order E1 (reader: the commit by another thread): what was stored is durable before another thread
         * commits it (W1). */
        persist_fence(&m->file->persist);
    }
    pthread_mutex_unlock(&m->epoch_lock);
    return r == RESERVATION_MINE ? 0 : -1;
}

/* ---- reading ---- */

/* Returns true if the epoch has a page of the range. A write of another thread that is not over may be missed. */
static bool has_any(const struct mapping *m, uint64_t offset, uint64_t n)
{
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        const struct page_state *s = shared_peek(&m->file->shared, page);
        if (s && page_set_is_of(m->file, s, m->epoch->set.tag))
            return true;
    }
    return false;
}

int epoch_read(struct mapping *m, uint64_t offset, char *dst, uint64_t n)
{
    if (!has_any(m, offset, n))
        return read_bytes(m, offset, dst, n, NULL, false);
    pthread_mutex_lock(&m->epoch_lock);
    int r = staging_read(m->epoch, m, offset, dst, n);
    pthread_mutex_unlock(&m->epoch_lock);
    return r;
}

/* ---- commit ---- */

int epoch_commit(struct mapping *m)
{
    pthread_mutex_lock(&m->epoch_lock);
    int r = file_check(m->file); /* also without a write */
    if (r == 0)
        r = tx_make_durable(m->epoch);
    if (r == 0)
        tx_empty(m->epoch);
    pthread_mutex_unlock(&m->epoch_lock);
    return r;
}
