/* SPDX-License-Identifier: BSD-3-Clause */
#include "pending.h"

/* SQLite's locks keep writers apart, so that pages are not reserved by others for long, unless another program writes to the
 * file by libato itself. */
enum { WAIT_MS = 60000 };

/* What a database grows to by default (database.c), and a little more: VACUUM writes all of it. */
#define MAX_BYTES ((64ull << 30) + (32u << 20))

int pending_begin(struct pending *s)
{
    if (s->tx)
        return 0;
    const struct ato_tx_options options = {.struct_size = sizeof(options),
                                           .flags = ATO_TX_READ_COMMITTED | ATO_TX_EARLY,
                                           .wait_ms = WAIT_MS,
                                           .max_bytes = MAX_BYTES};
    const off_t size = ato_size(s->view);
    s->tx = size < 0 ? NULL : ato_tx_begin_opt(&options);
    if (!s->tx)
        return -1;
    s->size = s->had = size;
    s->room = 0;
    return 0;
}

/* Gives the file the length `size`, or more, if there is space; the transaction has that size then.
 *
 * To make the file longer takes syncs on a disk. SQLite says how long it is going to be, for as many pages as its cache holds: with a
 * small one for each few pages. So from the second time on the file gets longer by as much as it has got. */
static void make_room(struct pending *s, sqlite3_int64 size)
{
    enum { LEAST = 256 << 10 };
    const sqlite3_int64 more = size - s->had > LEAST ? size - s->had : LEAST;
    if (s->room && ato_tx_ftruncate(s->tx, s->view, size + more) == 0)
        s->room = size + more;
    else if (ato_tx_ftruncate(s->tx, s->view, size) == 0)
        s->room = size;
}

int pending_write(struct pending *s, const void *from, int n, sqlite3_int64 offset)
{
    const sqlite3_int64 end = offset + n;
    if (pending_begin(s) < 0)
        return -1;
    if (end > s->size && end > s->room)
        make_room(s, end);
    if (end > s->size && pending_resize(s, end) < 0)
        return -1;
    return ato_tx_memcpy(s->tx, s->view + offset, from, (size_t)n, ATO_SKIP_EQUAL) ? 0 : -1;
}

int pending_read(struct pending *s, void *to, int n, sqlite3_int64 offset)
{
    return ato_tx_memcpy(s->tx, to, s->view + offset, (size_t)n, 0) ? 0 : -1;
}

int pending_resize(struct pending *s, sqlite3_int64 size)
{
    if (pending_begin(s) < 0 || ato_tx_ftruncate(s->tx, s->view, size) < 0)
        return -1;
    s->size = size;
    return 0;
}

int pending_hint(struct pending *s, sqlite3_int64 size)
{
    if (pending_begin(s) < 0)
        return -1;
    if (size <= s->room)
        return 0;
    make_room(s, size);
    return ato_tx_ftruncate(s->tx, s->view, s->size);
}

int pending_commit(struct pending *s, enum pending_commit when)
{
    const int r = when == PENDING_DURABLE
                      ? ato_tx_commit(s->tx)
                      : ato_tx_commit_early(s->tx, when == PENDING_EARLY ? &s->promise : NULL);
    if (r == 0) {
        s->tx = NULL;
        s->owes = false; /* all that was visible comes before it */
    }
    return r;
}

void pending_note(struct pending *s)
{
    if (s->view && s->owes && !s->promise.number)
        (void)ato_visible(s->view, &s->promise);
    if (s->owes && s->relaxed)
        s->promise.end = 0;
    s->owes = false;
}

int pending_await(struct pending *s)
{
    pending_note(s);
    const struct ato_promise promise = s->promise;
    s->promise.number = 0;
    return promise.number ? ato_await(s->view, &promise) : 0;
}

void pending_abort(struct pending *s)
{
    if (s->tx)
        (void)ato_tx_abort(s->tx);
    s->tx = NULL;
}
