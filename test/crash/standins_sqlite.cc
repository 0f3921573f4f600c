// SPDX-License-Identifier: BSD-3-Clause
//
// Faults of the VFS for SQLite (standins.h).
#include "standins.h"

extern "C" {
#include "lib/sqlite/mask.h"
#include "lib/sqlite/pending.h"
}

using namespace crash;
using namespace crash::standins;

extern "C" {

int __real_mask_put_on(char *view);
void __real_pending_abort(struct pending *s);
int __real_pending_write(struct pending *s, const void *from, int n, sqlite3_int64 offset);

int __wrap_mask_put_on(char *view);
void __wrap_pending_abort(struct pending *s);
int __wrap_pending_write(struct pending *s, const void *from, int n, sqlite3_int64 offset);

int __wrap_mask_put_on(char *view)
{
    return fault() == CodeFault::NoMask ? 0 : __real_mask_put_on(view);
}

void __wrap_pending_abort(struct pending *s)
{
    if (fault() != CodeFault::NeverForgotten)
        __real_pending_abort(s);
}

int __wrap_pending_write(struct pending *s, const void *from, int n, sqlite3_int64 offset)
{
    const int r = __real_pending_write(s, from, n, offset);
    return r == 0 && fault() == CodeFault::WrittenThrough ? pending_commit(s, PENDING_DURABLE) : r;
}

} // extern "C"
