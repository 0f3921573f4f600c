// SPDX-License-Identifier: BSD-3-Clause
//
// Faults of the VFS for SQLite (standins.h).
#include "standins.h"

extern "C" {
#include "lib/sqlite/mask.h"
#include "lib/sqlite/staged.h"
#include "lib/sqlite/super.h"
}

using namespace crash;
using namespace crash::standins;

extern "C" {

int __real_mask_put_on(char *view, off_t length, bool *guarded);
void __real_staged_abort(struct staged *s);
int __real_staged_join(struct staged *s, struct staged *other);
int __real_staged_write(struct staged *s, const void *from, int n, sqlite3_int64 offset);
int __real_super_delete(const char *name, bool *mine);

int __wrap_mask_put_on(char *view, off_t length, bool *guarded);
void __wrap_staged_abort(struct staged *s);
int __wrap_staged_join(struct staged *s, struct staged *other);
int __wrap_staged_write(struct staged *s, const void *from, int n, sqlite3_int64 offset);
int __wrap_super_delete(const char *name, bool *mine);

int __wrap_mask_put_on(char *view, off_t length, bool *guarded)
{
    return fault() == CodeFault::NoMask ? 0 : __real_mask_put_on(view, length, guarded);
}

void __wrap_staged_abort(struct staged *s)
{
    if (fault() != CodeFault::NeverForgotten)
        __real_staged_abort(s);
}

int __wrap_staged_join(struct staged *s, struct staged *other)
{
    return fault() == CodeFault::FileByFile ? staged_commit(other) : __real_staged_join(s, other);
}

int __wrap_staged_write(struct staged *s, const void *from, int n, sqlite3_int64 offset)
{
    const int r = __real_staged_write(s, from, n, offset);
    return r == 0 && fault() == CodeFault::WrittenThrough ? staged_commit(s) : r;
}

int __wrap_super_delete(const char *name, bool *mine)
{
    if (fault() != CodeFault::NeverDeleted || !super_exists(name))
        return __real_super_delete(name, mine);
    *mine = true;
    return SQLITE_OK;
}

} // extern "C"
