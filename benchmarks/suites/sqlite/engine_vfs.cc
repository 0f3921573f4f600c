/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine_vfs.h"

#include "../../bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

namespace sqlite
{

struct EngineVfs::File {
    sqlite3_file base;
    EngineVfs *vfs;
    int level;        /* SQLITE_LOCK_... */
    unsigned wait_ms; /* of its connection */
};

namespace
{

int nothing(sqlite3_file *)
{
    return SQLITE_OK;
}

} // namespace

/* ---- Files ---- */

const sqlite3_io_methods EngineVfs::METHODS = {
    1,
    nothing, /* xClose */
    read,
    write,
    [](sqlite3_file *file, sqlite3_int64 size) -> int {
        reinterpret_cast<File *>(file)->vfs->bytes_ = static_cast<uint64_t>(size);
        return SQLITE_OK;
    },
    [](sqlite3_file *file, int) -> int {
        reinterpret_cast<File *>(file)->vfs->engine_.sync();
        return SQLITE_OK;
    },
    [](sqlite3_file *file, sqlite3_int64 *size) -> int {
        *size = static_cast<sqlite3_int64>(reinterpret_cast<File *>(file)->vfs->bytes_.load());
        return SQLITE_OK;
    },
    lock,
    unlock,
    [](sqlite3_file *file, int *answer) -> int {
        EngineVfs *self = reinterpret_cast<File *>(file)->vfs;
        const std::lock_guard<std::mutex> hold(self->mutex_);
        *answer = self->reserved_ != nullptr;
        return SQLITE_OK;
    },
    [](sqlite3_file *, int, void *) -> int { return SQLITE_NOTFOUND; }, /* xFileControl */
    [](sqlite3_file *) -> int { return 512; },                          /* xSectorSize */
    nothing,                                                            /* xDeviceCharacteristics */
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

EngineVfs::EngineVfs(engine::Engine &engine, uint64_t room, const std::string &name)
    : vfs_(*sqlite3_vfs_find("unix")), name_(name), engine_(engine), room_(room)
{
    vfs_.zName = name_.c_str();
    vfs_.pAppData = this;
    vfs_.szOsFile = std::max(vfs_.szOsFile, static_cast<int>(sizeof(File)));
    vfs_.xOpen = open;
    /* There is never a journal or a write-ahead log beside the database: SQLite asks before each transaction. */
    vfs_.xAccess = [](sqlite3_vfs *, const char *, int, int *answer) -> int {
        *answer = 0;
        return SQLITE_OK;
    };
    if (sqlite3_vfs_register(&vfs_, 0) != SQLITE_OK)
        bench::fail("the VFS %s cannot be registered", name.c_str());
}

EngineVfs::~EngineVfs()
{
    sqlite3_vfs_unregister(&vfs_);
}

int EngineVfs::open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *out)
{
    if (!(flags & SQLITE_OPEN_MAIN_DB)) {
        sqlite3_vfs *own = sqlite3_vfs_find("unix");
        return own->xOpen(own, path, file, flags, out);
    }
    *reinterpret_cast<File *>(file) = {
        {&METHODS}, static_cast<EngineVfs *>(vfs->pAppData), SQLITE_LOCK_NONE, 0};
    if (out)
        *out = flags;
    return SQLITE_OK;
}

int EngineVfs::read(sqlite3_file *file, void *dst, int n, sqlite3_int64 offset)
{
    EngineVfs *self = reinterpret_cast<File *>(file)->vfs;
    const uint64_t bytes = self->bytes_, at = static_cast<uint64_t>(offset),
                   wanted = static_cast<uint64_t>(n),
                   there = at < bytes ? std::min(wanted, bytes - at) : 0;
    if (there)
        self->engine_.read(dst, at, there);
    if (there == wanted)
        return SQLITE_OK;
    std::memset(static_cast<char *>(dst) + there, 0, wanted - there);
    return SQLITE_IOERR_SHORT_READ;
}

int EngineVfs::write(sqlite3_file *file, const void *src, int n, sqlite3_int64 offset)
{
    EngineVfs *self = reinterpret_cast<File *>(file)->vfs;
    const uint64_t at = static_cast<uint64_t>(offset), end = at + static_cast<uint64_t>(n);
    if (end > self->room_)
        return SQLITE_FULL;
    self->engine_.write(at, src, static_cast<size_t>(n));
    if (end > self->bytes_)
        self->bytes_ = end;
    return SQLITE_OK;
}

void EngineVfs::fill(const std::string &file)
{
    std::ifstream in(file, std::ios::binary);
    std::vector<char> some(1 << 20);
    uint64_t at = 0;
    while (in.read(some.data(), static_cast<std::streamsize>(some.size())), in.gcount() > 0) {
        const auto n = static_cast<size_t>(in.gcount());
        if (at + n > room_)
            bench::fail("%s does not fit into %s", file.c_str(), name());
        engine_.write(at, some.data(), n);
        engine_.sync();
        at += n;
    }
    bytes_ = at;
}

/* ---- Locks ---- */

int EngineVfs::lock(sqlite3_file *file, int level)
{
    auto *f = reinterpret_cast<File *>(file);
    EngineVfs *self = f->vfs;
    if (f->level >= level)
        return SQLITE_OK;
    const std::lock_guard<std::mutex> hold(self->mutex_);
    if (level == SQLITE_LOCK_SHARED) {
        if (self->pending_)
            return SQLITE_BUSY;
        self->shared_++;
    } else {
        if (self->reserved_ && self->reserved_ != f)
            return SQLITE_BUSY;
        self->reserved_ = f;
        if (level == SQLITE_LOCK_EXCLUSIVE) {
            self->pending_ = true;
            f->level = SQLITE_LOCK_PENDING;
            if (self->shared_ > 1)
                return SQLITE_BUSY;
        }
    }
    f->level = level;
    return SQLITE_OK;
}

int EngineVfs::unlock(sqlite3_file *file, int level)
{
    auto *f = reinterpret_cast<File *>(file);
    EngineVfs *self = f->vfs;
    if (f->level <= level)
        return SQLITE_OK;
    bool wakes;
    {
        const std::lock_guard<std::mutex> hold(self->mutex_);
        if (self->reserved_ == f) {
            self->reserved_ = nullptr;
            self->pending_ = false;
        }
        if (level == SQLITE_LOCK_NONE)
            self->shared_--;
        f->level = level;
        wakes = self->waiting_ > 0;
    }
    if (wakes)
        self->unlocked_.notify_all();
    return SQLITE_OK;
}

/* SQLite's busy handler: returns 0 to give up. A connection that waits for RESERVED or SHARED has given up all it had. */
int EngineVfs::wait(void *file, int times)
{
    auto *f = static_cast<File *>(file);
    EngineVfs *self = f->vfs;
    std::unique_lock<std::mutex> hold(self->mutex_);
    self->waiting_++;
    self->unlocked_.wait_for(hold, std::chrono::milliseconds(1), [&] {
        return self->reserved_ == f ? self->shared_ == 1 : !self->reserved_;
    });
    self->waiting_--;
    return static_cast<unsigned>(times) < f->wait_ms;
}

void EngineVfs::wait_when_busy(sqlite3 *db, unsigned ms)
{
    File *file = nullptr;
    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK)
        bench::fail("a connection has no file");
    file->wait_ms = ms;
    sqlite3_busy_handler(db, wait, file);
}

} // namespace sqlite
