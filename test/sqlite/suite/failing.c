/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes the VFS's calls of libato fail where SQLite's tests ask for it: an error of the medium at the n-th access, or a
 * full disk. SQLite's own VFS counts its accesses and fails according to these variables (of SQLITE_TEST); these calls
 * do the same, with the same counter. A failed call changes nothing, as libato guarantees for EIO and ENOSPC before a
 * commit.
 *
 * The linker makes the VFS call the functions named __wrap_ here (-Wl,--wrap).
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "ato.h"
#include "lib/sqlite/connection.h"
#include "lib/sqlite/pending.h"

/* SQLite's variables; they are only in its test programs. */
extern int sqlite3_io_error_pending __attribute__((weak)); /* fail at this access from now */
extern int sqlite3_io_error_persist __attribute__((weak)); /* and at each later one */
extern int sqlite3_io_error_benign __attribute__((weak));  /* SQLite need not report it */
extern int sqlite3_io_error_hit __attribute__((weak));
extern int sqlite3_io_error_hardhit __attribute__((weak));
extern int sqlite3_diskfull_pending __attribute__((weak)); /* fail at this allocation */
extern int sqlite3_diskfull __attribute__((weak));

static void hit(bool benign)
{
    sqlite3_io_error_hit++;
    if (!benign && !sqlite3_io_error_benign)
        sqlite3_io_error_hardhit++;
}

/* Returns true, with errno set, if this access has to fail. */
static bool medium_fails(bool benign)
{
    if (!&sqlite3_io_error_pending)
        return false;
    if (!(sqlite3_io_error_persist && sqlite3_io_error_hit) && sqlite3_io_error_pending-- != 1)
        return false;
    hit(benign);
    errno = EIO;
    return true;
}

static bool is_full(bool benign)
{
    if (!&sqlite3_diskfull_pending || !sqlite3_diskfull_pending)
        return false;
    if (sqlite3_diskfull_pending > 1) {
        sqlite3_diskfull_pending--;
        return false;
    }
    hit(benign);
    sqlite3_diskfull = sqlite3_io_error_hit = 1;
    errno = ENOSPC;
    return true;
}

static bool write_fails(bool benign)
{
    return medium_fails(benign) || is_full(benign);
}

void *__real_ato_memcpy(void *dst, const void *src, size_t n);
void *__wrap_ato_memcpy(void *dst, const void *src, size_t n);

/* This thread makes a file plain. If that fails, it is done later. */
static _Thread_local bool makes_plain;

bool __real_database_unmap(struct connection *c, bool plain);
bool __wrap_database_unmap(struct connection *c, bool plain);

bool __wrap_database_unmap(struct connection *c, bool plain)
{
    makes_plain = plain;
    const bool done = __real_database_unmap(c, plain);
    makes_plain = false;
    return done;
}

/* The VFS reads by ato_memcpy() and writes by ato_memcpy_opt(). */
void *__wrap_ato_memcpy(void *dst, const void *src, size_t n)
{
    return medium_fails(makes_plain) ? NULL : __real_ato_memcpy(dst, src, n);
}

ssize_t __real_ato_snapshot_read(ato_snapshot *s, void *dst, off_t offset, size_t n);
ssize_t __wrap_ato_snapshot_read(ato_snapshot *s, void *dst, off_t offset, size_t n);

ssize_t __wrap_ato_snapshot_read(ato_snapshot *s, void *dst, off_t offset, size_t n)
{
    return medium_fails(false) ? -1 : __real_ato_snapshot_read(s, dst, offset, n);
}

ato_snapshot *__real_ato_snapshot_begin(const void *addr);
ato_snapshot *__wrap_ato_snapshot_begin(const void *addr);

/* Where there are no snapshots, readers and writers keep each other out. */
ato_snapshot *__wrap_ato_snapshot_begin(const void *addr)
{
    return getenv("ATO_TEST_NO_SNAPSHOTS") ? NULL : __real_ato_snapshot_begin(addr);
}

ato_snapshot *__real_ato_snapshot_newest(const void *addr);
ato_snapshot *__wrap_ato_snapshot_newest(const void *addr);

ato_snapshot *__wrap_ato_snapshot_newest(const void *addr)
{
    return getenv("ATO_TEST_NO_SNAPSHOTS") ? NULL : __real_ato_snapshot_newest(addr);
}

void *__real_ato_read_newest(void *dst, const void *src, size_t n);
void *__wrap_ato_read_newest(void *dst, const void *src, size_t n);

void *__wrap_ato_read_newest(void *dst, const void *src, size_t n)
{
    return medium_fails(false) ? NULL : __real_ato_read_newest(dst, src, n);
}

void *__real_ato_memcpy_opt(void *dst, const void *src, size_t n, unsigned flags);
void *__wrap_ato_memcpy_opt(void *dst, const void *src, size_t n, unsigned flags);

void *__wrap_ato_memcpy_opt(void *dst, const void *src, size_t n, unsigned flags)
{
    return write_fails(false) ? NULL : __real_ato_memcpy_opt(dst, src, n, flags);
}

int __real_ato_ftruncate(void *addr, off_t size);
int __wrap_ato_ftruncate(void *addr, off_t size);

int __wrap_ato_ftruncate(void *addr, off_t size)
{
    return write_fails(false) ? -1 : __real_ato_ftruncate(addr, size);
}

int __real_pending_write(struct pending *s, const void *from, int n, sqlite3_int64 offset);
int __wrap_pending_write(struct pending *s, const void *from, int n, sqlite3_int64 offset);

int __wrap_pending_write(struct pending *s, const void *from, int n, sqlite3_int64 offset)
{
    return write_fails(false) ? -1 : __real_pending_write(s, from, n, offset);
}

int __real_pending_read(struct pending *s, void *to, int n, sqlite3_int64 offset);
int __wrap_pending_read(struct pending *s, void *to, int n, sqlite3_int64 offset);

int __wrap_pending_read(struct pending *s, void *to, int n, sqlite3_int64 offset)
{
    return medium_fails(false) ? -1 : __real_pending_read(s, to, n, offset);
}

int __real_pending_resize(struct pending *s, sqlite3_int64 size);
int __wrap_pending_resize(struct pending *s, sqlite3_int64 size);

/* If the commit cannot cut the database, SQLite does it. */
int __wrap_pending_resize(struct pending *s, sqlite3_int64 size)
{
    return write_fails(size < s->size) ? -1 : __real_pending_resize(s, size);
}

int __real_pending_commit(struct pending *s, enum pending_commit when);
int __wrap_pending_commit(struct pending *s, enum pending_commit when);

int __wrap_pending_commit(struct pending *s, enum pending_commit when)
{
    return write_fails(false) ? -1 : __real_pending_commit(s, when);
}
