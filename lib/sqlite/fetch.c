/* SPDX-License-Identifier: BSD-3-Clause */
#include "fetch.h"

#include "connection.h"
#include "database.h"
#include "direct.h"
#include "length.h"
#include "mask.h"

/* In domain msync, where a flush is a system call, the second page that is fetched from a neighbourhood deploys all of it, once:
 * deploying page by page would take longer than reading. */
static bool takes_neighbours(struct connection *c, sqlite3_int64 neighbourhood)
{
    struct neighbours *known =
        &c->neighbours[neighbourhood % (sqlite3_int64)(sizeof(c->neighbours) / sizeof(*known))];
    if (known->which != neighbourhood + 1) {
        *known = (struct neighbours){.which = neighbourhood + 1};
        return false;
    }
    const bool first = !known->home;
    known->home = true;
    return first;
}

int fetch_page(struct connection *c, sqlite3_int64 offset, int n, void **page)
{
    const sqlite3_int64 end = offset + n;
    *page = NULL;
    if (c->direct)
        return direct_maps_below(c) ? c->below->xFetch(c->file, offset, n, page) : SQLITE_OK;
    const sqlite3_int64 size = length_committed(c);
    if (offset < MASK_HEADER || end > c->fetch_limit || c->pending.tx || !c->db->writable ||
        end > size)
        return SQLITE_OK;
    sqlite3_int64 first = offset, last = end;
    if (c->db->domain == ATO_DOMAIN_MSYNC && takes_neighbours(c, offset / NEIGHBOURHOOD)) {
        first -= first % NEIGHBOURHOOD;
        last = first + NEIGHBOURHOOD > end ? first + NEIGHBOURHOOD : end;
        last = last < size ? last : size;
    }
    if (ato_deploy(c->pending.view + first, (size_t)(last - first)) == 0) {
        *page = c->pending.view + offset;
        c->fetched++;
    }
    return SQLITE_OK;
}

int fetch_limit(struct connection *c, sqlite3_int64 *limit)
{
    sqlite3_int64 now = -1;
    if (c->fetched)
        *limit = -1;
    int r = c->below->xFileControl(c->file, SQLITE_FCNTL_MMAP_SIZE, limit);
    if (r == SQLITE_OK)
        r = c->below->xFileControl(c->file, SQLITE_FCNTL_MMAP_SIZE, &now);
    if (r == SQLITE_OK)
        c->fetch_limit = now;
    return r;
}
