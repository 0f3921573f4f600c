/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sides of disk_bench, and what the disk did for them: files that are written through libato or by system calls, the floor, LMDB.
 */
#ifndef ATO_BENCHMARKS_DISK_SIDES_H
#define ATO_BENCHMARKS_DISK_SIDES_H

#include "measure.h"

#include <ato.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#ifdef WITH_LMDB
#include <lmdb.h>
#endif
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <vector>

namespace disk_sides
{

using bench::fail;
using bench::settings;

constexpr size_t PAGE = 4096, WRITE = 1024, PART = 256, PAGES = 32, MANY = 8;
constexpr uint64_t RING = 16 << 20;
constexpr size_t KEYS = 10000, VALUE = 100; /* of put/100 */

inline char source[WRITE];

/* ---- the disk ---- */

struct Disk {
    double kib = 0, flushes = 0;
};

/* Counters of the block device that the folder is on; zeros if it is on none. */
inline Disk disk()
{
    struct stat st;
    if (stat(bench::folder().c_str(), &st) != 0)
        fail("cannot stat %s: %s", bench::folder().c_str(), std::strerror(errno));
    std::ifstream in("/sys/dev/block/" + std::to_string(major(st.st_dev)) + ":" +
                     std::to_string(minor(st.st_dev)) + "/stat");
    std::vector<double> fields;
    for (double value; in >> value;)
        fields.push_back(value);
    Disk d;
    if (fields.size() >= 7)
        d.kib = fields[6] / 2; /* sectors of 512 bytes written */
    if (fields.size() >= 16)
        d.flushes = fields[15];
    return d;
}

inline int make_file(const char *name, uint64_t bytes)
{
    const std::string path = bench::folder() + "/" + name;
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const std::vector<char> zeros(1 << 20);
    for (uint64_t at = 0; fd >= 0 && at < bytes; at += zeros.size())
        if (pwrite(fd, zeros.data(), zeros.size(), static_cast<off_t>(at)) < 0)
            fail("cannot write %s: %s", path.c_str(), std::strerror(errno));
    if (fd < 0 || fsync(fd) != 0)
        fail("cannot make %s: %s", path.c_str(), std::strerror(errno));
    return fd;
}

/* ---- the floor ---- */

class Floor
{
  public:
    Floor() : fd_(make_file("floor", RING))
    {
    }

    ~Floor()
    {
        close(fd_);
    }

    Floor(const Floor &) = delete;
    Floor &operator=(const Floor &) = delete;

    void commit(size_t bytes)
    {
        static const std::vector<char> from(1 << 16, 'x');
        if (at_ + bytes > RING)
            at_ = 0;
        if (pwrite(fd_, from.data(), bytes, static_cast<off_t>(at_)) < 0 || fdatasync(fd_) != 0)
            fail("the floor: %s", std::strerror(errno));
        at_ += bytes;
    }

  private:
    int fd_;
    uint64_t at_ = 0;
};

/* ---- libato ---- */

class File
{
  public:
    explicit File(const char *name) : fd_(make_file(name, settings.file_bytes()))
    {
    }

    ~File()
    {
        if (base_)
            unmap();
        close(fd_);
    }

    File(const File &) = delete;
    File &operator=(const File &) = delete;

    void map()
    {
        ato_options o{};
        o.struct_size = sizeof(o);
        o.domain = ATO_DOMAIN_DISK;
        void *at = ato_mmap_opt(settings.file_bytes(), fd_, 0, &o);
        if (at == MAP_FAILED)
            fail("ato_mmap: %s", ato_errormsg());
        base_ = static_cast<char *>(at);
    }

    void unmap()
    {
        if (ato_munmap(base_, settings.file_bytes(), ATO_UNMAP_FAST) != 0)
            fail("ato_munmap: %s", ato_errormsg());
    }

    char *at(uint64_t offset) const
    {
        return base_ + offset;
    }

    uint64_t log_bytes() const
    {
        struct stat st;
        return stat(log().c_str(), &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
    }

    void drop_from_memory() const
    {
        const int log_fd = open(log().c_str(), O_RDONLY | O_CLOEXEC);
        for (const int fd : {fd_, log_fd})
            if (fd < 0 || fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
                fail("cannot drop a file from memory: %s", std::strerror(errno));
        close(log_fd);
    }

    /* `n` writes to pages whose number, modulo MANY, is `lane`. */
    void write(size_t n, size_t lane, std::minstd_rand &random) const
    {
        const uint64_t groups = settings.file_bytes() / PAGE / MANY;
        for (size_t i = 0; i < n; i++) {
            const uint64_t page = random() % groups * MANY + lane;
            if (!ato_memcpy(base_ + page * PAGE + random() % 4 * WRITE, source, WRITE))
                fail("ato_memcpy: %s", ato_errormsg());
        }
    }

    void write_relaxed(uint64_t offset) const
    {
        if (!ato_memcpy_opt(base_ + offset, source, WRITE, ATO_RELAXED))
            fail("ato_memcpy_opt: %s", ato_errormsg());
    }

    void sync() const
    {
        if (ato_msync(base_, settings.file_bytes(), MS_SYNC) != 0)
            fail("ato_msync: %s", ato_errormsg());
    }

    /* By plain system calls: not while the file is mapped. */
    void write_plain(uint64_t offset) const
    {
        if (pwrite(fd_, source, WRITE, static_cast<off_t>(offset)) < 0)
            fail("pwrite: %s", std::strerror(errno));
    }

    void sync_plain() const
    {
        if (fdatasync(fd_) != 0)
            fail("fdatasync: %s", std::strerror(errno));
    }

    void transact(size_t n, std::minstd_rand &random) const
    {
        for (size_t i = 0; i < n; i++) {
            ato_tx *tx = ato_tx_begin(0);
            for (size_t k = 0; tx && k < PAGES; k++) {
                char *const to = base_ + random() % (settings.file_bytes() / PAGE) * PAGE;
                if (!ato_tx_memcpy(tx, to, source, PART, 0))
                    fail("ato_tx_memcpy: %s", ato_errormsg());
            }
            if (!tx || ato_tx_commit(tx) != 0)
                fail("ato_tx_commit: %s", ato_errormsg());
        }
    }

  private:
    std::string log() const
    {
        struct stat st;
        if (fstat(fd_, &st) != 0)
            fail("cannot stat a file: %s", std::strerror(errno));
        return bench::folder() + "/.ato/" + std::to_string(st.st_ino);
    }

    int fd_;
    char *base_ = nullptr;
};

/* ---- LMDB ---- */

#ifdef WITH_LMDB
class Lmdb
{
  public:
    Lmdb()
    {
        const std::string path = bench::folder() + "/lmdb";
        must(mdb_env_create(&env_));
        must(mdb_env_set_mapsize(env_, 1ull << 30));
        must(mdb_env_open(env_, path.c_str(), MDB_NOSUBDIR, 0600));
        MDB_txn *t;
        must(mdb_txn_begin(env_, nullptr, 0, &t));
        must(mdb_dbi_open(t, nullptr, 0, &dbi_));
        for (uint64_t key = 0; key < KEYS; key++)
            put(t, key);
        must(mdb_txn_commit(t));
    }

    void commit(size_t n, std::minstd_rand &random)
    {
        while (n--) {
            MDB_txn *t;
            must(mdb_txn_begin(env_, nullptr, 0, &t));
            put(t, random() % KEYS);
            must(mdb_txn_commit(t));
        }
    }

  private:
    static void must(int r)
    {
        if (r)
            fail("LMDB: %s", mdb_strerror(r));
    }
    void put(MDB_txn *t, uint64_t key)
    {
        key *= 11400714819323198485u;
        MDB_val k = {sizeof(key), &key}, v = {VALUE, source};
        must(mdb_put(t, dbi_, &k, &v, 0));
    }

    MDB_env *env_ = nullptr;
    MDB_dbi dbi_ = 0;
};
#endif

} // namespace disk_sides

#endif
