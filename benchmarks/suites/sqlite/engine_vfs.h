/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A database of SQLite in an engine, for journal_mode=OFF: a VFS whose reads and writes are those of the engine.
 *
 * SQLite writes the pages of a transaction when it commits, and then syncs, if its cache spills nothing before
 * (PRAGMA cache_spill=off) and synchronous is FULL. So a transaction is what the engine gets between two calls of sync(): with
 * Unit::sync, an engine that promises to be atomic does for SQLite what a journal does. What a transaction of SQLite's has
 * written cannot be undone in this mode: whoever uses it decides before the first change whether there will be one.
 *
 * The locks are SQLite's five levels, for threads of one process. The length of the file is kept here alone; SQLite's header
 * has it too, where a VFS that opens the database again would take it from.
 */
#ifndef ATO_BENCHMARKS_SUITES_SQLITE_ENGINE_VFS_H
#define ATO_BENCHMARKS_SUITES_SQLITE_ENGINE_VFS_H

#include "../../engines/engine.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <sqlite3.h>

namespace sqlite
{

class EngineVfs
{
  public:
    /* The database is at most `room` bytes long, then SQLITE_FULL. */
    EngineVfs(engine::Engine &engine, uint64_t room, const std::string &name);
    ~EngineVfs(); /* no connection is open */
    EngineVfs(const EngineVfs &) = delete;
    EngineVfs &operator=(const EngineVfs &) = delete;

    const char *name() const
    {
        return vfs_.zName;
    }

    /* The database becomes a copy of the one in that file. Nobody has it open. */
    void fill(const std::string &file);

    /* Has a connection wait for the others: up to `ms` milliseconds, as sqlite3_busy_timeout() does, but it wakes up when the
     * lock is free. */
    static void wait_when_busy(sqlite3 *db, unsigned ms);

  private:
    struct File;

    static const sqlite3_io_methods METHODS;
    static int open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *out);
    static int read(sqlite3_file *file, void *dst, int n, sqlite3_int64 offset);
    static int write(sqlite3_file *file, const void *src, int n, sqlite3_int64 offset);
    static int lock(sqlite3_file *file, int level);
    static int unlock(sqlite3_file *file, int level);
    static int wait(void *file, int times);

    sqlite3_vfs vfs_;
    std::string name_;
    engine::Engine &engine_;
    const uint64_t room_;
    std::atomic<uint64_t> bytes_{0};

    /* Under mutex_. The one with RESERVED may have PENDING, which lets no more readers in, or EXCLUSIVE, with which there are
     * none. */
    std::mutex mutex_;
    std::condition_variable unlocked_;
    unsigned shared_ = 0, waiting_ = 0;
    File *reserved_ = nullptr;
    bool pending_ = false;
};

} // namespace sqlite

#endif
